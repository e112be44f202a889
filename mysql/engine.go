// Package mysql opens MySQL and MariaDB databases for Shardway, with
// go-sql-driver/mysql.
//
//	store, err := mysql.GlobalStore("mysql://router:secret@maps.internal/shardmaps")
//
// Connections to other machines are encrypted unless the options say otherwise
// (tls): the default is skip-verify, which does not check the server's
// certificate; tls=true does, and is what a network you do not trust needs.
// Addresses of this machine use preferred; a socket is not encrypted.
package mysql

import (
	"context"
	"database/sql/driver"
	"net/url"

	"github.com/go-sql-driver/mysql"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
	"github.com/shardway/shardway/store/sqlstore"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/mysqlprobe"
)

// Engine opens MySQL and MariaDB databases. It is a value, safe for concurrent use.
type Engine struct {
	// Options are parameters of go-sql-driver/mysql as URL query text, such as
	// "tls=true&timeout=5s"; empty is none. One that names a server, port,
	// database, user or password is refused when it is used. The defaults here
	// are interpolateParams=true (a query is one round trip),
	// rejectReadOnly=true (a demoted primary's connections are dropped; package
	// sqlshard does that by itself, so that errors say why) and
	// timeout=10s. The driver takes names it does not know as variables to set.
	Options string
	// Probe shapes the prober of shards with several servers; the zero value
	// demands the rights that package mysqlprobe names.
	Probe mysqlprobe.Options
}

var _ shardway.Engine = Engine{}

var rules = dsn.Rules{Engine: "mysql", Port: 3306, Socket: true, MaxDatabase: 256}

// Name returns "mysql", for MariaDB too.
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
	options, err := dsn.Options(e.Options)
	if err != nil {
		return nil, err
	}
	config, err := configure(at, options)
	if err != nil {
		return nil, &shardway.ArgumentError{Argument: "options", Value: e.Options, Reason: "are refused by the driver: " + err.Error()}
	}
	config.User, config.DBName = c.User, database
	return &connector{config: config, credentials: c}, nil
}

// configure builds the driver's configuration. No secret passes through text,
// and no name: the driver's DSN cannot express all of them.
func configure(at topology.Address, options url.Values) (*mysql.Config, error) {
	settings := url.Values{"interpolateParams": {"true"}, "rejectReadOnly": {"true"}, "timeout": {"10s"}}
	address := "unix(" + at.Host + ")"
	if at.Network() == "tcp" {
		address = "tcp(" + at.String() + ")"
		settings.Set("tls", "skip-verify")
		if dsn.Loopback(at.Host) {
			settings.Set("tls", "preferred")
		}
	}
	for name := range options {
		settings.Set(name, options.Get(name))
	}
	config, err := mysql.ParseDSN(address + "/?" + settings.Encode())
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{} // errors are returned, not printed
	return config, nil
}

// connector opens one database on one server.
type connector struct {
	config      *mysql.Config
	credentials shardway.Credentials
}

// Connect opens a connection.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	secret, err := c.credentials.Secret(ctx)
	if err != nil {
		return nil, err
	}
	config := c.config.Clone()
	config.Passwd = secret
	base, err := mysql.NewConnector(config)
	if err != nil {
		return nil, dsn.Redact(err, secret)
	}
	conn, err := base.Connect(ctx)
	return conn, dsn.Redact(err, secret)
}

// Driver returns the driver.
func (c *connector) Driver() driver.Driver { return &mysql.MySQLDriver{} }

// Parse reads a DSN of the form mysql://user:password@host:port/database?options.
// Several hosts are separated by commas; the path of a socket may be given as
// the option socket. Special characters are written as %XX. Errors do not show
// the DSN.
func Parse(text string) (Engine, shardway.Location, shardway.Credentials, error) {
	fail := func(err error) (Engine, shardway.Location, shardway.Credentials, error) {
		return Engine{}, shardway.Location{}, shardway.Credentials{}, err
	}
	u, err := dsn.Parse(text, "mysql", "mariadb")
	if err != nil {
		return fail(err)
	}
	if len(u.Hosts) == 0 && u.Options.Has("socket") {
		u.Hosts = []string{u.Take("socket")}
	}
	e := Engine{Options: u.Options.Encode()}
	if _, err := dsn.Options(e.Options); err != nil {
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
