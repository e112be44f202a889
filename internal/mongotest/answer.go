package mongotest

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

var (
	writing = []string{"insert", "update", "delete", "findAndModify", "bulkWrite", "create", "createIndexes", "dropIndexes", "drop", "dropDatabase"}
	reading = []string{"find", "count", "distinct", "aggregate", "listCollections", "listIndexes", "listDatabases"}
)

// answer does one message and returns false if the connection ends.
func (s *Server) answer(l *link, q request) bool {
	command := Command{Name: q.name, DB: q.db, Body: q.body}
	if isHello(q.name) {
		command.Name = "hello"
		s.record(command)
		return s.greet(l, q)
	}
	s.record(command)
	fault, delay := s.take(command.Name)
	if !l.wait(delay + fault.Delay) {
		return false
	}
	var reply bson.D
	if fault.AfterReply || fault.Code == 0 && !fault.Drop {
		reply = s.run(l, command)
	}
	if fault.Drop {
		return false
	}
	if document := fault.document(); document != nil {
		reply = document
	}
	reply = retryableLabel(command.Body, reply)
	s.cluster.mu.Lock()
	reply = append(slices.Clone(reply), s.cluster.times()...)
	s.cluster.mu.Unlock()
	_, ok := s.send(l, q, q.id, reply, false)
	return ok
}

// retryable are the codes of errors after which the driver specification lets a write be sent again.
var retryable = []int32{6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436}

// retryableLabel adds the label by which servers from MongoDB 4.4 on tell drivers to send a numbered write again.
func retryableLabel(body bson.Raw, reply bson.D) bson.D {
	code, failed := value(reply, "code").(int32)
	_, numbered := body.Lookup("txnNumber").AsInt64OK()
	_, inTransaction := body.Lookup("autocommit").BooleanOK()
	ends := false
	for _, name := range []string{"commitTransaction", "abortTransaction"} {
		_, err := body.LookupErr(name)
		ends = ends || err == nil
	}
	if !failed || !numbered || inTransaction && !ends || !slices.Contains(retryable, code) {
		return reply
	}
	var labels bson.A
	switch given := value(reply, "errorLabels").(type) {
	case []string:
		for _, label := range given {
			labels = append(labels, label)
		}
	case bson.A:
		labels = slices.Clone(given)
	}
	if slices.Contains(labels, any(labelRetryable)) {
		return reply
	}
	return put(reply, "errorLabels", append(labels, labelRetryable), false)
}

// run is the command's reply when nothing goes wrong on the way.
func (s *Server) run(l *link, command Command) bson.D {
	s.cluster.mu.Lock()
	answer := s.answers[command.Name]
	s.cluster.mu.Unlock()
	if answer != nil {
		if reply, ok := answer(command); ok {
			return reply
		}
	}
	if refusal := s.roleRefuses(command); refusal != nil {
		return refusal
	}
	var body bson.D
	if err := bson.Unmarshal(command.Body, &body); err != nil {
		return failure(codeBadValue, err.Error())
	}
	c := &call{server: s, link: l, command: command, body: body, session: session(body)}
	return c.once()
}

// roleRefuses is the error of a member that does not serve the command.
func (s *Server) roleRefuses(command Command) bson.D {
	c := s.cluster
	c.mu.Lock()
	role := s.role
	c.mu.Unlock()
	if c.options.Kind != ReplicaSet || role == Primary {
		return nil
	}
	switch {
	case slices.Contains(writing, command.Name) || command.Name == "commitTransaction":
		return failure(10107, "not primary")
	case !slices.Contains(reading, command.Name):
		return nil
	case role != Secondary && role != Hidden:
		return failure(13436, "node is not in primary or recovering state")
	}
	mode, _ := command.Body.Lookup("$readPreference", "mode").StringValueOK()
	if mode == "" || mode == "primary" {
		return failure(13435, "not primary and secondaryOk=false")
	}
	return nil
}

// call is one command under way.
type call struct {
	server  *Server
	link    *link
	command Command
	body    bson.D
	session string // of lsid; empty without one
	t       *txn   // nil outside transactions
}

// outcome is that of a retryable write.
type outcome struct {
	number int64
	done   chan struct{} // closed when reply is there
	reply  bson.D        // nil if the write may be done again
}

func session(body bson.D) string {
	lsid, _ := get(body, "lsid")
	document, _ := lsid.(bson.D)
	id, _ := get(document, "id")
	binary, _ := id.(bson.Binary)
	return string(binary.Data)
}

func (c *call) field(key string) any {
	value, _ := get(c.body, key)
	return value
}

func (c *call) document(key string) bson.D {
	document, _ := c.field(key).(bson.D)
	return document
}

func (c *call) number(key string) int64 {
	value, _ := get(c.body, key)
	n, _ := whole(value)
	return n
}

// ns is the namespace that the command names by its own first element.
func (c *call) ns() string {
	name, _ := c.body[0].Value.(string)
	return c.command.DB + "." + name
}

// once does a retryable write that is sent twice only once.
func (c *call) once() bson.D {
	_, numbered := get(c.body, "txnNumber")
	_, inTransaction := get(c.body, "autocommit")
	if !numbered || inTransaction || c.session == "" {
		return c.transact()
	}
	cluster, number := c.server.cluster, c.number("txnNumber")
	for {
		cluster.mu.Lock()
		known := cluster.retryable[c.session]
		if known == nil || known.number != number {
			known = &outcome{number: number, done: make(chan struct{})}
			cluster.retryable[c.session] = known
			cluster.mu.Unlock()
			reply := c.transact()
			if truth(value(reply, "ok")) {
				known.reply = reply
			} else {
				cluster.mu.Lock()
				delete(cluster.retryable, c.session)
				cluster.mu.Unlock()
			}
			close(known.done)
			return reply
		}
		cluster.mu.Unlock()
		<-known.done
		if known.reply != nil {
			return known.reply
		}
	}
}

func value(d bson.D, key string) any {
	v, _ := get(d, key)
	return v
}

// transact finds the command's transaction and does the command.
func (c *call) transact() bson.D {
	m := c.server.cluster.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	automatic, given := get(c.body, "autocommit")
	if !given || truth(automatic) {
		return c.do()
	}
	if c.server.cluster.options.Kind == Standalone {
		return failure(codeIllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos")
	}
	number := c.number("txnNumber")
	if truth(c.field("startTransaction")) {
		c.t = m.begin(c.session, number, c.server.index)
		reply := c.do()
		if c.server.cluster.options.Kind != ReplicaSet {
			reply = append(reply, bson.E{Key: "recoveryToken", Value: bson.D{{Key: "shardId", Value: "shard0"}}})
		}
		return reply
	}
	t := m.txns[c.session]
	if t == nil || t.number != number {
		return failure(codeNoSuchTxn, "no transaction of this number is in progress", labelTransient)
	}
	switch c.command.Name {
	case "commitTransaction":
		return c.commit(t)
	case "abortTransaction":
		if t.state != txnOpen {
			return failure(codeNoSuchTxn, "the transaction is not open", labelTransient)
		}
		m.end(t, txnAborted)
		return done()
	}
	if t.state != txnOpen || t.server != c.server.index {
		return failure(codeNoSuchTxn, "the transaction is not open on this server", labelTransient)
	}
	c.t = t
	return c.do()
}

func (c *call) commit(t *txn) bson.D {
	_, recovering := get(c.body, "recoveryToken")
	if t.state == txnAborted || t.server != c.server.index && !recovering {
		return failure(codeNoSuchTxn, "the transaction is not open on this server", labelTransient)
	}
	c.server.cluster.memory.end(t, txnCommitted)
	return done()
}

// do does the command in the backend or in memory.
func (c *call) do() bson.D {
	switch c.command.Name {
	case "ping", "refreshSessions", "killSessions":
		return done()
	case "endSessions":
		return done()
	case "commitTransaction", "abortTransaction":
		return failure(codeNoSuchTxn, "a transaction must be named", labelTransient)
	case "getMore", "killCursors":
		if reply := c.ownCursor(); reply != nil {
			return reply
		}
	}
	if c.server.cluster.options.Backend != "" {
		return c.forward()
	}
	does, ok := commands[c.command.Name]
	if !ok {
		return failure(codeCommandNotFound, "no such command: '"+c.command.Name+"'")
	}
	return does(c)
}

func done(more ...bson.E) bson.D {
	return append(slices.Clone(bson.D(more)), bson.E{Key: "ok", Value: 1.0})
}

// failed is the reply to an error of the whole command. In a transaction it ends it, as in MongoDB.
func (c *call) failed(err error) bson.D {
	code := int32(codeBadValue)
	var w *writeError
	if errors.As(err, &w) {
		code = w.code
	}
	if c.t == nil {
		return failure(code, err.Error())
	}
	c.server.cluster.memory.end(c.t, txnAborted)
	if code == codeWriteConflict {
		return failure(code, err.Error(), labelTransient)
	}
	return failure(code, err.Error())
}
