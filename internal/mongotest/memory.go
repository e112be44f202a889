package mongotest

import (
	"maps"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// memory is what a cluster stores: documents by namespace, with transactions that see a snapshot.
// Invariant: a stored document is never changed in place.
type memory struct {
	mu          sync.Mutex
	free        *sync.Cond             // a document was let go, or all ends
	closed      bool                   //
	seq         uint64                 // of the last write
	collections map[string]*collection // by namespace
	held        map[place]*txn         // documents that an open transaction has written
	txns        map[string]*txn        // the newest of each session
}

// place is a document's: its namespace and its _id as text.
type place struct{ ns, id string }

type collection struct {
	order  []string          // ids in the order of insertion; deleted ones are skipped
	stored map[string]entry  // by id
	gone   map[string]uint64 // id → seq of its deletion
	unique map[string]bson.D // name → key fields
	others map[string]bson.D // indexes that are not unique
}

type entry struct {
	document bson.D
	seq      uint64
}

// txn is a transaction of one session on one server.
type txn struct {
	number int64
	server int
	state  txnState
	start  uint64
	view   map[string]*collection
	writes []place
}

type txnState uint8

const (
	txnOpen txnState = iota
	txnCommitted
	txnAborted
)

func newMemory() *memory {
	m := &memory{collections: map[string]*collection{}, held: map[place]*txn{}, txns: map[string]*txn{}}
	m.free = sync.NewCond(&m.mu)
	return m
}

func (m *memory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.free.Broadcast()
}

func newCollection() *collection {
	return &collection{stored: map[string]entry{}, gone: map[string]uint64{}, unique: map[string]bson.D{}, others: map[string]bson.D{}}
}

func (c *collection) clone() *collection {
	return &collection{
		order: slices.Clone(c.order), stored: maps.Clone(c.stored), gone: maps.Clone(c.gone),
		unique: maps.Clone(c.unique), others: maps.Clone(c.others),
	}
}

// all returns the documents in the order of insertion.
func (c *collection) all() []bson.D {
	if c == nil {
		return nil
	}
	list := make([]bson.D, 0, len(c.stored))
	for _, id := range c.order {
		if e, ok := c.stored[id]; ok {
			list = append(list, e.document)
		}
	}
	return list
}

func (c *collection) put(id string, document bson.D, seq uint64) {
	if document == nil {
		delete(c.stored, id)
		c.gone[id] = seq
		c.order = slices.DeleteFunc(c.order, func(other string) bool { return other == id })
		return
	}
	if _, there := c.stored[id]; !there {
		c.order = append(c.order, id)
	}
	c.stored[id] = entry{document: document, seq: seq}
}

// changed is the seq of the last write of an id.
func (c *collection) changed(id string) uint64 {
	if e, ok := c.stored[id]; ok {
		return e.seq
	}
	return c.gone[id]
}

// read returns what a transaction, or everybody if t is nil, sees of a namespace; it may be nil.
func (m *memory) read(t *txn, ns string) *collection {
	if t != nil {
		return t.view[ns]
	}
	return m.collections[ns]
}

// touch returns the namespace to write to, and makes it.
func (m *memory) touch(t *txn, ns string) *collection {
	target := m.collections
	if t != nil {
		target = t.view
	}
	if target[ns] == nil {
		target[ns] = newCollection()
	}
	return target[ns]
}

// writeError is one that a reply carries in writeErrors, or as its own if the whole command failed.
type writeError struct {
	code int32
	text string
}

func (e *writeError) Error() string { return e.text }

var errBusy = &writeError{code: codeWriteConflict, text: "WriteConflict error: this operation conflicted with another operation"}

// hold takes a document for writing. wait says that another transaction holds it and that the caller, who is in none,
// must look at the documents again.
func (m *memory) hold(t *txn, p place) (wait bool, err error) {
	holder := m.held[p]
	switch {
	case t == nil && holder != nil:
		if m.closed {
			return false, &writeError{code: 11600, text: "interrupted at shutdown"}
		}
		m.free.Wait()
		return true, nil
	case t == nil || holder == t:
		return false, nil
	case holder != nil:
		return false, errBusy
	}
	if c := m.collections[p.ns]; c != nil && c.changed(p.id) > t.start {
		return false, errBusy
	}
	m.held[p] = t
	t.writes = append(t.writes, p)
	return false, nil
}

// write stores a document, or removes it if document is nil, after hold.
func (m *memory) write(t *txn, p place, document bson.D) error {
	if document != nil {
		if err := m.checkUnique(t, p, document); err != nil {
			return err
		}
	}
	m.seq++
	m.touch(t, p.ns).put(p.id, document, m.seq)
	return nil
}

func (m *memory) checkUnique(t *txn, p place, document bson.D) error {
	c := m.read(t, p.ns)
	if c == nil {
		return nil
	}
	for name, fields := range c.unique {
		want := indexed(document, fields)
		for id, e := range c.stored {
			if id != p.id && indexed(e.document, fields) == want {
				return &writeError{code: codeDuplicateKey, text: "E11000 duplicate key error collection: " + p.ns + " index: " + name + " dup key: " + want}
			}
		}
	}
	return nil
}

func indexed(d, fields bson.D) string {
	text := "{"
	for _, f := range fields {
		value, _ := at(d, f.Key)
		text += " " + f.Key + ": " + key(value)
	}
	return text + " }"
}

// begin opens a session's transaction, which ends the session's last one.
func (m *memory) begin(session string, number int64, server int) *txn {
	if old := m.txns[session]; old != nil {
		m.end(old, txnAborted)
	}
	t := &txn{number: number, server: server, start: m.seq, view: map[string]*collection{}}
	for ns, c := range m.collections {
		t.view[ns] = c.clone()
	}
	m.txns[session] = t
	return t
}

// end commits or aborts an open transaction; another one stays as it is.
func (m *memory) end(t *txn, state txnState) {
	if t.state != txnOpen {
		return
	}
	t.state = state
	if state == txnCommitted {
		m.seq++
		for _, p := range t.writes {
			m.touch(nil, p.ns).put(p.id, t.view[p.ns].stored[p.id].document, m.seq)
		}
	}
	for _, p := range t.writes {
		delete(m.held, p)
	}
	t.view, t.writes = nil, nil
	m.free.Broadcast()
}

// abortAll ends the open transactions of a server.
func (m *memory) abortAll(server int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.txns {
		if t.server == server {
			m.end(t, txnAborted)
		}
	}
}
