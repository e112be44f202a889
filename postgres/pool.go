package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
	"github.com/shardway/shardway/topology"
)

// PoolConfig returns the configuration of a native pool to one database on one
// server, with the same rules as [Engine.Connector], and a function that gives
// errors of connecting their text: one line that tells the decisive cause and
// never the secret. The options pool_max_conns and so on of pgxpool are taken.
func (e Engine) PoolConfig(address, database string, c shardway.Credentials) (*pgxpool.Config, func(error) error, error) {
	at, err := rules.Address(address)
	if err != nil {
		return nil, nil, err
	}
	options, err := readOptions(e.Options)
	if err != nil {
		return nil, nil, err
	}
	config, err := poolConfig(at, database, options)
	if err != nil {
		return nil, nil, &shardway.ArgumentError{Argument: "options", Value: e.Options, Reason: "are refused by the driver: " + err.Error()}
	}
	if c.User != "" {
		config.ConnConfig.User = c.User
	}
	var last atomic.Pointer[string] // the secret used last
	config.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		secret, err := c.Secret(ctx)
		if err != nil {
			return err
		}
		last.Store(&secret)
		conn.Password = secret
		return nil
	}
	user := config.ConnConfig.User
	explain := func(err error) error {
		var failed *pgconn.ConnectError
		if errors.As(err, &failed) {
			err = &connectError{at: at, database: database, user: user, err: err}
		}
		if secret := last.Load(); secret != nil {
			err = dsn.Redact(err, *secret)
		}
		return err
	}
	return config, explain, nil
}

// poolConfig is configure for a pool.
func poolConfig(at topology.Address, database string, options url.Values) (*pgxpool.Config, error) {
	pool, rest := url.Values{}, url.Values{}
	for name, values := range options {
		if strings.HasPrefix(name, "pool_") {
			pool[name] = values
		} else {
			rest[name] = values
		}
	}
	conn, err := configure(at, database, rest)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for name := range pool {
		text.WriteString(name + "='" + escape(pool.Get(name)) + "' ")
	}
	config, err := pgxpool.ParseConfig("sslmode=disable " + text.String()) // all else comes from conn
	if err != nil {
		return nil, err
	}
	config.ConnConfig = conn
	return config, nil
}
