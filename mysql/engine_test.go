package mysql

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		location, options, user, password string
	}{
		"mysql://tenant%231%3Areader:p%40ss%3Aw%2Ford@DB:3307/maps?tls=true": {"mysql://db:3307/maps", "tls=true", "tenant#1:reader", "p@ss:w/ord"},
		"mariadb://a,[::1]/maps":                {"mysql://a:3306,[::1]:3306/maps", "", "", ""},
		"mysql://u@/maps?socket=/no/mysql.sock": {"mysql:///no/mysql.sock/maps", "", "u", ""},
	} {
		e, l, c, err := Parse(text)
		if err != nil || l.String() != want.location || e.Options != want.options || c.User != want.user || c.Password != want.password {
			t.Errorf("Parse(%q) = %+v, %s, %v, %v", text, e, l, c, err)
		}
	}
	for _, text := range []string{"mysql://u:s3cr3t@/db", "mysql://u:s3cr3t@h", "u:s3cr3t@tcp(h)/db", "mysql://u:s3cr3t@h/db?password=x", "mysql://u:s3cr3t@h/db?socket=/x"} {
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
		address, options   string
		tls, plain, checks bool
	}{
		{"db.example", "", true, false, false},
		{"db.example", "tls=true", true, false, true},
		{"db.example", "tls=false", false, false, false},
		{"db.example", "tls=preferred", true, true, false},
		{"localhost", "", true, true, false},
		{"[::1]", "tls=skip-verify", true, false, false},
		{"/no/mysql.sock", "", false, false, false},
	} {
		config := connectorFor(t, Engine{Options: c.options}, c.address, "db", shardway.Credentials{}).config
		checks := config.TLS != nil && !config.TLS.InsecureSkipVerify && config.TLS.ServerName == "db.example"
		if (config.TLS != nil) != c.tls || config.AllowFallbackToPlaintext != c.plain || checks != c.checks {
			t.Errorf("%s with %q: encrypted %v, plain text %v, checked %v", c.address, c.options, config.TLS != nil, config.AllowFallbackToPlaintext, checks)
		}
	}
}

// Names with any character reach the driver whole; defaults can be overridden.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	config := connectorFor(t, Engine{}, "db.example:77", "a/b?c@d", shardway.Credentials{User: "u:s@e/r"}).config
	got := []any{config.Net, config.Addr, config.DBName, config.User, config.Passwd, config.InterpolateParams, config.RejectReadOnly, config.Timeout.String(), config.Loc.String()}
	want := []any{"tcp", "db.example:77", "a/b?c@d", "u:s@e/r", "", true, true, "10s", "UTC"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	config = connectorFor(t, Engine{Options: "interpolateParams=false&timeout=3s&rejectReadOnly=false"}, "/no/x.sock", "db", shardway.Credentials{}).config
	got = []any{config.Net, config.Addr, config.InterpolateParams, config.RejectReadOnly, config.Timeout.String()}
	if diff := cmp.Diff([]any{"unix", "/no/x.sock", false, false, "3s"}, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"tls=never", "timeout=x", "user=x", "passwd=s3cr3t", "%zz"} {
		if _, err := (Engine{Options: bad}).Connector("h", "db", shardway.Credentials{}); !errors.Is(err, shardway.ErrInvalid) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("options %q = %v", bad, err)
		}
	}
	for _, bad := range []string{"a:b:c", "/no/x.sock:3306", ""} {
		if _, err := (Engine{}).Connector(bad, "db", shardway.Credentials{}); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("address %q = %v", bad, err)
		}
	}
}
