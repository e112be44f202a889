package mongodb

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/mongostore"
)

// Others are the local stores of shards on other engines, such as
// *sqlstore.Locals.
type Others interface {
	Open(ctx context.Context, l shardway.Location) (store.Local, error)
	Normalize(l shardway.Location) (shardway.Location, error)
}

// Locals opens the local stores of shards for a catalog: those on MongoDB by
// itself, with one client for each deployment, and the rest by another one. It
// is safe for concurrent use.
type Locals struct {
	engine      Engine
	credentials shardway.Credentials
	others      Others

	mu      sync.Mutex               // guards the field below
	clients map[string]*mongo.Client // by servers; nil after Close
}

// NewLocals returns the local stores of shards. others may be nil: then every
// shard is on MongoDB. Credentials are those of the catalog on MongoDB.
func NewLocals(e Engine, c shardway.Credentials, others Others) (*Locals, error) {
	if _, err := readOptions(e.Options); err != nil {
		return nil, err
	}
	return &Locals{engine: e, credentials: c, others: others, clients: map[string]*mongo.Client{}}, nil
}

// Normalize checks a location and returns its one spelling.
func (l *Locals) Normalize(at shardway.Location) (shardway.Location, error) {
	switch {
	case strings.EqualFold(at.Engine, l.engine.Name()):
		return l.engine.Normalize(at)
	case l.others == nil:
		return at, &shardway.ArgumentError{Argument: "engine", Value: at.Engine, Reason: "is not supported here: expected mongodb"}
	}
	return l.others.Normalize(at)
}

// Open returns the local store at a location. It connects later, and does no
// I/O besides asking for the password.
func (l *Locals) Open(ctx context.Context, at shardway.Location) (store.Local, error) {
	if at.Engine != l.engine.Name() && l.others != nil {
		return l.others.Open(ctx, at)
	}
	at, err := l.Normalize(at)
	if err != nil {
		return nil, err
	}
	client, err := l.client(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("opening the local store at %s: %w", at, err)
	}
	return mongostore.NewLocal(client.Database(at.Database), nil), nil
}

func (l *Locals) client(ctx context.Context, at shardway.Location) (*mongo.Client, error) {
	database := at.Database
	at.Database = ""
	servers := at.String()
	at.Database = database
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients == nil {
		return nil, fmt.Errorf("the local stores are closed: %w", shardway.ErrUnavailable)
	}
	if client := l.clients[servers]; client != nil {
		return client, nil
	}
	o, err := l.engine.ClientOptions(ctx, at, l.credentials)
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(o)
	if err == nil {
		l.clients[servers] = client
	}
	return client, err
}

// Close disconnects from all deployments; what others opened is for others to
// close. It is idempotent.
func (l *Locals) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	clients := l.clients
	l.clients = nil
	return mongomap.Disconnect(maps.Values(clients))
}
