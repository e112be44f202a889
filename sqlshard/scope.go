package sqlshard

import (
	"context"
	"sync"
)

// scope is the life of a query's rows or of a transaction on a [Conn]. As a
// context it reaches the session through database/sql, and the session ends
// the scope when the rows are closed or the transaction is. Closing the Conn
// cancels the scopes that are left, upon which database/sql closes rows and
// transactions by itself: forgotten ones do not keep the session.
type scope struct {
	context.Context //nolint:containedctx // it is a context

	cancel context.CancelFunc
	scopes *scopes
	next   *scope
	ended  bool   // guarded by scopes.mu
	after  func() // called once in a goroutine of its own; may be nil
}

type scopeKey struct{}

// Value returns the scope itself for scopeKey.
func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s
	}
	return s.Context.Value(key)
}

func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// scopes are the open scopes of a Conn. The zero value is ready for use.
type scopes struct {
	mu        sync.Mutex // guards the fields below and those of each scope
	first     *scope
	cancelled bool
}

// begin opens a scope within ctx.
func (l *scopes) begin(ctx context.Context, after func()) *scope {
	s := &scope{scopes: l, after: after}
	s.Context, s.cancel = context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancelled {
		s.cancel()
	}
	s.next, l.first = l.first, s
	return s
}

// end closes the scope. It is idempotent; a nil scope is no scope.
func (s *scope) end() {
	if s == nil {
		return
	}
	l := s.scopes
	l.mu.Lock()
	done := s.ended
	s.ended = true
	for at := &l.first; *at != nil; at = &(*at).next {
		if *at == s {
			*at = s.next
			break
		}
	}
	l.mu.Unlock()
	s.cancel()
	if !done && s.after != nil {
		go s.after()
	}
}

// abandoned reports whether the Conn was closed before the scope ended.
func (s *scope) abandoned() bool {
	if s == nil {
		return false
	}
	s.scopes.mu.Lock()
	defer s.scopes.mu.Unlock()
	return s.scopes.cancelled
}

// cancel cancels what is open and all that will be.
func (l *scopes) cancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancelled = true
	for s := l.first; s != nil; s = s.next {
		s.cancel()
	}
}
