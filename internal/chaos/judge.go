package chaos

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Shard is a shard as the judge reads it: past Shardway, on its primary.
type Shard struct {
	Name  string
	DB    *sql.DB
	Local string // name of the table of local mappings
}

// Case is what the judge judges.
type Case struct {
	Operations []Operation
	Global     *sql.DB // PostgreSQL
	Shards     []Shard
}

// Verdict is what the judge found.
type Verdict struct {
	Writes, Reads, Unknown, Lost int      // operations; Lost are those whose client died
	Rows                         int      // writes found on the owners of their keys
	Faults                       []string // empty when all is as it must be
}

func (v *Verdict) fault(format string, args ...any) {
	const enough = 20
	if len(v.Faults) < enough {
		v.Faults = append(v.Faults, fmt.Sprintf(format, args...))
	}
}

// searchTime bounds the search for an order of each key's operations. A search
// that takes longer is a fault: the run was too unkind to its judge.
const searchTime = 2 * time.Minute

// Judge reads what is left of a run and says what is wrong. All clients must
// have ended.
func Judge(ctx context.Context, c Case) (Verdict, error) {
	var v Verdict
	owners, err := readOwners(ctx, c, &v)
	if err != nil {
		return v, fmt.Errorf("reading the maps: %w", err)
	}
	if err := readPending(ctx, c, &v); err != nil {
		return v, fmt.Errorf("reading pending operations: %w", err)
	}
	rows, values, err := readRowsOfKeys(ctx, c, owners)
	if err != nil {
		return v, fmt.Errorf("reading rows: %w", err)
	}
	judgeWrites(c.Operations, rows, &v)
	judgeOrder(c.Operations, rows, values, &v)
	return v, nil
}

// encoded is a key as the stores keep it: eight bytes, the sign turned over, so
// that they sort as the numbers do.
func encoded(key int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(key)^1<<63)
}

// interval is a mapping as a store keeps it.
type interval struct {
	low, high []byte // high nil: no end
	shard     int64
	online    bool
}

func (i interval) has(key []byte) bool {
	return bytes.Compare(i.low, key) <= 0 && (i.high == nil || bytes.Compare(key, i.high) < 0)
}

func readIntervals(ctx context.Context, db *sql.DB, table string) (all []interval, err error) {
	rows, err := db.QueryContext(ctx, "SELECT low_key, high_key, shard_id, status FROM "+table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var i interval
		var status int
		if err := rows.Scan(&i.low, &i.high, &i.shard, &status); err != nil {
			return nil, err
		}
		i.online = status == 1
		all = append(all, i)
	}
	return all, rows.Err()
}

// readOwners finds the one shard of every key: the global map and exactly one
// local map must agree on it.
func readOwners(ctx context.Context, c Case, v *Verdict) (owners map[int64]int, err error) {
	global, err := readIntervals(ctx, c.Global, "shardway.mappings")
	if err != nil {
		return nil, err
	}
	names := map[int64]string{}
	rows, err := c.Global.QueryContext(ctx, "SELECT shard_id, name FROM shardway.shards")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return nil, err
		}
		names[id] = name
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	local := make([][]interval, len(c.Shards))
	for i, s := range c.Shards {
		if local[i], err = readIntervals(ctx, s.DB, s.Local); err != nil {
			return nil, err
		}
	}
	owners = map[int64]int{}
	for key := range int64(Keys) {
		k := encoded(key)
		var told, online []string
		for _, m := range global {
			if m.has(k) {
				told = append(told, names[m.shard])
				if !m.online {
					v.fault("key %d: offline in the global map", key)
				}
			}
		}
		for i, mappings := range local {
			for _, m := range mappings {
				if m.has(k) {
					online = append(online, c.Shards[i].Name)
					owners[key] = i
					if !m.online {
						v.fault("key %d: offline in the local map of %s", key, c.Shards[i].Name)
					}
				}
			}
		}
		if len(told) != 1 || !slices.Equal(told, online) {
			v.fault("key %d: the global map names %q, local maps of %q have it", key, told, online)
		}
	}
	return owners, nil
}

func readPending(ctx context.Context, c Case, v *Verdict) error {
	for table, what := range map[string]string{
		"shardway.operations": "operations", "shardway.pending_mappings": "pending mappings",
		"shardway.mappings WHERE op_id <> 0": "marked mappings", "shardway.shards WHERE op_id <> 0": "marked shards",
		"shardway.mappings WHERE lock_token IS NOT NULL": "locked mappings",
	} {
		var n int
		if err := c.Global.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			return err
		}
		if n != 0 {
			v.fault("%d %s are left", n, what)
		}
	}
	return nil
}

// readRowsOfKeys reads each key's writes and value where its owner is.
func readRowsOfKeys(ctx context.Context, c Case, owners map[int64]int) (rows map[string]int, values map[int64]string, err error) {
	rows, values = map[string]int{}, map[int64]string{}
	for i, s := range c.Shards {
		err := eachRow(ctx, s.DB, "SELECT k, id FROM applied", func(k int64, id string) {
			if owner, ok := owners[k]; ok && owner == i {
				rows[id]++
			}
		})
		if err == nil {
			err = eachRow(ctx, s.DB, "SELECT k, value FROM register", func(k int64, value string) {
				if owner, ok := owners[k]; ok && owner == i {
					values[k] = value
				}
			})
		}
		if err != nil {
			return nil, nil, fmt.Errorf("shard %s: %w", s.Name, err)
		}
	}
	return rows, values, nil
}

func eachRow(ctx context.Context, db *sql.DB, query string, do func(int64, string)) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var k int64
		var text string
		if err := rows.Scan(&k, &text); err != nil {
			return err
		}
		do(k, text)
	}
	return rows.Err()
}

// judgeWrites demands every acknowledged write once on its key's owner, every
// other one at most once, and none that was said to have failed.
func judgeWrites(operations []Operation, rows map[string]int, v *Verdict) {
	known := map[string]bool{}
	for _, o := range operations {
		switch o.Outcome {
		case "":
			v.Lost++
		case Unknown:
			v.Unknown++
		}
		if o.Read {
			v.Reads++
			continue
		}
		v.Writes++
		known[o.ID] = true
		switch n := rows[o.ID]; {
		case o.Outcome == OK && n != 1:
			v.fault("write %s to key %d was acknowledged and is there %d times", o.ID, o.Key, n)
		case o.Outcome == Failed && n != 0:
			v.fault("write %s to key %d failed (%s) and is there %d times", o.ID, o.Key, o.Error, n)
		case n > 1:
			v.fault("write %s to key %d is there %d times", o.ID, o.Key, n)
		}
	}
	for id, n := range rows {
		v.Rows += n
		if !known[id] {
			v.fault("write %s is in no journal", id)
		}
	}
}

// register is the model of one key: what was written last.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		o := input.(Operation)
		if o.Read {
			return output.(string) == state.(string), state
		}
		return true, o.ID
	},
	DescribeOperation: func(input, output any) string {
		o := input.(Operation)
		if o.Read {
			return fmt.Sprintf("read %q", output)
		}
		return "write " + o.ID
	},
}

// never is the end of what may take effect at any time.
const never = int64(1) << 62

// judgeOrder demands for every key one order of its operations in which each
// read returns what the last write before it wrote, and which keeps the order
// of operations that did not overlap. What is on the shard now is a last read.
func judgeOrder(operations []Operation, rows map[string]int, values map[int64]string, v *Verdict) {
	byKey := map[int64][]porcupine.Operation{}
	for _, o := range operations {
		end := o.End
		switch {
		case o.Read && o.Outcome != OK, !o.Read && rows[o.ID] == 0:
			continue // it tells nothing, or has not happened
		case o.Outcome != OK:
			end = never
		}
		byKey[o.Key] = append(byKey[o.Key], porcupine.Operation{Input: o, Output: o.Value, Call: o.Begin, Return: end})
	}
	for key, history := range byKey {
		last := Operation{ID: "the end", Key: key, Read: true}
		history = append(history, porcupine.Operation{Input: last, Output: values[key], Call: never + 1, Return: never + 2})
		switch result, _ := porcupine.CheckOperationsVerbose(register, history, searchTime); result {
		case porcupine.Illegal:
			v.fault("key %d: its %d operations have no order", key, len(history))
		case porcupine.Unknown:
			v.fault("key %d: no order of its %d operations was found in %v", key, len(history), searchTime)
		}
	}
	if len(byKey) == 0 {
		v.fault("no operation tells anything")
	}
}
