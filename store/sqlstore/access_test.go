package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/store"
)

func mustExec(t testing.TB, pool *sql.DB, text string) {
	t.Helper()
	if _, err := pool.ExecContext(t.Context(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func scan(t testing.TB, pool *sql.DB, text string, dest ...any) {
	t.Helper()
	if err := pool.QueryRowContext(t.Context(), text).Scan(dest...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// eachServer is dbtest.Each without SQLite, which has no login.
func eachServer(t *testing.T, test func(t *testing.T, e dbtest.Engine)) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.EngineSQLite {
			test(t, e)
		}
	})
}

// A wrong password, an unknown database and a server that is not there are
// ErrUnavailable; SEC-01: the secret is not in the text, with any verb.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		const secret = "s3cr3t:p@ss/w?rd#%41"
		db := e.NewDatabase(t)
		good := placeOf(t, db)
		wrong := placeOf(t, db.As(db.User, secret))
		unknown := good
		unknown.location.Database = "no_such_database"
		dead := placeOf(t, db.As(db.User, secret))
		dead.location.Servers = []shardway.Server{{Address: closedPort(t)}}
		for name, p := range map[string]place{"wrong password": wrong, "unknown database": unknown, "no server": dead} {
			g := p.global(t)
			_, describe := g.Describe(t.Context())
			_, deploy := g.Deploy(t.Context(), false)
			_, lookup := g.Lookup(t.Context(), shardway.ShardMap{ID: 1, KeyKind: shardway.KindInt64}, shardway.Int64Key(1))
			local := p.local(t).Deploy(t.Context(), "id")
			for method, err := range map[string]error{"Describe": describe, "Deploy": deploy, "Lookup": lookup, "local Deploy": local} {
				if !errors.Is(err, shardway.ErrUnavailable) {
					t.Errorf("%s: %s = %v, want ErrUnavailable", name, method, err)
				}
				if text := fmt.Sprintf("%v %+v %#v %q", err, err, p.credentials, err); strings.Contains(text, secret) || strings.Contains(text, "s3cr3t") {
					t.Errorf("%s: %s shows the secret: %s", name, method, text)
				}
			}
		}
	})
}

// closedPort is an address where nobody listens.
func closedPort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// grantRead gives a login what a router needs, and no more.
var grantRead = map[dbtest.Engine]string{
	dbtest.EnginePostgres:  `GRANT USAGE ON SCHEMA shardway TO %[1]s; GRANT SELECT ON ALL TABLES IN SCHEMA shardway TO %[1]s`,
	dbtest.EngineMySQL:     "GRANT SELECT ON `%[2]s`.* TO %[1]s",
	dbtest.EngineSQLServer: `CREATE USER %[1]s FOR LOGIN %[1]s; GRANT SELECT ON SCHEMA::shardway TO %[1]s`,
}

// A login without rights is refused as ErrUnavailable; one that may only read
// can route, and cannot write.
func TestRights(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		server := e.Server(t)
		db := e.NewDatabase(t)
		owner := placeOf(t, db)
		m, mapping := changeOnce(t, owner.deployed(t), deployedLocal(t, owner))
		user, password := server.NewUser(t, "router")
		router := placeOf(t, db.As(user, password))
		if _, err := router.global(t).Describe(t.Context()); !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("Describe without rights = %v, want ErrUnavailable", err)
		}
		login := `"` + user + `"`
		if e == dbtest.EngineMySQL {
			login = "'" + user + "'@'%'"
		}
		server.Exec(t, db.Name, fmt.Sprintf(grantRead[e], login, db.Name))
		g := router.global(t)
		if found, err := g.ShardMap(t.Context(), m.Name); err != nil || found.ID != m.ID {
			t.Errorf("ShardMap with read rights = %+v, %v", found, err)
		}
		if answer, err := g.Lookup(t.Context(), m, shardway.Int64Key(7)); err != nil || answer.Mapping.ID != mapping.ID {
			t.Errorf("Lookup with read rights = %+v, %v", answer, err)
		}
		rows := 0
		if _, err := g.Load(t.Context(), m, shardway.Range{}, func(shardway.MappingRow) error { rows++; return nil }); err != nil || rows != 1 {
			t.Errorf("Load with read rights = %d rows, %v", rows, err)
		}
		if c, err := g.Changes(t.Context(), m, 1); err != nil || !c.Complete {
			t.Errorf("Changes with read rights = %+v, %v", c, err)
		}
		if err := g.View(t.Context(), func(tx store.Reader) error { _, err := tx.Shards(t.Context(), 0); return err }); err != nil {
			t.Errorf("View with read rights = %v", err)
		}
		if err := tryAddMap(t, g); !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("Update with read rights = %v, want ErrUnavailable", err)
		}
		if _, err := g.Deploy(t.Context(), true); !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("Deploy with read rights = %v, want ErrUnavailable", err)
		}
		if _, err := owner.global(t).Lookup(t.Context(), m, shardway.Int64Key(7)); err != nil {
			t.Errorf("Lookup after a refused Deploy = %v", err)
		}
	})
}

// DSN-04: the password is asked for at each new connection.
func TestPasswordRotates(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		server := e.Server(t)
		db := e.NewDatabase(t)
		placeOf(t, db).deployed(t)
		user, old := server.NewUser(t, "rotating")
		p := placeOf(t, db.As(user, ""))
		var current atomic.Value
		var asked atomic.Int64
		current.Store(old)
		p.credentials.PasswordFunc = func(context.Context) (string, error) {
			asked.Add(1)
			return current.Load().(string), nil
		}
		login := `"` + user + `"`
		if e == dbtest.EngineMySQL {
			login = "'" + user + "'@'%'"
		}
		server.Exec(t, db.Name, fmt.Sprintf(grantRead[e], login, db.Name))
		g := p.global(t)
		if _, err := g.Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		change := map[dbtest.Engine]string{
			dbtest.EnginePostgres:  `ALTER ROLE %s PASSWORD 'another one'`,
			dbtest.EngineMySQL:     `ALTER USER %s IDENTIFIED BY 'another one'`,
			dbtest.EngineSQLServer: `ALTER LOGIN %s WITH PASSWORD = 'another one'`,
		}
		server.Exec(t, db.Name, fmt.Sprintf(change[e], login))
		if _, err := p.global(t).Describe(t.Context()); !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("Describe with the old password = %v, want ErrUnavailable", err)
		}
		before := asked.Load()
		current.Store("another one")
		if _, err := p.global(t).Describe(t.Context()); err != nil || asked.Load() != before+1 {
			t.Errorf("Describe with the new password = %v, asked %d times", err, asked.Load()-before)
		}
		broken := errors.New("vault is sealed")
		p.credentials.PasswordFunc = func(context.Context) (string, error) { return "", broken }
		if _, err := p.global(t).Describe(t.Context()); !errors.Is(err, broken) || !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("Describe without a password = %v", err)
		}
	})
}

// DSN-01: a login whose name has a colon.
func TestUserWithColon(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		server := e.Server(t)
		db := e.NewDatabase(t)
		const user, password = "tenant#1:reader", "p:w"
		create := map[dbtest.Engine][2]string{
			dbtest.EnginePostgres:  {`CREATE ROLE "tenant#1:reader" LOGIN PASSWORD 'p:w'`, `DROP ROLE "tenant#1:reader"`},
			dbtest.EngineMySQL:     {`CREATE USER 'tenant#1:reader'@'%' IDENTIFIED BY 'p:w'; GRANT SELECT ON *.* TO 'tenant#1:reader'@'%'`, `DROP USER 'tenant#1:reader'@'%'`},
			dbtest.EngineSQLServer: {`CREATE LOGIN [tenant#1:reader] WITH PASSWORD = 'p:w', CHECK_POLICY = OFF`, `DROP LOGIN [tenant#1:reader]`},
		}
		server.Exec(t, "", create[e][0])
		defer server.Exec(t, "", create[e][1])
		p := placeOf(t, db.As(user, password))
		g := p.global(t)
		defer g.Close()
		if _, err := g.Describe(t.Context()); !errors.Is(err, shardway.ErrNoStore) {
			t.Errorf("Describe = %v, want ErrNoStore: the login works", err)
		}
	})
}
