package mongotest

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const firstBatch = 101 // documents, as in MongoDB

// cursor is one that is open on a server. One of the backend has no documents here.
type cursor struct {
	server  int
	ns      string
	rest    []bson.D
	endless bool // a change stream: it has no end
}

// open replies with the first batch and keeps the rest.
func (c *call) open(ns string, documents []bson.D, size int64, endless bool) bson.D {
	batch, rest := split(documents, size)
	id := int64(0)
	if len(rest) > 0 || endless {
		cluster := c.server.cluster
		cluster.mu.Lock()
		cluster.lastCursor++
		id = cluster.lastCursor<<8 | int64(c.server.index&0xff)
		cluster.cursors[id] = cursor{server: c.server.index, ns: ns, rest: rest, endless: endless}
		cluster.mu.Unlock()
	}
	return done(batchReply("firstBatch", id, ns, batch, endless))
}

func split(documents []bson.D, size int64) (batch, rest []bson.D) {
	if size < 0 || size >= int64(len(documents)) {
		return documents, nil
	}
	return documents[:size], documents[size:]
}

func batchReply(name string, id int64, ns string, batch []bson.D, endless bool) bson.E {
	if batch == nil {
		batch = []bson.D{}
	}
	d := bson.D{{Key: name, Value: batch}, {Key: "id", Value: id}, {Key: "ns", Value: ns}}
	if endless {
		d = append(d, bson.E{Key: "postBatchResumeToken", Value: bson.D{{Key: "_data", Value: fmt.Sprint(id)}}})
	}
	return bson.E{Key: "cursor", Value: d}
}

// batchSize is what find and aggregate ask for.
func (c *call) batchSize() int64 {
	options := c.body
	if inner := c.document("cursor"); inner != nil {
		options = inner
	}
	size, given := get(options, "batchSize")
	if n, ok := whole(size); given && ok {
		return n
	}
	return firstBatch
}

// ownCursor refuses cursors that another server has opened.
func (c *call) ownCursor() bson.D {
	if c.command.Name == "killCursors" {
		return nil
	}
	id := c.number("getMore")
	cluster := c.server.cluster
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	if known, ok := cluster.cursors[id]; !ok || known.server != c.server.index {
		return failure(codeCursorNotFound, fmt.Sprintf("cursor id %d not found", id))
	}
	return nil
}

func getMore(c *call) bson.D {
	id, cluster := c.number("getMore"), c.server.cluster
	size := int64(-1)
	if n := c.number("batchSize"); n > 0 {
		size = n
	}
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	known := cluster.cursors[id]
	batch, rest := split(known.rest, size)
	known.rest = rest
	cluster.cursors[id] = known
	if len(rest) == 0 && !known.endless {
		delete(cluster.cursors, id)
		id = 0
	}
	return done(batchReply("nextBatch", id, known.ns, batch, known.endless))
}

func killCursors(c *call) bson.D {
	var killed, missing bson.A
	list, _ := c.field("cursors").(bson.A)
	cluster := c.server.cluster
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	for _, v := range list {
		id, _ := v.(int64)
		if known, ok := cluster.cursors[id]; ok && known.server == c.server.index {
			delete(cluster.cursors, id)
			killed = append(killed, id)
		} else {
			missing = append(missing, id)
		}
	}
	return done(
		bson.E{Key: "cursorsKilled", Value: present(killed)}, bson.E{Key: "cursorsNotFound", Value: present(missing)},
		bson.E{Key: "cursorsAlive", Value: bson.A{}}, bson.E{Key: "cursorsUnknown", Value: bson.A{}},
	)
}

// present is never null on the wire.
func present(a bson.A) bson.A {
	if a == nil {
		return bson.A{}
	}
	return a
}

// Cursors returns the number of open cursors on the server.
func (s *Server) Cursors() int {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	n := 0
	for _, c := range s.cluster.cursors {
		if c.server == s.index {
			n++
		}
	}
	return n
}

// forget drops the cursors of a server whose process ended.
func (c *Cluster) forget(server int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, cur := range c.cursors {
		if cur.server == server {
			delete(c.cursors, id)
		}
	}
}

func namespace(ns string) (db, name string) {
	db, name, _ = strings.Cut(ns, ".")
	return db, name
}
