package mongodb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ location, options, user, password string }{
		"mongodb://app:p%40ss%3Aw%2Ford%23%3F@DB:27018/tenants?replicaSet=rs0": {"mongodb://db:27018/tenants", "replicaSet=rs0", "app", "p@ss:w/ord#?"},
		"mongodb://a,b:1,[::1]/tenants":                                        {"mongodb://a:27017,b:1,[::1]:27017/tenants", "", "", ""},
		"mongodb://u@h/t?authSource=admin&tls=false":                           {"mongodb://h:27017/t", "authSource=admin&tls=false", "u", ""},
	} {
		e, l, c, err := Parse(text)
		if err != nil || l.String() != want.location || e.Options != want.options || c.User != want.user || c.Password != want.password {
			t.Errorf("Parse(%q) = %+v, %s, %v, %v", text, e, l, c, err)
		}
	}
	for text, reason := range map[string]string{
		"mongodb://u:s3cr3t@h":                        "database",
		"mongodb://u:s3cr3t@/t":                       "server address",
		"mongodb://u:s3cr3t@h:x/t":                    "port",
		"mongodb://u:s3cr3t@h,h:27017/t":              "twice",
		"mongodb://u:s3cr3t@h/a.b":                    "names of MongoDB databases",
		"mongodb://u:s3cr3t@h/t?user=x":               "credentials",
		"mongodb://u:s3cr3t@h/t?replicaset=a&replset": "unknown",
		"mongodb://u:s3cr3t@h/t?localThresholdMS=x":   "refused by the driver",
		"mongodb://u:s3cr3t@h/t?loadBalanced=true":    "name the servers",
		"mongodb+srv://u:s3cr3t@h/t":                  "DNS record",
		"postgres://u:s3cr3t@h/t":                     "form mongodb://",
		"mongodb://u:12/s3cr3t@h/t":                   "%XX",
	} {
		_, _, _, err := Parse(text)
		if !errors.Is(err, shardway.ErrInvalid) || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), reason) {
			t.Errorf("Parse(%q) = %v, want it refused for its %q, without its secret", text, err, reason)
		}
	}
}

// SEC-02: away from this machine plain text is no fallback by default.
func TestEncryptionByDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, options string
		encrypted        bool
	}{
		{"db.example", "", true},
		{"10.0.0.1:27017", "replicaSet=rs0", true},
		{"db.example", "tls=false", false},
		{"db.example", "SSL=false", false},
		{"localhost", "", false},
		{"[::1]", "tls=true", true},
	} {
		o, err := Engine{Options: c.options}.ClientOptions(t.Context(), location("t", c.address), shardway.Credentials{})
		if err != nil || (o.TLSConfig != nil) != c.encrypted || c.encrypted && o.TLSConfig.InsecureSkipVerify {
			t.Errorf("%s with %q: %+v, %v", c.address, c.options, o, err)
		}
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	asked := 0
	c := shardway.Credentials{User: "app", PasswordFunc: func(context.Context) (string, error) { asked++; return "s3cr3t", nil }}
	o, err := Engine{Options: "authMechanism=SCRAM-SHA-256"}.ClientOptions(t.Context(), location("t", "h"), c)
	if err != nil || asked != 1 || o.Auth.Username != "app" || o.Auth.Password != "s3cr3t" || o.Auth.AuthSource != "admin" || o.Auth.AuthMechanism != "SCRAM-SHA-256" {
		t.Errorf("options = %+v, %v, the password was asked for %d times", o.Auth, err, asked)
	}
	o, err = Engine{Options: "authSource=people"}.ClientOptions(t.Context(), location("t", "h"), shardway.Credentials{User: "app"})
	if err != nil || o.Auth.AuthSource != "people" {
		t.Errorf("options = %+v, %v", o.Auth, err)
	}
	refuse := errors.New("no secret today")
	c.PasswordFunc = func(context.Context) (string, error) { return "", refuse }
	if _, err := (Engine{}).ClientOptions(t.Context(), location("t", "h"), c); !errors.Is(err, refuse) {
		t.Errorf("options without a password = %v", err)
	}
}

func location(database string, addresses ...string) shardway.Location {
	l := shardway.Location{Engine: "mongodb", Database: database}
	for _, a := range addresses {
		l.Servers = append(l.Servers, shardway.Server{Address: a})
	}
	return l
}

// memory are shards on another engine.
type memory struct{ local *memstore.Local }

func (m memory) Open(context.Context, shardway.Location) (store.Local, error) { return m.local, nil }

func (m memory) Normalize(l shardway.Location) (shardway.Location, error) {
	if l.Engine != "memory" {
		return l, fmt.Errorf("engine %q: %w", l.Engine, shardway.ErrInvalid)
	}
	return l, nil
}

func TestLocals(t *testing.T) {
	t.Parallel()
	others := memory{memstore.NewLocal()}
	l, err := NewLocals(Engine{}, shardway.Credentials{}, others)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.Open(t.Context(), shardway.Location{Engine: "memory"}); err != nil || got != store.Local(others.local) {
		t.Errorf("Open of another engine = %v, %v", got, err)
	}
	for engine, want := range map[string]error{"memory": nil, "oracle": shardway.ErrInvalid} {
		if _, err := l.Normalize(shardway.Location{Engine: engine}); !errors.Is(err, want) {
			t.Errorf("Normalize for %s = %v, want %v", engine, err, want)
		}
	}
	db := dbtest.Mongo(t).NewDatabase(t)
	at := location(db.Name, db.Addr)
	for range 2 { // the same database, whoever opens it
		local, err := l.Open(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if err := local.Deploy(t.Context(), "of this store"); err != nil {
			t.Fatal(err)
		}
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(l.clients) != 1 {
		t.Errorf("%d clients for one deployment", len(l.clients))
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Open(t.Context(), at); !errors.Is(err, shardway.ErrUnavailable) {
		t.Errorf("Open after Close = %v", err)
	}
	alone, err := NewLocals(Engine{}, shardway.Credentials{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.Open(t.Context(), shardway.Location{Engine: "memory"}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("Open of another engine without others = %v", err)
	}
	if _, err := NewLocals(Engine{Options: "password=s3cr3t"}, shardway.Credentials{}, nil); !errors.Is(err, shardway.ErrInvalid) || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("NewLocals with a password among its options = %v", err)
	}
}
