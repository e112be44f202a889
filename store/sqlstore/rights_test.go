package sqlstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlite"
)

// A right that is there is found, and nothing is written; one that is missing
// is named with its table.
func TestTryRights(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t)
		p, pool := placeOf(t, db), db.Open(t)
		g, l := p.deployed(t), p.local(t)
		if err := l.Deploy(t.Context(), "id"); err != nil {
			t.Fatal(err)
		}
		changeOnce(t, g, l)
		before := rowsOf(t, pool, e, columnsOf(t, pool, e))
		for _, privilege := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			for _, name := range globalTables {
				if err := g.TryRights(t.Context(), name, privilege); err != nil && (name != "history" || privilege != "UPDATE") {
					t.Errorf("%s on %s: %v", privilege, name, err)
				}
			}
			for _, name := range localTables {
				if err := l.TryRights(t.Context(), name, privilege); err != nil {
					t.Errorf("%s on %s: %v", privilege, name, err)
				}
			}
		}
		if after := rowsOf(t, pool, e, columnsOf(t, pool, e)); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("trying rights has changed rows:\n%v\n%v", before, after)
		}
		for _, bad := range [][2]string{{"mappings", "DROP"}, {"customers", "SELECT"}, {"mappings", "UPDATE (a, b)"}} {
			if err := g.TryRights(t.Context(), bad[0], bad[1]); !errors.Is(err, shardway.ErrInvalid) {
				t.Errorf("TryRights(%v) = %v, want ErrInvalid", bad, err)
			}
		}
		if e == dbtest.EngineSQLite {
			return // the file system decides
		}
		user, password := e.Server(t).NewUser(t, "reader")
		grant := map[dbtest.Engine]string{
			dbtest.EnginePostgres:  fmt.Sprintf(`GRANT USAGE ON SCHEMA shardway TO "%s"; GRANT SELECT ON shardway.mappings TO "%s"`, user, user),
			dbtest.EngineMySQL:     fmt.Sprintf("GRANT SELECT ON shardway_mappings TO '%s'@'%%'", user),
			dbtest.EngineSQLServer: fmt.Sprintf("CREATE USER [%s] FOR LOGIN [%s]; GRANT SELECT ON shardway.mappings TO [%s]", user, user, user),
		}
		mustExec(t, pool, grant[e])
		q := placeOf(t, db.As(user, password))
		r := q.global(t)
		if err := r.TryRights(t.Context(), "mappings", "SELECT"); err != nil {
			t.Errorf("a right that is there: %v", err)
		}
		for _, c := range [][2]string{{"mappings", "INSERT"}, {"mappings", "UPDATE"}, {"mappings", "DELETE"}, {"shards", "SELECT"}, {"history", "INSERT"}} {
			err := r.TryRights(t.Context(), c[0], c[1])
			if !errors.Is(err, shardway.ErrUnavailable) || !strings.Contains(err.Error(), c[1]+" on table "+table(t, e, c[0])) {
				t.Errorf("%s on %s without the right = %v, want ErrUnavailable that names both", c[1], c[0], err)
			}
		}
	})
}

// The clocks are those of the servers, read alike in every time zone.
func TestNow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		p := placeOf(t, e.NewDatabase(t))
		if e == dbtest.EngineSQLite {
			p = place{engine: sqlite.Engine{}, location: shardway.Location{Servers: []shardway.Server{{Address: dbtest.SQLite(t)}}}}
		}
		g, l := p.deployed(t), p.local(t)
		from := time.Now().Add(-time.Second)
		global, err := g.Now(t.Context())
		local, localErr := l.Now(t.Context())
		if err := errors.Join(err, localErr); err != nil {
			t.Fatal(err)
		}
		to := time.Now().Add(time.Second) // the servers run on this machine
		for _, now := range []time.Time{global, local} {
			if now.Before(from) || now.After(to) || now.Location() != time.UTC {
				t.Errorf("a clock shows %s, between %s and %s", now, from, to)
			}
		}
	})
}
