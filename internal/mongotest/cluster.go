package mongotest

import (
	"encoding/binary"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Kind says what a cluster is to its clients.
type Kind uint8

// The kinds of clusters.
const (
	// Sharded has several mongos routers before the same documents.
	Sharded Kind = iota
	// ReplicaSet has one primary, the first server at the start, and secondaries.
	ReplicaSet
	// Standalone is one server outside any set, without transactions.
	Standalone
	// LoadBalanced is one load balancer before routers; clients do not monitor it.
	LoadBalanced
)

// DefaultMaxWireVersion is that of MongoDB 8.0.
const DefaultMaxWireVersion = 25

// Options describe a cluster. The zero value is a sharded cluster of three mongos.
type Options struct {
	// Kind says what clients see.
	Kind Kind
	// Servers is their number; 0 means 3, or 1 where the kind allows no more.
	Servers int
	// SetName is the replica set's; empty means "rs0".
	SetName string
	// Hosts are the names that the servers bear in the URI and in hello, each a
	// name of 127.0.0.1 such as "localhost"; a missing or empty one is 127.0.0.1.
	Hosts []string
	// Streaming makes servers push each change of hello, as from MongoDB 4.4 on;
	// otherwise clients poll.
	Streaming bool
	// MaxWireVersion is that of every server; 0 means DefaultMaxWireVersion.
	MaxWireVersion int
	// SessionMinutes is logicalSessionTimeoutMinutes; 0 means 30, less than 0
	// that the servers know no sessions.
	SessionMinutes int
	// Backend is the address, host:port, of a database that answers the data
	// commands; empty means the cluster's own memory.
	Backend string
}

// Cluster is a deployment. It is safe for concurrent use.
type Cluster struct {
	options Options
	servers []*Server
	done    chan struct{}  // closed by Close: ends what waits
	wg      sync.WaitGroup // every goroutine of the cluster
	once    sync.Once      // Close
	memory  *memory
	backend sync.Mutex // held for each command of the backend

	mu         sync.Mutex // guards the fields below and those of the servers
	primary    int        // its index; -1 while there is none
	term       uint64     // of the last election
	setVersion int64
	ticks      uint32           // of the cluster's time
	cursors    map[int64]cursor // by id
	lastCursor int64
	retryable  map[string]*outcome // retryable writes by session and number
}

// New starts a cluster that ends with the test. Options that contradict each other fail the test.
func New(t testing.TB, options Options) *Cluster {
	t.Helper()
	single := options.Kind == Standalone || options.Kind == LoadBalanced
	switch {
	case options.Servers == 0 && single:
		options.Servers = 1
	case options.Servers == 0:
		options.Servers = 3
	case options.Servers < 0 || single && options.Servers > 1:
		t.Fatalf("mongotest: %d servers", options.Servers)
	}
	if len(options.Hosts) > options.Servers {
		t.Fatalf("mongotest: %d host names for %d servers", len(options.Hosts), options.Servers)
	}
	if options.SetName == "" {
		options.SetName = "rs0"
	}
	if options.MaxWireVersion == 0 {
		options.MaxWireVersion = DefaultMaxWireVersion
	}
	if options.SessionMinutes == 0 {
		options.SessionMinutes = 30
	}
	c := &Cluster{
		options: options, done: make(chan struct{}), memory: newMemory(), term: 1, setVersion: 1,
		cursors: map[int64]cursor{}, retryable: map[string]*outcome{},
	}
	t.Cleanup(c.Close)
	for i := range options.Servers {
		s, err := newServer(c, i)
		if err != nil {
			t.Fatalf("mongotest: starting server %d: %v", i, err)
		}
		c.servers = append(c.servers, s)
	}
	for _, s := range c.servers {
		c.wg.Go(s.accept)
	}
	return c
}

// Close ends the servers and their connections and waits for them. Later calls do nothing.
func (c *Cluster) Close() {
	c.once.Do(func() {
		close(c.done)
		c.memory.close()
		for _, s := range c.servers {
			_ = s.listener.Close() // it is on its way out
			s.hangUp()
		}
	})
	c.wg.Wait()
}

// URI is the connection string that names every server.
func (c *Cluster) URI() string {
	var addresses []string
	for _, s := range c.servers {
		addresses = append(addresses, s.Addr())
	}
	uri := "mongodb://" + strings.Join(addresses, ",") + "/"
	switch c.options.Kind {
	case ReplicaSet:
		return uri + "?replicaSet=" + c.options.SetName
	case LoadBalanced:
		return uri + "?loadBalanced=true"
	default:
		return uri
	}
}

// Servers returns the number of servers.
func (c *Cluster) Servers() int { return len(c.servers) }

// Server returns the server of an index, from 0.
func (c *Cluster) Server(i int) *Server { return c.servers[i] }

// Primary returns the index of a replica set's primary, or -1.
func (c *Cluster) Primary() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.primary
}

// Elect makes a member primary in a new election. The old primary becomes a secondary and its open transactions end,
// as when a MongoDB primary steps down; connections stay.
func (c *Cluster) Elect(i int) {
	c.mu.Lock()
	old := c.primary
	c.term++
	c.primary = i
	if old >= 0 && old != i {
		c.servers[old].role = Secondary
	}
	c.servers[i].role = Primary
	c.changed()
	c.mu.Unlock()
	if old >= 0 && old != i {
		c.memory.abortAll(old)
	}
}

// StepDown leaves the replica set without a primary: it becomes a secondary and its open transactions end.
func (c *Cluster) StepDown() {
	c.mu.Lock()
	old := c.primary
	c.primary = -1
	if old >= 0 {
		c.servers[old].role = Secondary
	}
	c.changed()
	c.mu.Unlock()
	if old >= 0 {
		c.memory.abortAll(old)
	}
}

// Reconfigure raises the replica set's version, as a new configuration does.
func (c *Cluster) Reconfigure() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setVersion++
	c.changed()
}

// Count returns how many commands of this name all servers have received.
func (c *Cluster) Count(command string) int {
	total := 0
	for _, s := range c.servers {
		total += s.Count(command)
	}
	return total
}

// changed tells every waiting hello; c.mu is held.
func (c *Cluster) changed() {
	for _, s := range c.servers {
		s.bump()
	}
}

// electionID orders elections as MongoDB's do; c.mu is held.
func (c *Cluster) electionID() bson.ObjectID {
	id := bson.ObjectID{0x7f, 0xff, 0xff, 0xff}
	binary.BigEndian.PutUint64(id[4:], c.term)
	return id
}

func (o Options) host(i int) string {
	if i < len(o.Hosts) && o.Hosts[i] != "" {
		return o.Hosts[i]
	}
	return "127.0.0.1"
}

func listen() (net.Listener, int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	number, err := strconv.Atoi(port)
	return listener, number, err
}
