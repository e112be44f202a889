package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
)

const bulkHelp = `The first line of the file names the columns, in any order:

  list map    key, shard, status
  range map   low, high, shard, status

status may be left out: online. An empty low is the smallest key, an empty high is open.
Either all mappings are added, or none. Every bad line is named in one go (the first hundred of
them), overlaps with mappings that are there included.`

func mappingAddBulk(a *app) *cobra.Command {
	var f changeFlags
	c := &cobra.Command{
		Use: "add-bulk FILE.csv --map MAP", Short: "Add the mappings of a CSV file, all or none; - is the standard input", Args: arguments("FILE.csv"),
		Long:              bulkHelp,
		Example:           example("shardway mapping add-bulk customers.csv --map customers --dry-run", "generate | shardway mapping add-bulk - --map customers"),
		ValidArgsFunction: cobra.FixedCompletions([]string{"csv"}, cobra.ShellCompDirectiveFilterFileExt),
	}
	mapFlag(c)
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		shards, err := s.Shards(ctx, m)
		if err != nil {
			return err
		}
		name, in := "standard input", s.in
		if args[0] != "-" {
			file, err := os.Open(args[0])
			if err != nil {
				return usagef("reading mappings: %w", err)
			}
			defer file.Close()
			name, in = args[0], file
		}
		b := &bulk{m: m, shards: shards, name: name}
		bad := b.read(newInput(ctx, in))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(bad) > 0 {
			return judgeLines(append(bad, s.taken(ctx, b)...))
		}
		err = s.change(ctx, f, catalog.AddMappings{Map: m, New: b.mappings(), Reason: f.reason})
		if errors.Is(err, shardway.ErrExists) {
			if bad := s.taken(ctx, b); len(bad) > 0 {
				err = judgeLines(bad)
			}
		}
		return err
	})
}

// bulk is a file of mappings.
type bulk struct {
	m      shardway.ShardMap
	shards []shardway.Shard
	name   string // of the file
	lines  []bulkLine
}

type bulkLine struct {
	number  int
	mapping catalog.NewMapping
}

func (b *bulk) mappings() []catalog.NewMapping {
	all := make([]catalog.NewMapping, len(b.lines))
	for i, l := range b.lines {
		all[i] = l.mapping
	}
	return all
}

// read reads all lines and returns what is wrong with the bad ones.
func (b *bulk) read(in io.Reader) []badLine {
	buffered := bufio.NewReader(in)
	if mark, _ := buffered.Peek(3); string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3)
	}
	r := csv.NewReader(buffered)
	r.FieldsPerRecord = -1 // counted here
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		return b.bad(1, errors.New("the file is empty: the first line names the columns"))
	}
	if err != nil {
		return b.unreadable(err)
	}
	columns, err := b.columns(header)
	if err != nil {
		return b.bad(1, err)
	}
	var bad []badLine
	for {
		record, err := r.Read()
		var syntax *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			if len(bad) == 0 && len(b.lines) == 0 {
				return b.bad(1, errors.New("no line follows the names of the columns"))
			}
			return append(bad, b.overlaps()...)
		case errors.As(err, &syntax):
			bad = append(bad, b.unreadable(err)...)
			continue
		case err != nil:
			return append(bad, b.unreadable(err)...)
		}
		number, _ := r.FieldPos(0)
		if len(record) != len(header) {
			bad = append(bad, b.bad(number, fmt.Errorf("has %s, the first line names %s", count(len(record), "field"), count(len(header), "column")))...)
			continue
		}
		n, err := b.mapping(columns, record)
		if !n.Range.Low.IsZero() { // good enough to look for overlaps
			b.lines = append(b.lines, bulkLine{number, n})
		}
		if err != nil {
			bad = append(bad, b.bad(number, err)...)
		}
	}
}

// bad is what is wrong with one line: bad input, unless the cause says otherwise.
func (b *bulk) bad(number int, err error) []badLine {
	known := slices.ContainsFunc(verdicts, func(v verdict) bool { return errors.Is(err, v.err) })
	err = fmt.Errorf("%s, line %d: %w", b.name, number, err)
	if !known {
		err = &usageError{err}
	}
	return []badLine{{number, err}}
}

// unreadable is what is wrong with lines that are not CSV.
func (b *bulk) unreadable(err error) []badLine {
	var p *csv.ParseError
	switch {
	case !errors.As(err, &p):
		return []badLine{{math.MaxInt, usagef("reading mappings: %s: %w", b.name, cause(err))}}
	case p.Line > p.StartLine:
		return b.bad(p.StartLine, fmt.Errorf("a quote is not closed, so that lines up to %d were not read: %w", p.Line, p.Err))
	}
	return b.bad(p.Line, p.Err)
}

// columns returns the index of each column by name.
func (b *bulk) columns(header []string) (map[string]int, error) {
	needed := []string{"low", "high", "shard"}
	if b.m.Kind == shardway.ListMap {
		needed = []string{"key", "shard"}
	}
	at := map[string]int{}
	for i, name := range header {
		if _, twice := at[name]; twice {
			return nil, fmt.Errorf("column %q stands twice", name)
		}
		if !slices.Contains(append(needed, "status"), name) {
			return nil, fmt.Errorf("unknown column %q: %s map %q has %v and may have status", name, b.m.Kind, b.m.Name, needed)
		}
		at[name] = i
	}
	for _, name := range needed {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("column %q is missing: %s map %q has %v and may have status", name, b.m.Kind, b.m.Name, needed)
		}
	}
	return at, nil
}

func (b *bulk) mapping(columns map[string]int, record []string) (n catalog.NewMapping, err error) {
	field := func(name string) string {
		if i, ok := columns[name]; ok {
			return record[i]
		}
		return ""
	}
	r, err := b.covers(field)
	if err != nil {
		return n, err
	}
	n.Range = r
	if field("shard") == "" {
		return n, &shardway.ArgumentError{Argument: "shard", Reason: "is empty"}
	}
	i := slices.IndexFunc(b.shards, func(s shardway.Shard) bool { return s.Name == field("shard") })
	if i < 0 {
		return n, &shardway.LookupError{Map: b.m.Name, Shard: field("shard"), Err: shardway.ErrShardNotFound}
	}
	if b.shards[i].Status == shardway.ShardOffline {
		return n, &stateError{&shardway.ArgumentError{Argument: "shard", Value: field("shard"), Reason: "is offline: it takes no new mappings"}}
	}
	n.ShardID = b.shards[i].ID
	st, err := parseMappingStatus(cmp.Or(field("status"), "online"))
	n.Offline = st == shardway.Offline
	return n, err
}

func (b *bulk) covers(field func(string) string) (r shardway.Range, err error) {
	if b.m.Kind == shardway.ListMap {
		key, err := parseKey(b.m, "key", field("key"))
		return shardway.RangeFrom(key), err
	}
	r = shardway.FullRange(b.m.KeyKind)
	if text := field("low"); text != "" {
		if r.Low, err = parseKey(b.m, "low", text); err != nil {
			return r, err
		}
	}
	if text := field("high"); text != "" {
		if r.High, err = parseKey(b.m, "high", text); err != nil {
			return r, err
		}
	}
	return r, r.Validate()
}

func (b *bulk) format(r shardway.Range) string { return shardway.Mapping{Range: r}.Format(b.m.Kind) }

func (b *bulk) clash(x, y shardway.Range) bool {
	if b.m.Kind == shardway.ListMap {
		return x.Low == y.Low
	}
	return x.Intersects(y)
}
