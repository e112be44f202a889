package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress shows how far long work has come, on a terminal and nowhere else. It
// is safe for concurrent use. Nil shows nothing.
type progress struct {
	w     io.Writer
	what  string
	total int // 0: nobody knows

	mu    sync.Mutex // guards the fields below
	done  int
	shown time.Time
}

// progressPause is between two pictures.
const progressPause = 100 * time.Millisecond

// newProgress returns nil when w is no terminal.
func newProgress(w io.Writer, what string, total int) *progress {
	if clearing(w) == "" {
		return nil
	}
	return &progress{w: w, what: what, total: total}
}

// step counts one more piece of work.
func (p *progress) step() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if now := time.Now(); now.Sub(p.shown) >= progressPause {
		p.shown = now
		fmt.Fprint(p.w, "\r\x1b[K"+p.picture())
	}
}

// picture is the line as it is now.
func (p *progress) picture() string {
	if p.total <= 0 {
		return fmt.Sprintf("%s: %d", p.what, p.done)
	}
	const width = 30
	done := min(p.done, p.total)
	full := done * width / p.total
	return fmt.Sprintf("%s [%s%s] %d of %d", p.what, strings.Repeat("#", full), strings.Repeat(".", width-full), done, p.total)
}

// end takes the line away.
func (p *progress) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprint(p.w, "\r\x1b[K")
}
