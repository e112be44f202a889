package sqlserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/shardway/shardway"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		location, options, user, password string
	}{
		"sqlserver://router:p%40ss%3Aw%2Ford@DB:1434?database=maps&encrypt=strict": {"sqlserver://db:1434/maps", "encrypt=strict", "router", "p@ss:w/ord"},
		"sqlserver://u@[::1]/maps": {"sqlserver://[::1]:1433/maps", "", "u", ""},
		"mssql://a?database=a%26b": {"sqlserver://a:1433/a&b", "", "", ""},
	} {
		e, l, c, err := Parse(text)
		if err != nil || l.String() != want.location || e.Options != want.options || c.User != want.user || c.Password != want.password {
			t.Errorf("Parse(%q) = %+v, %s, %v, %v", text, e, l, c, err)
		}
	}
	for _, text := range []string{
		"sqlserver://u:s3cr3t@h", "sqlserver://u:s3cr3t@?database=x", "server=h;password=s3cr3t", "sqlserver://u:s3cr3t@h/db?user+id=x", "sqlserver://u:s3cr3t@h/db?database=x",
		"sqlserver://u:s3cr3t@h/instance/x", "sqlserver://u:s3cr3t@/run?database=x", `sqlserver://u:s3cr3t@h\instance?database=x`,
	} {
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

// SEC-02: away from this machine connections are encrypted and the server's
// certificate is checked by default.
func TestEncryptionByDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, options string
		want             msdsn.Encryption
		trust            bool
	}{
		{"db.example", "", msdsn.EncryptionRequired, false},
		{"db.example", "TrustServerCertificate=true", msdsn.EncryptionRequired, true},
		{"db.example", "Encrypt=disable", msdsn.EncryptionDisabled, false},
		{"localhost", "", msdsn.EncryptionOff, true},
		{"127.0.0.1", "encrypt=true", msdsn.EncryptionRequired, false},
	} {
		config := connectorFor(t, Engine{Options: c.options}, c.address, "db", shardway.Credentials{}).config
		if config.Encryption != c.want || config.TrustServerCertificate != c.trust {
			t.Errorf("%s with %q: encryption %v, certificate trusted %v", c.address, c.options, config.Encryption, config.TrustServerCertificate)
		}
	}
}

// Names with any character reach the driver whole.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	config := connectorFor(t, Engine{Options: "app+name=it%27s%3B&dial+timeout=3"}, "[::1]:77", "a;b=c", shardway.Credentials{User: "u;ser@x"}).config
	got := []any{config.Host, config.Port, config.Database, config.User, config.Password, config.AppName, config.DialTimeout.String()}
	want := []any{"::1", uint64(77), "a;b=c", "u;ser@x", "", "it's;", "3s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"encrypt=never", "Data+Source=x", "pwd=s3cr3t", "failoverpartner=x", "%zz"} {
		if _, err := (Engine{Options: bad}).Connector("h", "db", shardway.Credentials{}); !errors.Is(err, shardway.ErrInvalid) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("options %q = %v", bad, err)
		}
	}
	for _, bad := range []string{"a:b:c", "/run/socket", `h\instance`, ""} {
		if _, err := (Engine{}).Connector(bad, "db", shardway.Credentials{}); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("address %q = %v", bad, err)
		}
	}
}
