package sqlshard_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/sqlshard"
)

// otherEngine is an engine that is not SQLite.
func otherEngine(testing.TB) shardway.Engine { return postgres.Engine{} }

// newLogin makes an application's login that may read the table item and the
// local map of the given shards.
func (r *rig) newLogin(hint string, shards ...string) (user, password string) {
	r.t.Helper()
	server := r.kind.Server(r.t)
	user, password = server.NewUser(r.t, hint)
	for _, shard := range shards {
		switch r.kind {
		case dbtest.EnginePostgres:
			server.Exec(r.t, r.dbs[shard].Name, fmt.Sprintf(`GRANT SELECT, INSERT ON item TO %[1]s; GRANT USAGE ON SCHEMA shardway TO %[1]s;
				GRANT SELECT ON ALL TABLES IN SCHEMA shardway TO %[1]s`, quoted(user)))
		case dbtest.EngineMySQL:
			server.Exec(r.t, "", fmt.Sprintf("GRANT SELECT, INSERT ON `%s`.* TO '%s'@'%%'", r.dbs[shard].Name, user))
		case dbtest.EngineSQLite, dbtest.EngineSQLServer, dbtest.EngineMongoDB:
		}
	}
	return user, password
}

// rename changes the name of a login.
func (r *rig) rename(from, to string) {
	r.t.Helper()
	statement := "ALTER ROLE " + quoted(from) + " RENAME TO " + quoted(to)
	if r.kind == dbtest.EngineMySQL {
		statement = fmt.Sprintf("RENAME USER '%s'@'%%' TO '%s'@'%%'", from, to)
	}
	r.kind.Server(r.t).Exec(r.t, "", statement)
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func eachServer(t *testing.T, test func(t *testing.T, e dbtest.Engine)) {
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// DSN-01: a user name with a colon and other signs, and a password full of
// them, log in: nothing passes through the text of a DSN.
func TestOddLogin(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		plain, password := r.newLogin("reader", "a")
		user := "t#1:@/" + plain
		r.rename(plain, user)
		t.Cleanup(func() { r.rename(user, plain) })
		db := r.open(sqlshard.Config{Credentials: shardway.Credentials{User: user, Password: password}})
		conn := opened(t, db, 7, "a")
		defer conn.Close()
		if got := r.currentUser(conn); got != user {
			t.Errorf("logged in as %q, want %q", got, user)
		}
	})
}

// SEC-01: a refused login is ErrUnavailable, says where, and shows no secret.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		user, _ := r.newLogin("reader", "a")
		const wrong = "w0rd-of-nobody"
		for name, c := range map[string]shardway.Credentials{
			"password": {User: user, Password: wrong},
			"provider": {User: user, PasswordFunc: func(context.Context) (string, error) { return wrong, nil }},
		} {
			db := r.open(sqlshard.Config{Credentials: c})
			lookup := refused(t, db, 7, shardway.ErrUnavailable)
			text := fmt.Sprintf("%v %+v %#v %v", lookup.Error(), lookup, lookup.Err, db.Stats())
			if strings.Contains(text, wrong) || lookup.Shard != "a" || lookup.Server != r.dbs["a"].Addr() {
				t.Errorf("%s: %s", name, text)
			}
			quiet(t, db)
		}
	})
}

// DSN-04: a rotated password is used by new sessions; those that are open live on.
func TestRotatedPassword(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		user, old := r.newLogin("reader", "a")
		var secret atomic.Value
		var asked atomic.Int64
		secret.Store(old)
		db := r.open(sqlshard.Config{Credentials: shardway.Credentials{User: user, PasswordFunc: func(context.Context) (string, error) {
			asked.Add(1)
			return secret.Load().(string), nil
		}}})
		first := opened(t, db, 7, "a")
		const rotated = "another secret"
		change := map[dbtest.Engine]string{
			dbtest.EnginePostgres: "ALTER ROLE " + quoted(user) + " PASSWORD '" + rotated + "'",
			dbtest.EngineMySQL:    "SET PASSWORD FOR '" + user + "'@'%' = PASSWORD('" + rotated + "')",
		}[e]
		r.kind.Server(t).Exec(t, "", change)
		before := asked.Load()
		refused(t, db, 7, shardway.ErrUnavailable)
		if n := asked.Load() - before; n < 1 || n > 2 {
			t.Errorf("a refused login asked for the password %d times", n)
		}
		secret.Store(rotated)
		second := opened(t, db, 7, "a")
		on(t, first, "a")
		_, _ = first.Close(), second.Close()
		quiet(t, db)
	})
}

// DSN-07: two shards that differ only in the port of their server.
func TestPortsDiffer(t *testing.T) {
	t.Parallel()
	one := dbtest.Postgres(t).NewDatabase(t)
	server := dbtest.NewPostgres(t, dbtest.PostgresOptions{})
	server.Exec(t, "", "CREATE DATABASE "+quoted(one.Name))
	two := server.NewDatabase(t)
	two.Name = one.Name
	if one.Host != two.Host || one.Port == two.Port {
		t.Fatalf("the servers %s and %s do not differ by port alone", one.Addr(), two.Addr())
	}
	r := newEmptyRig(t, dbtest.EnginePostgres)
	if two.User != one.User || two.Password != one.Password {
		server.Exec(t, "", fmt.Sprintf("CREATE ROLE %s SUPERUSER LOGIN PASSWORD '%s'", quoted(one.User), strings.ReplaceAll(one.Password, "'", "''")))
		two = two.As(one.User, one.Password)
	}
	r.addDatabase("a", one)
	r.addDatabase("b", two)
	r.addRange("a", 0, 100)
	r.addRange("b", 100, 200)
	db := r.open(sqlshard.Config{})
	a, b := opened(t, db, 7, "a"), opened(t, db, 150, "b")
	if a.Server() != one.Addr() || b.Server() != two.Addr() {
		t.Errorf("on %q and %q", a.Server(), b.Server())
	}
	_, _ = a.Close(), b.Close()
}

// DSN-03: options of the caller reach the driver; those that name a place or a
// login are refused by name.
func TestOptions(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EnginePostgres)
	db := r.open(sqlshard.Config{Engines: []shardway.Engine{postgres.Engine{Options: "application_name=shop&sslmode=disable"}}})
	_ = opened(t, db, 7, "a").Close() // is named by its mapping
	conn, err := db.OpenConnectionForShard(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if err := conn.QueryRowContext(t.Context(), "SELECT current_setting('application_name')").Scan(&name); err != nil || name != "shop" {
		t.Errorf("application_name is %q, %v", name, err)
	}
	_ = conn.Close()
	elsewhere := r.open(sqlshard.Config{Engines: []shardway.Engine{postgres.Engine{Options: "host=elsewhere.example"}}})
	if e := refused(t, elsewhere, 7, shardway.ErrInvalid); !strings.Contains(e.Error(), "host") {
		t.Errorf("the error does not name the option: %v", e.Error())
	}
	if _, err := sqlite.GlobalStore("sqlite:"); err == nil {
		t.Error("a DSN without a path is taken")
	}
}
