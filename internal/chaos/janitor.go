package chaos

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
)

// Sweep does what operators do after movers have died, until it has succeeded
// or ctx ends: it finishes what they have left pending, frees the mappings that
// they had locked, and brings these online where they are. owner is a dead
// client's id, or empty for all.
func Sweep(ctx context.Context, cfg Config, owner string) (err error) {
	c, err := open(ctx, cfg, io.Discard)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for {
		if err = c.sweep(ctx, owner); err == nil {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

func (c *client) sweep(ctx context.Context, owner string) error {
	if owner == "" {
		recovered, err := c.catalog.Recover(ctx, true)
		if err != nil {
			return err
		}
		for _, r := range recovered {
			if r.Err != nil {
				return r.Err
			}
		}
	}
	m, err := c.catalog.ShardMap(ctx, MapName)
	if err != nil {
		return err
	}
	mappings, err := c.mappings(ctx, m)
	if err != nil {
		return err
	}
	for _, mapping := range mappings {
		if owner != "" && mapping.Lock.Owner != owner {
			continue
		}
		if err := c.free(ctx, m, mapping); err != nil {
			return err
		}
	}
	return nil
}

// free brings a mapping online and unlocks it.
func (c *client) free(ctx context.Context, m shardway.ShardMap, mapping shardway.Mapping) error {
	token := mapping.Lock.Token
	if mapping.Status == shardway.Offline {
		online := shardway.Online
		r, err := c.catalog.Do(ctx, catalog.UpdateMapping{Mapping: mapping, Status: &online, Token: token})
		if err != nil {
			return err
		}
		mapping = r.Mappings[0]
	}
	if token == "" {
		return nil
	}
	_, err := c.catalog.Do(ctx, catalog.UnlockMapping{Mapping: mapping, Force: true})
	return err
}
