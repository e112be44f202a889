package mongoshard

import (
	"context"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"
	drivertopology "go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/shardway/shardway/topology"
)

// selected is a server that an operation was given. The operation counts from
// its selection until it gives its connection back; so does each further one
// that the server is used for, as a cursor does.
type selected struct {
	*drivertopology.SelectedServer
	load *topology.Load // counts the operation already
	// element completes the operation's command; nil if there is nothing to add.
	element []byte
	used    atomic.Bool
}

// Connection checks out a connection.
func (s *selected) Connection(ctx context.Context) (*mnet.Connection, error) {
	first := !s.used.Swap(true)
	if !first {
		s.load.Begin()
	}
	conn, err := s.SelectedServer.Connection(ctx)
	if err != nil {
		s.load.End()
		return nil, err
	}
	c := &connection{ReadWriteCloser: conn.ReadWriteCloser, load: s.load}
	if first && s.element != nil {
		c.element = s.element
		if conn.Compressor != nil {
			conn.Compressor = &compressor{Compressor: conn.Compressor, connection: c}
		}
	}
	conn.ReadWriteCloser = c
	return conn, nil
}

// tooLate stands for the server of an operation whose context had ended when it
// began. The driver takes every failed selection in a transaction for a
// transient fault, and its WithTransaction then tries for two minutes without a
// look at the context; a connection that fails ends it.
type tooLate struct{ err error }

// Connection fails.
func (l *tooLate) Connection(context.Context) (*mnet.Connection, error) { return nil, l.err }

// RTTMonitor is not asked: there is no connection.
func (l *tooLate) RTTMonitor() driver.RTTMonitor { return nil }

// balanced is a load balancer. Its connections may be pinned, so they are not
// counted.
type balanced struct {
	*drivertopology.SelectedServer
	element []byte
	used    atomic.Bool
}

// Connection checks out a connection.
func (b *balanced) Connection(ctx context.Context) (*mnet.Connection, error) {
	conn, err := b.SelectedServer.Connection(ctx)
	if err != nil || b.used.Swap(true) {
		return conn, err
	}
	c := &connection{ReadWriteCloser: conn.ReadWriteCloser, element: b.element}
	if conn.Compressor != nil {
		conn.Compressor = &compressor{Compressor: conn.Compressor, connection: c}
	}
	conn.ReadWriteCloser = c
	return conn, nil
}

// connection completes the first command written to it and counts its end. One
// goroutine at a time uses it.
type connection struct {
	mnet.ReadWriteCloser
	load    *topology.Load // nil if not counted
	element []byte         // of the first command; nil once it was added
	closed  atomic.Bool
}

// Write sends a message.
func (c *connection) Write(ctx context.Context, message []byte) error {
	return c.ReadWriteCloser.Write(ctx, c.complete(message))
}

// Close gives the connection back; further calls do nothing more.
func (c *connection) Close() error {
	if c.load != nil && !c.closed.Swap(true) {
		c.load.End()
	}
	return c.ReadWriteCloser.Close()
}

func (c *connection) complete(message []byte) []byte {
	if c.element == nil {
		return message
	}
	message, done := addElement(message, c.element)
	if done {
		c.element = nil
	}
	return message
}

// compressor completes a command before it is compressed.
type compressor struct {
	mnet.Compressor
	connection *connection
}

// CompressWireMessage appends the compressed form of src to dst.
func (c *compressor) CompressWireMessage(src, dst []byte) ([]byte, error) {
	return c.Compressor.CompressWireMessage(c.connection.complete(src), dst)
}

// The layout of an OP_MSG: a header of four int32 (length, request, response,
// opcode), flags, and sections, of which the driver writes the command's
// document first.
const (
	opMsg           = 2013
	opcodeAt        = 12
	flagsAt         = 16
	checksumFlag    = 1
	sectionAt       = 20
	documentAt      = 21
	smallestMessage = documentAt + 5 // an empty document
)

// addElement adds an element to the command's document of an OP_MSG, and
// reports whether the message is one.
func addElement(message, element []byte) ([]byte, bool) {
	if len(message) < smallestMessage || binary.LittleEndian.Uint32(message[opcodeAt:]) != opMsg ||
		message[flagsAt]&checksumFlag != 0 || message[sectionAt] != 0 {
		return message, false
	}
	size := binary.LittleEndian.Uint32(message[documentAt:])
	end := documentAt + int(size) - 1 // of the elements, before the closing zero
	if end >= len(message) || end < documentAt+4 {
		return message, false
	}
	message = slices.Insert(message, end, element...)
	binary.LittleEndian.PutUint32(message, uint32(len(message)))
	binary.LittleEndian.PutUint32(message[documentAt:], size+uint32(len(element)))
	return message, true
}
