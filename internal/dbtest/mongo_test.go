package dbtest

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestMongo(t *testing.T) {
	t.Parallel()
	s := Mongo(t)
	first, second := s.NewDatabase(t), s.NewDatabase(t)
	if first.Name == second.Name {
		t.Fatalf("two databases are both named %q", first.Name)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(first.URI))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(t.Context()) }()
	things := client.Database(first.Name).Collection("things")
	if _, err := things.InsertOne(t.Context(), bson.M{"_id": int64(1), "key": []byte{0, 255}}); err != nil {
		t.Fatal(err)
	}
	if _, err := things.InsertOne(t.Context(), bson.M{"_id": int64(1)}); !mongo.IsDuplicateKeyError(err) {
		t.Errorf("inserting an id twice = %v, want a duplicate", err)
	}
	var found struct {
		Key []byte `bson:"key"`
	}
	if err := things.FindOne(t.Context(), bson.M{"_id": int64(1)}).Decode(&found); err != nil || string(found.Key) != "\x00\xff" {
		t.Errorf("found %x, %v", found.Key, err)
	}
	if n, err := client.Database(second.Name).Collection("things").CountDocuments(t.Context(), bson.M{}); err != nil || n != 0 {
		t.Errorf("the other database has %d things, %v", n, err)
	}
}

// What two clients change at once is changed twice: a command is atomic.
func TestMongoCommandsAreAtomic(t *testing.T) {
	t.Parallel()
	db := Mongo(t).NewDatabase(t)
	client, err := mongo.Connect(options.Client().ApplyURI(db.URI))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(t.Context()) }()
	counters := client.Database(db.Name).Collection("counters")
	if _, err := counters.InsertOne(t.Context(), bson.M{"_id": "n", "value": int64(0)}); err != nil {
		t.Fatal(err)
	}
	const clients, times = 8, 25
	done := make(chan error, clients)
	for range clients {
		go func() {
			var err error
			for n := 0; n < times && err == nil; n++ {
				err = counters.FindOneAndUpdate(t.Context(), bson.M{"_id": "n"}, bson.M{"$inc": bson.M{"value": int64(1)}}).Err()
			}
			done <- err
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	var found struct{ Value int64 }
	if err := counters.FindOne(t.Context(), bson.M{"_id": "n"}).Decode(&found); err != nil || found.Value != clients*times {
		t.Errorf("counted to %d, %v, want %d", found.Value, err, clients*times)
	}
}
