package sqlstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Locals opens the local stores of shards for a catalog: one per location, kept
// until Close. It is safe for concurrent use.
type Locals struct {
	engines     map[string]shardway.Engine
	credentials shardway.Credentials

	mu     sync.Mutex // guards the field below
	opened map[string]*Local
}

// NewLocals returns the local stores of shards on the given engines, reached
// with one set of credentials. A nil engine, and two of one name, are an error.
func NewLocals(engines []shardway.Engine, c shardway.Credentials) (*Locals, error) {
	l := &Locals{engines: map[string]shardway.Engine{}, credentials: c, opened: map[string]*Local{}}
	for _, e := range engines {
		if e == nil {
			return nil, &shardway.ArgumentError{Argument: "engine", Reason: "is missing"}
		}
		if l.engines[e.Name()] != nil {
			return nil, &shardway.ArgumentError{Argument: "engine", Value: e.Name(), Reason: "is given twice"}
		}
		l.engines[e.Name()] = e
	}
	return l, nil
}

// Normalize checks a location and returns its one canonical spelling. An
// engine that is not among those given is an [shardway.ArgumentError].
func (l *Locals) Normalize(at shardway.Location) (shardway.Location, error) {
	e, err := l.engine(at.Engine)
	if err != nil {
		return at, err
	}
	return e.Normalize(at)
}

func (l *Locals) engine(name string) (shardway.Engine, error) {
	e := l.engines[name]
	if e == nil {
		known := strings.Join(slices.Sorted(maps.Keys(l.engines)), ", ")
		return nil, &shardway.ArgumentError{Argument: "engine", Value: name, Reason: "is not supported here: expected one of " + known}
	}
	return e, nil
}

// Open returns the local store at a location. It does no I/O.
func (l *Locals) Open(_ context.Context, at shardway.Location) (store.Local, error) {
	e, err := l.engine(at.Engine)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := at.String()
	if local := l.opened[key]; local != nil {
		return local, nil
	}
	local, err := OpenLocal(e, at, l.credentials)
	if err != nil {
		return nil, err
	}
	l.opened[key] = local
	return local, nil
}

// Close closes all local stores. It is idempotent.
func (l *Locals) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for key, local := range l.opened {
		errs = append(errs, local.Close())
		delete(l.opened, key)
	}
	return errors.Join(errs...)
}
