package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
)

// explainView is what --explain adds to a route.
type explainView struct {
	Again     string `json:"again"`     // where the same question is answered from the second time
	Validated bool   `json:"validated"` // the shard's local map has this very mapping, online
	Local     string `json:"local"`     // what the local map says
}

// validate asks the shard's own map about a route, with no more rights than an
// application has there. What keeps it from answering is its answer, and an error.
func (s *session) validate(ctx context.Context, m shardway.ShardMap, key shardway.Key, r shardway.Route, server string) (ok bool, answer string, err error) {
	status, found, err := s.stands(ctx, r.Shard.Location, server, r.MappingID)
	switch {
	case err != nil:
		return false, "gives no answer: " + oneLine(message(err)), fmt.Errorf("asking the local map on shard %q: %w", r.Shard.Name, err)
	case found && status == shardway.Online:
		return true, "has this mapping, online", nil
	case found:
		return false, "has this mapping, but offline", nil
	}
	return false, s.instead(ctx, m, key, r), nil
}

// stands asks a server of a shard whether the shard has a mapping, by the
// question that is asked before an application gets a connection.
func (s *session) stands(ctx context.Context, l shardway.Location, server string, id shardway.MappingID) (status shardway.MappingStatus, found bool, err error) {
	if l.Engine == onMongoDB {
		return s.standsOnMongoDB(ctx, l, id)
	}
	e, err := findEngine(l.Engine)
	if err != nil {
		return 0, false, err
	}
	d, err := dialect.For(e.name)
	if err != nil {
		return 0, false, err
	}
	connector, err := e.with(s.set.text(e.name+"-options"), "").Connector(server, l.Database, s.login)
	if err != nil {
		return 0, false, err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	err = db.QueryRowContext(ctx, d.ValidateMapping(), int64(id)).Scan(&status)
	switch {
	case err == nil:
		return status, true, nil
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case ctx.Err() != nil:
		return 0, false, ctx.Err()
	case errors.Is(err, fs.ErrNotExist), d.Classify(err) == dialect.NoTable:
		return 0, false, fmt.Errorf("%w: %w", shardway.ErrNoStore, err)
	}
	return 0, false, fmt.Errorf("%w: %w", shardway.ErrUnavailable, err)
}

// instead says what the local map has in the place of a mapping, as far as the
// login may read more of it than an application may.
func (s *session) instead(ctx context.Context, m shardway.ShardMap, key shardway.Key, r shardway.Route) string {
	const unknown = "does not have this mapping"
	global, err := s.global.Describe(ctx)
	if err != nil {
		return unknown
	}
	local, err := s.locals.Open(ctx, r.Shard.Location)
	if err != nil {
		return unknown
	}
	found, err := local.Describe(ctx)
	if err != nil {
		return unknown
	}
	if found.ID != global.ID {
		return shardway.ErrForeignStore.Error()
	}
	maps, err := local.Read(ctx, m.ID)
	if err != nil {
		return unknown
	}
	for _, lm := range maps {
		for _, mp := range lm.Mappings {
			if holds(m, mp, key) {
				return fmt.Sprintf("has another mapping for the key: %s, id %s, %s", mp.Format(m.Kind), mp.ID, mp.Status)
			}
		}
	}
	return "does not own the key"
}

func holds(m shardway.ShardMap, mp shardway.Mapping, key shardway.Key) bool {
	if m.Kind == shardway.ListMap {
		return mp.Range.Low == key
	}
	return mp.Range.Contains(key)
}
