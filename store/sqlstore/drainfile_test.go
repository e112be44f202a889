package sqlstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/store"
)

// In a file any writer may be at work for the mapping: it is waited for, never
// ended, and the change is given up in time.
func TestDrainFile(t *testing.T) {
	t.Parallel()
	w := newTenants(t, dbtest.EngineSQLite.NewDatabase(t))
	u := w.fenced(w.mine)
	for _, drain := range []store.Drain{{Mode: store.DrainAtOnce}, {Limit: 20 * time.Millisecond}, {Mode: store.DrainNobody, Limit: time.Millisecond}} {
		_, err := w.local.Step(t.Context(), w.offline(drain))
		if !errors.Is(err, store.ErrMappingBusy) {
			t.Fatalf("Step = %v", err)
		}
	}
	u.alive("a file's writer")
	done := w.begin(w.offline(store.Drain{Limit: time.Minute}))
	w.exec(u, "COMMIT")
	if err := <-done; err != nil {
		t.Fatalf("Step = %v", err)
	}
	if w.owned() {
		t.Error("owned after it was taken offline")
	}
	w.exec(w.admin, "INSERT INTO work VALUES (1)") // nobody is left in the way
}
