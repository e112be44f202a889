package shardway

import (
	"context"
	"database/sql/driver"
	"fmt"
	"log/slog"
)

// Credentials are a user and a secret, and nothing else: where to connect to
// comes from the shard map. The zero value asks the engine for its login
// without a password (socket, certificate, or an embedded database).
//
// Credentials never print their secret.
type Credentials struct {
	User     string
	Password string
	// PasswordFunc, when set, is asked for the password of every new
	// connection, so that a rotated secret is picked up. It replaces Password.
	PasswordFunc func(ctx context.Context) (string, error)
}

// Secret returns the password to use now.
func (c Credentials) Secret(ctx context.Context) (string, error) {
	if c.PasswordFunc == nil {
		return c.Password, nil
	}
	secret, err := c.PasswordFunc(ctx)
	if err != nil {
		return "", fmt.Errorf("asking for the password of user %q: %w", c.User, err)
	}
	return secret, nil
}

// String returns the user alone.
func (c Credentials) String() string { return "user " + c.User }

// Format keeps fmt from printing the secret with any verb.
func (c Credentials) Format(f fmt.State, _ rune) { fmt.Fprint(f, c.String()) }

// LogValue keeps slog from logging the secret.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Engine opens the databases of one SQL product. Packages postgres, mysql,
// sqlserver and sqlite have one each. Engines are values, safe for concurrent use.
type Engine interface {
	// Name returns the engine's name in locations: postgres, mysql, sqlserver, sqlite.
	Name() string
	// Normalize checks a location and returns its one canonical spelling:
	// default port added, IPv6 in brackets, host in lower case, file paths
	// absolute and free of symbolic links. It does no network I/O.
	Normalize(l Location) (Location, error)
	// Connector returns a connector to one database on one server. Errors of
	// its connections never hold the secret.
	Connector(address, database string, c Credentials) (driver.Connector, error)
}
