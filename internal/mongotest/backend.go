package mongotest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const backendLimit = 30 * time.Second // for one command of the backend

// stripped are the elements that a standalone database without sessions refuses.
var stripped = []string{
	"lsid", "txnNumber", "startTransaction", "autocommit", "$readPreference", "$clusterTime", "readConcern", "recoveryToken",
	"stmtId", "stmtIds", "apiVersion", "apiStrict", "apiDeprecationErrors", "writeConcern",
}

// backend is a connection to the database behind the cluster.
type backend struct {
	conn   net.Conn
	reader *bufio.Reader
	last   int32
}

func (b *backend) close() {
	if b != nil {
		_ = b.conn.Close() // nobody needs its error
	}
}

// forward does a command in the backend, alone. The memory's lock is let go meanwhile.
func (c *call) forward() bson.D {
	cluster := c.server.cluster
	cluster.memory.mu.Unlock()
	defer cluster.memory.mu.Lock()
	cluster.backend.Lock()
	defer cluster.backend.Unlock()
	reply, err := c.roundTrip()
	if err != nil {
		c.link.backend.close()
		c.link.backend = nil
		return failure(6, fmt.Sprintf("mongotest: backend: %v", err))
	}
	c.bind(reply)
	return reply
}

func (c *call) roundTrip() (bson.D, error) {
	if c.link.backend == nil {
		conn, err := net.DialTimeout("tcp", c.server.cluster.options.Backend, backendLimit)
		if err != nil {
			return nil, err
		}
		c.link.backend = &backend{conn: conn, reader: bufio.NewReader(conn)}
	}
	b := c.link.backend
	if err := b.conn.SetDeadline(time.Now().Add(backendLimit)); err != nil {
		return nil, err
	}
	body := slices.DeleteFunc(slices.Clone(c.body), func(e bson.E) bool { return slices.Contains(stripped, e.Key) })
	b.last++
	message, err := request{op: opMsg}.reply(b.last, 0, body, false)
	if err != nil {
		return nil, err
	}
	if _, err := b.conn.Write(message); err != nil {
		return nil, err
	}
	return readReply(b.reader)
}

// readReply reads an OP_MSG of one body.
func readReply(r io.Reader) (bson.D, error) {
	var header [headerBytes + 5]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(header[:])
	if length < headerBytes+5 || length > maxMessageBytes || binary.LittleEndian.Uint32(header[12:]) != opMsg || header[20] != 0 {
		return nil, errMessage
	}
	rest := make([]byte, length-headerBytes-5)
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, err
	}
	var reply bson.D
	if err := bson.Unmarshal(rest, &reply); err != nil {
		return nil, errors.Join(errMessage, err)
	}
	return slices.DeleteFunc(reply, func(e bson.E) bool { return e.Key == "$clusterTime" || e.Key == "operationTime" }), nil
}

// bind notes on which server the backend's cursor was opened.
func (c *call) bind(reply bson.D) {
	opened, _ := value(reply, "cursor").(bson.D)
	cluster := c.server.cluster
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	if c.command.Name == "getMore" {
		if id, _ := value(opened, "id").(int64); id == 0 {
			delete(cluster.cursors, c.number("getMore"))
		}
		return
	}
	if id, _ := value(opened, "id").(int64); id != 0 {
		cluster.cursors[id] = cursor{server: c.server.index}
	}
	if c.command.Name == "killCursors" {
		list, _ := c.field("cursors").(bson.A)
		for _, v := range list {
			id, _ := v.(int64)
			delete(cluster.cursors, id)
		}
	}
}
