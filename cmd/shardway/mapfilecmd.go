package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mapfile"
	"github.com/shardway/shardway/store"
)

// exportView is the JSON form of an export into a file.
type exportView struct {
	File     string `json:"file"`
	Maps     int    `json:"maps"`
	Shards   int    `json:"shards"`
	Mappings int    `json:"mappings"`
}

func viewExport(name string, f mapfile.File) exportView {
	v := exportView{File: name, Maps: len(f.Maps)}
	for _, m := range f.Maps {
		v.Shards += len(m.Shards)
		v.Mappings += len(m.Mappings)
	}
	return v
}

func (v exportView) String() string {
	return fmt.Sprintf("%s, %s, %s", count(v.Maps, "shard map"), count(v.Shards, "shard"), count(v.Mappings, "mapping"))
}

func exportCommand(a *app) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "export [MAP]", Short: "Write all shard maps, or one, as a file that can be kept, compared and applied", Args: arguments("[MAP]"),
		Long:    "The file is JSON with one line for each shard and mapping, in the order of names and keys: the\nsame maps always give the same text. It is read in one consistent state of the store. It holds\nno ids, history, pending operations or secrets. docs/mapfile.md describes it.",
		Example: example("shardway export --out maps.json", "shardway export customers"),
	}
	c.Flags().StringVar(&out, "out", "", "file to write, in place of the standard output; an older one is replaced when all is read")
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		f, err := s.live(ctx, args...)
		if err != nil {
			return err
		}
		var body bytes.Buffer
		if err := mapfile.Write(&body, f); err != nil {
			return err
		}
		if out == "" {
			s.emitted = true
			if _, err := s.out.Write(body.Bytes()); err != nil {
				return fmt.Errorf("writing result: %w", err)
			}
			return nil
		}
		if err := writeText("shard maps", out, body.Bytes(), 0o644); err != nil {
			return err
		}
		v := viewExport(out, f)
		return s.emit(v, func(p *page) { p.line("exported %s to %s", v, out) })
	})
}

// live reads the shard maps of the store, or those named, in one state. What is
// pending is as routers see it.
func (s *session) live(ctx context.Context, names ...string) (f mapfile.File, err error) {
	now, err := s.global.Now(ctx)
	if err != nil {
		return f, err
	}
	bar := newProgress(s.errs, "reading mappings", 0)
	defer bar.end()
	pending := 0
	err = s.global.View(ctx, func(tx store.Reader) error {
		f = mapfile.File{}
		maps, err := tx.ShardMaps(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !slices.ContainsFunc(maps, func(m shardway.ShardMap) bool { return m.Name == name }) {
				return &shardway.LookupError{Map: name, Err: shardway.ErrMapNotFound}
			}
		}
		for _, m := range maps {
			if len(names) > 0 && !slices.Contains(names, m.Name) {
				continue
			}
			one, err := liveMap(ctx, tx, m, now, bar)
			if err != nil {
				return fmt.Errorf("reading shard map %q: %w", m.Name, err)
			}
			f.Maps = append(f.Maps, one)
		}
		ops, err := tx.Operations(ctx, store.OperationQuery{})
		pending = len(ops)
		return err
	})
	if err == nil && pending > 0 {
		fmt.Fprintf(s.errs, "note: %s pending: the maps are as before them\n", count(pending, "operation"))
	}
	return f, err
}

func liveMap(ctx context.Context, tx store.Reader, m shardway.ShardMap, now time.Time, bar *progress) (mapfile.Map, error) {
	one := mapfile.Map{Name: m.Name, Kind: m.Kind, KeyKind: m.KeyKind}
	shards, err := tx.Shards(ctx, m.ID)
	if err != nil {
		return one, err
	}
	names := map[shardway.ShardID]string{}
	for _, sh := range shards {
		names[sh.ID] = sh.Name
		if !sh.Pending {
			one.Shards = append(one.Shards, mapfile.Shard{Name: sh.Name, Status: sh.Status, Location: sh.Location})
		}
	}
	for row, err := range tx.Mappings(ctx, store.MappingQuery{Map: m}) {
		if err != nil {
			return one, err
		}
		if row.Pending {
			continue
		}
		mp := mapfile.Mapping{Range: row.Range, Shard: names[row.ShardID], Status: row.Status}
		if mp.Shard == "" {
			return one, fmt.Errorf("mapping %s is on a shard that is not there: the store is damaged", row.Format(m.Kind))
		}
		if row.Lock.Held(now) {
			mp.Lock = &mapfile.Lock{Owner: row.Lock.Owner, Reason: row.Lock.Reason, Expires: row.Lock.Expires}
		}
		one.Mappings = append(one.Mappings, mp)
		bar.step()
	}
	return one, nil
}

// readMaps reads a file of shard maps; - is the standard input. Locations get
// their canonical spelling.
func (a *app) readMaps(ctx context.Context, name string, normalize func(shardway.Location) (shardway.Location, error)) (mapfile.File, error) {
	shown, in := name, io.Reader(nil)
	if name == "-" {
		all := newInput(ctx, a.in)
		all.long = true // a tool may have put the whole on one
		shown, in = "standard input", &textReader{in: all, left: maxText}
	} else {
		text, err := readText("shard maps", name, maxText)
		if err != nil {
			return mapfile.File{}, err
		}
		in = bytes.NewReader(text)
	}
	f, err := mapfile.Read(in, shown)
	if err != nil && ctx.Err() == nil && !errors.Is(err, shardway.ErrInvalid) { // it could not be read to its end
		err = &usageError{err}
	}
	if err != nil {
		return f, err
	}
	for _, m := range f.Maps {
		for i := range m.Shards {
			if m.Shards[i].Location, err = normalize(m.Shards[i].Location); err != nil {
				return f, usagef("%s, shard %q of shard map %q: %w", shown, m.Shards[i].Name, m.Name, err)
			}
		}
	}
	return f, nil
}

// errDifferent is what diff found.
var errDifferent = errors.New("different")

// differenceView is the JSON form of one difference.
type differenceView struct {
	Map    string `json:"map"`
	Object string `json:"object"`         // shard map, shard or mapping
	Name   string `json:"name,omitempty"` // of the shard; what the mapping covers
	Old    string `json:"old,omitempty"`  // absent: only in the second
	New    string `json:"new,omitempty"`  // absent: only in the first
}

func diffCommand(a *app) *cobra.Command {
	var locks bool
	c := &cobra.Command{
		Use: "diff A B", Short: "Compare shard maps: files, or the store under the name live", Args: arguments("A", "B"),
		Long:    "The exit code is 0 when both are equal and 1 when they differ. Lines that begin with - are in A\nalone, those with + in B alone. Who has locked a mapping is compared with --locks alone.\n--map, given as a flag, leaves other maps out.",
		Example: example("shardway diff maps.json live", "shardway diff yesterday.json today.json --map customers"),
	}
	mapFlag(c)
	c.Flags().BoolVar(&locks, "locks", false, "compare locks too")
	return a.does(c, func(ctx context.Context, args []string) error {
		only := "" // never a setting: "equal" would be said of maps that nobody has compared
		if c.Flags().Changed("map") {
			only = a.set.text("map")
		}
		var sides [2]mapfile.File
		for i, name := range args {
			f, err := a.side(ctx, name)
			if err != nil {
				return err
			}
			if !locks {
				f = f.WithoutLocks()
			}
			if only != "" {
				f.Maps = slices.DeleteFunc(f.Maps, func(m mapfile.Map) bool { return m.Name != only })
			}
			sides[i] = f
		}
		if only != "" && len(sides[0].Maps)+len(sides[1].Maps) == 0 {
			return &shardway.LookupError{Map: only, Err: shardway.ErrMapNotFound}
		}
		return a.differ(args, mapfile.Diff(sides[0], sides[1]))
	})
}

// side reads one of the two that diff compares.
func (a *app) side(ctx context.Context, name string) (f mapfile.File, err error) {
	if name == "live" {
		s, err := a.open()
		if err != nil {
			return f, err
		}
		f, err = s.live(ctx)
		return f, errors.Join(err, s.close())
	}
	speak, _, err := a.set.shards(address{})
	if err != nil {
		return f, err
	}
	locals, err := newLocalStores(&a.set, speak, shardway.Credentials{})
	if err != nil {
		return f, err
	}
	return a.readMaps(ctx, name, locals.Normalize)
}

func (a *app) differ(names []string, all []mapfile.Difference) error {
	views := []differenceView{}
	for _, d := range all {
		views = append(views, differenceView(d))
	}
	err := a.emit(views, func(p *page) {
		if len(all) == 0 {
			p.line("%s and %s are equal", names[0], names[1])
		}
		for _, d := range all {
			what := fmt.Sprintf("%s, %s %s", d.Map, d.Object, d.Name)
			if d.Name == "" {
				what = fmt.Sprintf("%s, %s", d.Map, d.Object)
			}
			if d.Old != "" {
				p.line("- %s: %s", what, d.Old)
			}
			if d.New != "" {
				p.line("+ %s: %s", what, d.New)
			}
		}
	})
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("%s and %s are %w: %s", names[0], names[1], errDifferent, count(len(all), "difference"))
	}
	return err
}
