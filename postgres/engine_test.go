package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		location, options, user, password string
	}{
		"postgres://router:p%40ss%3Aw%2Ford%23%3F@DB:5433/maps?sslmode=require": {"postgres://db:5433/maps", "sslmode=require", "router", "p@ss:w/ord#?"},
		"postgresql://a,b:1/maps":              {"postgres://a:5432,b:1/maps", "", "", ""},
		"postgres://u@/maps?host=/no/run":      {"postgres:///no/run:5432/maps", "", "u", ""},
		"postgres:///maps?host=/no/run&port=7": {"postgres:///no/run:7/maps", "", "", ""},
		"postgres://u:p@[::1]/a%20b%22'":       {`postgres://[::1]:5432/a b"'`, "", "u", "p"},
	} {
		e, l, c, err := Parse(text)
		if err != nil || l.String() != want.location || e.Options != want.options || c.User != want.user || c.Password != want.password {
			t.Errorf("Parse(%q) = %+v, %s, %v, %v", text, e, l, c, err)
		}
	}
	for _, text := range []string{"postgres://u:s3cr3t@/db", "postgres://u:s3cr3t@h", "postgres://u:s3cr3t@h:x/db", "postgres://u:s3cr3t@h/db?user=x", "postgres://u:s3cr3t@h/db?host=/x"} {
		_, _, _, err := Parse(text)
		if !errors.Is(err, shardway.ErrInvalid) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("Parse(%q) = %v, want it refused without its secret", text, err)
		}
		if _, err := GlobalStore(text); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("GlobalStore(%q) = %v", text, err)
		}
	}
}

func connectorFor(t *testing.T, e Engine, address, database string, c shardway.Credentials) *connector {
	t.Helper()
	got, err := e.Connector(address, database, c)
	if err != nil {
		t.Fatal(err)
	}
	return got.(*connector)
}

// SEC-02: away from this machine plain text is no fallback by default.
func TestEncryptionByDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, options string
		tls, plain       bool // first attempt encrypted; an attempt in plain text among them
	}{
		{"db.example", "", true, false},
		{"10.0.0.1:5432", "", true, false},
		{"db.example", "sslmode=verify-full", true, false},
		{"db.example", "sslmode=disable", false, true},
		{"db.example", "sslmode=prefer", true, true},
		{"localhost", "", true, true},
		{"[::1]", "sslmode=require", true, false},
		{"/no/run", "", false, true},
	} {
		config := connectorFor(t, Engine{Options: c.options}, c.address, "db", shardway.Credentials{}).config
		plain := config.TLSConfig == nil
		for _, f := range config.Fallbacks {
			plain = plain || f.TLSConfig == nil
		}
		if (config.TLSConfig != nil) != c.tls || plain != c.plain {
			t.Errorf("%s with %q: encrypted %v, plain text %v", c.address, c.options, config.TLSConfig != nil, plain)
		}
		if c.options == "sslmode=verify-full" && (config.TLSConfig.InsecureSkipVerify || config.TLSConfig.ServerName != "db.example") {
			t.Errorf("verify-full does not check the server's name")
		}
	}
}

// A server that has no encryption gets neither login nor password when
// encryption is required.
func TestPlainServerRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	received := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var request [8]byte
		if _, err := io.ReadFull(conn, request[:]); err != nil || binary.BigEndian.Uint32(request[4:]) != 80877103 {
			received <- fmt.Sprintf("no request for encryption but %x", request)
			return
		}
		_, _ = conn.Write([]byte("N"))
		rest, _ := io.ReadAll(conn)
		received <- string(rest)
	}()
	c := connectorFor(t, Engine{Options: "sslmode=require"}, l.Addr().String(), "db", shardway.Credentials{User: "anna", Password: "s3cr3t"})
	conn, err := c.Connect(t.Context())
	if err == nil {
		_ = conn.Close()
		t.Fatal("Connect succeeded")
	}
	if rest := <-received; rest != "" || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("the server received %q; %v", rest, err)
	}
}

// Names and options with any character reach the driver whole; the environment
// brings no password.
func TestConfiguration(t *testing.T) {
	t.Setenv("PGPASSWORD", "from the environment")
	t.Setenv("PGHOST", "elsewhere")
	t.Setenv("PGSSLMODE", "disable")
	options := Engine{Options: `application_name=it%27s+%5C+%22x%22&search_path=a%2Cb&connect_timeout=3`}
	config := connectorFor(t, options, "db.example:77", `a 'b' \c" host=x`, shardway.Credentials{User: `u'ser\ host=y`}).config
	got := []any{
		config.Host, config.Port, config.Database, config.User, config.Password, config.RuntimeParams["application_name"],
		config.RuntimeParams["search_path"], config.ConnectTimeout.String(), config.TLSConfig != nil,
	}
	want := []any{"db.example", uint16(77), `a 'b' \c" host=x`, `u'ser\ host=y`, "", `it's \ "x"`, "a,b", "3s", true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"sslmode=never", "host=x", "password=s3cr3t", "%zz"} {
		if _, err := (Engine{Options: bad}).Connector("h", "db", shardway.Credentials{}); !errors.Is(err, shardway.ErrInvalid) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("options %q = %v", bad, err)
		}
	}
	if _, err := (Engine{}).Connector("a:b:c", "db", shardway.Credentials{}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("a bad address = %v", err)
	}
}

func TestSocketPort(t *testing.T) {
	t.Parallel()
	a, err := rules.Address("/no/run:5433")
	if err != nil || !dsn.Loopback(a.Host) {
		t.Fatal(a, err)
	}
	config := connectorFor(t, Engine{}, "/no/run:5433", "db", shardway.Credentials{}).config
	if config.Host != "/no/run" || config.Port != 5433 {
		t.Errorf("socket = %s, port %d", config.Host, config.Port)
	}
}
