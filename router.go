package shardway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// LoadPolicy says how a router comes to know a shard map.
type LoadPolicy uint8

// The load policies.
const (
	// Lazy reads the mapping of a key when the key is asked for.
	Lazy LoadPolicy = 0
	// Eager reads the whole map when it is opened and then follows its changes.
	// A change of the whole map is taken in, and what else changes meanwhile
	// with it, after a random pause of up to 20 times as long as reading the map
	// took, or trying in vain since, and at most 30 s, lest all routers read it
	// at once.
	Eager LoadPolicy = 1
)

// String returns "lazy" or "eager".
func (p LoadPolicy) String() string {
	switch p {
	case Lazy:
		return "lazy"
	case Eager:
		return "eager"
	}
	return "invalid"
}

// Config is the configuration of a [Router]. The zero value is a good one.
type Config struct {
	// LoadPolicy of all maps of the router.
	LoadPolicy LoadPolicy
	// PollInterval is the time between two questions for changes of an eagerly
	// loaded map; 0 is 1 s.
	PollInterval time.Duration
	// StoreTimeout bounds one read of the store, and the silence within that of
	// a whole map; 0 is 5 s. Callers may give up earlier by their context.
	StoreTimeout time.Duration
	// MaxStoreReads bounds the lookups of keys that the store works on for
	// this router at the same time; 0 is 16. More of them wait.
	MaxStoreReads int
	// Logger gets what no caller can be told: that following a map fails or
	// works again. Nil is no logging.
	Logger *slog.Logger
}

// validate checks c and fills in defaults.
func (c *Config) validate() error {
	for _, d := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"PollInterval", &c.PollInterval, time.Second},
		{"StoreTimeout", &c.StoreTimeout, 5 * time.Second},
	} {
		if *d.value < 0 {
			return &ArgumentError{Argument: d.name, Value: d.value.String(), Reason: "is negative"}
		}
		if *d.value == 0 {
			*d.value = d.preset
		}
	}
	if c.MaxStoreReads < 0 {
		return &ArgumentError{Argument: "MaxStoreReads", Value: fmt.Sprint(c.MaxStoreReads), Reason: "is negative"}
	}
	if c.MaxStoreReads == 0 {
		c.MaxStoreReads = 16
	}
	if c.LoadPolicy > Eager {
		return &ArgumentError{Argument: "LoadPolicy", Value: fmt.Sprint(uint8(c.LoadPolicy)), Reason: "is neither Lazy nor Eager"}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Router finds the shard for a key. It reads the global store, through a
// [Source], and keeps what it has read in memory: a program has one Router for
// as long as it runs. Known keys route while the store is down.
//
// A Router is safe for concurrent use. Lookups of known keys take no lock.
type Router struct {
	src   Source
	cfg   Config
	reads chan struct{} // one token for each lookup that the store works on
	opens flights[string, *Map]
	feeds sync.WaitGroup
	ended sync.Once

	mu     sync.Mutex // guards the fields below
	maps   map[string]*Map
	closed bool
}

// Open returns a router that reads src. When src has a method
// Ping(context.Context) error it must succeed, so that a missing store is
// noticed here. The router does not close src.
func Open(ctx context.Context, src Source, cfg Config) (*Router, error) {
	if src == nil {
		return nil, &ArgumentError{Argument: "src", Reason: "is missing"}
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if p, ok := src.(interface{ Ping(context.Context) error }); ok {
		if err := p.Ping(ctx); err != nil {
			return nil, fmt.Errorf("opening the router: %w", err)
		}
	}
	return &Router{src: src, cfg: cfg, reads: make(chan struct{}, cfg.MaxStoreReads), maps: map[string]*Map{}}, nil
}

// Close ends all reads of the store, waits for them and forgets all maps. It
// is idempotent and returns nil. Lookups fail from then on.
func (r *Router) Close() error {
	r.ended.Do(r.end) // a second caller waits for the first
	return nil
}

func (r *Router) end() {
	r.mu.Lock()
	r.closed = true
	maps := r.maps
	r.maps = nil
	r.mu.Unlock()
	r.opens.close()
	for _, m := range maps {
		m.close()
	}
	r.feeds.Wait()
	for _, m := range maps {
		m.cache.clear()
	}
}

// Map returns the handle for a shard map of any kind, with [ErrMapNotFound]
// when there is none. One map has one handle in a router, which is kept until
// the store says that the map is gone. With [Eager] the first call reads the
// whole map. Programs mostly want [OpenListShardMap] or [OpenRangeShardMap].
func (r *Router) Map(ctx context.Context, name string) (*Map, error) {
	if err := CheckName("shard map", name); err != nil {
		return nil, err
	}
	r.mu.Lock()
	m := r.maps[name]
	r.mu.Unlock()
	if m != nil {
		return m, nil
	}
	m, _, err := r.opens.do(ctx, name, false, func(ctx context.Context) (*Map, error) { return r.open(ctx, name) })
	if err != nil {
		return nil, fmt.Errorf("opening shard map %q: %w", name, err)
	}
	return m, nil
}

func (r *Router) open(ctx context.Context, name string) (*Map, error) {
	r.mu.Lock()
	m := r.maps[name]
	r.mu.Unlock()
	if m != nil { // opened since the caller looked
		return m, nil
	}
	described, err := r.describe(ctx, name)
	if err != nil {
		return nil, err
	}
	m = newMap(r, described)
	var loaded int64 // generation
	if r.cfg.LoadPolicy == Eager {
		if loaded, err = m.load(ctx); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	r.maps[name] = m
	if r.cfg.LoadPolicy == Eager {
		m.follow(loaded)
	}
	return m, nil
}

func (r *Router) describe(ctx context.Context, name string) (ShardMap, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StoreTimeout)
	defer cancel()
	described, err := r.src.ShardMap(ctx, name)
	if err != nil && ctx.Err() != nil {
		err = waitError(ctx)
	}
	return described, err
}

func (r *Router) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// drop forgets a map that is gone.
func (r *Router) drop(m *Map) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maps[m.described.Name] == m {
		delete(r.maps, m.described.Name)
	}
}
