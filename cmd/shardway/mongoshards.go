package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/mongodb"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store/sqlstore"
	"github.com/shardway/shardway/topology"
)

// onMongoDB is the engine of shards in MongoDB databases. It is none of the
// table of engines: those can hold the global store too.
const onMongoDB = "mongodb"

// isMongoDB reports whether a DSN's scheme is one of MongoDB's.
func isMongoDB(scheme string) bool {
	return strings.EqualFold(scheme, onMongoDB) || strings.EqualFold(scheme, onMongoDB+"+srv")
}

// parseMongoDB takes a DSN of MongoDB apart. The address has no engine.
func parseMongoDB(what, dsn string) (address, error) {
	e, l, c, err := mongodb.Parse(dsn)
	if err != nil {
		return address{}, &addressError{what: what, err: err}
	}
	return address{options: e.Options, location: l, credentials: c}, nil
}

// localStores are those of all shards, on whatever engine.
type localStores struct {
	*mongodb.Locals

	sql *sqlstore.Locals
}

func newLocalStores(set *settings, speak []shardway.Engine, login shardway.Credentials) (*localStores, error) {
	sql, err := sqlstore.NewLocals(speak, login)
	if err != nil {
		return nil, err
	}
	all, err := mongodb.NewLocals(set.mongoDB(), login, sql)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("setting %s-options: %w", onMongoDB, err), sql.Close())
	}
	return &localStores{Locals: all, sql: sql}, nil
}

// Close closes all local stores.
func (l *localStores) Close() error { return errors.Join(l.Locals.Close(), l.sql.Close()) }

func (s *settings) mongoDB() mongodb.Engine {
	return mongodb.Engine{Options: s.text(onMongoDB + "-options")}
}

// standsOnMongoDB asks a shard's primary whether the shard has a mapping, as is
// asked before an application gets a database.
func (s *session) standsOnMongoDB(ctx context.Context, l shardway.Location, id shardway.MappingID) (status shardway.MappingStatus, found bool, err error) {
	o, err := s.set.mongoDB().ClientOptions(ctx, l, s.login)
	if err != nil {
		return 0, false, err
	}
	client, err := mongo.Connect(o.SetServerSelectionTimeout(answerWithin))
	if err != nil {
		return 0, false, err
	}
	defer func() {
		_ = mongomap.Disconnect(func(yield func(*mongo.Client) bool) { yield(client) }) // it has answered
	}()
	answer, err := mongomap.Ask(ctx, client.Database(l.Database), id)
	return answer.Status, answer.Owned, mongomap.Fault(ctx, err)
}

// lookout looks at the servers of a map's shards, on whatever engine.
type lookout struct {
	m     *shardway.Map
	sql   *sqlshard.DB[string]
	mongo *mongoshard.Shards[string]
}

// Servers returns what is known of a shard's servers, and which of them suit.
func (l *lookout) Servers(ctx context.Context, shard string) (selection.Explanation, error) {
	if s, err := l.m.Shard(ctx, shard); err == nil && s.Location.Engine == onMongoDB {
		return l.mongo.Servers(ctx, shard)
	}
	return l.sql.Servers(ctx, shard)
}

// Close ends the looking.
func (l *lookout) Close() error { return errors.Join(l.sql.Close(), l.mongo.Close()) }

// lookoutEngine makes clients that look as often as the command says.
type lookoutEngine struct {
	mongodb.Engine

	threshold, every time.Duration
}

func (e lookoutEngine) ClientOptions(ctx context.Context, l shardway.Location, c shardway.Credentials) (*options.ClientOptions, error) {
	o, err := e.Engine.ClientOptions(ctx, l, c)
	if err != nil {
		return nil, err
	}
	switch {
	case e.threshold == selection.FastestOnly:
		o.SetLocalThreshold(0)
	case e.threshold > 0:
		o.SetLocalThreshold(e.threshold)
	}
	return o.SetHeartbeatInterval(max(e.every, topology.MinHeartbeat)).SetServerSelectionTimeout(answerWithin), nil
}

func (s *session) lookout(m *shardway.Map, w wanted, every time.Duration, sql *sqlshard.DB[string]) (*lookout, error) {
	shards, err := mongoshard.For(textKeys{m}, mongoshard.ShardConfig{
		Engine: lookoutEngine{s.set.mongoDB(), w.threshold, every}, Credentials: s.login, Mixed: true,
	})
	if err != nil {
		return nil, errors.Join(err, sql.Close())
	}
	return &lookout{m: m, sql: sql.With(w.criteria), mongo: shards.With(w.criteria)}, nil
}
