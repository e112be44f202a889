package sqlshard_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/shardway/shardway/sqlshard"
)

// broken is a handler that wants all log lines and can write none.
type broken struct {
	slog.Handler

	calls *atomic.Int32
}

func (broken) Enabled(context.Context, slog.Level) bool { return true }

func (b broken) WithAttrs([]slog.Attr) slog.Handler { return b }

func (b broken) Handle(context.Context, slog.Record) error {
	b.calls.Add(1)
	return errors.New("no disk")
}

// OBS-05: a log that cannot be written does not keep keys from being opened.
func TestBrokenLogger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		db, _, _, closeAll := newFakeSet(t, sqlshard.Config{Logger: slog.New(broken{slog.DiscardHandler, &calls})}, "a:1", "b:1")
		defer closeAll()
		conn, err := db.OpenConnectionForKey(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if calls.Load() == 0 {
			t.Error("the handler was never called")
		}
	})
}
