package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// move changes the map until ctx ends: it moves, splits and merges mappings.
// Errors are what this run is made of; they are written to the log.
func (c *client) move(ctx context.Context) {
	for pause(ctx, time.Duration(c.random.IntN(150))*time.Millisecond) {
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
		if err := c.change(one); err != nil {
			c.say("%v", err)
		}
		cancel()
	}
}

func (c *client) change(ctx context.Context) error {
	m, err := c.catalog.ShardMap(ctx, MapName)
	if err != nil {
		return err
	}
	mappings, err := c.mappings(ctx, m)
	if err != nil || len(mappings) == 0 {
		return err
	}
	i := c.random.IntN(len(mappings))
	switch n := c.random.IntN(10); {
	case n < 6:
		return c.relocate(ctx, m, mappings[i])
	case n < 8:
		return c.split(ctx, mappings[i])
	case i+1 < len(mappings):
		return c.merge(ctx, mappings[i], mappings[i+1])
	}
	return nil
}

func (c *client) mappings(ctx context.Context, m shardway.ShardMap) (all []shardway.Mapping, err error) {
	for mapping, err := range c.catalog.Mappings(ctx, store.MappingQuery{Map: m}) {
		if err != nil {
			return nil, err
		}
		all = append(all, mapping)
	}
	return all, nil
}

func bounds(m shardway.Mapping) (low, high int64, err error) {
	low, err = strconv.ParseInt(m.Range.Low.String(), 10, 64)
	if err == nil {
		high, err = strconv.ParseInt(m.Range.High.String(), 10, 64)
	}
	return low, high, err
}

func (c *client) split(ctx context.Context, mapping shardway.Mapping) error {
	low, high, err := bounds(mapping)
	if err != nil || high-low < 4 {
		return err
	}
	at := low + 1 + c.random.Int64N(high-low-1)
	_, err = c.catalog.Do(ctx, catalog.SplitMapping{Mapping: mapping, At: shardway.Int64Key(at)})
	return c.counted("split", err)
}

func (c *client) merge(ctx context.Context, left, right shardway.Mapping) error {
	if left.ShardID != right.ShardID || left.Status != right.Status || left.Range.High.String() != right.Range.Low.String() {
		return nil
	}
	_, err := c.catalog.Do(ctx, catalog.MergeMappings{Left: left, Right: right})
	return c.counted("merge", err)
}

// counted says what was done in a form that the run counts.
func (c *client) counted(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	c.say("done %s", what)
	return nil
}

// relocate moves a mapping with its rows to another shard: lock, offline, copy,
// switch and online, delete, unlock. Whatever fails on the way, settle brings the
// mapping back into use where it is then.
func (c *client) relocate(ctx context.Context, m shardway.ShardMap, mapping shardway.Mapping) error {
	shards, err := c.catalog.Shards(ctx, m)
	if err != nil {
		return err
	}
	var source, target shardway.Shard
	others := make([]shardway.Shard, 0, len(shards))
	for _, s := range shards {
		if s.ID == mapping.ShardID {
			source = s
		} else {
			others = append(others, s)
		}
	}
	target = others[c.random.IntN(len(others))]
	token := catalog.NewLockToken()
	if _, err := c.catalog.Do(ctx, catalog.LockMapping{Mapping: mapping, Lock: shardway.Lock{Token: token, Owner: c.cfg.ID}}); err != nil {
		return c.counted("lock", err)
	}
	moved, err := c.transfer(ctx, mapping, token, source, target)
	if err == nil && moved {
		c.say("done move")
	}
	return errors.Join(err, c.settle(ctx, m, token))
}

// transfer does the move proper; moved says that the target has it.
func (c *client) transfer(ctx context.Context, mapping shardway.Mapping, token shardway.LockToken, source, target shardway.Shard) (moved bool, err error) {
	offline, online := shardway.Offline, shardway.Online
	if c.cfg.Fault == OnlineCopying {
		if err := c.copyRows(ctx, mapping, source, target); err != nil {
			return false, err
		}
	}
	if mapping.Status == shardway.Online {
		r, err := c.catalog.Do(ctx, catalog.UpdateMapping{Mapping: mapping, Status: &offline, Token: token})
		if err != nil {
			return false, fmt.Errorf("offline: %w", err)
		}
		mapping = r.Mappings[0]
	}
	if c.cfg.Fault != OnlineCopying {
		if err := c.copyRows(ctx, mapping, source, target); err != nil {
			return false, fmt.Errorf("copy: %w", err)
		}
	}
	if _, err := c.catalog.Do(ctx, catalog.UpdateMapping{Mapping: mapping, ShardID: &target.ID, Status: &online, Token: token}); err != nil {
		return false, fmt.Errorf("switch: %w", err)
	}
	// The lock still keeps the mapping on the target: nobody needs these rows.
	return true, c.onShard(ctx, source, func(ctx context.Context, tx *sql.Tx) error { return deleteRows(ctx, tx, mapping) })
}

// settle brings what a token has locked online, where it is, and unlocks it.
// It tries until ctx ends: a mapping left offline is of no use to anybody.
func (c *client) settle(ctx context.Context, m shardway.ShardMap, token shardway.LockToken) error {
	online := shardway.Online
	for {
		err := func() error {
			for mapping, err := range c.catalog.Mappings(ctx, store.MappingQuery{Map: m, Token: token}) {
				if err != nil {
					return err
				}
				if mapping.Status == shardway.Offline {
					if _, err := c.catalog.Do(ctx, catalog.UpdateMapping{Mapping: mapping, Status: &online, Token: token}); err != nil {
						return err
					}
				}
			}
			_, err := c.catalog.Do(ctx, catalog.UnlockOwner{Map: m, Token: token})
			return err
		}()
		if err == nil {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("settle: %w", err)
		}
	}
}

// onShard runs work in a transaction on the primary of a shard.
func (c *client) onShard(ctx context.Context, s shardway.Shard, work func(context.Context, *sql.Tx) error) error {
	conn, err := c.db.OpenConnectionForShard(ctx, s.Name)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no more than an error after Commit
	if err := work(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// copyRows replaces the target's rows of a mapping by the source's.
func (c *client) copyRows(ctx context.Context, mapping shardway.Mapping, source, target shardway.Shard) error {
	low, high, err := bounds(mapping)
	if err != nil {
		return err
	}
	var inserts []string
	err = c.onShard(ctx, source, func(ctx context.Context, tx *sql.Tx) (err error) {
		inserts, err = readRows(ctx, tx, low, high)
		return err
	})
	if err != nil {
		return err
	}
	return c.onShard(ctx, target, func(ctx context.Context, tx *sql.Tx) error {
		if err := deleteRows(ctx, tx, mapping); err != nil {
			return err
		}
		for _, insert := range inserts {
			if _, err := tx.ExecContext(ctx, insert); err != nil {
				return err
			}
		}
		return nil
	})
}

// readRows returns the statements that write the rows of a range again.
func readRows(ctx context.Context, tx *sql.Tx, low, high int64) (inserts []string, err error) {
	for _, query := range []struct{ text, insert, row string }{
		{"SELECT k, value FROM register", "INSERT INTO register (k, value) VALUES ", "(%d, '%s')"},
		{"SELECT k, id FROM applied", "INSERT INTO applied (k, id) VALUES ", "(%d, '%s')"},
	} {
		rows, err := tx.QueryContext(ctx, fmt.Sprintf("%s WHERE k >= %d AND k < %d", query.text, low, high))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var values []string
		for rows.Next() {
			var k int64
			var text string
			if err := rows.Scan(&k, &text); err != nil {
				return nil, err
			}
			values = append(values, fmt.Sprintf(query.row, k, text))
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
		for ; len(values) > 0; values = values[min(500, len(values)):] {
			inserts = append(inserts, query.insert+strings.Join(values[:min(500, len(values))], ", "))
		}
	}
	return inserts, nil
}

func deleteRows(ctx context.Context, tx *sql.Tx, mapping shardway.Mapping) error {
	low, high, err := bounds(mapping)
	if err != nil {
		return err
	}
	for _, table := range []string{"register", "applied"} {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE k >= %d AND k < %d", table, low, high)); err != nil {
			return err
		}
	}
	return nil
}
