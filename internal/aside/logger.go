// Package aside keeps the logging of a user from getting in the way of the
// work that it tells of. It is for loggers that are handed to this module.
package aside

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Patience is how long a line is waited for. A handler that takes longer gets
// no more lines until it is through with that one; they are counted.
const Patience = 100 * time.Millisecond

// Lost is the attribute with the number of lines that were dropped before the
// line that has it.
const Lost = "lost_lines"

// Logger returns a logger that writes through l and never panics, fails or
// blocks for longer than [Patience]. The first panic or error of l's handler is
// told to [slog.Default]. A nil l discards everything.
func Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	if _, ok := l.Handler().(*guard); ok {
		return l
	}
	return slog.New(&guard{next: l.Handler(), lane: &lane{turn: make(chan struct{}, 1)}})
}

// lane is what all handlers made from one logger share.
type lane struct {
	turn chan struct{} // full while a line is being written
	lost atomic.Int64  // lines dropped meanwhile
	told sync.Once     // of a panic or an error

	mu      sync.Mutex    // guards current, and changes of slow
	current chan struct{} // of the line being written; nil: none
	slow    atomic.Bool   // that line has taken longer than Patience
}

// begin notes which line is being written, with nil that none is any more.
func (l *lane) begin(line chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = line
	l.slow.Store(false)
}

// outlasted notes that a line takes too long, if it has not ended just now.
func (l *lane) outlasted(line chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == line {
		l.slow.Store(true)
	}
}

// tell reports the first failure of a handler.
func (l *lane) tell(what string, cause any) {
	l.told.Do(func() {
		defer func() { _ = recover() }() // the default logger may be the broken one
		slog.Default().Error("logging "+what+"; told once, work goes on", "cause", fmt.Sprint(cause))
	})
}

// guard is the handler of [Logger].
type guard struct {
	next slog.Handler
	lane *lane
}

// Enabled reports whether the handler wants lines of a level, and false while
// it is stuck.
func (g *guard) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	if g.lane.slow.Load() {
		g.lane.lost.Add(1)
		return false
	}
	defer g.caught()
	return g.next.Enabled(ctx, level)
}

// Handle writes a line, or drops it when the handler is stuck.
func (g *guard) Handle(ctx context.Context, r slog.Record) error {
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case g.lane.turn <- struct{}{}:
	case <-timer.C:
		g.lane.lost.Add(1)
		return nil
	}
	r = r.Clone()
	written := make(chan struct{})
	g.lane.begin(written)
	go func() {
		defer close(written)
		g.write(context.WithoutCancel(ctx), r)
	}()
	select {
	case <-written:
	case <-timer.C:
		g.lane.outlasted(written)
	}
	return nil
}

// write calls the handler with the turn, and gives the turn back.
func (g *guard) write(ctx context.Context, r slog.Record) {
	defer func() {
		g.lane.begin(nil)
		<-g.lane.turn
	}()
	defer g.caught()
	if lost := g.lane.lost.Swap(0); lost > 0 {
		r.AddAttrs(slog.Int64(Lost, lost))
	}
	if err := g.next.Handle(ctx, r); err != nil {
		g.lane.tell("fails", err)
	}
}

// caught ends a panic of the handler. It must be deferred itself.
func (g *guard) caught() {
	if cause := recover(); cause != nil {
		g.lane.tell("panics", cause)
	}
}

// WithAttrs returns a handler with more attributes.
func (g *guard) WithAttrs(attrs []slog.Attr) (h slog.Handler) {
	return g.derived(func() slog.Handler { return g.next.WithAttrs(attrs) })
}

// WithGroup returns a handler with a group.
func (g *guard) WithGroup(name string) slog.Handler {
	return g.derived(func() slog.Handler { return g.next.WithGroup(name) })
}

func (g *guard) derived(from func() slog.Handler) (h slog.Handler) {
	h = g // unless it panics
	defer g.caught()
	return &guard{next: from(), lane: g.lane}
}
