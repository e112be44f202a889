// Package postgres opens PostgreSQL databases for Shardway, with pgx under
// database/sql.
//
//	store, err := postgres.GlobalStore("postgres://router:secret@maps.internal/shardmaps")
//
// Connections to other machines are encrypted unless the options say otherwise
// (sslmode, as in libpq): the default is require, which does not check the
// server's certificate; verify-full does, and is what a network you do not
// trust needs. Addresses of this machine and sockets use prefer.
//
// PGPASSWORD and password files are not read: the password comes from the
// credentials alone.
package postgres

import (
	"context"
	"database/sql/driver"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
	"github.com/shardway/shardway/store/sqlstore"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/pgprobe"
)

// Engine opens PostgreSQL databases. It is a value, safe for concurrent use.
type Engine struct {
	// Options are parameters of pgx as URL query text, such as
	// "sslmode=verify-full&connect_timeout=5"; empty is none. One that names a
	// server, port, database, user or password is refused when it is used, and
	// so is one that is nearly a name the driver knows, such as ssl_mode. Other
	// names are parameters that the server sets for the session, such as
	// search_path. The default connect_timeout is 10 s.
	Options string
	// Probe shapes the prober of shards with several servers; the zero value
	// demands the rights that package pgprobe names.
	Probe pgprobe.Options
}

var _ shardway.Engine = Engine{}

// A socket is written as its folder, with a port: /run/postgresql:5432.
var rules = dsn.Rules{Engine: "postgres", Port: 5432, Socket: true, SocketPort: true, MaxDatabase: 63}

// Name returns "postgres".
func (Engine) Name() string { return rules.Engine }

// Normalize checks a location and returns its one spelling.
func (Engine) Normalize(l shardway.Location) (shardway.Location, error) { return rules.Normalize(l) }

// Connector returns a connector that asks the credentials for the password of
// every new connection.
func (e Engine) Connector(address, database string, c shardway.Credentials) (driver.Connector, error) {
	at, err := rules.Address(address)
	if err != nil {
		return nil, err
	}
	options, err := readOptions(e.Options)
	if err != nil {
		return nil, err
	}
	config, err := configure(at, database, options)
	if err != nil {
		return nil, &shardway.ArgumentError{Argument: "options", Value: e.Options, Reason: "are refused by the driver: " + err.Error()}
	}
	if c.User != "" {
		config.User = c.User
	}
	return &connector{at: at, config: config, credentials: c}, nil
}

// configure builds the driver's configuration. No secret passes through text.
func configure(at topology.Address, database string, options url.Values) (*pgx.ConnConfig, error) {
	settings := map[string]string{"sslmode": "require", "connect_timeout": "10"}
	if dsn.Loopback(at.Host) {
		settings["sslmode"] = "prefer"
	}
	for name := range options {
		settings[name] = options.Get(name)
	}
	settings["host"], settings["port"], settings["dbname"] = at.Host, strconv.Itoa(at.Port), database
	var text strings.Builder
	for name, value := range settings {
		text.WriteString(name + "='" + escape(value) + "' ")
	}
	config, err := pgx.ParseConfig(text.String())
	if err != nil {
		return nil, err
	}
	config.Password = ""
	return config, nil
}

// escape writes a value for a text in quotes.
func escape(value string) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value)
}

// connector opens one database on one server.
type connector struct {
	at          topology.Address
	config      *pgx.ConnConfig
	credentials shardway.Credentials
}

// Connect opens a connection.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	secret, err := c.credentials.Secret(ctx)
	if err != nil {
		return nil, err
	}
	config := c.config.Copy()
	config.Password = secret
	conn, err := stdlib.GetConnector(*config).Connect(ctx)
	if err != nil {
		return nil, dsn.Redact(&connectError{at: c.at, database: config.Database, user: config.User, err: err}, secret)
	}
	return conn, nil
}

// Driver returns pgx's driver with the ability to hand out raw rows.
func (c *connector) Driver() driver.Driver { return rawDriver{stdlib.GetDefaultDriver()} }

// Parse reads a DSN of the form postgres://user:password@host:port/database?options.
// Several hosts are separated by commas; the folder of a socket may be given
// as the option host. Special characters are written as %XX. Errors do not
// show the DSN.
func Parse(text string) (Engine, shardway.Location, shardway.Credentials, error) {
	fail := func(err error) (Engine, shardway.Location, shardway.Credentials, error) {
		return Engine{}, shardway.Location{}, shardway.Credentials{}, err
	}
	u, err := dsn.Parse(text, "postgres", "postgresql")
	if err != nil {
		return fail(err)
	}
	if len(u.Hosts) == 0 && u.Options.Has("host") {
		u.Hosts = []string{u.Take("host")}
		if port := u.Take("port"); port != "" {
			u.Hosts[0] += ":" + port
		}
	}
	e := Engine{Options: u.Options.Encode()}
	if _, err := readOptions(e.Options); err != nil {
		return fail(err)
	}
	l, err := e.Normalize(u.Location(e.Name()))
	if err != nil {
		return fail(err)
	}
	return e, l, u.Credentials, nil
}

// GlobalStore returns the global store in the database of a DSN, see [Parse].
// It does no I/O: the first use connects.
func GlobalStore(text string) (*sqlstore.Global, error) {
	e, l, c, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return sqlstore.OpenGlobal(e, l, c)
}
