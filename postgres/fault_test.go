package postgres

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// The first attempts of the driver, such as encryption that the server does not
// have, do not hide why the last one failed: one line with the decisive cause.
func TestConnectError(t *testing.T) {
	t.Parallel()
	db := dbtest.EnginePostgres.NewDatabase(t)
	missing := db
	missing.Name = "no such database"
	for what, c := range map[string]struct {
		db   dbtest.Database
		want string
	}{
		"wrong password": {db.As(db.User, "s3cr3t"), "28P01"},
		"no database":    {missing, "3D000"},
	} {
		err := connect(t, c.db.Addr(), c.db.Name, shardway.Credentials{User: c.db.User, Password: c.db.Password})
		text := err.Error()
		if !strings.HasPrefix(text, "connecting to "+c.db.Addr()+`, database "`+c.db.Name+`", user "`+c.db.User+`": FATAL: `) ||
			!strings.HasSuffix(text, "(SQLSTATE "+c.want+")") || strings.ContainsAny(text, "\n\t") || strings.Contains(text, "TLS") || strings.Contains(text, "s3cr3t") {
			t.Errorf("%s: %q", what, text)
		}
		var said interface{ SQLState() string }
		if !errors.As(err, &said) || said.SQLState() != c.want {
			t.Errorf("%s: the driver's error is lost: %#v", what, err)
		}
	}
	if text := connect(t, "127.0.0.1:1", "db", shardway.Credentials{}).Error(); !strings.Contains(text, "refused") || strings.Contains(text, "\n") ||
		strings.Count(text, "127.0.0.1:1") > 2 {
		t.Errorf("nobody there: %q", text)
	}
}

// A server that breaks off after refusing encryption is told by the break.
func TestConnectErrorWithoutAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var request [8]byte
			if _, err := io.ReadFull(conn, request[:]); err == nil {
				_, _ = conn.Write([]byte("N"))
			}
			_ = conn.Close()
		}
	}()
	text := connect(t, l.Addr().String(), "db", shardway.Credentials{User: "u"}).Error()
	if strings.Contains(text, "TLS") || strings.Contains(text, "\n") {
		t.Errorf("%q", text)
	}
	e := Engine{Options: "sslmode=require"}
	_, err = connectorFor(t, e, l.Addr().String(), "db", shardway.Credentials{User: "u"}).Connect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "refused TLS") {
		t.Errorf("with sslmode=require: %v", err)
	}
}

func connect(t *testing.T, address, database string, c shardway.Credentials) error {
	t.Helper()
	conn, err := connectorFor(t, Engine{}, address, database, c).Connect(t.Context())
	if err == nil {
		_ = conn.Close()
		t.Fatal("Connect succeeded")
	}
	return err
}

// An option that is nearly one that the driver knows is refused; others pass to
// the server.
func TestMisspelledOptions(t *testing.T) {
	t.Parallel()
	for name, meant := range map[string]string{
		"ssl_mode": "sslmode", "sslMode": "sslmode", "sslmod": "sslmode", "conect_timeout": "connect_timeout", "connectTimeout": "connect_timeout",
		"application-name": "application_name", "searchpath": "search_path", "target_session_atrs": "target_session_attrs",
	} {
		_, err := readOptions(name + "=x")
		var refused *shardway.ArgumentError
		if !errors.As(err, &refused) || refused.Value != name || !strings.Contains(refused.Reason, "did you mean "+meant+"?") {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, _, err := Parse("postgres://h/db?" + name + "=x"); !errors.As(err, &refused) {
			t.Errorf("Parse with %s: %v", name, err)
		}
		if _, err := (Engine{Options: name + "=x"}).Connector("h", "db", shardway.Credentials{}); !errors.As(err, &refused) {
			t.Errorf("Connector with %s: %v", name, err)
		}
	}
	for _, name := range append([]string{
		"TimeZone", "DateStyle", "work_mem", "role", "jit", "app.tenant", "row_security", "tcp_keepalives_idle", "log_statement",
		"transaction_timeout", "idle_session_timeout", "statement_timeout", "geqo", "session_replication_role", "synchronous_commit",
	}, known...) {
		if _, err := readOptions(name + "=x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
