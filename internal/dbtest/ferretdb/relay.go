package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

const (
	headerLength = 16
	mostLength   = 48_000_000 // MongoDB's limit of a message
	opMsg        = 2013
	moreToCome   = 1 << 1 // flag of an OP_MSG that wants no answer
	// firstName is where the name of an OP_MSG's command stands: behind header, flags, the kind of the first section,
	// the document's length and the type of its first field.
	firstName = headerLength + 4 + 1 + 4 + 1
)

// relay passes the commands of all clients on, one at a time.
type relay struct {
	backend string     // the database's host:port
	turn    sync.Mutex // held while the database works on a command
}

// serve accepts clients until l is closed.
func (r *relay) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go r.client(c)
	}
}

// client relays until one side ends.
func (r *relay) client(c net.Conn) {
	defer c.Close()
	b, err := net.Dial("tcp", r.backend)
	if err != nil {
		return
	}
	defer b.Close()
	for {
		request, err := message(c)
		if err != nil {
			return
		}
		reply, err := r.ask(b, request)
		if err != nil {
			return
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}

// ask sends a command and waits for its answer, which is empty when none is wanted.
// A greeting waits for nobody: a driver takes a server that is slow to greet for dead.
func (r *relay) ask(b net.Conn, request []byte) ([]byte, error) {
	if !greets(request) {
		r.turn.Lock()
		defer r.turn.Unlock()
	}
	if _, err := b.Write(request); err != nil {
		return nil, err
	}
	if isMsg(request) && binary.LittleEndian.Uint32(request[headerLength:])&moreToCome != 0 {
		return nil, nil
	}
	return message(b)
}

// isMsg reports whether a message is an OP_MSG; the one other form that clients use is the first greeting.
func isMsg(m []byte) bool {
	return len(m) >= firstName && binary.LittleEndian.Uint32(m[12:]) == opMsg
}

// greets reports whether a message is a hello, by the name of the command's first field.
func greets(m []byte) bool {
	if !isMsg(m) {
		return true
	}
	name, _, _ := bytes.Cut(m[firstName:], []byte{0})
	return bytes.EqualFold(name, []byte("hello")) || bytes.EqualFold(name, []byte("isMaster"))
}

// message reads one message of the wire protocol.
func message(from io.Reader) ([]byte, error) {
	var header [headerLength]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(header[:])
	if length < headerLength || length > mostLength {
		return nil, fmt.Errorf("reading a message: it says it has %d bytes", length)
	}
	m := make([]byte, length)
	copy(m, header[:])
	_, err := io.ReadFull(from, m[headerLength:])
	return m, err
}
