package selection

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/shardway/shardway/topology"
)

// DefaultSelectionTimeout bounds the wait for a suitable server.
const DefaultSelectionTimeout = 30 * time.Second

// Source supplies the newest description of a replica set. A topology.Monitor
// is one.
type Source interface {
	// Current returns the description and a channel that is closed when a newer
	// one replaces it.
	Current() (topology.Set, <-chan struct{})
	// RequestCheck asks for a check of every server soon. It must not block.
	RequestCheck()
}

// Config says how a Selector selects. Source is required.
type Config struct {
	// Source supplies the descriptions.
	Source Source
	// SelectionTimeout bounds the wait for a suitable server; 0 means
	// DefaultSelectionTimeout. A context that ends earlier ends the wait earlier.
	SelectionTimeout time.Duration
	// LocalThreshold applies to requests that set none; 0 means
	// DefaultLocalThreshold, FastestOnly a window of no width.
	LocalThreshold time.Duration
	// Logger receives the events started, waiting, succeeded and failed at
	// debug level; nil means none.
	Logger *slog.Logger
	// Random applies to requests that set none; nil means the runtime's.
	Random rand.Source
}

func (c *Config) validate() error {
	if c.Source == nil {
		return &InvalidError{Field: "Source", Reason: "it is required"}
	}
	if c.SelectionTimeout < 0 {
		return &InvalidError{Field: "SelectionTimeout", Reason: fmt.Sprintf("%v is negative", c.SelectionTimeout)}
	}
	if c.LocalThreshold < 0 && c.LocalThreshold != FastestOnly {
		return &InvalidError{Field: "LocalThreshold", Reason: fmt.Sprintf("%v is negative", c.LocalThreshold)}
	}
	if c.SelectionTimeout == 0 {
		c.SelectionTimeout = DefaultSelectionTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Selector selects from the newest description and waits for a change while no
// server suits. It is safe for concurrent use and holds no goroutine.
type Selector struct{ config Config }

// NewSelector checks the configuration. Every error is an *InvalidError.
func NewSelector(config Config) (*Selector, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Selector{config: config}, nil
}

// Select chooses a server and counts an operation on it. While no server suits
// it asks for a check and waits for a change, until the selection timeout or
// the end of ctx; then the *Error matches ErrTimeout or the context's error.
// What waiting cannot mend fails at once: invalid criteria, a panicking
// predicate, a set without servers or without a primary by design.
func (s *Selector) Select(ctx context.Context, request Request) (Choice, error) {
	if request.LocalThreshold == 0 {
		request.LocalThreshold = s.config.LocalThreshold
	}
	if request.Random == nil {
		request.Random = s.config.Random
	}
	logs := s.config.Logger.Enabled(ctx, slog.LevelDebug)
	if logs {
		s.log(ctx, "server selection started", request)
	}
	q, winner, err := s.find(ctx, &request)
	if err != nil {
		if logs {
			s.log(ctx, "server selection failed", request, slog.String("failure", err.Error()))
		}
		return Choice{}, err
	}
	if logs {
		server := q.set.Server(winner)
		s.log(ctx, "server selection succeeded", request, slog.String("server", server.Address), slog.String("role", server.Role.String()))
	}
	return q.begin(winner), nil
}

// find returns a query and its winner, waiting for one if need be.
func (s *Selector) find(ctx context.Context, request *Request) (query, int, error) {
	set, changed := s.config.Source.Current()
	q := newQuery(set, request)
	winner, err := q.attempt()
	switch {
	case err != nil:
		return q, -1, err
	case ctx.Err() != nil:
		return q, -1, q.failure(ended(ctx), 0)
	case winner >= 0:
		return q, winner, nil
	case q.final() != "":
		return q, -1, q.failure(nil, 0)
	}
	s.log(ctx, "server selection waiting", *request, slog.Duration("timeout", s.config.SelectionTimeout))
	return s.wait(ctx, q, changed)
}

// wait tries again whenever the description changes. It runs once per change
// and never spins: a changed description comes with a new channel.
func (s *Selector) wait(ctx context.Context, q query, changed <-chan struct{}) (query, int, error) {
	began := time.Now()
	timer := time.NewTimer(s.config.SelectionTimeout)
	defer timer.Stop()
	for {
		s.config.Source.RequestCheck()
		select {
		case <-changed:
		case <-timer.C:
			return q, -1, q.failure(ErrTimeout, time.Since(began))
		case <-ctx.Done():
			return q, -1, q.failure(ended(ctx), time.Since(began))
		}
		var set topology.Set
		set, changed = s.config.Source.Current()
		q = q.on(set)
		winner, err := q.attempt()
		if err != nil || winner >= 0 {
			return q, winner, err
		}
		if q.final() != "" {
			return q, -1, q.failure(nil, time.Since(began))
		}
	}
}

// ended returns the context's error together with its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (s *Selector) log(ctx context.Context, event string, request Request, more ...slog.Attr) {
	if !s.config.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := append([]slog.Attr{
		slog.String("operation", request.Operation.String()),
		slog.String("criteria", request.Criteria.String()),
	}, more...)
	s.config.Logger.LogAttrs(ctx, slog.LevelDebug, event, attrs...)
}
