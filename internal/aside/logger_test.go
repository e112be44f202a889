package aside_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway/internal/aside"
)

// handler does what a test says with each line, and keeps their texts.
type handler struct {
	slog.Handler

	does func(r slog.Record) error

	mu    sync.Mutex // guards lines
	lines []string
}

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	h.mu.Lock()
	h.lines = append(h.lines, text)
	h.mu.Unlock()
	return h.does(r)
}

func (h *handler) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}

func newHandler(does func(slog.Record) error) *handler {
	return &handler{Handler: slog.NewTextHandler(new(bytes.Buffer), nil), does: does}
}

// OBS-05: a handler that panics or fails changes nothing for those who log, and
// is told of once. It replaces the default logger, so it runs alone.
func TestBroken(t *testing.T) { //nolint:paralleltest // replaces the default logger
	before := slog.Default()
	defer slog.SetDefault(before)
	for name, does := range map[string]func(slog.Record) error{
		"panics": func(slog.Record) error { panic("no disk") },
		"fails":  func(slog.Record) error { return errors.New("no disk") },
	} {
		told := newHandler(func(slog.Record) error { return nil })
		slog.SetDefault(slog.New(told))
		h := newHandler(does)
		l := aside.Logger(slog.New(h))
		for range 3 {
			l.With("a", 1).WithGroup("g").Info("one") // derived by the text handler, which is well
			l.Warn("two", "key", 5)
		}
		if got := h.text(); got != "two key=5\ntwo key=5\ntwo key=5" {
			t.Errorf("%s: lines %q", name, got)
		}
		if got := told.text(); got != "logging "+name+"; told once, work goes on cause=no disk" {
			t.Errorf("%s: told %q", name, got)
		}
		slog.SetDefault(slog.New(h)) // the broken one
		aside.Logger(slog.New(h)).Info("three")
	}
}

// OBS-05: a handler that is stuck is waited for once; lines are dropped until
// it is through, and counted in the next one.
func TestStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := newHandler(func(r slog.Record) error {
			if r.Message == "stuck" {
				<-release
			}
			return nil
		})
		l := aside.Logger(slog.New(h))
		began := time.Now()
		l.Info("stuck")
		if took := time.Since(began); took != aside.Patience {
			t.Errorf("the first line took %s of fake time, want %s", took, aside.Patience)
		}
		began = time.Now()
		for range 1000 {
			l.Info("dropped")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("1000 lines took %s of fake time", took)
		}
		close(release)
		synctest.Wait()
		l.Info("next")
		l.Info("last")
		if got, want := h.text(), "stuck\nnext lost_lines=1000\nlast"; got != want {
			t.Errorf("lines %q, want %q", got, want)
		}
	})
}

// Whole lines come through, in order, with their attributes and groups.
func TestSound(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	plain := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	l := aside.Logger(plain)
	if aside.Logger(l) != l {
		t.Error("a logger is guarded twice")
	}
	l.Info("one", "a", 1)
	l.With("b", 2).WithGroup("g").Warn("two", "c", 3)
	l.Debug("not wanted")
	if got, want := b.String(), "level=INFO msg=one a=1\nlevel=WARN msg=two b=2 g.c=3\n"; got != want {
		t.Errorf("lines %q, want %q", got, want)
	}
	aside.Logger(nil).Error("nobody reads this")
}
