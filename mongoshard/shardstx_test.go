package mongoshard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongodb"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/store"
)

// promptly repeats transactions without long pauses.
var promptly = retry.Policy{
	Backoff: retry.Backoff{Schedule: retry.Fixed, Initial: 5 * time.Millisecond}, MaxAttempts: -1, MaxElapsed: 30 * time.Second,
	Budget: &retry.Budget{Burst: 1 << 20},
}

func order(id any) func(ctx context.Context, db *mongo.Database) error {
	return func(ctx context.Context, db *mongo.Database) error {
		_, err := db.Collection("orders").InsertOne(ctx, bson.M{"_id": id})
		return err
	}
}

func (s *shards) count(db *mongo.Database) int64 {
	s.t.Helper()
	n, err := db.Collection("orders").CountDocuments(s.t.Context(), bson.M{})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func TestShardsInTx(t *testing.T) {
	t.Parallel()
	for _, kind := range []mongotest.Kind{mongotest.ReplicaSet, mongotest.Sharded} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			s := newShards(t, mongotest.Options{Kind: kind, Servers: 2})
			db := s.open(mongoshard.ShardConfig{Retry: promptly})
			reader := plain(t, s.a)
			if err := db.InTx(bounded(t), 7, nil, order(1)); err != nil {
				t.Fatal(err)
			}
			errOwn := errors.New("an error of the caller")
			err := db.InTx(bounded(t), 7, nil, func(ctx context.Context, db *mongo.Database) error {
				return errors.Join(order(2)(ctx, db), errOwn)
			})
			if !errors.Is(err, errOwn) {
				t.Errorf("InTx = %v, want the body's error", err)
			}
			func() {
				defer func() { _ = recover() }()
				_ = db.InTx(bounded(t), 7, nil, func(ctx context.Context, db *mongo.Database) error {
					_ = order(3)(ctx, db)
					panic("the body's")
				})
				t.Error("the body's panic was lost")
			}()
			err = db.InTx(bounded(t), 7, nil, func(ctx context.Context, db *mongo.Database) error {
				return errors.Join(order(4)(ctx, db), mongo.SessionFromContext(ctx).AbortTransaction(ctx))
			})
			if !errors.Is(err, shardway.ErrInvalid) {
				t.Errorf("InTx whose body ends it = %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			err = db.InTx(ctx, 7, nil, func(ctx context.Context, db *mongo.Database) error {
				defer cancel()
				return order(5)(ctx, db)
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("InTx after the end of its context = %v", err)
			}
			if n := s.count(reader.Database("one")); n != 1 {
				t.Errorf("%d documents, want that of the one transaction that committed", n)
			}
			if err := db.InTx(bounded(t), 7, nil, nil); !errors.Is(err, shardway.ErrInvalid) {
				t.Errorf("InTx without a body = %v", err)
			}
			if err := db.InTx(bounded(t), 1000, nil, order(6)); !errors.Is(err, shardway.ErrKeyNotMapped) {
				t.Errorf("InTx of a key without a mapping = %v", err)
			}
			s.do(catalog.UpdateMapping{Mapping: s.low, Status: new(shardway.Offline)})
			if err := db.InTx(bounded(t), 7, nil, order(6)); !errors.Is(err, shardway.ErrMappingOffline) {
				t.Errorf("InTx of an offline mapping = %v", err)
			}
		})
	}
}

func TestShardsInTxStandalone(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.Standalone})
	db := s.open(mongoshard.ShardConfig{})
	err := db.InTx(bounded(t), 7, nil, func(context.Context, *mongo.Database) error {
		t.Error("the body was called")
		return nil
	})
	var none *mongoshard.TransactionError
	if !errors.As(err, &none) || !strings.Contains(none.Deployment, s.a.Server(0).Addr()) {
		t.Errorf("InTx on a standalone server = %v", err)
	}
}

// RTRY-09 and its kin: what is repeated, and what is not.
func TestShardsInTxFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, command string
		fault         mongotest.Fault
		calls         int
		documents     int64
		want          error
	}{
		{"transaction aborted by the server", "insert", mongotest.Fault{Code: 112, Labels: []string{"TransientTransactionError"}}, 2, 1, nil},
		{"connection lost in the middle", "insert", mongotest.Fault{Drop: true}, 2, 1, nil},
		{"statement refused for good", "insert", mongotest.Fault{Code: 121}, 1, 0, mongo.CommandError{}},
		{"acknowledgement of the commit lost", "commitTransaction", mongotest.Fault{Drop: true, AfterReply: true}, 1, 1, nil},
		{"commit lost, twice", "commitTransaction", mongotest.Fault{Drop: true, Times: 2}, 1, 1, nil},
		{"commit never answered", "commitTransaction", mongotest.Fault{Drop: true, Times: -1}, 1, 0, retry.ErrCommitUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShards(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 1})
			policy := promptly
			if c.fault.Times < 0 { // the driver goes on until its time is up
				policy.MaxElapsed = 3 * time.Second
			}
			db := s.open(mongoshard.ShardConfig{Retry: policy})
			s.database(db, 7, "one")
			s.a.Server(0).Fail(c.command, c.fault)
			calls := 0
			err := db.InTx(bounded(t), 7, nil, func(ctx context.Context, db *mongo.Database) error {
				calls++
				return order("only one")(ctx, db)
			})
			var refused mongo.CommandError
			switch {
			case c.want == nil && err != nil,
				errors.As(c.want, &refused) && !errors.As(err, &refused),
				errors.Is(c.want, retry.ErrCommitUnknown) && !errors.Is(err, retry.ErrCommitUnknown):
				t.Errorf("InTx = %v, want %v", err, c.want)
			}
			s.a.Server(0).Heal(c.command)
			if n := s.count(plain(t, s.a).Database("one")); calls != c.calls || n != c.documents {
				t.Errorf("the body was called %d times and left %d documents, want %d and %d", calls, n, c.calls, c.documents)
			}
		})
	}
}

// The transaction that holds a mapping makes its move wait, and one that comes
// after the mark does not begin where the key is leaving.
func TestShardsInTxHoldsOffAMove(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 1})
	policy := promptly
	policy.WaitOffline = true
	db := s.open(mongoshard.ShardConfig{Retry: policy})
	reader := plain(t, s.a)
	mapping := s.low.ID
	var rest sync.WaitGroup
	err := db.InTx(bounded(t), 7, nil, func(ctx context.Context, here *mongo.Database) error {
		rest.Go(func() {
			if err := s.move(t.Context(), s.sb.ID); err != nil {
				t.Error(err)
			}
		})
		until(t, "the move wants the lanes", func() bool {
			n := 0
			for _, c := range s.a.Server(0).Commands() {
				if name, _ := c.Body.Lookup("update").StringValueOK(); name == mongomap.Lanes {
					n++
				}
			}
			return n == 2 // after the one of this transaction
		})
		rest.Go(func() {
			err := db.InTx(bounded(t), 8, nil, func(ctx context.Context, there *mongo.Database) error {
				if there.Name() != "two" {
					t.Error("a transaction began where the key is leaving")
				}
				return order("later")(ctx, there)
			})
			if err != nil {
				t.Error(err)
			}
		})
		for range 20 {
			answer, err := mongomap.Ask(t.Context(), reader.Database("one"), mapping)
			if err != nil || !answer.Owned || !answer.Leaving {
				t.Errorf("under an open transaction the mapping is %+v, %v", answer, err)
				break
			}
		}
		return order("before")(ctx, here)
	})
	if err != nil {
		t.Error(err)
	}
	rest.Wait()
	if a, b := s.count(reader.Database("one")), s.count(plain(t, s.b).Database("two")); a != 1 || b != 1 {
		t.Errorf("%d and %d documents, want one on each shard", a, b)
	}
}

// move moves [0, 100), whatever its mapping is now, and keeps it online.
func (s *shards) move(ctx context.Context, to shardway.ShardID) error {
	offline, err := s.catalog.Do(ctx, catalog.UpdateMapping{Mapping: s.low, Status: new(shardway.Offline)})
	if err != nil {
		return err
	}
	online, err := s.catalog.Do(ctx, catalog.UpdateMapping{Mapping: offline.Mappings[0], ShardID: &to, Status: new(shardway.Online)})
	if err == nil {
		s.low = online.Mappings[0]
	}
	return err
}

// I3: while a key moves to and fro, nothing is committed on a shard after the
// key has left it.
func TestShardsInTxWhileKeysMove(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 1})
	chase(s, plain(t, s.a).Database("one"), plain(t, s.b).Database("two"), 6)
}

// chase moves the key while clients write for it.
func chase(s *shards, a, b *mongo.Database, moves int) {
	t := s.t
	t.Helper()
	policy := promptly
	policy.WaitOffline = true
	db := s.open(mongoshard.ShardConfig{Retry: policy})
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var committed atomic.Int64
	const writers = 4
	for n := range writers {
		clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				err := db.InTx(ctx, 7, nil, order(fmt.Sprint(n, " ", i)))
				switch {
				case err == nil:
					committed.Add(1)
				case ctx.Err() == nil:
					t.Error(err)
					return
				}
			}
		})
	}
	where, other := a, b
	ids := map[*mongo.Database]shardway.ShardID{a: s.sa.ID, b: s.sb.ID}
	for range moves {
		before := committed.Load()
		until(t, "clients have written", func() bool { return committed.Load() > before+writers || t.Failed() })
		if err := s.move(t.Context(), ids[other]); err != nil {
			t.Error(err)
			break
		}
		left, before := s.count(where), committed.Load()
		until(t, "clients have written there", func() bool { return committed.Load() > before+writers || t.Failed() })
		if now := s.count(where); now != left {
			t.Errorf("%d transactions committed on shard %q after the key had left it", now-left, where.Name())
		}
		where, other = other, where
	}
	stop()
	clients.Wait()
	if n := s.count(a) + s.count(b); n < committed.Load() || n > committed.Load()+writers {
		t.Errorf("%d documents of %d transactions", n, committed.Load())
	}
}

// The same on a real replica set or cluster, where there is one.
func TestShardsInTxWhileKeysMoveReally(t *testing.T) {
	t.Parallel()
	text := os.Getenv("SHARDWAY_TEST_MONGODB")
	if text == "" {
		t.Skip("SKIPPED, transactions were not tested on a real deployment: set SHARDWAY_TEST_MONGODB to the URI of a replica set")
	}
	base, query, _ := strings.Cut(text, "?")
	one, two := fmt.Sprintf("shardway-one-%d", time.Now().UnixNano()), fmt.Sprintf("shardway-two-%d", time.Now().UnixNano())
	address := func(database string) string { return strings.TrimRight(base, "/") + "/" + database + "?" + query }
	e, la, c, err := mongodb.Parse(address(one))
	if err != nil {
		t.Fatal(err)
	}
	_, lb, _, err := mongodb.Parse(address(two))
	if err != nil {
		t.Fatal(err)
	}
	s := &shards{t: t, engine: e, login: c}
	s.begin(la, lb)
	o, err := e.ClientOptions(t.Context(), la, c)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, client)
	t.Cleanup(func() {
		for _, name := range []string{one, two} {
			if err := client.Database(name).Drop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	chase(s, client.Database(one), client.Database(two), 6)
}

// A transaction that stays longer than a change may wait: the change is refused,
// and the key stays where it is.
func TestShardsInTxStays(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 1})
	db := s.open(mongoshard.ShardConfig{Retry: promptly})
	err := db.InTx(bounded(t), 7, nil, func(ctx context.Context, here *mongo.Database) error {
		_, err := s.catalog.Do(t.Context(), catalog.UpdateMapping{
			Mapping: s.low, Status: new(shardway.Offline), Drain: store.Drain{Mode: store.DrainNobody, Limit: time.Millisecond},
		})
		if !errors.Is(err, store.ErrMappingBusy) {
			t.Errorf("taking a mapping offline under a transaction = %v", err)
		}
		return order(1)(ctx, here)
	})
	if err != nil {
		t.Error(err)
	}
	if err := db.InTx(bounded(t), 8, nil, order(2)); err != nil {
		t.Errorf("InTx after a refused change = %v", err)
	}
	if n := s.count(plain(t, s.a).Database("one")); n != 2 {
		t.Errorf("%d documents, want 2", n)
	}
}
