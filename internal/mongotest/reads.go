package mongotest

import (
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// commands are those of the memory.
var commands = map[string]func(*call) bson.D{
	"insert": doInsert, "update": doUpdate, "delete": doDelete, "findAndModify": doFindAndModify, "bulkWrite": doBulkWrite,
	"find": doFind, "count": doCount, "distinct": doDistinct, "aggregate": doAggregate,
	"getMore": getMore, "killCursors": killCursors,
	"listDatabases": doListDatabases, "listCollections": doListCollections, "listIndexes": doListIndexes,
	"create": doCreate, "createIndexes": doCreateIndexes, "dropIndexes": doDropIndexes, "drop": doDrop, "dropDatabase": doDropDatabase,
	"buildInfo": func(*call) bson.D { return done(bson.E{Key: "version", Value: "8.0.0"}) },
}

// page applies skip and limit.
func page(documents []bson.D, skip, limit int64) []bson.D {
	documents = documents[min(skip, int64(len(documents))):]
	if limit > 0 && limit < int64(len(documents)) {
		documents = documents[:limit]
	}
	return documents
}

func doFind(c *call) bson.D {
	found, err := c.find(c.ns(), c.document("filter"))
	if err != nil {
		return c.failed(err)
	}
	limit := c.number("limit")
	found = page(sorted(found, c.document("sort")), c.number("skip"), max(limit, -limit))
	if fields := c.document("projection"); fields != nil {
		found = slices.Clone(found)
		for i := range found {
			if found[i], err = project(found[i], fields); err != nil {
				return c.failed(err)
			}
		}
	}
	size := c.batchSize()
	if truth(c.field("singleBatch")) {
		found, _ = split(found, size)
	}
	return c.open(c.ns(), found, size, false)
}

func doCount(c *call) bson.D {
	found, err := c.find(c.ns(), c.document("query"))
	if err != nil {
		return c.failed(err)
	}
	return done(bson.E{Key: "n", Value: int32(len(page(found, c.number("skip"), c.number("limit"))))})
}

func doDistinct(c *call) bson.D {
	found, err := c.find(c.ns(), c.document("query"))
	if err != nil {
		return c.failed(err)
	}
	path, _ := c.field("key").(string)
	values := bson.A{}
	for _, d := range found {
		v, ok := at(d, path)
		if ok && !slices.ContainsFunc(values, func(other any) bool { return compare(v, other) == 0 }) {
			values = append(values, v)
		}
	}
	return done(bson.E{Key: "values", Value: values})
}

func doAggregate(c *call) bson.D {
	stages, _ := c.field("pipeline").(bson.A)
	documents, err := c.find(c.ns(), nil)
	if err != nil {
		return c.failed(err)
	}
	for _, v := range stages {
		stage, _ := v.(bson.D)
		if len(stage) != 1 {
			return c.failed(unknownError("a stage without one operator"))
		}
		switch stage[0].Key {
		case "$changeStream":
			return c.open(c.ns(), nil, c.batchSize(), true)
		case "$out":
			if documents, err = nil, c.out(stage[0].Value, documents); err != nil {
				return c.failed(err)
			}
			continue
		}
		if documents, err = aggregate(documents, stage[0]); err != nil {
			return c.failed(err)
		}
	}
	return c.open(c.ns(), documents, c.batchSize(), false)
}

func aggregate(documents []bson.D, stage bson.E) ([]bson.D, error) {
	inner, _ := stage.Value.(bson.D)
	number, _ := whole(stage.Value)
	switch stage.Key {
	case "$match":
		var found []bson.D
		for _, d := range documents {
			ok, err := matches(d, inner)
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, d)
			}
		}
		return found, nil
	case "$sort":
		return sorted(documents, inner), nil
	case "$skip":
		return page(documents, number, 0), nil
	case "$limit":
		return page(documents, 0, number), nil
	case "$count":
		name, _ := stage.Value.(string)
		if len(documents) == 0 {
			return nil, nil
		}
		return []bson.D{{{Key: name, Value: int32(len(documents))}}}, nil
	case "$project":
		documents = slices.Clone(documents)
		for i := range documents {
			var err error
			if documents[i], err = project(documents[i], inner); err != nil {
				return nil, err
			}
		}
		return documents, nil
	case "$group":
		return group(documents, inner)
	default:
		return nil, unknownError("stage " + stage.Key)
	}
}

// group knows _id and the accumulators $sum, $min and $max.
func group(documents []bson.D, by bson.D) ([]bson.D, error) {
	var groups []bson.D
	index := map[string]int{}
	for _, d := range documents {
		id := evaluate(d, value(by, "_id"))
		at, ok := index[key(id)]
		if !ok {
			at = len(groups)
			index[key(id)] = at
			groups = append(groups, bson.D{{Key: "_id", Value: id}})
		}
		for _, f := range by {
			accumulator, _ := f.Value.(bson.D)
			if f.Key == "_id" {
				continue
			}
			operators := map[string]string{"$sum": "$inc", "$min": "$min", "$max": "$max"}
			if len(accumulator) != 1 || operators[accumulator[0].Key] == "" {
				return nil, unknownError("accumulator of " + f.Key)
			}
			var err error
			next := bson.E{Key: f.Key, Value: evaluate(d, accumulator[0].Value)}
			if groups[at], err = updateField(groups[at], operators[accumulator[0].Key], next, false); err != nil {
				return nil, err
			}
		}
	}
	return groups, nil
}

func evaluate(d bson.D, expression any) any {
	if path, ok := expression.(string); ok && strings.HasPrefix(path, "$") {
		v, _ := at(d, path[1:])
		return v
	}
	return expression
}

// out replaces a collection by the documents.
func (c *call) out(target any, documents []bson.D) error {
	name, _ := target.(string)
	db := c.command.DB
	if d, ok := target.(bson.D); ok {
		db, _ = value(d, "db").(string)
		name, _ = value(d, "coll").(string)
	}
	delete(c.server.cluster.memory.collections, db+"."+name)
	for _, d := range documents {
		if err := c.insertOne(db+"."+name, d); err != nil {
			return err
		}
	}
	return nil
}

// names returns the namespaces of a database, or all if db is empty.
func (c *call) names(db string) []string {
	var names []string
	for _, ns := range slices.Sorted(maps.Keys(c.server.cluster.memory.collections)) {
		if of, _ := namespace(ns); db == "" || of == db {
			names = append(names, ns)
		}
	}
	return names
}

func doListDatabases(c *call) bson.D {
	list := bson.A{}
	seen := ""
	for _, ns := range c.names("") {
		if db, _ := namespace(ns); db != seen {
			seen = db
			list = append(list, bson.D{{Key: "name", Value: db}, {Key: "sizeOnDisk", Value: int64(1)}, {Key: "empty", Value: false}})
		}
	}
	return done(bson.E{Key: "databases", Value: list}, bson.E{Key: "totalSize", Value: int64(len(list))})
}

func doListCollections(c *call) bson.D {
	var list []bson.D
	for _, ns := range c.names(c.command.DB) {
		_, name := namespace(ns)
		d := bson.D{{Key: "name", Value: name}, {Key: "type", Value: "collection"}}
		ok, err := matches(d, c.document("filter"))
		if err != nil {
			return c.failed(err)
		}
		if ok {
			list = append(list, d)
		}
	}
	return c.open(c.command.DB+".$cmd.listCollections", list, c.batchSize(), false)
}

func doListIndexes(c *call) bson.D {
	stored := c.server.cluster.memory.collections[c.ns()]
	if stored == nil {
		return failure(26, "ns does not exist: "+c.ns())
	}
	list := []bson.D{{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "name", Value: "_id_"}}}
	for _, name := range slices.Sorted(maps.Keys(stored.unique)) {
		list = append(list, bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: stored.unique[name]}, {Key: "name", Value: name}, {Key: "unique", Value: true}})
	}
	for _, name := range slices.Sorted(maps.Keys(stored.others)) {
		list = append(list, bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: stored.others[name]}, {Key: "name", Value: name}})
	}
	return c.open(c.ns(), list, c.batchSize(), false)
}

func doCreate(c *call) bson.D {
	if c.server.cluster.memory.collections[c.ns()] != nil {
		return failure(48, "Collection already exists. NS: "+c.ns())
	}
	c.server.cluster.memory.touch(nil, c.ns())
	return done()
}

func doCreateIndexes(c *call) bson.D {
	stored := c.server.cluster.memory.touch(nil, c.ns())
	before := 1 + len(stored.unique) + len(stored.others)
	list, _ := c.field("indexes").(bson.A)
	for _, v := range list {
		d, _ := v.(bson.D)
		name, _ := value(d, "name").(string)
		fields, _ := value(d, "key").(bson.D)
		if truth(value(d, "unique")) {
			stored.unique[name] = fields
		} else {
			stored.others[name] = fields
		}
	}
	return done(
		bson.E{Key: "numIndexesBefore", Value: int32(before)},
		bson.E{Key: "numIndexesAfter", Value: int32(1 + len(stored.unique) + len(stored.others))},
		bson.E{Key: "createdCollectionAutomatically", Value: false},
	)
}

func doDropIndexes(c *call) bson.D {
	stored := c.server.cluster.memory.touch(nil, c.ns())
	name, _ := c.field("index").(string)
	if name == "*" {
		clear(stored.unique)
		clear(stored.others)
	}
	delete(stored.unique, name)
	delete(stored.others, name)
	return done()
}

func doDrop(c *call) bson.D {
	m := c.server.cluster.memory
	if m.collections[c.ns()] == nil {
		return failure(26, "ns not found")
	}
	delete(m.collections, c.ns())
	return done(bson.E{Key: "ns", Value: c.ns()})
}

func doDropDatabase(c *call) bson.D {
	for _, ns := range c.names(c.command.DB) {
		delete(c.server.cluster.memory.collections, ns)
	}
	return done(bson.E{Key: "dropped", Value: c.command.DB})
}

// Fill stores n documents {_id: i, i: i} of _id 0 to n-1 in a collection, in place of those of the same _id. With a
// backend it does nothing: store them by the driver.
func (c *Cluster) Fill(db, collection string, n int) {
	m := c.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range n {
		m.seq++
		d := bson.D{{Key: "_id", Value: int32(i)}, {Key: "i", Value: int32(i)}}
		m.touch(nil, db+"."+collection).put(key(int32(i)), d, m.seq)
	}
}
