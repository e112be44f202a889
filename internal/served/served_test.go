package served_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/shardway/shardway/internal/served"
)

func TestTally(t *testing.T) {
	t.Parallel()
	tally := served.New("find")
	for _, e := range []event.CommandFinishedEvent{
		{CommandName: "find", ConnectionID: "db2:27017[-7]"},
		{CommandName: "find", ConnectionID: "[::1]:27017[-1]"},
		{CommandName: "insert", ConnectionID: "db2:27017[-7]"},
		{CommandName: "find", ConnectionID: "db2:27017[-9]"},
	} {
		tally.Monitor().Succeeded(t.Context(), &event.CommandSucceededEvent{CommandFinishedEvent: e})
	}
	got := tally.Take()
	if got.String() != "[::1]:27017 (1), db2:27017 (2)" || got.Total() != 3 {
		t.Errorf("%v, %d in all", got, got.Total())
	}
	if got.Only(func(address string) bool { return address == "db2:27017" }) {
		t.Error("another server is overlooked")
	}
	if again := tally.Take(); again.Total() != 0 || again.Only(func(string) bool { return true }) {
		t.Errorf("%v is left", again)
	}
}
