package mongotest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The wire protocol's numbers are those of MongoDB's "Wire Protocol" page.
const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1
	flagExhaust    = 1 << 16

	headerBytes     = 16
	maxMessageBytes = 48_000_000
)

// request is one message of a client.
type request struct {
	id      int32
	op      int32
	exhaust bool     // the client takes several replies
	silent  bool     // the client takes no reply
	name    string   // the command
	db      string   // $db, or that of the OP_QUERY
	body    bson.Raw // with document sequences as arrays
}

var errMessage = errors.New("malformed message")

// readRequest reads one message.
func readRequest(r io.Reader) (request, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return request{}, err
	}
	length := binary.LittleEndian.Uint32(header[0:])
	if length < headerBytes || length > maxMessageBytes {
		return request{}, fmt.Errorf("%w: %d bytes", errMessage, length)
	}
	rest := make([]byte, length-headerBytes)
	if _, err := io.ReadFull(r, rest); err != nil {
		return request{}, err
	}
	q := request{id: int32(binary.LittleEndian.Uint32(header[4:])), op: int32(binary.LittleEndian.Uint32(header[12:]))}
	var err error
	switch q.op {
	case opMsg:
		err = q.readMsg(rest)
	case opQuery:
		err = q.readQuery(rest)
	default:
		err = fmt.Errorf("%w: operation code %d", errMessage, q.op)
	}
	if err != nil {
		return request{}, err
	}
	first, err := q.body.IndexErr(0)
	if err != nil {
		return request{}, fmt.Errorf("%w: no command", errMessage)
	}
	q.name = first.Key()
	return q, nil
}

func (q *request) readMsg(rest []byte) error {
	if len(rest) < 4 {
		return errMessage
	}
	flags := binary.LittleEndian.Uint32(rest)
	rest = rest[4:]
	if flags&flagChecksum != 0 && len(rest) >= 4 {
		rest = rest[:len(rest)-4]
	}
	q.exhaust, q.silent = flags&flagExhaust != 0, flags&flagMoreToCome != 0
	var sequences bson.D
	for len(rest) > 0 {
		kind := rest[0]
		section, after, err := cut(rest[1:])
		if err != nil {
			return err
		}
		rest = after
		switch kind {
		case 0:
			q.body = bson.Raw(section)
		case 1:
			sequence, err := readSequence(section[4:])
			if err != nil {
				return err
			}
			sequences = append(sequences, sequence)
		default:
			return fmt.Errorf("%w: section of kind %d", errMessage, kind)
		}
	}
	if err := q.body.Validate(); err != nil {
		return errors.Join(errMessage, err)
	}
	if len(sequences) > 0 {
		body, err := with(q.body, sequences)
		if err != nil {
			return err
		}
		q.body = body
	}
	q.db, _ = q.body.Lookup("$db").StringValueOK()
	return nil
}

// cut splits off what begins with its own length.
func cut(b []byte) (section, after []byte, err error) {
	if len(b) < 5 {
		return nil, nil, errMessage
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 5 || uint64(n) > uint64(len(b)) {
		return nil, nil, errMessage
	}
	return b[:n], b[n:], nil
}

func readSequence(section []byte) (bson.E, error) {
	name, rest, ok := cutString(section)
	if !ok {
		return bson.E{}, errMessage
	}
	documents := bson.A{}
	for len(rest) > 0 {
		document, after, err := cut(rest)
		if err != nil {
			return bson.E{}, err
		}
		documents, rest = append(documents, bson.Raw(document)), after
	}
	return bson.E{Key: name, Value: documents}, nil
}

func cutString(b []byte) (text string, rest []byte, ok bool) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:], true
		}
	}
	return "", nil, false
}

func (q *request) readQuery(rest []byte) error {
	if len(rest) < 4 {
		return errMessage
	}
	name, rest, ok := cutString(rest[4:])
	if !ok || len(rest) < 8 {
		return errMessage
	}
	document, _, err := cut(rest[8:])
	if err != nil {
		return err
	}
	q.body = bson.Raw(document)
	if err := q.body.Validate(); err != nil {
		return errors.Join(errMessage, err)
	}
	if inner, ok := q.body.Lookup("$query").DocumentOK(); ok {
		q.body = inner
	}
	for i := range len(name) {
		if name[i] == '.' {
			name = name[:i]
			break
		}
	}
	q.db = name
	return nil
}

// reply encodes the answer to the message to. moreToCome announces another.
func (q request) reply(id, to int32, document bson.D, moreToCome bool) ([]byte, error) {
	body, err := bson.Marshal(document)
	if err != nil {
		return nil, err
	}
	message := make([]byte, headerBytes, headerBytes+25+len(body))
	binary.LittleEndian.PutUint32(message[4:], uint32(id))
	binary.LittleEndian.PutUint32(message[8:], uint32(to))
	if q.op == opQuery {
		binary.LittleEndian.PutUint32(message[12:], opReply)
		message = binary.LittleEndian.AppendUint32(message, 8) // AwaitCapable
		message = binary.LittleEndian.AppendUint64(message, 0) // cursor
		message = binary.LittleEndian.AppendUint32(message, 0) // starting from
		message = binary.LittleEndian.AppendUint32(message, 1) // documents
	} else {
		binary.LittleEndian.PutUint32(message[12:], opMsg)
		flags := uint32(0)
		if moreToCome {
			flags = flagMoreToCome
		}
		message = binary.LittleEndian.AppendUint32(message, flags)
		message = append(message, 0)
	}
	message = append(message, body...)
	binary.LittleEndian.PutUint32(message, uint32(len(message)))
	return message, nil
}

// with returns the document with elements appended.
func with(document bson.Raw, more bson.D) (bson.Raw, error) {
	var all bson.D
	if err := bson.Unmarshal(document, &all); err != nil {
		return nil, err
	}
	return bson.Marshal(append(all, more...))
}
