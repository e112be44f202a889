package sqlstore_test

import (
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/sqlserver"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
	"github.com/shardway/shardway/store/sqlstore"
	"github.com/shardway/shardway/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// place is where a test database is, in the words of the engine packages.
type place struct {
	engine      shardway.Engine
	location    shardway.Location
	credentials shardway.Credentials
}

func placeOf(t testing.TB, db dbtest.Database) place {
	t.Helper()
	p := place{
		location: shardway.Location{Database: db.Name, Servers: []shardway.Server{{Address: db.Addr()}}},
		// The database's name is in no DSN here, nor is the password.
		credentials: shardway.Credentials{User: db.User, Password: db.Password},
	}
	switch dbtest.Engine(db.Engine) {
	case dbtest.EngineSQLite:
		p.engine, p.location = sqlite.Engine{}, shardway.Location{Servers: []shardway.Server{{Address: db.Name}}}
	case dbtest.EnginePostgres:
		p.engine = postgres.Engine{Options: db.Query}
	case dbtest.EngineMySQL:
		p.engine = mysql.Engine{Options: db.Query}
	case dbtest.EngineSQLServer:
		p.engine = sqlserver.Engine{Options: db.Query}
	}
	return p
}

func (p place) global(t testing.TB) *sqlstore.Global {
	t.Helper()
	g, err := sqlstore.OpenGlobal(p.engine, p.location, p.credentials)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func (p place) local(t testing.TB) *sqlstore.Local {
	t.Helper()
	l, err := sqlstore.OpenLocal(p.engine, p.location, p.credentials)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (p place) deployed(t testing.TB) *sqlstore.Global {
	t.Helper()
	g := p.global(t)
	if _, err := g.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestSuite(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		open := func(t *testing.T) store.Global { return placeOf(t, e.NewDatabase(t)).deployed(t) }
		t.Run("global", func(t *testing.T) {
			t.Parallel()
			storetest.Global(t, open)
		})
		t.Run("undeployed", func(t *testing.T) {
			t.Parallel()
			storetest.Undeployed(t, func(t *testing.T) storetest.Deployable { return placeOf(t, e.NewDatabase(t)).global(t) })
		})
		t.Run("local", func(t *testing.T) {
			t.Parallel()
			storetest.Local(t, func(t *testing.T) store.Local { return placeOf(t, e.NewDatabase(t)).local(t) })
		})
		t.Run("compare", func(t *testing.T) {
			t.Parallel()
			storetest.Compare(t, open, memory)
		})
	})
}

func memory(t *testing.T) store.Global {
	g := memstore.NewGlobal()
	if _, err := g.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return g
}
