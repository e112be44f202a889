package shardway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// maxReread bounds the changed ranges that are read again in one poll. The
// rest is forgotten, and read when somebody asks for it.
const maxReread = 256

// A feed that has to read the whole map does so after a random pause of up to
// reloadPause times as long as that took before, and maxReloadPause: so that a
// store that many routers follow is not asked by all of them at once. What a
// small map costs is nothing to wait for.
const (
	reloadPause    = 20
	maxReloadPause = 30 * time.Second
)

// load reads the whole map into the cache and returns its generation. The cache
// may know of a newer one, by a key that was asked for meanwhile; of all other
// keys it does not know what that brought.
func (m *Map) load(ctx context.Context) (generation int64, err error) {
	begun := time.Now()
	ok, err := m.cache.reload(func() (*snapshot, error) {
		s, err := loadSnapshot(ctx, m.router.src, m.described, m.router.cfg.StoreTimeout)
		if err == nil {
			generation = s.generation
		}
		return s, err
	})
	took := time.Since(begun)
	if err != nil {
		m.loadTook = max(m.loadTook, took) // a store that fails at once is not quick
		return 0, m.storeError(ctx, err)
	}
	m.loadTook = took
	if !ok {
		return 0, fmt.Errorf("the store returned an older state than before: %w", ErrUnavailable)
	}
	return generation, nil
}

// follow keeps the map up to date, as it was loaded at the generation since,
// until it is closed or gone.
func (m *Map) follow(since int64) {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	m.router.feeds.Go(func() {
		defer cancel()
		ticker := time.NewTicker(m.router.cfg.PollInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			var err error
			since, err = m.poll(ctx, since)
			if ctx.Err() != nil {
				return
			}
			m.noteFeed(err)
		}
	})
}

// noteFeed remembers how polling goes, and logs when that changes: nobody
// waits for the error.
func (m *Map) noteFeed(err error) {
	before := m.feedError.Load()
	switch {
	case err != nil:
		m.feedError.Store(&err)
		if before == nil {
			m.router.cfg.Logger.Warn("following a shard map fails; known keys keep their routes", "map", m.described.Name, "error", err)
		}
	case before != nil:
		m.feedError.Store(nil)
		m.router.cfg.Logger.Info("following a shard map works again", "map", m.described.Name)
	}
}

// poll takes in what has changed after the generation since. It returns the
// generation to ask for next time; after an error the same changes are read
// again.
func (m *Map) poll(ctx context.Context, since int64) (int64, error) {
	changes, err := m.changes(ctx, since)
	if err != nil {
		return since, err
	}
	if !changes.Complete {
		loaded, err := m.reload(ctx)
		if err != nil {
			return since, err
		}
		return loaded, nil
	}
	if changes.Generation <= since {
		return since, nil
	}
	if changes.Shards {
		if _, err := m.Shards(ctx); err != nil {
			return since, err
		}
	}
	changed := joined(m.described.Kind, changes.Ranges)
	reread := changed[:min(len(changed), maxReread)]
	for _, r := range reread {
		if err := m.reread(ctx, r); err != nil {
			return since, err
		}
	}
	m.cache.forget(changed[len(reread):], changes.Generation)
	return changes.Generation, nil
}

// reload is load some time later.
func (m *Map) reload(ctx context.Context) (generation int64, err error) {
	if longest := min(reloadPause*m.loadTook, maxReloadPause); longest > 0 {
		pause := time.NewTimer(rand.N(longest))
		defer pause.Stop()
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-pause.C:
		}
	}
	return m.load(ctx)
}

// joined returns ranges in key order, those that overlap or touch made one: a
// mapping that was replaced is listed twice, and is read once. Of the points of
// a list map each is there once. No more than maxReread ranges side by side
// become one, so that the store can read it in its time.
func joined(kind MapKind, ranges []Range) []Range {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return a.Low.Compare(b.Low) })
	n, parts := 0, 0 // ranges[:n] is joined, the last one of so many parts
	for _, r := range ranges {
		if n > 0 {
			last := &ranges[n-1]
			if kind == ListMap && last.Low == r.Low || kind == RangeMap && last.Covers(r) {
				continue
			}
			if kind == RangeMap && last.High.Compare(r.Low) >= 0 && parts < maxReread {
				last.High = r.High
				parts++
				continue
			}
		}
		ranges[n] = r
		n, parts = n+1, 1
	}
	return ranges[:n]
}

func (m *Map) changes(ctx context.Context, since int64) (Changes, error) {
	ctx, cancel := context.WithTimeout(ctx, m.router.cfg.StoreTimeout)
	defer cancel()
	changes, err := m.router.src.Changes(ctx, m.described, since)
	if err != nil {
		return Changes{}, m.storeError(ctx, err)
	}
	return changes, nil
}

// reread replaces what is cached of one changed range by what the store has.
func (m *Map) reread(ctx context.Context, r Range) error {
	ctx, cancel := context.WithTimeout(ctx, m.router.cfg.StoreTimeout)
	defer cancel()
	var mappings []Mapping
	var state MapState
	var err error
	if m.described.Kind == ListMap {
		mappings, state, err = m.readPoint(ctx, r.Low)
	} else {
		mappings, state, err = m.readRange(ctx, r)
	}
	if err != nil {
		return m.storeError(ctx, err)
	}
	m.cache.replace(r, mappings, state)
	return nil
}

func (m *Map) readPoint(ctx context.Context, point Key) ([]Mapping, MapState, error) {
	m.lookups.Add(1)
	a, err := m.router.src.Lookup(ctx, m.described, point)
	if err != nil || !a.Found {
		return nil, MapState{Generation: a.Generation}, err
	}
	return []Mapping{a.Mapping}, MapState{Generation: a.Generation, Shards: []Shard{a.Shard}}, nil
}

func (m *Map) readRange(ctx context.Context, r Range) (mappings []Mapping, state MapState, err error) {
	state, err = m.router.src.Load(ctx, m.described, r, func(row MappingRow) error {
		low, err := DecodeKey(m.described.KeyKind, row.Low)
		high, herr := DecodeKey(m.described.KeyKind, row.High)
		if err = errors.Join(err, herr); err != nil {
			return err
		}
		mappings = append(mappings, Mapping{
			ID: row.ID, MapID: m.described.ID, Range: Range{Low: low, High: high}, ShardID: row.ShardID, Status: row.Status,
		})
		return nil
	})
	return mappings, state, err
}

// smallest returns the range that holds the smallest key of a kind and no other.
func smallest(kind KeyKind) Range {
	r := FullRange(kind)
	switch kind {
	case KindUUID:
		r.High = Key{kind: kind, lo: 1}
	case KindString, KindBytes:
		r.High = Key{kind: kind, s: "\x00"}
	default:
		r.High = Key{kind: kind, hi: 1}
	}
	return r
}
