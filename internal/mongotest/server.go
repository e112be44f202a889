package mongotest

import (
	"bufio"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Role is what a member of a replica set is. Other kinds of clusters have none.
type Role uint8

// The roles of members.
const (
	// Secondary follows the primary and serves reads that allow it.
	Secondary Role = iota
	// Primary takes writes; Cluster.Elect is the way to become it.
	Primary
	// Hidden is a secondary that clients must not use.
	Hidden
	// Arbiter votes and holds no documents.
	Arbiter
	// Recovering is neither primary nor secondary yet.
	Recovering
	// Ghost has no configuration of the set.
	Ghost
)

// Server is one server of a cluster. It is safe for concurrent use, and its address is its own for life.
type Server struct {
	cluster  *Cluster
	index    int
	port     int
	listener net.Listener
	replies  atomic.Int32 // the last message's id

	// The rest is guarded by Cluster.mu.
	role     Role
	setName  string
	tags     map[string]string
	lag      time.Duration
	delay    time.Duration
	maxWire  int
	stopped  bool
	links    map[*link]struct{}
	process  bson.ObjectID // changes with each start
	counter  int64         // of topologyVersion
	news     chan struct{} // closed by the next change of hello
	counts   map[string]int
	commands []Command
	faults   map[string][]*Fault
	answers  map[string]func(Command) (bson.D, bool)
}

// Command is what a client sent.
type Command struct {
	// Name is the command's, such as "find"; each hello is "hello".
	Name string
	// DB is the database.
	DB string
	// Body is the whole command; document sequences are arrays in it.
	Body bson.Raw
}

func newServer(c *Cluster, index int) (*Server, error) {
	listener, port, err := listen()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cluster: c, index: index, port: port, listener: listener,
		setName: c.options.SetName, maxWire: c.options.MaxWireVersion,
		links: map[*link]struct{}{}, process: bson.NewObjectID(), news: make(chan struct{}),
		counts: map[string]int{}, faults: map[string][]*Fault{}, answers: map[string]func(Command) (bson.D, bool){},
	}
	if index == 0 {
		s.role = Primary
	}
	return s, nil
}

// Addr is host:port as the URI and hello name it.
func (s *Server) Addr() string {
	return net.JoinHostPort(s.cluster.options.host(s.index), strconv.Itoa(s.port))
}

// set changes the server's state and tells those who wait for hello.
func (s *Server) set(change func()) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	change()
	s.bump()
}

// bump makes a new topologyVersion; Cluster.mu is held.
func (s *Server) bump() {
	s.counter++
	close(s.news)
	s.news = make(chan struct{})
}

// SetTags replaces the member's tags.
func (s *Server) SetTags(tags map[string]string) {
	s.set(func() { s.tags = maps.Clone(tags) })
}

// SetLag makes the member's last write that much older than now.
func (s *Server) SetLag(lag time.Duration) { s.set(func() { s.lag = lag }) }

// SetDelay holds back every reply, those to hello too, so that the server's round-trip time grows by it.
func (s *Server) SetDelay(delay time.Duration) { s.set(func() { s.delay = delay }) }

// SetMaxWireVersion changes what the server says of its protocol.
func (s *Server) SetMaxWireVersion(version int) { s.set(func() { s.maxWire = version }) }

// SetSetName makes the server a member of a set of another name.
func (s *Server) SetSetName(name string) { s.set(func() { s.setName = name }) }

// SetRole changes what the member is. Primary elects it; another role of the primary leaves the set without one.
func (s *Server) SetRole(role Role) {
	c := s.cluster
	if role == Primary {
		c.Elect(s.index)
		return
	}
	if c.Primary() == s.index {
		c.StepDown()
	}
	s.set(func() { s.role = role })
}

// Stop ends every connection and each new one at once, until Restart. A stopped primary stays primary to itself only:
// Elect another. Its transactions end.
func (s *Server) Stop() {
	s.set(func() { s.stopped = true })
	s.hangUp()
	s.cluster.memory.abortAll(s.index)
	s.cluster.forget(s.index)
}

// Restart takes connections again, as a new process.
func (s *Server) Restart() {
	s.set(func() { s.stopped, s.process, s.counter = false, bson.NewObjectID(), 0 })
}

// Disconnect ends every connection; new ones are taken.
func (s *Server) Disconnect() { s.hangUp() }

// Count returns how many commands of this name were received, "hello" for each form of hello.
func (s *Server) Count(command string) int {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	return s.counts[command]
}

// Commands returns what was received, in this order, without hello.
func (s *Server) Commands() []Command {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	return slices.Clone(s.commands)
}

// Connections returns the number of open connections, those of monitors too.
func (s *Server) Connections() int {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	return len(s.links)
}

// Handle answers a command by a function; if that returns false the server answers as usual. The function runs on the
// connection's goroutine. nil ends it.
func (s *Server) Handle(command string, answer func(Command) (bson.D, bool)) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if answer == nil {
		delete(s.answers, command)
		return
	}
	s.answers[command] = answer
}

func (s *Server) record(command Command) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	s.counts[command.Name]++
	if command.Name != "hello" {
		s.commands = append(s.commands, command)
	}
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		l := &link{conn: conn, gone: make(chan struct{})}
		s.cluster.mu.Lock()
		refused := s.stopped
		select {
		case <-s.cluster.done:
			refused = true
		default:
		}
		if !refused {
			s.links[l] = struct{}{}
			s.cluster.wg.Go(func() { s.serve(l) })
		}
		s.cluster.mu.Unlock()
		if refused {
			l.end()
		}
	}
}

func (s *Server) hangUp() {
	s.cluster.mu.Lock()
	links := slices.Collect(maps.Keys(s.links))
	s.cluster.mu.Unlock()
	for _, l := range links {
		l.end()
	}
}

// link is one client's connection.
type link struct {
	conn    net.Conn
	once    sync.Once
	gone    chan struct{} // closed by end
	backend *backend      // nil until the first forwarded command
}

func (l *link) end() {
	l.once.Do(func() {
		close(l.gone)
		_ = l.conn.Close() // nobody needs its error
	})
}

// wait returns false if the connection ended meanwhile.
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.gone:
		return false
	}
}

func (s *Server) serve(l *link) {
	defer func() {
		l.end()
		l.backend.close()
		s.cluster.mu.Lock()
		delete(s.links, l)
		s.cluster.mu.Unlock()
	}()
	reader := bufio.NewReader(l.conn)
	for {
		q, err := readRequest(reader)
		if err != nil {
			return
		}
		if !s.answer(l, q) {
			return
		}
	}
}

// send writes one reply and returns false if the connection is of no more use.
func (s *Server) send(l *link, q request, to int32, document bson.D, moreToCome bool) (id int32, ok bool) {
	if q.silent {
		return 0, true
	}
	id = s.replies.Add(1)
	message, err := q.reply(id, to, document, moreToCome)
	if err != nil {
		return 0, false
	}
	_, err = l.conn.Write(message)
	return id, err == nil
}
