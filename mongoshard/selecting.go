package mongoshard

import (
	"context"
	"sync"
)

// selecting is the context of a selection, which also ends with the client. It
// costs nothing until somebody waits. One goroutine at a time uses it.
type selecting struct {
	context.Context
	handle *handle
	ends   context.CancelFunc // of Context, once it is one of its own; nil before
}

// Done returns the channel of a context that ends with the operation's or with
// the client.
func (s *selecting) Done() <-chan struct{} {
	if s.ends == nil {
		s.Context, s.ends = context.WithCancel(s.Context)
		s.handle.waiting.add(s)
	}
	return s.Context.Done()
}

// end lets go of what Done has made.
func (s *selecting) end() {
	if s.ends != nil {
		s.handle.waiting.remove(s)
		s.ends()
	}
}

// waiting are the selections of a client that wait for a server. The zero value
// is ready for use.
type waiting struct {
	mu    sync.Mutex // guards the fields below
	list  map[*selecting]struct{}
	ended bool // the client is disconnected: nobody waits any more
}

func (w *waiting) add(s *selecting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		s.ends()
		return
	}
	if w.list == nil {
		w.list = map[*selecting]struct{}{}
	}
	w.list[s] = struct{}{}
}

func (w *waiting) remove(s *selecting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.list, s)
}

// end ends every wait.
func (w *waiting) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for s := range w.list {
		s.ends()
	}
	w.list = nil
}
