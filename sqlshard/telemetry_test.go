package sqlshard_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway/internal/aside"
	"github.com/shardway/shardway/sqlshard"
)

// wrong is a handler of log lines that goes wrong in one way.
type wrong struct {
	slog.Handler

	calls *atomic.Int32
	goes  func() error
}

func (w wrong) Enabled(context.Context, slog.Level) bool { return true }

func (w wrong) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w wrong) Handle(context.Context, slog.Record) error {
	w.calls.Add(1)
	return w.goes()
}

// OBS-05: a log handler that fails, panics or never returns does not keep keys
// from being opened: one that is stuck costs one short wait, the others nothing.
func TestBrokenLogger(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		goes func(release chan struct{}) error
		wait time.Duration
	}{
		"fails":  {func(chan struct{}) error { return errors.New("no disk") }, 0},
		"panics": {func(chan struct{}) error { panic("no disk") }, 0},
		"blocks": {func(release chan struct{}) error { <-release; return nil }, aside.Patience},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var calls atomic.Int32
				logger := slog.New(wrong{slog.DiscardHandler, &calls, func() error { return c.goes(release) }})
				db, _, _, closeAll := newFakeSet(t, sqlshard.Config{Logger: logger}, "a:1", "b:1")
				began := time.Now()
				for range 100 {
					conn, err := db.OpenConnectionForKey(t.Context(), 7)
					if err != nil {
						t.Fatal(err)
					}
					if err := conn.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); took > c.wait {
					t.Errorf("100 opens took %s of fake time, want at most %s", took, c.wait)
				}
				if calls.Load() == 0 {
					t.Error("the handler was never called")
				}
				close(release)
				closeAll()
			})
		})
	}
}
