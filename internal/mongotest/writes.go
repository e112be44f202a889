package mongotest

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// tally is what a write did.
type tally struct {
	n, modified int
	upserted    any // the new _id
}

// insertOne stores a document; the memory's lock is held, as in all of this file.
func (c *call) insertOne(ns string, d bson.D) error {
	m := c.server.cluster.memory
	id, ok := get(d, "_id")
	if !ok {
		id = bson.NewObjectID()
		d = append(bson.D{{Key: "_id", Value: id}}, d...)
	}
	p := place{ns: ns, id: key(id)}
	for {
		wait, err := m.hold(c.t, p)
		if err != nil {
			return err
		}
		if !wait {
			break
		}
	}
	if stored := m.read(c.t, ns); stored != nil {
		if _, there := stored.stored[p.id]; there {
			return &writeError{code: codeDuplicateKey, text: "E11000 duplicate key error collection: " + ns + " index: _id_ dup key: { _id: " + p.id + " }"}
		}
	}
	return m.write(c.t, p, d)
}

// claim finds the documents of a filter and takes them for writing, one of them or all.
func (c *call) claim(ns string, filter, sort bson.D, multi bool) ([]bson.D, error) {
	m := c.server.cluster.memory
	for {
		found, err := c.find(ns, filter)
		if err != nil {
			return nil, err
		}
		found = sorted(found, sort)
		if !multi && len(found) > 1 {
			found = found[:1]
		}
		waited := false
		for _, d := range found {
			id, _ := get(d, "_id")
			if waited, err = m.hold(c.t, place{ns: ns, id: key(id)}); err != nil {
				return nil, err
			}
			if waited {
				break
			}
		}
		if !waited {
			return found, nil
		}
	}
}

func (c *call) find(ns string, filter bson.D) ([]bson.D, error) {
	var found []bson.D
	for _, d := range c.server.cluster.memory.read(c.t, ns).all() {
		ok, err := matches(d, filter)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, d)
		}
	}
	return found, nil
}

// change is one statement of update or the update of findAndModify.
type change struct {
	filter, sort bson.D
	by           any // a document; pipelines are not known
	multi        bool
	upsert       bool
}

// updateAll does a statement and returns the last document before and after it.
func (c *call) updateAll(ns string, u change) (t tally, before, after bson.D, err error) {
	by, ok := u.by.(bson.D)
	if !ok {
		return t, nil, nil, unknownError("an update that is no document")
	}
	found, err := c.claim(ns, u.filter, u.sort, u.multi)
	if err != nil {
		return t, nil, nil, err
	}
	for _, d := range found {
		before = d
		if after, err = update(d, by, false); err != nil {
			return t, nil, nil, err
		}
		t.n++
		if compare(before, after) == 0 {
			continue
		}
		id, _ := get(d, "_id")
		if err = c.server.cluster.memory.write(c.t, place{ns: ns, id: key(id)}, after); err != nil {
			return t, nil, nil, err
		}
		t.modified++
	}
	if len(found) > 0 || !u.upsert {
		return t, before, after, nil
	}
	if after, err = update(seed(u.filter), by, true); err != nil {
		return t, nil, nil, err
	}
	if t.upserted, ok = get(after, "_id"); !ok {
		t.upserted = bson.NewObjectID()
		after = append(bson.D{{Key: "_id", Value: t.upserted}}, after...)
	}
	if err = c.insertOne(ns, after); err != nil {
		return tally{}, nil, nil, err
	}
	t.n = 1
	return t, nil, after, nil
}

func (c *call) deleteAll(ns string, filter, sort bson.D, multi bool) (n int, before bson.D, err error) {
	found, err := c.claim(ns, filter, sort, multi)
	if err != nil {
		return 0, nil, err
	}
	for _, d := range found {
		id, _ := get(d, "_id")
		if err := c.server.cluster.memory.write(c.t, place{ns: ns, id: key(id)}, nil); err != nil {
			return n, nil, err
		}
		n, before = n+1, d
	}
	return n, before, nil
}

// statements does each element of a list until one fails, or all of them if the command is unordered.
func (c *call) statements(list string, each func(i int, d bson.D) error) (refused bson.A, err error) {
	documents, _ := c.field(list).(bson.A)
	ordered, given := get(c.body, "ordered")
	for i, v := range documents {
		d, _ := v.(bson.D)
		err := each(i, d)
		var w *writeError
		ofStatement := errors.As(err, &w)
		switch {
		case err == nil:
			continue
		case !ofStatement || c.t != nil && w.code == codeWriteConflict:
			return nil, err
		}
		refused = append(refused, bson.D{{Key: "index", Value: int32(i)}, {Key: "code", Value: w.code}, {Key: "errmsg", Value: w.text}})
		if !given || truth(ordered) || c.t != nil {
			break
		}
	}
	return refused, nil
}

// wrote is the reply of a write; in a transaction an error of a statement ends it.
func (c *call) wrote(reply bson.D, refused bson.A, err error) bson.D {
	if err != nil {
		return c.failed(err)
	}
	if len(refused) > 0 {
		reply = append(reply, bson.E{Key: "writeErrors", Value: refused})
		if c.t != nil {
			c.server.cluster.memory.end(c.t, txnAborted)
		}
	}
	return append(reply, bson.E{Key: "ok", Value: 1.0})
}

func doInsert(c *call) bson.D {
	n := 0
	refused, err := c.statements("documents", func(_ int, d bson.D) error {
		err := c.insertOne(c.ns(), d)
		if err == nil {
			n++
		}
		return err
	})
	return c.wrote(bson.D{{Key: "n", Value: int32(n)}}, refused, err)
}

func statement(d bson.D) change {
	filter, _ := value(d, "q").(bson.D)
	sort, _ := value(d, "sort").(bson.D)
	return change{filter: filter, sort: sort, by: value(d, "u"), multi: truth(value(d, "multi")), upsert: truth(value(d, "upsert"))}
}

func doUpdate(c *call) bson.D {
	n, modified := 0, 0
	var upserted bson.A
	refused, err := c.statements("updates", func(i int, d bson.D) error {
		t, _, _, err := c.updateAll(c.ns(), statement(d))
		n, modified = n+t.n, modified+t.modified
		if t.upserted != nil {
			upserted = append(upserted, bson.D{{Key: "index", Value: int32(i)}, {Key: "_id", Value: t.upserted}})
		}
		return err
	})
	reply := bson.D{{Key: "n", Value: int32(n)}, {Key: "nModified", Value: int32(modified)}}
	if len(upserted) > 0 {
		reply = append(reply, bson.E{Key: "upserted", Value: upserted})
	}
	return c.wrote(reply, refused, err)
}

func doDelete(c *call) bson.D {
	n := 0
	refused, err := c.statements("deletes", func(_ int, d bson.D) error {
		filter, _ := value(d, "q").(bson.D)
		limit, _ := whole(value(d, "limit"))
		deleted, _, err := c.deleteAll(c.ns(), filter, nil, limit != 1)
		n += deleted
		return err
	})
	return c.wrote(bson.D{{Key: "n", Value: int32(n)}}, refused, err)
}

func doFindAndModify(c *call) bson.D {
	var before, after bson.D
	var t tally
	var err error
	if truth(c.field("remove")) {
		t.n, before, err = c.deleteAll(c.ns(), c.document("query"), c.document("sort"), false)
	} else {
		u := change{filter: c.document("query"), sort: c.document("sort"), by: c.field("update"), upsert: truth(c.field("upsert"))}
		t, before, after, err = c.updateAll(c.ns(), u)
	}
	if err != nil {
		return c.failed(err)
	}
	result := before
	if truth(c.field("new")) {
		result = after
	}
	if result, err = project(result, c.document("fields")); err != nil {
		return c.failed(err)
	}
	last := bson.D{{Key: "n", Value: int32(t.n)}, {Key: "updatedExisting", Value: before != nil}}
	if t.upserted != nil {
		last = append(last, bson.E{Key: "upserted", Value: t.upserted})
	}
	reply := bson.D{{Key: "lastErrorObject", Value: last}, {Key: "value", Value: nil}}
	if result != nil {
		reply[1].Value = result
	}
	return append(reply, bson.E{Key: "ok", Value: 1.0})
}

// doBulkWrite is the client's bulk write over several namespaces.
func doBulkWrite(c *call) bson.D {
	names, _ := c.field("nsInfo").(bson.A)
	sums := map[string]int32{}
	var results []bson.D
	refused, err := c.statements("ops", func(i int, d bson.D) error {
		index, _ := whole(d[0].Value)
		if index < 0 || index >= int64(len(names)) {
			return unknownError("a namespace outside nsInfo")
		}
		info, _ := names[index].(bson.D)
		ns, _ := value(info, "ns").(string)
		result, err := c.operation(ns, d, sums)
		if err == nil && !truth(c.field("errorsOnly")) {
			results = append(results, append(bson.D{{Key: "ok", Value: 1.0}, {Key: "idx", Value: int32(i)}}, result...))
		}
		return err
	})
	if err != nil {
		return c.failed(err)
	}
	for _, e := range refused {
		d, _ := e.(bson.D)
		results = append(results, bson.D{
			{Key: "ok", Value: 0.0},
			{Key: "idx", Value: d[0].Value},
			{Key: "code", Value: d[1].Value},
			{Key: "errmsg", Value: d[2].Value},
			{Key: "n", Value: int32(0)},
		})
	}
	if len(refused) > 0 && c.t != nil {
		c.server.cluster.memory.end(c.t, txnAborted)
	}
	reply := bson.D{batchReply("firstBatch", 0, "admin.$cmd.bulkWrite", results, false), {Key: "nErrors", Value: int32(len(refused))}}
	for _, name := range []string{"nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"} {
		reply = append(reply, bson.E{Key: name, Value: sums[name]})
	}
	return append(reply, bson.E{Key: "ok", Value: 1.0})
}

func (c *call) operation(ns string, d bson.D, sums map[string]int32) (bson.D, error) {
	filter, _ := value(d, "filter").(bson.D)
	multi := truth(value(d, "multi"))
	switch d[0].Key {
	case "insert":
		document, _ := value(d, "document").(bson.D)
		if err := c.insertOne(ns, document); err != nil {
			return nil, err
		}
		sums["nInserted"]++
		return bson.D{{Key: "n", Value: int32(1)}}, nil
	case "update":
		t, _, _, err := c.updateAll(ns, change{filter: filter, by: value(d, "updateMods"), multi: multi, upsert: truth(value(d, "upsert"))})
		if err != nil {
			return nil, err
		}
		result := bson.D{{Key: "n", Value: int32(t.n)}, {Key: "nModified", Value: int32(t.modified)}}
		if t.upserted != nil {
			sums["nUpserted"]++
			return append(result, bson.E{Key: "upserted", Value: bson.D{{Key: "_id", Value: t.upserted}}}), nil
		}
		sums["nMatched"] += int32(t.n)
		sums["nModified"] += int32(t.modified)
		return result, nil
	case "delete":
		n, _, err := c.deleteAll(ns, filter, nil, multi)
		sums["nDeleted"] += int32(n)
		return bson.D{{Key: "n", Value: int32(n)}}, err
	default:
		return nil, unknownError("bulk operation " + d[0].Key)
	}
}
