package mongoshard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/tag"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/selection"
)

// The heartbeats of a benchmark are rare, so that it measures selections. The
// staleness that is allowed must be above them.
const (
	benchHeartbeat = time.Minute
	benchStaleness = 150 * time.Second
)

// keeper is a deployment without servers that keeps the selector of the last
// operation.
type keeper struct{ selector description.ServerSelector }

func (k *keeper) SelectServer(_ context.Context, s description.ServerSelector) (driver.Server, error) {
	k.selector = s
	return nil, errAsked
}

func (k *keeper) Kind() description.TopologyKind {
	return description.TopologyKindReplicaSetWithPrimary
}

func (k *keeper) GetServerSelectionTimeout() time.Duration { return time.Second }

// selectorOf is the selector that the driver gives to a deployment for a read,
// or a write, of a client with a read preference.
func selectorOf(b *testing.B, p *readpref.ReadPref, write bool) description.ServerSelector {
	b.Helper()
	k := new(keeper)
	o := options.Client().ApplyURI("mongodb://localhost/").SetReadPreference(p).SetRetryReads(false).SetRetryWrites(false)
	if err := xoptions.SetInternalClientOptions(o, "deployment", k); err != nil {
		b.Fatal(err)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		b.Fatal(err)
	}
	things := client.Database("app").Collection("things")
	if write {
		_, err = things.InsertOne(b.Context(), bson.D{})
	} else {
		err = things.FindOne(b.Context(), bson.D{}).Err()
	}
	if k.selector == nil {
		b.Fatalf("no selector was asked for: %v", err)
	}
	return k.selector
}

// benchDeployment is a connected deployment of n members, one of them primary,
// that answer hello: round trips of 1 to 30 ms, lags of 0 to 119 s, two tags.
func benchDeployment(b *testing.B, n int) *deployment {
	b.Helper()
	c := mongotest.New(b, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: n})
	for i := range n {
		s := c.Server(i)
		s.SetTags(map[string]string{"zone": fmt.Sprintf("eu-%d", i%3), "use": fmt.Sprintf("class-%d", i%2)})
		s.SetDelay(time.Duration(1+i%30) * time.Millisecond)
		s.SetLag(time.Duration(i*7%120) * time.Second)
	}
	o, err := checkedOptions(options.Client().ApplyURI(c.URI()).SetHeartbeatInterval(benchHeartbeat))
	if err != nil {
		b.Fatal(err)
	}
	d, err := newDeployment(o, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := d.join(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.leave(ctx); err != nil {
			b.Error(err)
		}
	})
	known := func() int {
		v, _, err := d.look()
		if err != nil {
			b.Fatal(err)
		}
		readable := 0
		for _, s := range v.set.Servers() {
			if s.Role.Readable() && s.AverageRTT.Known() {
				readable++
			}
		}
		return readable
	}
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for known() < n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("%d of %d members are known", known(), n)
		}
	}
	return d
}

// BenchmarkSelectServer compares what an operation calls: the driver's own
// deployment, ours on the same monitors, and the selection alone.
func BenchmarkSelectServer(b *testing.B) {
	preferred, err := readpref.New(readpref.SecondaryPreferredMode, readpref.WithMaxStaleness(benchStaleness), readpref.WithTagSets(
		tag.Set{{Name: "zone", Value: "nowhere"}}, tag.Set{{Name: "zone", Value: "eu-1"}}, tag.Set{}))
	if err != nil {
		b.Fatal(err)
	}
	criteria := selection.SecondaryPreferred(selection.MaxStaleness(benchStaleness),
		selection.Tags{"zone": "nowhere"}, selection.Tags{"zone": "eu-1"}, selection.Tags{})
	zone := func(s selection.ServerInfo) bool { v, _ := s.Tags.Get("zone"); return v == "eu-1" }
	cases := []struct {
		name     string
		theirs   description.ServerSelector // nil where the driver has nothing like it
		ours     description.ServerSelector
		criteria selection.Criteria
	}{
		{"write", selectorOf(b, readpref.Primary(), true), selectorOf(b, marked(), true), selection.Primary()},
		{"nearest", selectorOf(b, readpref.Nearest(), false), selectorOf(b, marked(), false), selection.Nearest()},
		{"secondaryPreferred", selectorOf(b, preferred, false), selectorOf(b, marked(), false), criteria},
		{"predicate", nil, selectorOf(b, marked(), false), selection.Where(zone)},
	}
	for _, n := range []int{3, 10, 50, 1000} {
		b.Run(fmt.Sprintf("servers=%d", n), func(b *testing.B) {
			d := benchDeployment(b, n)
			for _, c := range cases {
				h := &handle{Topology: d.topology, deployment: d, rule: newRule(c.criteria)}
				h.connected.Store(true)
				if c.theirs != nil {
					b.Run(c.name+"/driver", func(b *testing.B) { benchSelect(b, d.topology, c.theirs) })
				}
				b.Run(c.name+"/shardway", func(b *testing.B) { benchSelect(b, h, c.ours) })
				b.Run(c.name+"/selection", func(b *testing.B) { benchPure(b, d, c.criteria) })
			}
		})
	}
}

func benchSelect(b *testing.B, d driver.Deployment, selector description.ServerSelector) {
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		server, err := d.SelectServer(ctx, selector)
		if err != nil {
			b.Fatal(err)
		}
		if s, ours := server.(*selected); ours {
			s.load.End() // what the end of the operation does
		}
	}
}

func benchPure(b *testing.B, d *deployment, criteria selection.Criteria) {
	v, _, err := d.look()
	if err != nil {
		b.Fatal(err)
	}
	request := selection.Request{Criteria: criteria}
	b.ReportAllocs()
	for b.Loop() {
		choice, err := selection.Select(v.set, request)
		if err != nil {
			b.Fatal(err)
		}
		choice.Release()
	}
}
