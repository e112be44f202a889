package shardway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/shardway/shardway/internal/interval"
)

// loadSnapshot reads a whole map. What the store says must be a map: keys in
// order, no overlap, every shard known.
//
// However long that takes, the store must not fall silent for longer than
// patience: else the answers that come in meanwhile would pile up.
func loadSnapshot(ctx context.Context, src Source, m ShardMap, patience time.Duration) (*snapshot, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := fmt.Errorf("the store has sent nothing for %v: %w", patience, ErrUnavailable)
	alarm := time.AfterFunc(patience, func() { cancel(silence) })
	defer alarm.Stop()
	s := &snapshot{kind: m.Kind, keyKind: m.KeyKind}
	l := loading{src: src, m: m, slots: map[ShardID]uint32{}, alive: func() { alarm.Reset(patience) }}
	if m.KeyKind.Fixed() {
		s.ints = interval.IntsFromSorted(entries(ctx, &l, intAxis), 0)
	} else {
		s.bytes = interval.BytesFromSorted(entries(ctx, &l, byteAxis), 0)
	}
	if l.err != nil && errors.Is(context.Cause(ctx), silence) {
		return nil, silence
	}
	if l.err != nil {
		return nil, l.err
	}
	s.generation, s.cleared = l.state.Generation, l.state.Generation
	var err error
	s.shards, err = newShardTable(l.ids, l.state)
	return s, err
}

// loading is one reading of a whole map.
type loading struct {
	src   Source
	m     ShardMap
	slots map[ShardID]uint32
	ids   []ShardID // by slot
	rows  uint      // read so far
	alive func()
	state MapState
	err   error
}

func (l *loading) slot(id ShardID) uint32 {
	slot, ok := l.slots[id]
	if !ok {
		slot = uint32(len(l.ids))
		l.slots[id] = slot
		l.ids = append(l.ids, id)
	}
	return slot
}

// entries turns rows into the entries of a tree, gaps included.
func entries[K any](ctx context.Context, l *loading, a axis[K]) iter.Seq2[K, interval.Value] {
	return func(yield func(K, interval.Value) bool) {
		var end K // of the row before: its point, or the high end of its range
		first, open := true, false
		row := func(r MappingRow) error {
			if l.rows++; l.rows%1024 == 0 {
				l.alive()
			}
			low, err := a.decode(l.m.KeyKind, r.Low)
			if err != nil {
				return err
			}
			if r.ID <= 0 {
				return fmt.Errorf("mapping without an id at %x: %w", r.Low, ErrInvalid)
			}
			order := 1
			if !first {
				order = a.compare(low, end)
			}
			if open || order < 0 || order == 0 && l.m.Kind == ListMap {
				return fmt.Errorf("mapping %s overlaps the one before it: %w", r.ID, ErrInvalid)
			}
			if l.m.Kind == RangeMap && order > 0 && !first {
				yield(end, none)
			}
			yield(low, value(r.ID, l.slot(r.ShardID), r.Status))
			first = false
			if l.m.Kind == ListMap {
				end = a.keep(end, low)
				return nil
			}
			if open = r.High == nil; open {
				return nil
			}
			high, err := a.decode(l.m.KeyKind, r.High)
			if err == nil && a.compare(low, high) >= 0 {
				err = fmt.Errorf("mapping %s is empty: %w", r.ID, ErrInvalid)
			}
			if err == nil {
				end = a.keep(end, high)
			}
			return err
		}
		if l.state, l.err = l.src.Load(ctx, l.m, Range{}, row); l.err != nil {
			return
		}
		if l.m.Kind == RangeMap && !first && !open {
			yield(end, none)
		}
	}
}
