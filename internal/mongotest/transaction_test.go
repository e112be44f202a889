package mongotest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/shardway/shardway/internal/mongotest"
)

// begin starts a transaction and returns its context.
func begin(t *testing.T, client *mongo.Client) (context.Context, *mongo.Session) {
	t.Helper()
	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.EndSession(context.Background()) })
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	return mongo.NewSessionContext(bounded(t), session), session
}

func TestTransactionIsASnapshot(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	c.Fill("app", "customers", 2)
	client := connect(t, c)
	customers := client.Database("app").Collection("customers")
	ctx, session := begin(t, client)
	if _, err := customers.InsertOne(ctx, one("_id", 7)); err != nil {
		t.Fatal(err)
	}
	outside, err := customers.CountDocuments(bounded(t), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	inside, err := customers.CountDocuments(ctx, bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	if outside != 2 || inside != 3 {
		t.Errorf("%d documents outside and %d inside, want 2 and 3", outside, inside)
	}
	if err := session.AbortTransaction(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if n, _ := customers.CountDocuments(bounded(t), bson.D{}); n != 2 {
		t.Errorf("%d documents after the abort, want 2", n)
	}
}

func TestLaterWriterOfADocumentLoses(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	c.Fill("app", "customers", 2)
	client := connect(t, c)
	customers := client.Database("app").Collection("customers")
	inc := one("$inc", one("i", 10))
	first, winner := begin(t, client)
	second, _ := begin(t, client)
	third, _ := begin(t, client)
	if err := customers.FindOne(third, one("_id", 1)).Err(); err != nil { // its snapshot is from now on
		t.Fatal(err)
	}
	if _, err := customers.UpdateOne(first, one("_id", 1), inc); err != nil {
		t.Fatal(err)
	}
	_, err := customers.UpdateOne(second, one("_id", 1), inc)
	conflict(t, err)

	// A write outside of transactions waits.
	written := make(chan error, 1)
	go func() {
		_, err := customers.UpdateOne(bounded(t), one("_id", 1), inc)
		written <- err
	}()
	until(t, "the update outside", func() bool { return c.Count("update") == 3 })
	if err := winner.CommitTransaction(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	_, err = customers.UpdateOne(third, one("_id", 1), inc)
	conflict(t, err)

	var got bson.M
	if err := customers.FindOne(bounded(t), one("_id", 1)).Decode(&got); err != nil || got["i"] != int32(21) {
		t.Errorf("i = %v, %v, want 21", got["i"], err)
	}
}

func conflict(t *testing.T, err error) {
	t.Helper()
	var e mongo.CommandError
	if !errors.As(err, &e) || e.Code != 112 || !e.HasErrorLabel("TransientTransactionError") {
		t.Errorf("%v, want a transient write conflict", err)
	}
}

func TestElectionEndsTransactions(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Streaming: true})
	client := connect(t, c)
	customers := client.Database("app").Collection("customers")
	ctx, session := begin(t, client)
	if _, err := customers.InsertOne(ctx, one("_id", 1)); err != nil {
		t.Fatal(err)
	}
	c.Elect(1)
	err := session.CommitTransaction(bounded(t))
	if got := code(err); got != 251 {
		t.Errorf("commit after the election: %v, want code 251", err)
	}
	if n, err := customers.CountDocuments(bounded(t), bson.D{}); err != nil || n != 0 {
		t.Errorf("%d documents, %v, want none", n, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := customers.InsertOne(short, one("_id", 1)); err != nil {
		t.Errorf("the document of the ended transaction is still held: %v", err)
	}
}

func TestStandaloneHasNoTransactions(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Standalone})
	client := connect(t, c)
	ctx, _ := begin(t, client)
	_, err := client.Database("app").Collection("customers").InsertOne(ctx, one("_id", 1))
	if got := code(err); got != 20 {
		t.Errorf("%v, want code 20", err)
	}
}
