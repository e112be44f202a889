package mongoshard

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"

	"github.com/shardway/shardway/selection"
)

// opMessage is an OP_MSG of a command, with further bytes after it.
func opMessage(t testing.TB, command bson.D, rest ...byte) []byte {
	t.Helper()
	document, err := bson.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	m := make([]byte, documentAt, documentAt+len(document)+len(rest))
	binary.LittleEndian.PutUint32(m[opcodeAt:], opMsg)
	m = append(append(m, document...), rest...)
	binary.LittleEndian.PutUint32(m, uint32(len(m)))
	return m
}

func wantMessage(t *testing.T, message []byte, want string, rest ...byte) {
	t.Helper()
	if got := int(binary.LittleEndian.Uint32(message)); got != len(message) {
		t.Errorf("the header says %d bytes of %d", got, len(message))
	}
	document := bsoncore.Document(message[documentAt : len(message)-len(rest)])
	if err := document.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := document.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !bytes.HasSuffix(message, rest) {
		t.Error("what followed the command was changed")
	}
}

func TestAddElement(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		command bson.D
		rest    []byte
		want    string
	}{
		"command":     {bson.D{{Key: "find", Value: "c"}}, nil, `{"find": "c","$readPreference": {"mode": "primaryPreferred"}}`},
		"empty":       {bson.D{}, nil, `{"$readPreference": {"mode": "primaryPreferred"}}`},
		"with a part": {bson.D{{Key: "find", Value: "c"}}, []byte{1, 9, 0, 0, 0, 'a', 0, 0, 0, 0}, `{"find": "c","$readPreference": {"mode": "primaryPreferred"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			message, done := addElement(opMessage(t, test.command, test.rest...), secondaryOK)
			if !done {
				t.Fatal("the message was not completed")
			}
			wantMessage(t, message, test.want, test.rest...)
		})
	}
}

// What is no OP_MSG, or is not whole, stays as it is.
func TestAddElementLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	good := opMessage(t, bson.D{{Key: "find", Value: "c"}})
	for name, change := range map[string]func([]byte) []byte{
		"another opcode": func(m []byte) []byte { m[opcodeAt] = 1; return m },
		"a checksum":     func(m []byte) []byte { m[flagsAt] |= checksumFlag; return m },
		"another part":   func(m []byte) []byte { m[sectionAt] = 1; return m },
		"cut off":        func(m []byte) []byte { return m[:len(m)-3] },
		"too short":      func(m []byte) []byte { return m[:10] },
		"a wrong size":   func(m []byte) []byte { m[documentAt] = 2; return m },
		"empty":          func([]byte) []byte { return nil },
	} {
		before := change(bytes.Clone(good))
		after, done := addElement(bytes.Clone(before), secondaryOK)
		if done || !bytes.Equal(before, after) {
			t.Errorf("%s: changed", name)
		}
	}
}

func FuzzAddElement(f *testing.F) {
	f.Add(opMessage(f, bson.D{{Key: "find", Value: "c"}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, message []byte) {
		n := len(message)
		if got, done := addElement(message, secondaryOK); done && len(got) != n+len(secondaryOK) || !done && len(got) != n {
			t.Errorf("%d bytes became %d, done %v", n, len(got), done)
		}
	})
}

// sink keeps what is written; it compresses by a mark.
type sink struct {
	mnet.ReadWriteCloser
	written [][]byte
}

func (s *sink) Write(_ context.Context, m []byte) error {
	s.written = append(s.written, bytes.Clone(m))
	return nil
}

func (s *sink) CompressWireMessage(src, dst []byte) ([]byte, error) { return append(dst, src...), nil }

// With a connection that compresses, the command is completed before, and only
// once; later commands of the connection stay as they are.
func TestCompressedCommandIsCompleted(t *testing.T) {
	t.Parallel()
	s := &sink{}
	c := &connection{ReadWriteCloser: s, element: secondaryOK}
	squeeze := &compressor{Compressor: s, connection: c}
	for range 2 {
		squeezed, err := squeeze.CompressWireMessage(opMessage(t, bson.D{{Key: "find", Value: "c"}}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Write(t.Context(), squeezed); err != nil {
			t.Fatal(err)
		}
	}
	wantMessage(t, s.written[0], `{"find": "c","$readPreference": {"mode": "primaryPreferred"}}`)
	wantMessage(t, s.written[1], `{"find": "c"}`)
}

// Seconds are rounded up, so that a limit is never made narrower.
func TestPreferenceElementRoundsUp(t *testing.T) {
	t.Parallel()
	r := newRule(selection.Secondary(selection.MaxStaleness(90_000_000_001)))
	document, err := bsoncore.NewDocumentFromReader(bytes.NewReader(bsoncore.BuildDocument(nil, r.preference)))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"$readPreference": {"mode": "secondary","maxStalenessSeconds": {"$numberInt":"91"}}}`
	if got := document.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
