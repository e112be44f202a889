package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
)

// servers are the engines that are servers here.
var servers = []Engine{EnginePostgres, EngineMySQL}

func eachServer(t *testing.T, test func(t *testing.T, e Engine)) {
	t.Helper()
	for _, e := range servers {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

func TestNewDatabase(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, e Engine) {
		first, second := e.NewDatabase(t), e.NewDatabase(t)
		if first.Name == second.Name {
			t.Fatalf("two databases are both named %q", first.Name)
		}
		a, b := first.Open(t), second.Open(t)
		mustExec(t, a, "CREATE TABLE only_in_first (n int)")
		mustExec(t, a, "INSERT INTO only_in_first VALUES (1)")
		if _, err := b.Exec("INSERT INTO only_in_first VALUES (1)"); err == nil {
			t.Error("a table of one database is in the other")
		}
		// The same database again, by another pool.
		if got := count(t, first.Open(t), "SELECT count(*) FROM only_in_first"); got != 1 {
			t.Errorf("%d rows, want 1", got)
		}
	})
}

// A database goes also with a session left on it that holds a lock.
func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e Engine) {
		var d Database
		t.Run("use", func(t *testing.T) {
			d = e.NewDatabase(t)
			pool, err := d.open()
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, pool, "CREATE TABLE held (n int)")
			tx, err := pool.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("INSERT INTO held VALUES (1)"); err != nil {
				t.Fatal(err)
			}
		})
		s := e.Server(t)
		list := "SELECT count(*) FROM information_schema.schemata WHERE schema_name = " + e.literal(d.Name)
		if e == EnginePostgres {
			list = "SELECT count(*) FROM pg_database WHERE datname = " + e.literal(d.Name)
		}
		admin := s.Admin().Open(t)
		ctx, cancel := context.WithTimeout(t.Context(), adminLimit)
		defer cancel()
		for count(t, admin, list) != 0 { // it is dropped in the background
			if ctx.Err() != nil {
				t.Fatalf("database %q is still there", d.Name)
			}
		}
	})
}

func TestPasswordIsChecked(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e Engine) {
		s, d := e.Server(t), e.NewDatabase(t)
		user, password := s.NewUser(t, "App 1")
		if !strings.HasPrefix(user, "app1-") {
			t.Errorf("the login is named %q, not after the hint", user)
		}
		if e == EngineMySQL {
			s.Exec(t, "", "GRANT SELECT ON "+e.quote(d.Name)+".* TO "+e.literal(user))
		}
		for _, c := range []struct {
			name  string
			login Database
			ok    bool
		}{
			{"administrator", d, true},
			{"login", d.As(user, password), true},
			{"administrator, wrong password", d.As(d.User, d.Password+"x"), false},
			{"administrator, no password", d.As(d.User, ""), false},
			{"login, wrong password", d.As(user, password+"x"), false},
			{"login, no password", d.As(user, ""), false},
			{"nobody", d.As("nobody", "x"), false},
			{"root without a password", d.As("root", ""), false},
			{"postgres without a password", d.As("postgres", ""), false},
		} {
			err := c.login.Open(t).Ping()
			if c.ok && err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if !c.ok && !isRefusedLogin(err) {
				t.Errorf("%s: error is %v, not a refused login", c.name, err)
			}
		}
	})
}

func TestNewUserHasNoRights(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e Engine) {
		s, d := e.Server(t), e.NewDatabase(t)
		s.Exec(t, d.Name, "CREATE TABLE secret (n int); INSERT INTO secret VALUES (7)")
		user, password := s.NewUser(t, "app")
		app := d.As(user, password).Open(t)
		var n int
		if err := app.QueryRow("SELECT n FROM secret").Scan(&n); err == nil {
			t.Error("a login without rights reads a table")
		}
		if _, err := app.Exec("CREATE TABLE mine (n int)"); err == nil {
			t.Error("a login without rights creates a table")
		}
		if e == EnginePostgres {
			s.Exec(t, d.Name, "GRANT SELECT ON secret TO "+e.quote(user))
		} else {
			s.Exec(t, d.Name, "GRANT SELECT ON secret TO "+e.literal(user))
		}
		if got := count(t, d.As(user, password).Open(t), "SELECT n FROM secret"); got != 7 {
			t.Errorf("with a right granted the login reads %d, want 7", got)
		}
	})
}

func TestServerDefaults(t *testing.T) {
	t.Parallel()
	for e, query := range map[Engine]string{
		EnginePostgres: "SELECT datcollate || ' ' || pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()",
		EngineMySQL:    "SELECT concat(@@collation_database, ' ', @@character_set_database)",
	} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			want := map[Engine]string{EnginePostgres: "C.UTF-8 UTF8", EngineMySQL: "utf8mb4_general_ci utf8mb4"}[e]
			if os.Getenv(e.variable()) != "" {
				t.Skip("a user's own server has its own defaults")
			}
			var got string
			if err := e.NewDatabase(t).Open(t).QueryRow(query).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("a new database has %q, want %q", got, want)
			}
		})
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	start := map[Engine]func(t *testing.T) *Server{
		EnginePostgres: func(t *testing.T) *Server {
			return NewPostgres(t, PostgresOptions{Settings: []string{"wal_level=logical"}})
		},
		EngineMySQL: func(t *testing.T) *Server { return NewMariaDB(t, MariaDBOptions{Settings: []string{"log-bin=bin"}}) },
	}
	setting := map[Engine]string{EnginePostgres: "SELECT count(*) FROM pg_settings WHERE name = 'wal_level' AND setting = 'logical'", EngineMySQL: "SELECT @@log_bin"}
	eachServer(t, func(t *testing.T, e Engine) {
		s := start[e](t)
		d := s.NewDatabase(t)
		if got := count(t, d.Open(t), setting[e]); got != 1 {
			t.Error("the settings of the options do not hold")
		}
		s.Exec(t, d.Name, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
		for i, end := range []func(testing.TB){s.Stop, s.Kill, func(testing.TB) {}} {
			pid, addr := s.PID(), s.Addr()
			end(t)
			if c, err := net.Dial("tcp", addr); err == nil {
				if _ = c.Close(); i < 2 {
					t.Error("an ended server accepts connections")
				}
			}
			s.Restart(t)
			if s.PID() == pid || s.Addr() != addr {
				t.Errorf("process %d on %s after process %d on %s: want another process on the same address", s.PID(), s.Addr(), pid, addr)
			}
			s.Exec(t, d.Name, "INSERT INTO kept VALUES (1)")
			if got := count(t, d.Open(t), "SELECT count(*) FROM kept"); got != i+2 {
				t.Errorf("%d rows after restart %d, want %d", got, i, i+2)
			}
			s.NewDatabase(t) // the administrator's pool works again
		}
	})
}

// A shared server, as seen through its URL, stands for a user's own one.
func TestExternalServer(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e Engine) {
		s, err := openExternal(e, e.Server(t).Admin().DSN())
		if err != nil {
			t.Fatal(err)
		}
		var user string
		t.Run("use", func(t *testing.T) {
			d := s.NewDatabase(t)
			var password string
			user, password = s.NewUser(t, "app")
			if e == EnginePostgres {
				s.Exec(t, d.Name, "CREATE TABLE t (n int); GRANT ALL ON t TO "+e.quote(user))
			} else {
				s.Exec(t, d.Name, "CREATE TABLE t (n int); GRANT ALL ON t TO "+e.literal(user))
			}
			mustExec(t, d.As(user, password).Open(t), "INSERT INTO t VALUES (1)")
		})
		if err := s.leaveExternal(); err != nil {
			t.Error(err)
		}
		list := "SELECT count(*) FROM mysql.global_priv WHERE user = " + e.literal(user)
		if e == EnginePostgres {
			list = "SELECT count(*) FROM pg_roles WHERE rolname = " + e.literal(user)
		}
		if got := count(t, e.Server(t).Admin().Open(t), list); got != 0 {
			t.Errorf("login %q is still there", user)
		}
		wrong := e.Server(t).Admin().As("admin", "wrong-secret")
		if _, err := openExternal(e, wrong.DSN()); !isRefusedLogin(err) || strings.Contains(err.Error(), "wrong-secret") {
			t.Errorf("with a wrong password the error is %v, want a refused login without the password", err)
		}
	})
}

func TestDSN(t *testing.T) {
	t.Parallel()
	odd := Database{Host: "db.example", Port: 1234, Name: "a/b c-1", User: "u:s@r", Password: `p@ss:w/ord#?% '"\;=&+{}é`}
	for e, want := range map[Engine]string{
		EnginePostgres:  "postgres://u%3As%40r:p%40ss%3Aw%2Ford%23%3F%25%20%27%22%5C;=&+%7B%7D%C3%A9@db.example:1234/a%2Fb%20c-1",
		EngineMySQL:     "mysql://u%3As%40r:p%40ss%3Aw%2Ford%23%3F%25%20%27%22%5C;=&+%7B%7D%C3%A9@db.example:1234/a%2Fb%20c-1",
		EngineSQLServer: "sqlserver://u%3As%40r:p%40ss%3Aw%2Ford%23%3F%25%20%27%22%5C;=&+%7B%7D%C3%A9@db.example:1234?database=a%2Fb+c-1",
	} {
		d := odd
		d.Engine = string(e)
		if got := d.DSN(); got != want {
			t.Errorf("DSN is\n%s, want\n%s", got, want)
		}
		back, err := parseAddress(e, d.DSN())
		back.Query = ""
		if diff := cmp.Diff(d, back); err != nil || diff != "" {
			t.Errorf("%s read back: %v\n%s", d.DSN(), err, diff)
		}
	}
	d := Database{Engine: "postgres", Host: "::1", Port: 5, Name: "x", User: "u", Password: "p", Query: "sslmode=require"}
	if got, want := d.DSN(), "postgres://u:p@[::1]:5/x?sslmode=require"; got != want {
		t.Errorf("DSN is %s, want %s", got, want)
	}
	if got, want := (Database{Engine: "sqlite", Name: "/tmp/a b?.db"}).DSN(), "sqlite:///tmp/a%20b%3F.db"; got != want {
		t.Errorf("DSN is %s, want %s", got, want)
	}
}

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine  Engine
		address string
		want    Database
	}{
		{EnginePostgres, "postgresql://u:p@h", Database{Engine: "postgres", Host: "h", Port: 5432, Name: "postgres", User: "u", Password: "p"}},
		{EngineMySQL, "mariadb://u:p@h:1/", Database{Engine: "mysql", Host: "h", Port: 1, Name: "mysql", User: "u", Password: "p"}},
		{EngineSQLServer, "sqlserver://u:p@h?encrypt=disable", Database{Engine: "sqlserver", Host: "h", Port: 1433, Name: "master", User: "u", Password: "p", Query: "encrypt=disable"}},
		{EnginePostgres, "mysql://u:hunter2@h/", Database{}},
		{EnginePostgres, "host=h user=u password=hunter2", Database{}},
		{EnginePostgres, "postgres://u:hunter2@:5/", Database{}},
		{EnginePostgres, "postgres://u:hunter2%@h/", Database{}},
		{EnginePostgres, "postgres://h/", Database{}},
	} {
		got, err := parseAddress(c.engine, c.address)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s as %s: %s", c.address, c.engine, diff)
		}
		if wantError := c.want.Engine == ""; (err != nil) != wantError {
			t.Errorf("%s as %s: error is %v", c.address, c.engine, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s as %s: the error shows the password: %v", c.address, c.engine, err)
		}
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dead, alive := filepath.Join(base, "run-dead"), filepath.Join(base, "run-alive")
	template := filepath.Join(base, "template-x")
	for _, dir := range []string{dead, alive, template} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := lockFile(filepath.Join(alive, "owner"), syscall.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	sweep(base)
	left, err := filepath.Glob(filepath.Join(base, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{alive, template}, left); diff != "" {
		t.Errorf("folders left: %s", diff)
	}
}

func TestUnique(t *testing.T) {
	t.Parallel()
	for hint, want := range map[string]string{
		"TestRoute/offline_mapping":      "routeofflinemapping-",
		"":                               "t-",
		"9Lives":                         "t9lives-",
		`hé"; DROP`:                      "hdrop-",
		"Test" + strings.Repeat("x", 99): strings.Repeat("x", 24) + "-",
	} {
		got := unique(hint)
		if !strings.HasPrefix(got, want) || len(got) > 33 || got == unique(hint) {
			t.Errorf("unique(%q) is %q, want %s and 8 digits, never twice the same", hint, got, want)
		}
	}
}

func mustExec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// isRefusedLogin knows the engines' codes for a wrong user or password.
func isRefusedLogin(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case errors.As(err, &pg):
		return pg.Code == "28P01"
	case errors.As(err, &my):
		return my.Number == 1045
	default:
		return false
	}
}
