package sqlstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/store/sqlstore"
)

// replicaSet is a primary with a secondary of either engine.
type replicaSet interface {
	NewDatabase(t testing.TB) dbtest.Database
	AwaitReplay(t testing.TB, i int)
	Promote(t testing.TB, i int)
	Kill(t testing.TB, i int)
	Addr(i int) string
	At(d dbtest.Database, i int) dbtest.Database
}

// A store on several servers is changed on the one that is primary: wherever
// that stands in the list, also after a failover, and not on a former primary
// that nobody has told.
func TestOpenLocal_primary(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdef0123456789abcdef"
	for engine, open := range map[string]func(t *testing.T) (replicaSet, shardway.Engine){
		"postgres": func(t *testing.T) (replicaSet, shardway.Engine) {
			t.Helper()
			return dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{}), postgres.Engine{}
		},
		"mysql": func(t *testing.T) (replicaSet, shardway.Engine) {
			t.Helper()
			return dbtest.NewMariaDBSet(t, dbtest.MariaDBSetOptions{}), mysql.Engine{}
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			set, e := open(t)
			d := set.NewDatabase(t)
			set.AwaitReplay(t, 1)
			l := shardway.Location{Engine: engine, Database: d.Name, Servers: []shardway.Server{{Address: set.Addr(1)}, {Address: set.Addr(0)}}}
			local, err := sqlstore.OpenLocal(e, l, shardway.Credentials{User: d.User, Password: d.Password})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := local.Close(); err != nil {
					t.Error(err)
				}
			})
			if err := local.Deploy(t.Context(), id); err != nil {
				t.Fatalf("the primary is the second of the list: %v", err)
			}
			set.AwaitReplay(t, 1)
			if engine == "mysql" { // of two primaries only PostgreSQL tells which is newer
				set.Kill(t, 0)
			}
			set.Promote(t, 1)
			query := "DELETE FROM shardway.local_store"
			if engine == "mysql" {
				query = "DELETE FROM shardway_local_store"
			}
			if _, err := set.At(d, 1).Open(t).ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
			if err := local.Deploy(t.Context(), id); err != nil {
				t.Fatalf("after the failover: %v", err)
			}
			var there int
			if err := set.At(d, 1).Open(t).QueryRowContext(t.Context(), strings.Replace(query, "DELETE", "SELECT count(*)", 1)).Scan(&there); err != nil || there != 1 {
				t.Errorf("%d stores on the new primary, error %v", there, err)
			}
			if engine == "mysql" {
				return
			}
			set.Kill(t, 1)
			set.Kill(t, 0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err = local.Describe(ctx)
			if !errors.Is(err, shardway.ErrUnavailable) || !strings.Contains(err.Error(), set.Addr(0)) || !strings.Contains(err.Error(), set.Addr(1)) {
				t.Errorf("without a primary: error %v, which should name both servers", err)
			}
		})
	}
}
