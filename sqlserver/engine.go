// Package sqlserver opens SQL Server and Azure SQL databases for Shardway, with
// microsoft/go-mssqldb.
//
//	store, err := sqlserver.GlobalStore("sqlserver://router:secret@maps.internal?database=shardmaps")
//
// Connections to other machines are encrypted, and the server's certificate is
// checked, unless the options say otherwise (encrypt, TrustServerCertificate).
// For addresses of this machine only the login is encrypted.
package sqlserver

import (
	"context"
	"database/sql/driver"
	"net"
	"net/url"
	"strconv"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
	"github.com/shardway/shardway/store/sqlstore"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/sqlserverprobe"
)

// Engine opens SQL Server databases. It is a value, safe for concurrent use.
type Engine struct {
	// Options are parameters of go-mssqldb as URL query text, such as
	// "TrustServerCertificate=true&dial+timeout=5"; empty is none. One that
	// names a server, port, database, user or password is refused when it is
	// used.
	Options string
	// Probe shapes the prober of shards with several servers; the zero value
	// demands the rights that package sqlserverprobe names.
	Probe sqlserverprobe.Options
}

var _ shardway.Engine = Engine{}

var rules = dsn.Rules{Engine: "sqlserver", Port: 1433, MaxDatabase: 128}

// Name returns "sqlserver".
func (Engine) Name() string { return rules.Engine }

// Normalize checks a location and returns its one spelling. Named instances
// are refused: give their port.
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
	config.User, config.Database = c.User, database
	return &connector{config: config, credentials: c}, nil
}

// configure builds the driver's configuration. No secret passes through text.
func configure(at topology.Address, options url.Values) (msdsn.Config, error) {
	settings := url.Values{}
	encrypted := dsn.Loopback(at.Host)
	for name := range options {
		settings.Set(name, options.Get(name))
		encrypted = encrypted || strings.EqualFold(name, msdsn.Encrypt)
	}
	if !encrypted {
		settings.Set(msdsn.Encrypt, "true")
	}
	u := url.URL{Scheme: "sqlserver", Host: net.JoinHostPort(at.Host, strconv.Itoa(at.Port)), RawQuery: settings.Encode()}
	return msdsn.Parse(u.String())
}

// connector opens one database on one server.
type connector struct {
	config      msdsn.Config
	credentials shardway.Credentials
}

// Connect opens a connection.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	secret, err := c.credentials.Secret(ctx)
	if err != nil {
		return nil, err
	}
	config := c.config
	config.Password = secret
	conn, err := mssql.NewConnectorConfig(config).Connect(ctx)
	if err != nil {
		return nil, dsn.Redact(err, secret)
	}
	return conn, nil
}

// Driver returns the driver.
func (c *connector) Driver() driver.Driver { return &mssql.Driver{} }

// Parse reads a DSN of the form
// sqlserver://user:password@host:port?database=name&options; the database may
// also stand behind the host, as with other engines. Special characters are
// written as %XX. Errors do not show the DSN.
func Parse(text string) (Engine, shardway.Location, shardway.Credentials, error) {
	fail := func(err error) (Engine, shardway.Location, shardway.Credentials, error) {
		return Engine{}, shardway.Location{}, shardway.Credentials{}, err
	}
	u, err := dsn.Parse(text, "sqlserver", "mssql")
	if err != nil {
		return fail(err)
	}
	if u.Database == "" {
		u.Database = u.Take("database")
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
