package mongoshard_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// A cursor stays on its server, whatever the context of Next carries; so does
// its end.
func TestCursorStays(t *testing.T) {
	t.Parallel()
	for _, kind := range []mongotest.Kind{mongotest.Sharded, mongotest.ReplicaSet} {
		c := mongotest.New(t, mongotest.Options{Kind: kind})
		c.Fill("app", "customers", 300)
		client := open(t, uri(c), mongoshard.Config{Criteria: at(c.Server(1))})
		ctx := bounded(t)
		collection := customers(client)
		cursor, err := collection.Find(ctx, bson.D{}, options.Find().SetBatchSize(10))
		if err != nil {
			t.Fatal(err)
		}
		other := mongoshard.WithCriteria(ctx, at(c.Server(2)))
		n := 0
		for cursor.Next(other) {
			n++
		}
		if err := cursor.Err(); err != nil || n != 300 {
			t.Fatalf("%d documents, %v", n, err)
		}
		wantCounts(t, c, "getMore", 0, 29, 0)
		for _, p := range preferences(c.Server(1), "getMore") {
			if p != "" {
				t.Errorf("getMore was sent with $readPreference %s", p)
			}
		}
		half, err := collection.Find(ctx, bson.D{}, options.Find().SetBatchSize(10))
		if err != nil {
			t.Fatal(err)
		}
		if err := half.Close(other); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, c, "killCursors", 0, 1, 0)
	}
}

// A transaction of a sharded cluster begins where the criteria say and stays
// there although later predicates exclude its mongos.
func TestShardedTransactionStays(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 3)
	client := open(t, uri(c), mongoshard.Config{Criteria: at(c.Server(2))})
	ctx := bounded(t)
	untilKnown(t, client, 3)
	excluded := selection.Where(func(selection.ServerInfo) bool { return false })
	err := client.UseSession(ctx, func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			findOne(ctx, t, customers(client))
			ctx = mongoshard.WithCriteria(ctx, excluded)
			insert(ctx, t, customers(client))
			for range 5 {
				findOne(ctx, t, customers(client))
			}
			return customers(client).UpdateOne(ctx, one("_id", 1), one("$set", one("seen", true)))
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, c, "find", 0, 0, 6)
	wantCounts(t, c, "insert", 0, 0, 1)
	wantCounts(t, c, "update", 0, 0, 1)
	wantCounts(t, c, "commitTransaction", 0, 0, 1)
}

// Transactions whose first operation is a write stay on the mongos it used.
func TestTransactionsThatBeginWithAWriteStay(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	client := open(t, uri(c), mongoshard.Config{Criteria: at(c.Server(0))})
	ctx := bounded(t)
	untilKnown(t, client, 3)
	for range 20 {
		err := client.UseSession(ctx, func(ctx context.Context) error {
			_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
				for range 4 {
					insert(ctx, t, customers(client))
				}
				return nil, nil
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	inserts, commits := counts(c, "insert"), counts(c, "commitTransaction")
	for i := range inserts {
		if inserts[i] != 4*commits[i] {
			t.Errorf("inserts %v, commits %v: a transaction moved", inserts, commits)
			break
		}
	}
	if slices.Min(commits) == 0 {
		t.Errorf("commits by server: %v; the predicate is not for writes", commits)
	}
}

// A transaction of a replica set uses the primary, even if the predicate
// excludes it or the client reads from secondaries.
func TestReplicaSetTransactionUsesThePrimary(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	c.Fill("app", "customers", 3)
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.Where(func(s selection.ServerInfo) bool { return s.Role == topology.RoleSecondary })})
	for name, client := range map[string]*mongo.Client{"predicate": client, "read preference": with(t, client, selection.Secondary())} {
		ctx := bounded(t)
		before := c.Server(0).Count("find")
		err := client.UseSession(ctx, func(ctx context.Context) error {
			session := mongo.SessionFromContext(ctx)
			findOne(ctx, t, customers(client)) // outside the transaction
			if err := session.StartTransaction(); err != nil {
				return err
			}
			findOne(ctx, t, customers(client))
			insert(ctx, t, customers(client))
			findOne(ctx, t, customers(client))
			return session.CommitTransaction(ctx)
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := c.Server(0).Count("find") - before; got != 2 {
			t.Errorf("%s: %d finds on the primary, want the two of the transaction", name, got)
		}
	}
	wantTexts(t, []string{"", "", "", ""}, preferences(c.Server(0), "find"))
	if got := c.Server(1).Count("find") + c.Server(2).Count("find"); got != 2 {
		t.Errorf("%d finds on the secondaries, want 2", got)
	}
}

// A read preference of the user's own in a transaction is the driver's matter.
func TestTransactionWithReadPreferenceIsRefused(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	client := open(t, uri(c), mongoshard.Config{})
	ctx := bounded(t)
	err := client.UseSession(ctx, func(ctx context.Context) error {
		o := options.Transaction().SetReadPreference(readpref.Secondary())
		if err := mongo.SessionFromContext(ctx).StartTransaction(o); err != nil {
			return err
		}
		return customers(client).FindOne(ctx, bson.D{}).Err()
	})
	if err == nil || c.Count("find") != 0 {
		t.Errorf("error %v, %d finds", err, c.Count("find"))
	}
}

// The reply to a commit is lost: the driver repeats the commit, on the same
// server, and the body once ran (RTRY-09).
func TestCommitWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	for _, kind := range []mongotest.Kind{mongotest.Sharded, mongotest.ReplicaSet} {
		c := mongotest.New(t, mongotest.Options{Kind: kind})
		client := open(t, uri(c), mongoshard.Config{Criteria: at(c.Server(0))})
		ctx := bounded(t)
		for i := range c.Servers() {
			c.Server(i).Fail("commitTransaction", mongotest.Fault{Drop: true, AfterReply: true})
		}
		ran := 0
		err := client.UseSession(ctx, func(ctx context.Context) error {
			_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
				ran++
				insert(ctx, t, customers(client))
				return nil, nil
			})
			return err
		})
		n, countErr := customers(client).CountDocuments(ctx, bson.D{})
		if err != nil || ran != 1 || n != 1 || countErr != nil {
			t.Errorf("error %v; the body ran %d times and left %d documents, %v", err, ran, n, countErr)
		}
		commits := counts(c, "commitTransaction")
		if slices.Max(commits) != 2 {
			t.Errorf("commits by server: %v, want two on one", commits)
		}
	}
}

// A session belongs to the client that made it; another client of the same
// deployment refuses it.
func TestSessionsDoNotCross(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	first := open(t, uri(c), mongoshard.Config{})
	second := with(t, first, selection.Nearest())
	err := first.UseSession(bounded(t), func(ctx context.Context) error {
		return customers(second).FindOne(ctx, bson.D{}).Err()
	})
	if !errors.Is(err, mongo.ErrWrongClient) {
		t.Errorf("error %v, want ErrWrongClient", err)
	}
}

// A change stream reads where the criteria say and stays among them when it
// resumes after an error.
func TestChangeStreamResumesAmongTheAdmitted(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.Where(func(s selection.ServerInfo) bool { return s.Role == topology.RoleSecondary })})
	ctx := bounded(t)
	untilKnown(t, client, 3)
	stream, err := customers(client).Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Servers() {
		for range 3 {
			c.Server(i).Fail("getMore", mongotest.Fault{Code: 11602, Labels: []string{"ResumableChangeStreamError"}})
		}
	}
	for range 30 {
		if stream.TryNext(ctx) {
			t.Fatal("an event that nobody made")
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Close(ctx); err != nil {
		t.Fatal(err)
	}
	got := counts(c, "aggregate")
	if got[0] != 0 || got[1]+got[2] < 4 {
		t.Errorf("aggregates by server: %v, want at least four, none on the primary", got)
	}
	for i := 1; i < 3; i++ {
		for _, p := range preferences(c.Server(i), "aggregate") {
			if p != `{"mode": "primaryPreferred"}` {
				t.Errorf("the stream was resumed with $readPreference %q", p)
			}
		}
	}
}
