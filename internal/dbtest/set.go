package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/shardway/shardway/internal/faultconn"
)

// awaitPause is the time between two looks at what a test waits for.
const awaitPause = 5 * time.Millisecond

// replicaSet is what PostgresSet and MariaDBSet have in common: servers, of which one was made primary last. Methods
// that change the set are for one goroutine at a time.
type replicaSet struct {
	servers []*Server
	proxies []*faultconn.Proxy // empty without proxies
	primary int
}

// Servers returns the set's servers; the first was the primary when the set was made.
func (r *replicaSet) Servers() []*Server { return append([]*Server(nil), r.servers...) }

// Server returns the i-th server, at its own address: no proxy is between.
func (r *replicaSet) Server(i int) *Server { return r.servers[i] }

// Primary is the index of the server that was made primary last, running or not.
func (r *replicaSet) Primary() int { return r.primary }

// Proxy returns what stands before the i-th server, or nil for a set without proxies. Secondaries reach the server
// that they follow through its proxy too: cut, it is cut off from everybody, as by a network.
func (r *replicaSet) Proxy(i int) *faultconn.Proxy {
	if len(r.proxies) == 0 {
		return nil
	}
	return r.proxies[i]
}

// Addr is the i-th server's address as users and the other servers see it: its proxy's, if there are proxies.
func (r *replicaSet) Addr(i int) string {
	if p := r.Proxy(i); p != nil {
		return p.Addr()
	}
	return r.servers[i].Addr()
}

// At is the same database on the i-th server, at its Addr.
func (r *replicaSet) At(d Database, i int) Database {
	d.Host, d.Port = r.servers[i].Host(), r.servers[i].Port()
	if p := r.Proxy(i); p != nil {
		d.Host, d.Port = p.Host(), p.Port()
	}
	return d
}

// NewDatabase makes a database on the primary, as [Server.NewDatabase] does, and returns it with the address of the
// primary's Addr. It is replicated as any change is.
func (r *replicaSet) NewDatabase(t testing.TB) Database {
	t.Helper()
	return r.At(r.servers[r.primary].NewDatabase(t), r.primary)
}

// Stop ends the i-th server in order.
func (r *replicaSet) Stop(t testing.TB, i int) {
	t.Helper()
	r.servers[i].Stop(t)
}

// Kill ends the i-th server as a crash does.
func (r *replicaSet) Kill(t testing.TB, i int) {
	t.Helper()
	r.servers[i].Kill(t)
}

// Restart starts the i-th server again as it was: a former primary comes back as one.
func (r *replicaSet) Restart(t testing.TB, i int) {
	t.Helper()
	r.servers[i].Restart(t)
}

// addServer prepares one more server, which ends with the test.
func (r *replicaSet) addServer(t testing.TB, soft *software, settings []string) *Server {
	t.Helper()
	s, err := prepareLocal(soft, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
	r.servers = append(r.servers, s)
	return s
}

// addProxies puts a proxy before each of the first n servers that has none. They must have been started.
func (r *replicaSet) addProxies(t testing.TB, n int) {
	t.Helper()
	for _, s := range r.servers[len(r.proxies):n] {
		r.proxies = append(r.proxies, faultconn.New(t, s.Addr()))
	}
}

// atOnce runs f for every server but the first, all at the same time.
func (r *replicaSet) atOnce(t testing.TB, f func(i int) error) {
	t.Helper()
	errs := make([]error, len(r.servers))
	var running sync.WaitGroup
	for i := 1; i < len(r.servers); i++ {
		running.Go(func() { errs[i] = f(i) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// await asks one question, which is answered by a boolean, until the answer is yes.
func (s *Server) await(query string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	pause := time.NewTicker(awaitPause)
	defer pause.Stop()
	for {
		var yes bool
		err := s.adminPool().QueryRowContext(ctx, query, args...).Scan(&yes)
		if err == nil && yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s %v on %s: %w", query, args, s.Addr(), errors.Join(err, context.Cause(ctx)))
		case <-pause.C:
		}
	}
}

// mustDo runs statements one by one as the administrator.
func (s *Server) mustDo(t testing.TB, statements ...string) {
	t.Helper()
	if err := s.do(statements...); err != nil {
		t.Fatal(err)
	}
}

// writeData writes a file of the data directory, for its server to read.
func (s *Server) writeData(name, text string) error {
	path := filepath.Join(s.local.data(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing a server's file: %w", err)
	}
	return giveTo(path, s.local.as)
}
