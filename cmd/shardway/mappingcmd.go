package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

func mappingCommand(a *app) *cobra.Command {
	return group("mapping", "Add, list, split, merge, move, lock and delete mappings",
		"A mapping gives one key (list map) or one range of keys [low, high) (range map) to a shard.\n"+
			"Commands that change a mapping take it by a key it holds (--key), or by its id (--id): every\n"+
			"change gives a mapping a new id, so that an id read earlier is refused once it is stale.\n"+
			"Keys of kind time are UTC: 2026-01-31, 2026-01-31T12:00:00Z; bytes are hex: 0x00ff.",
		mappingAdd(a), mappingAddBulk(a), mappingEven(a), mappingList(a), mappingGet(a),
		mappingSplit(a), mappingMerge(a), mappingMove(a), mappingStatus(a, shardway.Offline), mappingStatus(a, shardway.Online),
		mappingLock(a), mappingUnlock(a), mappingDelete(a))
}

// pick names one mapping on a command line.
type pick struct{ key, id string }

// add adds the flags, with a prefix when a command takes two mappings.
func (k *pick) add(c *cobra.Command, keyFlag, idFlag, which string) {
	c.Flags().StringVar(&k.key, keyFlag, "", "a key that the "+which+" holds")
	c.Flags().StringVar(&k.id, idFlag, "", "id of the "+which+"; refused when it has changed since")
	c.MarkFlagsMutuallyExclusive(keyFlag, idFlag)
}

func (k *pick) addRequired(c *cobra.Command) {
	k.add(c, "key", "id", "mapping")
	c.MarkFlagsOneRequired("key", "id")
}

// find reads the mapping.
func (k *pick) find(ctx context.Context, s *session, m shardway.ShardMap) (shardway.Mapping, error) {
	if k.id == "" {
		return s.holding(ctx, m, k.key)
	}
	id, err := shardway.ParseMappingID(k.id)
	if err != nil {
		return shardway.Mapping{}, err
	}
	return s.mapping(ctx, m, id)
}

// mapping reads the mapping with an id, its lock included.
func (s *session) mapping(ctx context.Context, m shardway.ShardMap, id shardway.MappingID) (shardway.Mapping, error) {
	for mp, err := range s.Mappings(ctx, store.MappingQuery{Map: m, IDs: []shardway.MappingID{id}}) {
		return mp, err
	}
	return shardway.Mapping{}, &shardway.LookupError{Map: m.Name, Err: &staleIDError{id}}
}

// staleIDError is an id that no mapping has any more.
type staleIDError struct{ id shardway.MappingID }

func (e *staleIDError) Error() string {
	return "no mapping has the id " + e.id.String() + " (any more): " + shardway.ErrStale.Error()
}
func (e *staleIDError) Is(target error) bool { return target == shardway.ErrStale }

// holding returns the mapping that holds a key typed by a person.
func (s *session) holding(ctx context.Context, m shardway.ShardMap, text string) (shardway.Mapping, error) {
	key, err := parseKey(m, "key", text)
	if err != nil {
		return shardway.Mapping{}, err
	}
	mp, err := s.MappingForKey(ctx, m, key)
	return mp, emptyKey(key, err)
}

// emptyKey names the empty text among what an error says: elsewhere it is left
// out like all that is not known.
func emptyKey(key shardway.Key, err error) error {
	if err == nil || key.String() != "" {
		return err
	}
	return fmt.Errorf("key \"\": %w", err)
}

// parseKey reads a key of the map's kind. argument is what errors call it.
func parseKey(m shardway.ShardMap, argument, text string) (shardway.Key, error) {
	k, err := shardway.ParseKey(m.KeyKind, text)
	if err != nil {
		return k, &keyError{argument: argument, m: m, err: err}
	}
	return k, nil
}

// keyError says where a key that cannot be read was given.
type keyError struct {
	argument string
	m        shardway.ShardMap
	err      error
}

func (e *keyError) Error() string {
	return e.argument + " for shard map \"" + e.m.Name + "\": " + e.err.Error()
}
func (e *keyError) Unwrap() error { return e.err }

// bounds are the ends of a range on a command line.
type bounds struct{ low, high string }

func (b *bounds) add(c *cobra.Command) {
	c.Flags().StringVar(&b.low, "low", "", "first key of the range (default the smallest key)")
	c.Flags().StringVar(&b.high, "high", "", "first key after the range (default open: all greater keys)")
}

// parse reads the range. An end that was not given is the smallest key, or open.
func (b *bounds) parse(c *cobra.Command, m shardway.ShardMap) (shardway.Range, error) {
	r := shardway.FullRange(m.KeyKind)
	var err error
	if c.Flags().Changed("low") {
		if r.Low, err = parseKey(m, "low", b.low); err != nil {
			return r, err
		}
	}
	if c.Flags().Changed("high") {
		if r.High, err = parseKey(m, "high", b.high); err != nil {
			return r, err
		}
	}
	return r, r.Validate()
}

func mappingAdd(a *app) *cobra.Command {
	var f changeFlags
	var b bounds
	var shard string
	var offline bool
	c := &cobra.Command{
		Use: "add [KEY] --map MAP --shard SHARD", Short: "Give a key or a range of keys to a shard", Args: arguments("[KEY]"),
		Long: "In a list map, give the KEY. In a range map, give --low, --high or both: without --low the range\nbegins with the smallest key, without --high it has no upper end.",
		Example: example("shardway mapping add 42 --map tenants --shard s1",
			"shardway mapping add --low 0 --high 1000 --map customers --shard s1",
			"shardway mapping add --low 1000 --map customers --shard s2 --offline",
			"shardway mapping add --map tenants --shard s1 -- -7"),
	}
	mapFlag(c)
	b.add(c)
	c.Flags().StringVar(&shard, "shard", "", "name of the shard")
	c.Flags().BoolVar(&offline, "offline", false, "add it offline")
	required(c, "shard")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		r, err := newRange(c, m, &b, args)
		if err != nil {
			return err
		}
		sh, err := s.Shard(ctx, m, shard)
		if err != nil {
			return err
		}
		n := catalog.NewMapping{Range: r, ShardID: sh.ID, Offline: offline}
		return s.change(ctx, f, catalog.AddMappings{Map: m, New: []catalog.NewMapping{n}, Reason: f.reason})
	})
}

// newRange reads what a new mapping covers: KEY in a list map, ends in a range map.
func newRange(c *cobra.Command, m shardway.ShardMap, b *bounds, args []string) (shardway.Range, error) {
	ends := c.Flags().Changed("low") || c.Flags().Changed("high")
	switch {
	case m.Kind == shardway.RangeMap && len(args) > 0:
		return shardway.Range{}, usagef("shard map %q is a range map: give --low, --high or both instead of the key %q", m.Name, args[0])
	case m.Kind == shardway.RangeMap:
		return b.parse(c, m)
	case ends:
		return shardway.Range{}, usagef("shard map %q is a list map: give one key instead of --low and --high", m.Name)
	case len(args) == 0:
		return shardway.Range{}, usagef("shard map %q is a list map: KEY is missing", m.Name)
	}
	key, err := parseKey(m, "key", args[0])
	return shardway.RangeFrom(key), err
}

func mappingList(a *app) *cobra.Command {
	var b bounds
	var shard, status string
	var limit int
	c := &cobra.Command{
		Use: "list --map MAP", Short: "List mappings, by shard, range or status", Args: arguments(),
		Example: example("shardway mapping list --map customers", "shardway mapping list --map customers --shard s1 --status offline",
			"shardway mapping list --map customers --low 100 --high 200 --output json"),
	}
	mapFlag(c)
	b.add(c)
	c.Flags().StringVar(&shard, "shard", "", "of this shard alone")
	c.Flags().StringVar(&status, "status", "", "online or offline")
	c.Flags().IntVar(&limit, "limit", 0, "at most so many (default all)")
	complete(c, "status", "online", "offline")
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		if limit < 0 {
			return usagef("--limit %d is negative", limit)
		}
		q := store.MappingQuery{Map: m, Limit: limit}
		if q.Within, err = b.parse(c, m); err != nil {
			return err
		}
		if status != "" {
			st, err := parseMappingStatus(status)
			if err != nil {
				return err
			}
			q.Status = &st
		}
		if shard != "" {
			sh, err := s.Shard(ctx, m, shard)
			if err != nil {
				return err
			}
			q.ShardID = sh.ID
		}
		return s.showMappings(ctx, m, q)
	})
}

func (s *session) showMappings(ctx context.Context, m shardway.ShardMap, q store.MappingQuery) error {
	var found []shardway.Mapping
	for mp, err := range s.Mappings(ctx, q) {
		if err != nil {
			return err
		}
		found = append(found, mp)
	}
	views := s.viewMappings(ctx, m, found)
	if views == nil {
		views = []mappingView{}
	}
	return s.emit(views, func(p *page) { p.mappings(m, views) })
}

func parseMappingStatus(text string) (shardway.MappingStatus, error) {
	for _, st := range []shardway.MappingStatus{shardway.Online, shardway.Offline} {
		if st.String() == text {
			return st, nil
		}
	}
	return 0, &shardway.ArgumentError{Argument: "status", Value: text, Reason: "is neither online nor offline"}
}

func mappingGet(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "get KEY --map MAP", Short: "Show the mapping that holds a key", Args: arguments("KEY"),
		Example: example("shardway mapping get 42 --map customers", "shardway mapping get --map customers -- -7"),
	}
	mapFlag(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		mp, err := s.holding(ctx, m, args[0])
		if err != nil {
			return err
		}
		views := s.viewMappings(ctx, m, []shardway.Mapping{mp})
		return s.emit(views[0], func(p *page) { p.mappings(m, views) })
	})
}
