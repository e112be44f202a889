package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
)

// A native pool is configured by the same rules as a connector, takes the
// options of pgxpool besides, and has no secret in it.
func TestPoolConfig(t *testing.T) {
	t.Parallel()
	e := Engine{Options: "pool_max_conns=7&pool_max_conn_idle_time=3s&application_name=it%27s&sslmode=require"}
	login := shardway.Credentials{User: "anna", Password: "s3cr3t"}
	config, _, err := e.PoolConfig("db.example:77", `a 'b'`, login)
	if err != nil {
		t.Fatal(err)
	}
	c := config.ConnConfig
	got := []any{config.MaxConns, config.MaxConnIdleTime, c.Host, c.Port, c.Database, c.User, c.Password, c.RuntimeParams["application_name"], c.TLSConfig != nil}
	want := []any{int32(7), 3 * time.Second, "db.example", uint16(77), `a 'b'`, "anna", "", "it's", true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if err := config.BeforeConnect(t.Context(), c); err != nil || c.Password != "s3cr3t" {
		t.Errorf("the password of a connection: %v", err)
	}
	for options, address := range map[string]string{
		"sslmode=never": "h", "pool_max_conns=many": "h", "password=s3cr3t": "h", "ssl_mode=require": "h", "": "a:b:c",
	} {
		if _, _, err := (Engine{Options: options}).PoolConfig(address, "db", login); !errors.Is(err, shardway.ErrInvalid) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("options %q, address %q: %v", options, address, err)
		}
	}
}

// Errors of a pool's connections are one line with the decisive cause, as those
// of a connector.
func TestPoolError(t *testing.T) {
	t.Parallel()
	d := dbtest.EnginePostgres.NewDatabase(t)
	config, explain, err := Engine{}.PoolConfig(d.Addr(), d.Name, shardway.Credentials{User: d.User, Password: "s3cr3t"})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	text := explain(pool.Ping(t.Context())).Error()
	if !strings.HasPrefix(text, "connecting to "+d.Addr()+", database ") || !strings.Contains(text, "28P01") || strings.ContainsAny(text, "\n\t") || strings.Contains(text, "s3cr3t") {
		t.Errorf("%q", text)
	}
}
