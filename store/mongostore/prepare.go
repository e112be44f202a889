package mongostore

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/store"
)

// batch is how many documents one command names: far below the limit of a
// message.
const batch = 1000

// difference is what the rows lack to be as they should be after the attempt.
type difference struct {
	mark   []string       // _ids of rows to mark as removed
	insert []mongomap.Row // rows to add
}

// prepare makes sure that the rows are as they should be when the attempt is the
// last commit. It returns true when it found them so and wrote nothing, which
// holds until the next commit: nobody else touches this attempt's marks, and
// only a commit changes which other rows count. Otherwise it writes what lacks.
func (a *attempt) prepare(ctx context.Context, last string) (ready bool, err error) {
	diff, err := a.compare(ctx, last)
	if err != nil {
		return false, err
	}
	rows := a.db.Collection(mongomap.Rows)
	if len(diff.mark)+len(diff.insert) > 0 {
		a.marked, a.lanes = true, false
	}
	for ids := range chunks(diff.mark) {
		mark := bson.D{{Key: "$push", Value: bson.D{{Key: "removed", Value: a.id}}}}
		if _, err := rows.UpdateMany(ctx, unmarked(ids, a.id), mark); err != nil {
			return false, mongomap.Fault(ctx, err)
		}
	}
	for some := range chunks(diff.insert) {
		_, err := rows.InsertMany(ctx, some, options.InsertMany().SetOrdered(false))
		if err != nil && !mongo.IsDuplicateKeyError(err) { // a try whose answer was lost
			return false, mongomap.Fault(ctx, err)
		}
	}
	if len(diff.mark)+len(diff.insert) > 0 {
		return false, nil
	}
	return true, a.stopTransactions(ctx)
}

// unmarked selects rows that do not have the mark yet: a command may be sent twice.
func unmarked(ids []string, mark string) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}},
		{Key: "removed", Value: bson.D{{Key: "$ne", Value: mark}}},
	}
}

// chunks are slices of at most batch elements.
func chunks[T any](all []T) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			n := min(batch, len(all))
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// change returns the step forwards or, when it is to be undone, backwards.
func (a *attempt) change() store.Step {
	s := a.s.Step
	if a.s.Want == store.StepUndone {
		s.Before, s.After, s.Remove, s.Add = s.After, s.Before, s.Add, s.Remove
	}
	return s
}

// compare finds out what lacks, or refuses the step with ErrMapsDiffer.
func (a *attempt) compare(ctx context.Context, last string) (difference, error) {
	step := a.change()
	var diff difference
	shard, err := a.compareShard(ctx, last, step, &diff)
	if err != nil {
		return diff, err
	}
	known, err := a.mappings(ctx, append(idsOf(step.Remove), idsOf(step.Add)...))
	if err != nil {
		return diff, err
	}
	removed := map[int64]bool{}
	for _, m := range step.Remove {
		r := counting(known[int64(m.ID)], last)
		if r == nil || r.Map != int64(a.s.Map.ID) {
			return diff, fmt.Errorf("mapping %s is missing: %w", m.ID, store.ErrMapsDiffer)
		}
		removed[r.Of] = true
		diff.remove(r, a.id)
	}
	for _, m := range step.Add {
		if r := counting(known[int64(m.ID)], last); r != nil && !removed[r.Of] {
			return diff, fmt.Errorf("mapping %s is there already: %w", m.ID, store.ErrMapsDiffer)
		}
		diff.add(known[int64(m.ID)], mappingRow(m, a.s.Map, a.id))
	}
	if shard {
		return diff, nil
	}
	left, err := a.left(ctx, last, removed)
	if err == nil && left+len(step.Add) > 0 {
		err = fmt.Errorf("mappings would be left without a shard: %w", store.ErrMapsDiffer)
	}
	return diff, err
}

// compareShard is compare for the shard's row; it returns whether the map has a
// shard afterwards.
func (a *attempt) compareShard(ctx context.Context, last string, step store.Step, diff *difference) (there bool, err error) {
	rows, err := a.rows(ctx, bson.D{{Key: "map", Value: int64(a.s.Map.ID)}, {Key: "row", Value: mongomap.ShardRow}})
	if err != nil {
		return false, err
	}
	now := counting(rows, last)
	if b := step.Before; b != nil {
		if now == nil || now.Of != int64(b.ID) || now.Shard.Version != b.Version {
			return false, fmt.Errorf("shard %q is missing: %w", b.Name, store.ErrMapsDiffer)
		}
		diff.remove(now, a.id)
		now = nil
	}
	if step.After == nil {
		return now != nil, nil
	}
	if now != nil {
		return true, fmt.Errorf("shard %q is there already: %w", step.After.Name, store.ErrMapsDiffer)
	}
	diff.add(rows, shardRow(*step.After, a.s.Map, a.id))
	return true, nil
}

// counting returns the one row that counts, or nil.
func counting(rows []mongomap.Row, last string) *mongomap.Row {
	for i := range rows {
		if rows[i].Counts(last) {
			return &rows[i]
		}
	}
	return nil
}

// remove notes a row that must not count, unless the attempt has marked it.
func (d *difference) remove(r *mongomap.Row, attempt string) {
	if !slices.Contains(r.Removed, attempt) {
		d.mark = append(d.mark, r.ID)
	}
}

// add notes a row that must count, unless the attempt has added it already.
func (d *difference) add(rows []mongomap.Row, want mongomap.Row) {
	for _, r := range rows {
		if r.ID == want.ID {
			return
		}
	}
	d.insert = append(d.insert, want)
}

// mappings returns the rows of mappings by id, of whatever map.
func (a *attempt) mappings(ctx context.Context, ids []int64) (map[int64][]mongomap.Row, error) {
	known := map[int64][]mongomap.Row{}
	for some := range chunks(ids) {
		rows, err := a.rows(ctx, bson.D{{Key: "of", Value: bson.D{{Key: "$in", Value: some}}}, {Key: "row", Value: mongomap.MappingRow}})
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			known[r.Of] = append(known[r.Of], r)
		}
	}
	return known, nil
}

// left counts the map's mappings that are not removed.
func (a *attempt) left(ctx context.Context, last string, removed map[int64]bool) (int, error) {
	rows, err := a.rows(ctx, bson.D{{Key: "map", Value: int64(a.s.Map.ID)}, {Key: "row", Value: mongomap.MappingRow}})
	n := 0
	for i := range rows {
		if rows[i].Counts(last) && !removed[rows[i].Of] {
			n++
		}
	}
	return n, err
}

func idsOf(mappings []shardway.Mapping) []int64 {
	ids := make([]int64, len(mappings))
	for i, m := range mappings {
		ids[i] = int64(m.ID)
	}
	return ids
}
