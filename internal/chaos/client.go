package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// MapName is the shard map of the run. It maps [0, Keys) to shards, the rest
// nowhere.
const (
	MapName = "chaos"
	Keys    = 48
)

// Role is what a client does.
type Role string

// The roles.
const (
	Worker Role = "worker"
	Mover  Role = "mover"
)

// Fault is something that is wrong on purpose, to see the judge notice.
type Fault string

// The faults; docs/chaos.md says what each breaks.
const (
	NoFault       Fault = ""
	PlainCheck    Fault = "plain-check"    // writes are validated when they begin and not held to it
	StepsNotMade  Fault = "steps-not-made" // local steps are acknowledged, one in three is not made
	StaleReads    Fault = "stale-reads"    // reads may use secondaries, without a token
	BlindRepeat   Fault = "blind-repeat"   // a commit whose outcome is unknown is simply repeated
	OnlineCopying Fault = "online-copying" // movers copy rows while their mapping is online
)

// Faults are all of them.
var Faults = []Fault{PlainCheck, StepsNotMade, StaleReads, BlindRepeat, OnlineCopying}

// Config says what a client is and where it works.
type Config struct {
	ID       string
	Role     Role
	Seed     uint64
	Store    string // DSN of the global store
	User     string // of the shards
	Password string
	Journal  string // path, for workers
	Lease    time.Duration
	Fault    Fault
}

// client is a running client process.
type client struct {
	cfg     Config
	random  *rand.Rand
	router  *shardway.Router
	db      *sqlshard.DB[int64]
	catalog *catalog.Catalog
	opened  []io.Closer
	log     io.Writer
}

// engines of the shards.
var engines = []shardway.Engine{postgres.Engine{}, mysql.Engine{}}

// Run is the life of a client, from a [Config] as JSON, until ctx ends. It
// reports what a client must not leave behind.
func Run(ctx context.Context, config []byte, log io.Writer) (err error) {
	var cfg Config
	if err := json.Unmarshal(config, &cfg); err != nil {
		return fmt.Errorf("reading the client's configuration: %w", err)
	}
	before := runtime.NumGoroutine()
	c, err := open(ctx, cfg, log)
	switch {
	case err != nil && ctx.Err() != nil: // told to end before it had begun
		return noGoroutines(before)
	case err != nil:
		return err
	}
	switch cfg.Role {
	case Worker:
		err = c.work(ctx)
	case Mover:
		c.move(ctx)
	default:
		err = fmt.Errorf("role %q is unknown", cfg.Role)
	}
	return errors.Join(err, c.close(), noGoroutines(before))
}

func open(ctx context.Context, cfg Config, log io.Writer) (_ *client, err error) {
	c := &client{cfg: cfg, log: log, random: rand.New(rand.NewPCG(cfg.Seed, 1))}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	login := shardway.Credentials{User: cfg.User, Password: cfg.Password}
	global, err := postgres.GlobalStore(cfg.Store)
	if err != nil {
		return nil, err
	}
	c.opened = append(c.opened, global)
	if err := c.openCatalog(global); err != nil {
		return nil, err
	}
	var keys *shardway.RangeShardMap[int64]
	for { // the store may be down just now
		if c.router, err = shardway.Open(ctx, global, shardway.Config{}); err == nil {
			if keys, err = shardway.OpenRangeShardMap[int64](ctx, c.router, MapName); err == nil {
				break
			}
			_ = c.router.Close()
		}
		if !pause(ctx, 200*time.Millisecond) {
			return nil, err
		}
	}
	c.opened = append(c.opened, c.router)
	c.db, err = sqlshard.New(keys, c.shards(login))
	if err != nil {
		return nil, err
	}
	c.opened = append(c.opened, c.db)
	return c, nil
}

// openCatalog opens what changes the map.
func (c *client) openCatalog(global *sqlstore.Global) error {
	locals, err := sqlstore.NewLocals(engines, shardway.Credentials{User: c.cfg.User, Password: c.cfg.Password})
	if err != nil {
		return err
	}
	c.opened = append(c.opened, locals)
	c.catalog, err = catalog.New(global, forgetful{locals, c.cfg.Fault}, catalog.Config{Who: c.cfg.ID, Lease: c.cfg.Lease, Wait: 10 * time.Second})
	return err
}

func (c *client) shards(login shardway.Credentials) sqlshard.Config {
	return sqlshard.Config{
		Engines: engines, Credentials: login,
		Servers: sqlshard.ServerConfig{Heartbeat: 500 * time.Millisecond, SelectionTimeout: 5 * time.Second},
	}
}

// close closes what was opened, the last one first.
func (c *client) close() (err error) {
	for len(c.opened) > 0 {
		last := len(c.opened) - 1
		err = errors.Join(err, c.opened[last].Close())
		c.opened = c.opened[:last]
	}
	return err
}

// noGoroutines waits until no more goroutines run than before.
func noGoroutines(before int) error {
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<16)
	return fmt.Errorf("leaked goroutines: %d, and %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
}

func (c *client) say(format string, args ...any) {
	fmt.Fprintf(c.log, "%s %s: %s\n", time.Now().UTC().Format("15:04:05.000"), c.cfg.ID, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// forgetful opens the local stores, and for a fault some that lie.
type forgetful struct {
	catalog.Locals
	fault Fault
}

func (f forgetful) Open(ctx context.Context, l shardway.Location) (store.Local, error) {
	local, err := f.Locals.Open(ctx, l)
	if err != nil || f.fault != StepsNotMade {
		return local, err
	}
	return liar{local}, nil
}

// liar acknowledges steps that it has not made.
type liar struct{ store.Local }

func (l liar) Step(ctx context.Context, s store.LocalStep) (store.StepState, error) {
	if s.Want == store.StepApplied && rand.IntN(3) == 0 {
		return s.Want, nil
	}
	return l.Local.Step(ctx, s)
}
