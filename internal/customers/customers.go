// Package customers tells the main job of Shardway as a story that checks
// itself: a sharded customer database is created, loaded and used by customer
// id; a range of customers is split off and moved to another shard while
// writers and a reader work; in the end every row is compared with what must be
// there. A count that is wrong is an error.
//
// `shardway demo` tells it on embedded SQLite files, examples/customers on
// PostgreSQL, MariaDB or SQLite databases of the user's own. The package knows
// no engine but the one Demo uses; it is no library for moving rows.
package customers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/store/sqlstore"
)

// Names that the story uses in the databases it is given. What it finds under
// them is the rest of an earlier run, and is removed.
const (
	mapName       = "demo_customers"
	customerTable = "demo_customer"
	orderTable    = "demo_order"
)

// Database is one database and the login to it.
type Database struct {
	Engine      shardway.Engine
	Location    shardway.Location
	Credentials shardway.Credentials
}

// Databases are where the story takes place. They must exist, but for SQLite,
// whose files are created. The shards must be three databases of one engine,
// with one login, as an application has one login for all shards.
type Databases struct {
	Global Database
	Shards [3]Database
}

// validate checks what the story relies on; where the databases are is checked
// by those who connect to them.
func (d Databases) validate() error {
	for i, db := range append([]Database{d.Global}, d.Shards[:]...) {
		if db.Engine == nil {
			return &shardway.ArgumentError{Argument: "database " + strconv.Itoa(i), Reason: "has no engine"}
		}
	}
	first := d.Shards[0]
	for i, s := range d.Shards[1:] {
		name := "shard " + strconv.Itoa(i+2)
		switch {
		case s.Engine != first.Engine:
			return &shardway.ArgumentError{Argument: name, Reason: "has another engine, or other options, than shard 1"}
		case s.Credentials.User != first.Credentials.User || s.Credentials.Password != first.Credentials.Password:
			return &shardway.ArgumentError{Argument: name, Reason: "has another login than shard 1: an application has one login for all shards"}
		}
	}
	return nil
}

// Demo tells the story on SQLite files in a folder, which is created when it
// does not exist, and writes it to w. See [Run].
func Demo(ctx context.Context, w io.Writer, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating folder for the demo: %w", err)
	}
	return Run(ctx, w, files(dir))
}

// files are the databases of the demo.
func files(dir string) Databases {
	file := func(name string) Database {
		at := shardway.Location{Servers: []shardway.Server{{Address: filepath.Join(dir, name)}}}
		return Database{Engine: sqlite.Engine{}, Location: at}
	}
	return Databases{Global: file("global.db"), Shards: [3]Database{file("s1.db"), file("s2.db"), file("s3.db")}}
}

// Run tells the story and writes it to w. It returns nil when everything in it
// was as it must be. When ctx ends in the middle it stops where it is; the next
// run on the same databases puts in order what was left, says so, removes it
// and begins again. Two runs at a time on the same databases are not supported.
func Run(ctx context.Context, w io.Writer, dbs Databases) (err error) {
	if err := dbs.validate(); err != nil {
		return err
	}
	began := time.Now()
	s, err := begin(w, dbs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	err = s.tell(ctx)
	if err == nil {
		s.out.line("")
		s.out.line("All counts are right. It took %.1f s.", time.Since(began).Seconds())
		return s.out.err
	}
	if ctx.Err() != nil {
		s.out.line("")
		s.out.line("Interrupted. %s had been acknowledged. The next run puts in order what is left.", count(s.book.acknowledged(), "write"))
	}
	return err
}

// story is one run.
type story struct {
	out     *page
	shards  [3]Database
	dialect *dialect.Dialect // of the shards
	global  *sqlstore.Global
	locals  *sqlstore.Locals
	catalog *catalog.Catalog
	m       shardway.ShardMap // once it is created
	book    *book
}

func begin(w io.Writer, dbs Databases) (*story, error) {
	s := &story{out: &page{w: w}, shards: dbs.Shards, book: &book{}}
	engine := dbs.Shards[0].Engine
	var err error
	if s.dialect, err = dialect.For(engine.Name()); err != nil {
		return nil, err
	}
	for i := range s.shards {
		if s.shards[i].Location, err = engine.Normalize(s.shards[i].Location); err != nil {
			return nil, fmt.Errorf("shard %d: %w", i+1, err)
		}
	}
	if s.locals, err = sqlstore.NewLocals([]shardway.Engine{engine}, s.shards[0].Credentials); err != nil {
		return nil, err
	}
	if s.global, err = sqlstore.OpenGlobal(dbs.Global.Engine, dbs.Global.Location, dbs.Global.Credentials); err != nil {
		return nil, err
	}
	// A run that was killed holds its last change for as long as its lease.
	s.catalog, err = catalog.New(s.global, s.locals, catalog.Config{Lease: lease})
	return s, err
}

const lease = 5 * time.Second

func (s *story) close() error { return errors.Join(s.locals.Close(), s.global.Close()) }

// tell runs the chapters.
func (s *story) tell(ctx context.Context) error {
	s.out.line("A sharded customer database: one global map, three shards on %s", s.dialect.Name())
	if err := s.deploy(ctx); err != nil {
		return err
	}
	if err := s.earlier(ctx); err != nil {
		return fmt.Errorf("putting an earlier run in order: %w", err)
	}
	if err := s.create(ctx); err != nil {
		return err
	}
	app, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer app.close()
	if err := s.load(ctx, app); err != nil {
		return fmt.Errorf("loading the customers: %w", err)
	}
	other, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer other.close()
	if err := s.request(ctx, app, other); err != nil {
		return fmt.Errorf("one request: %w", err)
	}
	if err := s.rebalance(ctx, app); err != nil {
		return err
	}
	if err := s.stale(ctx, other); err != nil {
		return fmt.Errorf("a stale cache: %w", err)
	}
	if err := s.prove(ctx, app); err != nil {
		return fmt.Errorf("the proof: %w", err)
	}
	return nil
}

// page is what the reader of the story gets.
type page struct {
	w       io.Writer
	chapter int
	err     error // the first one of writing
}

// title begins a chapter.
func (p *page) title(text string) {
	p.chapter++
	p.line("")
	p.line("%d. %s", p.chapter, text)
}

func (p *page) line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.w, format+"\n", args...); err != nil && p.err == nil {
		p.err = fmt.Errorf("writing the story: %w", err)
	}
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// euros returns an amount of cents for people.
func euros(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }
