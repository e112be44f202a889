package dbtest

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/microsoft/go-mssqldb" // registers "sqlserver"
	_ "modernc.org/sqlite"              // registers "sqlite"
)

// Database says where a database is and how to log in to it. It is a plain value.
type Database struct {
	Engine   string // "sqlite", "postgres", "mysql" or "sqlserver"
	Host     string
	Port     int
	Name     string // for SQLite the path of the file; elsewhere it has a '-', so it must be quoted in statements
	User     string
	Password string // has characters that URLs and statements must escape
	Query    string // raw URL query from a SHARDWAY_TEST_ variable, such as sslmode=require; else empty
}

// Addr is the server's host:port.
func (d Database) Addr() string { return net.JoinHostPort(d.Host, strconv.Itoa(d.Port)) }

// DSN is the database as a URL with everything escaped: postgres://user:password@host:port/name, the same with
// mysql, sqlserver://user:password@host:port?database=name, or sqlite:///path.
func (d Database) DSN() string {
	u := url.URL{Scheme: d.Engine, Path: "/" + d.Name, RawPath: "/" + url.PathEscape(d.Name), RawQuery: d.Query}
	switch Engine(d.Engine) {
	case EngineSQLite:
		u.Path, u.RawPath = d.Name, ""
	case EngineSQLServer:
		q := u.Query()
		q.Set("database", d.Name)
		u.Path, u.RawPath, u.RawQuery = "", "", q.Encode()
	case EnginePostgres, EngineMySQL:
	}
	if d.Host != "" {
		u.User, u.Host = url.UserPassword(d.User, d.Password), d.Addr()
		return u.String()
	}
	return u.Scheme + "://" + u.EscapedPath()
}

// As is the same database with another login.
func (d Database) As(user, password string) Database {
	d.User, d.Password = user, password
	return d
}

// Open returns a pool on the database that is closed when the test ends. It connects on first use, so a wrong
// password shows there. Without arguments, a call may hold several statements.
func (d Database) Open(t testing.TB) *sql.DB {
	t.Helper()
	pool, err := d.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// open is Open for callers that have no test.
func (d Database) open() (*sql.DB, error) {
	switch Engine(d.Engine) {
	case EngineSQLite:
		file := url.URL{Scheme: "file", Path: d.Name, RawQuery: "_pragma=busy_timeout(10000)"}
		return sql.Open("sqlite", file.String())
	case EnginePostgres:
		config, err := pgx.ParseConfig(d.DSN())
		if err != nil {
			return nil, fmt.Errorf("reading the address of %s database %q: %w", d.Engine, d.Name, err)
		}
		return stdlib.OpenDB(*config), nil
	case EngineMySQL:
		connector, err := d.mysqlConnector()
		if err != nil {
			return nil, fmt.Errorf("reading the address of %s database %q: %w", d.Engine, d.Name, err)
		}
		return sql.OpenDB(connector), nil
	case EngineSQLServer:
		return sql.Open("sqlserver", d.DSN())
	default:
		return nil, fmt.Errorf("unknown engine %q, not one of %v", d.Engine, Engines())
	}
}

// mysqlConnector reads the parameters in Query as the driver does, then sets the login field by field, which needs
// no escaping.
func (d Database) mysqlConnector() (driver.Connector, error) {
	config, err := mysql.ParseDSN("tcp()/?" + d.Query)
	if err != nil {
		return nil, err
	}
	config.Net, config.Addr = "tcp", d.Addr()
	config.User, config.Passwd, config.DBName = d.User, d.Password, d.Name
	config.MultiStatements, config.ParseTime = true, true
	return mysql.NewConnector(config)
}
