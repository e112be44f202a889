package mongoshard_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	drivertopology "go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
)

// What cannot be honored, or contradicts itself, is refused by name.
func TestOptionsThatAreRefused(t *testing.T) {
	t.Parallel()
	where := selection.Where(func(selection.ServerInfo) bool { return true })
	deployed := options.Client()
	if err := xoptions.SetInternalClientOptions(deployed, "deployment", new(drivertopology.Topology)); err != nil {
		t.Fatal(err)
	}
	hedged := readpref.Nearest(readpref.WithHedgeEnabled(true)) //nolint:staticcheck // it must be refused
	for name, test := range map[string]struct {
		options  *options.ClientOptions
		criteria selection.Criteria
		want     []string
	}{
		"read preference and predicate": {options.Client().ApplyURI("mongodb://a/?readPreference=secondary"), where, []string{"ReadPreference", "Criteria", "secondary", "predicate"}},
		"two read preferences":          {options.Client().SetReadPreference(readpref.Nearest()), selection.Secondary(), []string{"nearest", "secondary"}},
		"automatic encryption":          {options.Client().SetAutoEncryptionOptions(options.AutoEncryption()), where, []string{"AutoEncryptionOptions"}},
		"OIDC":                          {options.Client().SetAuth(options.Credential{AuthMechanism: "MONGODB-OIDC", AuthMechanismProperties: map[string]string{"ENVIRONMENT": "k8s"}}), where, []string{"Auth", "MONGODB-OIDC"}},
		"a deployment":                  {deployed, where, []string{"Deployment"}},
		"local threshold":               {options.Client().SetLocalThreshold(-time.Second), where, []string{"LocalThreshold"}},
		"hedged reads":                  {options.Client().SetReadPreference(hedged), selection.Criteria{}, []string{"ReadPreference", "hedged"}},
		"no options":                    {nil, where, []string{"URI"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mongoshard.Connect(t.Context(), test.options, mongoshard.Config{Criteria: test.criteria})
			var refused *mongoshard.OptionError
			if !errors.As(err, &refused) {
				t.Fatalf("error %v, want an OptionError", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %q", err, want)
				}
			}
		})
	}
}

func TestConnectRefusesEarly(t *testing.T) {
	t.Parallel()
	var invalid *selection.InvalidError
	if _, err := mongoshard.Connect(t.Context(), options.Client(), mongoshard.Config{Criteria: selection.Where(nil)}); !errors.As(err, &invalid) {
		t.Errorf("a nil predicate: %v", err)
	}
	if _, err := mongoshard.Connect(t.Context(), options.Client().ApplyURI("mongodb://"), mongoshard.Config{}); err == nil {
		t.Error("a URI without hosts was taken")
	}
	if _, err := mongoshard.Connect(t.Context(), options.Client().SetHeartbeatInterval(time.Millisecond), mongoshard.Config{}); err == nil {
		t.Error("a heartbeat of 1 ms was taken")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mongoshard.Connect(ended, options.Client(), mongoshard.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// A client of the driver itself is told from ours, without a word to its
// servers.
func TestForeignClient(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 1})
	client, err := mongo.Connect(uri(c))
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, client)
	findOneOrNone(t, client)
	sent := len(c.Server(0).Commands())
	if _, err := mongoshard.With(client, selection.Nearest()); !errors.Is(err, mongoshard.ErrForeignClient) {
		t.Errorf("With: %v", err)
	}
	if _, err := mongoshard.Servers(nil); !errors.Is(err, mongoshard.ErrForeignClient) {
		t.Errorf("Servers of nil: %v", err)
	}
	if got := len(c.Server(0).Commands()); got != sent {
		t.Errorf("%d commands were sent", got-sent)
	}
}

func findOneOrNone(t *testing.T, client *mongo.Client) {
	t.Helper()
	if err := customers(client).FindOne(bounded(t), bson.D{}).Err(); err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		t.Fatal(err)
	}
}

// The pool has the driver's default limit, which the driver itself sets too
// late for us.
func TestPoolIsLimited(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 1})
	var limit atomic.Uint64
	o := uri(c).SetPoolMonitor(&event.PoolMonitor{Event: func(e *event.PoolEvent) {
		if e.PoolOptions != nil {
			limit.Store(e.PoolOptions.MaxPoolSize)
		}
	}})
	client := open(t, o, mongoshard.Config{})
	findOneOrNone(t, client)
	if got := limit.Load(); got != 100 {
		t.Errorf("the pool's limit is %d, want 100", got)
	}
	if o.MaxPoolSize != nil || o.ReadPreference != nil {
		t.Error("the caller's options were changed")
	}
}

// serverMonitoringMode of the URI holds: a polling client never awaits a hello.
func TestServerMonitoringModeOfTheURI(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]bool{"poll": false, "stream": true} {
		c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 1, Streaming: true})
		var awaited, checks atomic.Int64
		o := options.Client().ApplyURI(c.URI() + "?serverMonitoringMode=" + mode).SetHeartbeatInterval(500 * time.Millisecond)
		o.SetServerMonitor(&event.ServerMonitor{ServerHeartbeatStarted: func(e *event.ServerHeartbeatStartedEvent) {
			checks.Add(1)
			if e.Awaited {
				awaited.Add(1)
			}
		}})
		client := open(t, o, mongoshard.Config{})
		findOneOrNone(t, client)
		until(t, "a second check", func() bool { return checks.Load() > 1 })
		if got := awaited.Load() > 0; got != want {
			t.Errorf("mode %s: awaited %v", mode, got)
		}
	}
}

// Servers see in their logs who drives the driver, and the application's own
// words.
func TestDriverInfo(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 1})
	sent := &recorder{}
	client := open(t, uri(c).SetDialer(sent).SetDriverInfo(&options.DriverInfo{Name: "orders"}), mongoshard.Config{})
	findOneOrNone(t, client)
	if !sent.contains("|orders|shardway") {
		t.Error("no hello named orders and shardway")
	}
}

// recorder dials and keeps what is sent.
type recorder struct {
	net.Dialer
	mu   sync.Mutex
	sent bytes.Buffer
}

func (r *recorder) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := r.Dialer.DialContext(ctx, network, address)
	return &recorded{Conn: conn, recorder: r}, err
}

func (r *recorder) contains(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Contains(r.sent.Bytes(), []byte(text))
}

type recorded struct {
	net.Conn
	recorder *recorder
}

func (r *recorded) Write(p []byte) (int, error) {
	r.recorder.mu.Lock()
	r.recorder.sent.Write(p)
	r.recorder.mu.Unlock()
	return r.Conn.Write(p)
}
