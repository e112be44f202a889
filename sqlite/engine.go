// Package sqlite opens SQLite databases for Shardway, with modernc.org/sqlite,
// which needs no C compiler. A database is a file, and its address is the path.
//
//	store, err := sqlite.GlobalStore("sqlite:/var/lib/shardway/maps.db")
//
// Files are used in WAL mode with synchronous=FULL: what was acknowledged
// survives a crash of the machine. A file that does not exist is created by
// the Deploy of a store, never by a connection. There is no login: credentials
// are ignored, the file's permissions decide.
package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"modernc.org/sqlite"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
	"github.com/shardway/shardway/store/sqlstore"
	"github.com/shardway/shardway/topology/sqliteprobe"
)

// Engine opens SQLite databases. It is a value, safe for concurrent use.
type Engine struct {
	// Options are parameters of modernc.org/sqlite as URL query text, such as
	// "_txlock=immediate&_pragma=foreign_keys(1)"; empty is none. A pragma
	// given here takes the place of ours: busy_timeout 5 s, journal_mode WAL,
	// synchronous FULL, cache_size 16 MB. mode=ro opens files for reading only.
	Options string
	// Probe shapes the prober of files.
	Probe sqliteprobe.Options
}

var _ shardway.Engine = Engine{}

// Name returns "sqlite".
func (Engine) Name() string { return "sqlite" }

// Normalize checks a location and returns its one spelling: one server, whose
// address is an absolute path free of symbolic links, and no database name.
func (e Engine) Normalize(l shardway.Location) (shardway.Location, error) {
	if l.Engine != "" && l.Engine != e.Name() {
		return l, &shardway.ArgumentError{Argument: "engine", Value: l.Engine, Reason: "is not " + e.Name()}
	}
	l.Engine = e.Name()
	if l.Database != "" {
		return l, &shardway.ArgumentError{Argument: "database", Value: l.Database, Reason: "is not used by sqlite: the address is the file"}
	}
	if len(l.Servers) != 1 {
		return l, &shardway.ArgumentError{Argument: "server address", Reason: "must be one file"}
	}
	if err := checkPath(l.Servers[0].Address); err != nil {
		return l, err
	}
	l.Servers = slices.Clone(l.Servers)
	l.Servers[0].Address = dsn.Path(l.Servers[0].Address)
	return l, nil
}

func checkPath(path string) error {
	reason := ""
	switch {
	case path == "":
		reason = "is empty: it must be the path of a file"
	case strings.Contains(path, ":memory:"):
		reason = "is no file: every connection would have a database of its own"
	case strings.HasPrefix(path, "file:") || strings.HasPrefix(path, "sqlite:"):
		reason = "is a URI: it must be the path of a file"
	case strings.ContainsRune(path, 0):
		reason = "has a NUL character"
	default:
		return nil
	}
	return &shardway.ArgumentError{Argument: "server address", Value: path, Reason: reason}
}

// Connector returns a connector to a file. The credentials are not used.
func (e Engine) Connector(address, database string, _ shardway.Credentials) (driver.Connector, error) {
	if database != "" {
		return nil, &shardway.ArgumentError{Argument: "database", Value: database, Reason: "is not used by sqlite: the address is the file"}
	}
	if err := checkPath(address); err != nil {
		return nil, err
	}
	given, err := dsn.Options(e.Options)
	if err != nil {
		return nil, err
	}
	options := url.Values{"mode": {"rw"}, "_pragma": pragmas(given)}
	for name, values := range given {
		if name != "_pragma" {
			options[name] = values
		}
	}
	path := dsn.Path(address)
	file := url.URL{Scheme: "file", Path: path, RawQuery: options.Encode()}
	base, err := sqlite.NewConnector(file.String())
	if err != nil {
		return nil, &shardway.ArgumentError{Argument: "options", Value: e.Options, Reason: "are refused by the driver: " + err.Error()}
	}
	return &connector{Connector: base, path: path}, nil
}

// pragmas are ours, without those that are given, and those that are given.
func pragmas(given url.Values) []string {
	ours := []string{"busy_timeout(5000)"}
	if given.Get("mode") != "ro" {
		ours = append(ours, "journal_mode(WAL)", "synchronous(FULL)", "cache_size(-16000)")
	}
	name := func(pragma string) string {
		end := strings.IndexAny(pragma, "(= ")
		if end < 0 {
			return pragma
		}
		return strings.ToLower(pragma[:end])
	}
	var all []string
	for _, p := range ours {
		if !slices.ContainsFunc(given["_pragma"], func(g string) bool { return name(g) == name(p) }) {
			all = append(all, p)
		}
	}
	return append(all, given["_pragma"]...)
}

// connector opens one file.
type connector struct {
	driver.Connector
	path string
}

// Connect opens a connection to the file. One that does not exist is
// os.ErrNotExist.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if _, err := os.Stat(c.path); err != nil {
		return nil, fmt.Errorf("opening file: %w", err)
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening file %q: %w", c.path, err)
	}
	return conn, nil
}

// Driver returns the driver with the ability to create the file.
func (c *connector) Driver() driver.Driver {
	return fileDriver{Driver: c.Connector.Driver(), path: c.path}
}

// fileDriver is the driver as pools of this package name it. Package sqlstore
// finds its ability to create the database.
type fileDriver struct {
	driver.Driver
	path string
}

// CreateDatabase creates the file, empty and for its owner alone, if there is none.
func (d fileDriver) CreateDatabase() error {
	f, err := os.OpenFile(d.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating database: %w", err)
	}
	return f.Close()
}

// Parse reads a DSN of the form sqlite:path?options. The path may begin with
// //, as in sqlite:///var/lib/maps.db; special characters in it are written as
// %XX. The credentials are always empty.
func Parse(text string) (Engine, shardway.Location, shardway.Credentials, error) {
	fail := func(reason string) (Engine, shardway.Location, shardway.Credentials, error) {
		return Engine{}, shardway.Location{}, shardway.Credentials{}, &shardway.ArgumentError{Argument: "DSN", Reason: reason}
	}
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok || !strings.EqualFold(scheme, "sqlite") {
		return fail("has not the form sqlite:path?options")
	}
	path, query, _ := strings.Cut(rest, "?")
	if after, ok := strings.CutPrefix(path, "//"); ok {
		if path = after; !strings.HasPrefix(path, "/") {
			return fail("names a host: write sqlite:path or sqlite:///absolute/path")
		}
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return fail("has a path that cannot be read: write % as %25")
	}
	e := Engine{Options: query}
	l := shardway.Location{Servers: []shardway.Server{{Address: path}}}
	if _, err = dsn.Options(query); err == nil {
		l, err = e.Normalize(l)
	}
	if err != nil {
		return Engine{}, shardway.Location{}, shardway.Credentials{}, err
	}
	return e, l, shardway.Credentials{}, nil
}

// GlobalStore returns the global store in the file of a DSN, see [Parse]. It
// does no I/O.
func GlobalStore(text string) (*sqlstore.Global, error) {
	e, l, c, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return sqlstore.OpenGlobal(e, l, c)
}
