package dsn_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]dsn.URL{
		"postgres://user:pw@host:5432/db": {
			Credentials: shardway.Credentials{User: "user", Password: "pw"}, Hosts: []string{"host:5432"}, Database: "db", Options: url.Values{},
		},
		"POSTGRES://host/db?sslmode=require&a=b%26": {
			Hosts: []string{"host"}, Database: "db", Options: url.Values{"sslmode": {"require"}, "a": {"b&"}},
		},
		"postgres://u%3A:p%40ss%3Aw%2Ford%23%3F%25@[::1]:5432,h2:1,h3/d%2Fb": {
			Credentials: shardway.Credentials{User: "u:", Password: "p@ss:w/ord#?%"}, Hosts: []string{"[::1]:5432", "h2:1", "h3"}, Database: "d/b", Options: url.Values{},
		},
		"postgres://u@x:p@host/db": {
			Credentials: shardway.Credentials{User: "u@x", Password: "p"}, Hosts: []string{"host"}, Database: "db", Options: url.Values{},
		},
		"postgres:///db?host=/tmp": {Database: "db", Options: url.Values{"host": {"/tmp"}}},
		"postgres://u@/":           {Credentials: shardway.Credentials{User: "u"}, Options: url.Values{}},
	} {
		got, err := dsn.Parse(text, "postgres")
		credentials := cmp.Transformer("credentials", func(c shardway.Credentials) [2]string { return [2]string{c.User, c.Password} })
		if diff := cmp.Diff(want, got, credentials); err != nil || diff != "" {
			t.Errorf("Parse(%q): %v (-want +got):\n%s", text, err, diff)
		}
	}
}

// SEC-01: whatever is wrong with a DSN, no part of it is in the error.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "s3cr3t", "user:s3cr3t@host/db", "mysql://user:s3cr3t@host/db", "host=h password=s3cr3t",
		"postgres://user:s3cr3t%zz@host/db", "postgres://us%zzer:s3cr3t@host/db",
		"postgres://user:12/s3cr3t@host/db", "postgres://user:s3cr3t#x@host/db", "postgres://user:s3cr3t?x@host/db", "postgres://user:12?s3cr3t@host/db",
		"postgres://user:s3cr3t@host/a/b", "postgres://user:s3cr3t@host/%zz", "postgres://user:s3cr3t@host/db?%zz", "postgres://user:s3cr3t@host/db?a;b",
	} {
		_, err := dsn.Parse(text, "postgres")
		var argument *shardway.ArgumentError
		if !errors.As(err, &argument) || argument.Argument != "DSN" {
			t.Errorf("Parse(%q) = %v, want an ArgumentError", text, err)
			continue
		}
		if shown := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(shown, "s3cr3t") || strings.Contains(shown, "user:12") {
			t.Errorf("Parse(%q) shows its secret: %s", text, shown)
		}
	}
}

// DSN-03: options pass, but for those that say where and who, in any spelling.
func TestOptions(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "sslmode=verify-full&connect_timeout=5", "dial+timeout=5&TrustServerCertificate=true", "_pragma=foreign_keys(1)&_txlock=immediate"} {
		values, err := dsn.Options(text)
		if want, _ := url.ParseQuery(text); err != nil || cmp.Diff(want, values) != "" {
			t.Errorf("Options(%q) = %v, %v", text, values, err)
		}
	}
	for _, name := range []string{
		"host", "HOST", "hostaddr", "server", "Data Source", "addr", "address", "Network Address", "port", "PORT", "database", "dbname", "Initial Catalog",
		"user", "User ID", "user_id", "uid", "username", "password", "PassWord", "passwd", "pwd", "sslpassword", "passfile", "service", "servicefile",
		"change password", "failoverpartner", "FailoverPort", "protocol", "socket", "unix_socket", "net",
	} {
		_, err := dsn.Options(url.Values{name: {"s3cr3t"}, "sslmode": {"require"}}.Encode())
		var argument *shardway.ArgumentError
		if !errors.As(err, &argument) || argument.Value != name || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("Options with %q = %v, want it refused by its name", name, err)
		}
	}
	if _, err := dsn.Options("a=%zz"); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("Options that cannot be read = %v", err)
	}
}

// DSN-02, DSN-07: every form of address has one spelling, which is stable; an
// address that may be read in two ways is refused with a hint.
func TestNormalize(t *testing.T) {
	t.Parallel()
	rules := dsn.Rules{Engine: "postgres", Port: 5432, Socket: true, SocketPort: true, MaxDatabase: 63}
	at := func(addresses ...string) shardway.Location {
		l := shardway.Location{Engine: "postgres", Database: "db"}
		for _, a := range addresses {
			l.Servers = append(l.Servers, shardway.Server{Address: a, Tags: map[string]string{"zone": "a"}})
		}
		return l
	}
	for address, want := range map[string]string{
		"host": "host:5432", "HOST:5433": "host:5433", "db.example.": "db.example.:5432", "127.0.0.1": "127.0.0.1:5432",
		"[::1]:5433": "[::1]:5433", "[::1]": "[::1]:5432", "[0:0::0001]:1": "[::1]:1", "[fe80::1%lo]": "[fe80::1%lo]:5432",
		"/nowhere/./run": "/nowhere/run:5432", "/nowhere/run:5433": "/nowhere/run:5433",
	} {
		for range 2 { // and once more with its own outcome
			got, err := rules.Normalize(at(address))
			if diff := cmp.Diff(at(want), got); err != nil || diff != "" {
				t.Errorf("Normalize(%q): %v (-want +got):\n%s", address, err, diff)
			}
			address = want
		}
	}
	long := shardway.Location{Engine: "postgres", Database: strings.Repeat("x", 64), Servers: at("h").Servers}
	for what, c := range map[string]struct {
		l    shardway.Location
		text string
	}{
		"a:b:c":             {at("a:b:c"), "brackets"},
		"bare IPv6":         {at("::1"), "brackets"},
		"no address":        {at(), "missing"},
		"empty address":     {at(""), "empty"},
		"no port":           {at("h:"), "port"},
		"port too high":     {at("h:65536"), "port"},
		"port zero":         {at("h:0"), "port"},
		"two hosts in one":  {at("h1,h2"), "not allowed"},
		"URL":               {at("postgres://u:s3cr3t@h"), "URL"},
		"twice":             {at("h", "H:5432"), "twice"},
		"other engine":      {shardway.Location{Engine: "mysql", Database: "db", Servers: at("h").Servers}, "mysql"},
		"no database":       {shardway.Location{Engine: "postgres", Servers: at("h").Servers}, "database"},
		"long database":     {long, "longer than 63"},
		"database with NUL": {shardway.Location{Database: "a\x00", Servers: at("h").Servers}, "NUL"},
	} {
		_, err := rules.Normalize(c.l)
		if !errors.Is(err, shardway.ErrInvalid) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("Normalize of %s = %v, want an ArgumentError with %q", what, err, c.text)
		}
	}
	given := at("HOST")
	if _, err := rules.Normalize(given); err != nil || given.Servers[0].Address != "HOST" {
		t.Errorf("Normalize changed what it was given: %v, %v", given, err)
	}
}

// ADM-03: a file has one path, however it is written.
func TestPath(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "real")
	link := filepath.Join(dir, "link")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(folder, "later", "x.db") // does not exist
	for _, path := range []string{want, filepath.Join(link, "later", "x.db"), link + "/../link/./later//x.db"} {
		if got := dsn.Path(path); got != want {
			t.Errorf("Path(%q) = %q, want %q", path, got, want)
		}
	}
	if got := dsn.Path("x.db"); !filepath.IsAbs(got) {
		t.Errorf("Path of a relative name = %q", got)
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "/run/postgresql": true,
		"localhost.example": false, "10.0.0.1": false, "0.0.0.0": false, "db": false, "": false, "::": false,
	} {
		if got := dsn.Loopback(host); got != want {
			t.Errorf("Loopback(%q) = %v", host, got)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	cause := errors.New("login with s3cr3t refused (s3cr3t)")
	err := dsn.Redact(fmt.Errorf("connecting: %w", cause), "s3cr3t")
	if err.Error() != "connecting: login with (secret) refused ((secret))" || !errors.Is(err, cause) {
		t.Errorf("Redact = %v", err)
	}
	for _, secret := range []string{"", "other"} {
		if got := dsn.Redact(cause, secret); !errors.Is(got, cause) || got.Error() != cause.Error() {
			t.Errorf("Redact without the secret %q = %v", secret, got)
		}
	}
	if dsn.Redact(nil, "s3cr3t") != nil {
		t.Error("Redact(nil) is an error")
	}
}
