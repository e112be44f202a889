// Package faultconn is a TCP proxy that breaks connections in the ways networks do: refused, cut, slow, silent.
// Tests put it between a client and a real server. It never looks into what it passes on.
// [Impostor] is no proxy: it takes the place of a server and listens.
//
//	p := faultconn.New(t, server.Addr())
//	db := openDatabase(p.Addr())
//	p.Cut() // every connection is reset, new ones are refused
//	p.Restore()
package faultconn

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

const (
	dialLimit  = 10 * time.Second // to reach the target
	chunkBytes = 32 << 10         // passed on at once
	chunkQueue = 64               // chunks under way in one direction while Delay holds them
)

// Proxy passes TCP connections on to one target. It is safe for concurrent use. It keeps its address for life.
type Proxy struct {
	target string
	addr   net.TCPAddr
	done   chan struct{}  // closed by close: ends what waits
	wg     sync.WaitGroup // every goroutine of the proxy

	mu        sync.Mutex // guards the fields below
	listener  net.Listener
	links     map[*link]struct{}
	accepted  int
	cut       bool
	blackHole bool
	delay     time.Duration
	closed    bool
}

// link is one client's connection and its counterpart.
type link struct {
	client net.Conn
	server net.Conn // nil until the target is reached; guarded by Proxy.mu
}

// chunk is what was read at once and the time from which it may be written.
type chunk struct {
	data []byte
	due  time.Time
}

// New starts a proxy to the target, host:port, on a free port of 127.0.0.1. It and its connections end with the test.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{target: target, done: make(chan struct{}), links: map[*link]struct{}{}}
	if err := p.listen(); err != nil {
		t.Fatalf("starting a fault proxy: %v", err)
	}
	t.Cleanup(p.close)
	return p
}

// Addr is the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.addr.String() }

// Host is the host of Addr.
func (p *Proxy) Host() string { return p.addr.IP.String() }

// Port is the port of Addr.
func (p *Proxy) Port() int { return p.addr.Port }

// Cut resets every connection and refuses new ones until Restore, as a dead server's host does.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.reset()
		delete(p.links, l)
	}
}

// BlackHole keeps connections open and accepts new ones, but drops what either side sends, until Restore. Answers
// that are under way are dropped too. What was dropped stays lost: a connection that lived through it is out of step.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blackHole = true
}

// Delay holds each chunk for d in each direction, so that a round trip takes 2d longer, until Restore. It delays
// without narrowing: later chunks do not wait for earlier ones beyond their order. 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Restore ends Cut, BlackHole and Delay. When it returns, connections are accepted. It panics if another process
// has taken the port meanwhile.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blackHole, p.delay = false, 0
	if !p.cut || p.closed {
		return
	}
	l, err := net.Listen("tcp", p.Addr())
	if err != nil {
		panic(fmt.Sprintf("faultconn: listening on %s again: %v", p.Addr(), err))
	}
	p.cut = false
	p.serveLocked(l)
}

// Live is the number of clients' connections that are open now.
func (p *Proxy) Live() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Accepted is the number of clients' connections since New.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// close ends the proxy and waits for its goroutines.
func (p *Proxy) close() {
	p.Cut()
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.done)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// listen takes a port below the range of outgoing connections' local ports: while the proxy is cut nobody gets it by
// chance, a client that dials it least of all, which TCP would connect to itself.
func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	const low, high, tries = 11000, 15000, 100
	var err error
	for range tries {
		p.addr = net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: low + rand.IntN(high-low)}
		var l net.Listener
		if l, err = net.Listen("tcp", p.Addr()); err == nil {
			p.serveLocked(l)
			return nil
		}
	}
	return err
}

// serveLocked accepts until the listener is closed. The caller holds mu.
func (p *Proxy) serveLocked(l net.Listener) {
	p.listener = l
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil { // else the client gave up before it was accepted
				p.wg.Go(func() { p.join(c) })
			}
		}
	})
}

// join connects a client to the target and passes bytes until either side ends.
func (p *Proxy) join(client net.Conn) {
	l := &link{client: client}
	if !p.add(l) {
		l.reset()
		return
	}
	defer p.remove(l)
	server, err := net.DialTimeout("tcp", p.target, dialLimit)
	if err != nil || !p.attach(l, server) {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { p.pass(server, client) })
	ways.Go(func() { p.pass(client, server) })
	ways.Wait()
}

// add counts a connection in, unless Cut came between its acceptance and now.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	p.accepted++
	p.links[l] = struct{}{}
	return true
}

// attach gives a link its counterpart, unless Cut came meanwhile.
func (p *Proxy) attach(l *link, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		_ = server.Close()
		return false
	}
	l.server = server
	return true
}

// remove counts a link out that has ended. What was written to the client still reaches it.
func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.links[l]; !ok {
		return // Cut was first
	}
	if l.server == nil {
		l.reset()
	}
	l.close()
	delete(p.links, l)
}

// pass copies from one connection to another until either fails; the end of from is passed on as an end of writing.
func (p *Proxy) pass(to, from net.Conn) {
	chunks := make(chan chunk, chunkQueue)
	stop := make(chan struct{})
	p.wg.Go(func() { // ends when from is closed or when nobody writes any more
		defer close(chunks)
		for {
			buffer := make([]byte, chunkBytes)
			n, err := from.Read(buffer)
			if n > 0 {
				select {
				case chunks <- chunk{buffer[:n], time.Now().Add(p.delayNow())}:
				case <-stop:
					return
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					_ = to.Close() // an orderly end goes one way, a broken connection both
				}
				return
			}
		}
	})
	defer close(stop)
	for c := range chunks {
		p.holdUntil(c.due)
		if p.dropsNow() {
			continue
		}
		if _, err := to.Write(c.data); err != nil {
			_ = from.Close()
			return
		}
	}
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}

// holdUntil waits until the time has come or the proxy ends.
func (p *Proxy) holdUntil(due time.Time) {
	wait := time.Until(due)
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.done:
	}
}

func (p *Proxy) delayNow() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

func (p *Proxy) dropsNow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blackHole
}

// reset closes both sides at once; the client sees a reset, not an orderly end.
func (l *link) reset() {
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	l.close()
}

// close closes both sides.
func (l *link) close() {
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}
