package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

const bulkHelp = `The first line of the file names the columns, in any order:

  list map    key, shard, status
  range map   low, high, shard, status

status may be left out: online. An empty low is the smallest key, an empty high is open.
Either all mappings are added, or none: every bad line is named.`

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
				return fmt.Errorf("reading mappings: %w", err)
			}
			defer file.Close()
			name, in = args[0], file
		}
		b := &bulk{m: m, shards: shards, name: name}
		if err := b.read(in); err != nil {
			return err
		}
		err = s.change(ctx, f, catalog.AddMappings{Map: m, New: b.mappings(), Reason: f.reason})
		if errors.Is(err, shardway.ErrExists) {
			err = s.whichLine(ctx, b, err)
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

// read reads all lines and reports the bad ones, the first ten of them.
func (b *bulk) read(in io.Reader) error {
	buffered := bufio.NewReader(in)
	if mark, _ := buffered.Peek(3); string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3)
	}
	r := csv.NewReader(buffered)
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
	const most = 10
	var errs []error
	for len(errs) < most {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			errs = append(errs, b.unreadable(err))
			break
		}
		number, _ := r.FieldPos(0)
		n, err := b.mapping(columns, record)
		if err != nil {
			errs = append(errs, b.bad(number, err))
			continue
		}
		b.lines = append(b.lines, bulkLine{number, n})
	}
	if len(errs) == 0 && len(b.lines) == 0 {
		return b.bad(1, errors.New("no line follows the names of the columns"))
	}
	return errors.Join(append(errs, b.overlaps()...)...)
}

// bad is the error for one line. It is bad input, unless the cause says otherwise.
func (b *bulk) bad(number int, err error) error {
	for _, v := range verdicts {
		if errors.Is(err, v.err) {
			return fmt.Errorf("%s, line %d: %w", b.name, number, err)
		}
	}
	return &usageError{fmt.Errorf("%s, line %d: %w", b.name, number, err)}
}

func (b *bulk) unreadable(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return b.bad(p.Line, p.Err)
	}
	return fmt.Errorf("reading %s: %w", b.name, err)
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
	if n.Range, err = b.covers(field); err != nil {
		return n, err
	}
	i := slices.IndexFunc(b.shards, func(s shardway.Shard) bool { return s.Name == field("shard") })
	if i < 0 {
		return n, &shardway.LookupError{Map: b.m.Name, Shard: field("shard"), Err: shardway.ErrShardNotFound}
	}
	if b.shards[i].Status == shardway.ShardOffline {
		return n, &shardway.ArgumentError{Argument: "shard", Value: field("shard"), Reason: "is offline: it takes no new mappings"}
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

// overlaps reports the lines that overlap an earlier key's line, the first of them.
func (b *bulk) overlaps() []error {
	sorted := slices.Clone(b.lines)
	slices.SortStableFunc(sorted, func(x, y bulkLine) int { return x.mapping.Range.Low.Compare(y.mapping.Range.Low) })
	for i := 1; i < len(sorted); i++ {
		x, y := sorted[i-1], sorted[i]
		if b.clash(x.mapping.Range, y.mapping.Range) {
			return []error{fmt.Errorf("%s, line %d: %s overlaps %s of line %d: %w", b.name, max(x.number, y.number),
				b.format(y.mapping.Range), b.format(x.mapping.Range), min(x.number, y.number), shardway.ErrExists)}
		}
	}
	return nil
}

func (b *bulk) format(r shardway.Range) string { return shardway.Mapping{Range: r}.Format(b.m.Kind) }

func (b *bulk) clash(x, y shardway.Range) bool {
	if b.m.Kind == shardway.ListMap {
		return x.Low == y.Low
	}
	return x.Intersects(y)
}

// whichLine adds to the error that a mapping is taken already the line that
// wants it. It returns the error as it is when it cannot tell any more.
func (s *session) whichLine(ctx context.Context, b *bulk, cause error) error {
	sorted := slices.Clone(b.lines)
	slices.SortFunc(sorted, func(x, y bulkLine) int { return x.mapping.Range.Low.Compare(y.mapping.Range.Low) })
	for mp, err := range s.Mappings(ctx, store.MappingQuery{Map: b.m, Within: shardway.RangeFrom(sorted[0].mapping.Range.Low)}) {
		if err != nil {
			break
		}
		// The last line that begins at or before the mapping, and the next one.
		at, _ := slices.BinarySearchFunc(sorted, mp.Range.Low, func(l bulkLine, low shardway.Key) int { return l.mapping.Range.Low.Compare(low) })
		for _, l := range sorted[max(at-1, 0):min(at+1, len(sorted))] {
			if b.clash(l.mapping.Range, mp.Range) {
				return fmt.Errorf("%s, line %d: %w", b.name, l.number, cause)
			}
		}
	}
	return cause
}
