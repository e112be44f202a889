package mongotest

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	maxDocumentBytes = 16 << 20
	maxBatch         = 100_000
	defaultAwait     = 10 * time.Second
)

func isHello(name string) bool {
	return name == "hello" || strings.EqualFold(name, "ismaster")
}

// greet answers hello: at once, at the next change if the client waits for one, or with every change in a stream.
func (s *Server) greet(l *link, q request) bool {
	fault, delay := s.take("hello")
	if !l.wait(delay + fault.Delay) {
		return false
	}
	if fault.Drop {
		return false
	}
	if document := fault.document(); document != nil {
		_, ok := s.send(l, q, q.id, document, false)
		return ok
	}
	counter, awaited := s.awaited(q)
	if !awaited || !s.cluster.options.Streaming {
		document, _ := s.hello(q)
		_, ok := s.send(l, q, q.id, document, false)
		return ok
	}
	limit := defaultAwait
	if ms, ok := q.body.Lookup("maxAwaitTimeMS").AsInt64OK(); ok {
		limit = time.Duration(ms) * time.Millisecond
	}
	for to := q.id; ; {
		if !s.await(l, counter, limit) {
			return false
		}
		document, now := s.hello(q)
		id, ok := s.send(l, q, to, document, q.exhaust)
		if !ok || !q.exhaust {
			return ok
		}
		counter, to = now, id
		fault, _ := s.take("hello")
		if fault.Drop {
			return false
		}
	}
}

// awaited returns the counter that the client knows, if it wants to hear of the next only. What it knows of an earlier
// process is older than everything.
func (s *Server) awaited(q request) (int64, bool) {
	version, ok := q.body.Lookup("topologyVersion").DocumentOK()
	if !ok {
		return 0, false
	}
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if id, _ := version.Lookup("processId").ObjectIDOK(); id != s.process {
		return -1, true
	}
	return version.Lookup("counter").AsInt64OK()
}

// await returns when hello differs from that of the counter or the time is up; false means that the connection ended.
func (s *Server) await(l *link, counter int64, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	s.cluster.mu.Lock()
	news, now := s.news, s.counter
	s.cluster.mu.Unlock()
	if now != counter {
		return true
	}
	select {
	case <-news:
		return true
	case <-timer.C:
		return true
	case <-l.gone:
		return false
	}
}

// hello is the server's description of itself and the counter of its version.
func (s *Server) hello(q request) (bson.D, int64) {
	c := s.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	d := bson.D{{Key: "helloOk", Value: true}}
	switch c.options.Kind {
	case Sharded:
		d = append(d, s.writable(true)...)
		d = append(d, bson.E{Key: "msg", Value: "isdbgrid"})
	case LoadBalanced:
		d = append(d, s.writable(true)...)
		d = append(d, bson.E{Key: "msg", Value: "isdbgrid"})
		if balanced, _ := q.body.Lookup("loadBalanced").BooleanOK(); balanced {
			d = append(d, bson.E{Key: "serviceId", Value: s.process})
		}
	case Standalone:
		d = append(d, s.writable(true)...)
	case ReplicaSet:
		d = append(d, s.member()...)
	}
	if c.options.Streaming {
		d = append(d, bson.E{Key: "topologyVersion", Value: bson.D{{Key: "processId", Value: s.process}, {Key: "counter", Value: s.counter}}})
	}
	if c.options.SessionMinutes > 0 {
		d = append(d, bson.E{Key: "logicalSessionTimeoutMinutes", Value: int32(c.options.SessionMinutes)})
	}
	d = append(d,
		bson.E{Key: "maxBsonObjectSize", Value: int32(maxDocumentBytes)},
		bson.E{Key: "maxMessageSizeBytes", Value: int32(maxMessageBytes)},
		bson.E{Key: "maxWriteBatchSize", Value: int32(maxBatch)},
		bson.E{Key: "localTime", Value: bson.NewDateTimeFromTime(time.Now())},
		bson.E{Key: "connectionId", Value: s.replies.Load()},
		bson.E{Key: "minWireVersion", Value: int32(0)},
		bson.E{Key: "maxWireVersion", Value: int32(s.maxWire)},
		bson.E{Key: "readOnly", Value: false},
		bson.E{Key: "ok", Value: 1.0},
	)
	return append(d, c.times()...), s.counter
}

func (s *Server) writable(yes bool) bson.D {
	return bson.D{{Key: "ismaster", Value: yes}, {Key: "isWritablePrimary", Value: yes}}
}

// member is what a replica set's member says in its role; Cluster.mu is held.
func (s *Server) member() bson.D {
	c := s.cluster
	if s.role == Ghost {
		return append(s.writable(false), bson.E{Key: "isreplicaset", Value: true})
	}
	var hosts, arbiters bson.A
	for _, m := range c.servers {
		switch m.role {
		case Hidden, Ghost:
		case Arbiter:
			arbiters = append(arbiters, m.Addr())
		default:
			hosts = append(hosts, m.Addr())
		}
	}
	d := append(s.writable(s.role == Primary),
		bson.E{Key: "secondary", Value: s.role == Secondary || s.role == Hidden},
		bson.E{Key: "setName", Value: s.setName},
		bson.E{Key: "setVersion", Value: int32(c.setVersion)},
		bson.E{Key: "me", Value: s.Addr()},
		bson.E{Key: "hosts", Value: hosts},
	)
	if len(arbiters) > 0 {
		d = append(d, bson.E{Key: "arbiters", Value: arbiters})
	}
	if c.primary >= 0 {
		d = append(d, bson.E{Key: "primary", Value: c.servers[c.primary].Addr()})
	}
	switch s.role {
	case Primary:
		d = append(d, bson.E{Key: "electionId", Value: c.electionID()})
	case Hidden:
		d = append(d, bson.E{Key: "hidden", Value: true}, bson.E{Key: "passive", Value: true})
	case Arbiter:
		d = append(d, bson.E{Key: "arbiterOnly", Value: true})
	case Secondary, Recovering, Ghost: // nothing more
	}
	if len(s.tags) > 0 {
		d = append(d, bson.E{Key: "tags", Value: s.tags})
	}
	if s.role == Primary || s.role == Secondary || s.role == Hidden {
		last := time.Now().Add(-s.lag)
		stamp := bson.Timestamp{T: uint32(last.Unix()), I: 1}
		d = append(d, bson.E{Key: "lastWrite", Value: bson.D{
			{Key: "opTime", Value: bson.D{{Key: "ts", Value: stamp}, {Key: "t", Value: int64(c.term)}}},
			{Key: "lastWriteDate", Value: bson.NewDateTimeFromTime(last)},
		}})
	}
	return d
}

// times are the cluster's time and the operation's, which every reply bears; Cluster.mu is held.
func (c *Cluster) times() bson.D {
	if c.options.Kind == Standalone {
		return nil
	}
	c.ticks++
	now := bson.Timestamp{T: uint32(time.Now().Unix()), I: c.ticks}
	return bson.D{
		{Key: "operationTime", Value: now},
		{Key: "$clusterTime", Value: bson.D{
			{Key: "clusterTime", Value: now},
			{Key: "signature", Value: bson.D{{Key: "hash", Value: bson.Binary{Data: make([]byte, 20)}}, {Key: "keyId", Value: int64(0)}}},
		}},
	}
}
