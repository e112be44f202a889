package replicas

import (
	"net"
	"sync"
	"time"
)

// distance is how long a relay keeps what it passes on, one way.
const distance = 20 * time.Millisecond

// relay is a slow link to a server.
type relay struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool // nil when closed
}

func newRelay(target string) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, target: target, open: map[net.Conn]bool{}}
	r.running.Go(r.accept)
	return r, nil
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !r.keep(client, server) {
			return
		}
		r.running.Go(func() { pass(server, client) })
		r.running.Go(func() { pass(client, server) })
	}
}

// keep notes connections for close, or closes them if that has been.
func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.open == nil {
			_ = c.Close()
			continue
		}
		r.open[c] = true
	}
	return r.open != nil
}

// close ends all connections and waits for their goroutines.
func (r *relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for c := range r.open {
		_ = c.Close()
	}
	r.open = nil
	r.mu.Unlock()
	r.running.Wait()
}

// pass copies one way, with the delay, until either side closes; then both are.
func pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			time.Sleep(distance)
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
