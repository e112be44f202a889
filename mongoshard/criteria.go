package mongoshard

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// contextKey finds in a context either the *rule of WithCriteria or a
// *question about the client.
type contextKey struct{}

// WithCriteria returns a context whose operations select by these criteria
// instead of the client's. It concerns reads that the client's criteria would
// concern, and reads with a read preference other than primary of their own.
// Invalid criteria fail at the first operation.
func WithCriteria(ctx context.Context, criteria selection.Criteria) context.Context {
	return context.WithValue(ctx, contextKey{}, newRule(criteria))
}

// rule is criteria, ready for use.
type rule struct {
	criteria selection.Criteria
	// preference is the command's element $readPreference for a read
	// preference other than primary; nil otherwise.
	preference []byte
}

func newRule(criteria selection.Criteria) *rule {
	r := &rule{criteria: criteria}
	if p, ok := criteria.ReadPreference(); ok && p.Mode != selection.ModePrimary {
		r.preference = preferenceElement(p)
	}
	return r
}

// secondaryOK lets a member answer a read that a predicate sent to it, whatever
// its role.
var secondaryOK = preferenceElement(selection.ReadPreference{Mode: selection.ModePrimaryPreferred})

// element returns what a read must tell a server of a deployment: the read
// preference; for a predicate that a secondary may answer, and nothing to a
// mongos, whose shards then read from their primaries. The driver itself tells
// the only server of KindSingle that any role may answer.
func (r *rule) element(kind topology.Kind, role topology.Role) []byte {
	switch {
	case kind == topology.KindSingle && role != topology.RoleMongos:
		return nil
	case r.criteria.Predicate() && kind.MongoReplicaSet():
		return secondaryOK
	}
	return r.preference
}

// preferenceElement is the element of an OP_MSG command (MongoDB server
// selection, "Passing read preference to mongos and load balancers").
func preferenceElement(p selection.ReadPreference) []byte {
	start, element := bsoncore.AppendDocumentElementStart(nil, "$readPreference")
	element = bsoncore.AppendStringElement(element, "mode", p.Mode.String())
	if len(p.TagSets) > 0 {
		var list int32
		list, element = bsoncore.AppendArrayElementStart(element, "tags")
		for i, set := range p.TagSets {
			var tags int32
			tags, element = bsoncore.AppendDocumentElementStart(element, strconv.Itoa(i))
			for _, key := range slices.Sorted(maps.Keys(set)) {
				element = bsoncore.AppendStringElement(element, key, set[key])
			}
			element, _ = bsoncore.AppendDocumentEnd(element, tags) // cannot fail: it was begun
		}
		element, _ = bsoncore.AppendArrayEnd(element, list)
	}
	if p.MaxStaleness > 0 {
		seconds := (p.MaxStaleness + time.Second - 1) / time.Second
		element = bsoncore.AppendInt32Element(element, "maxStalenessSeconds", int32(min(seconds, 1<<31-1)))
	}
	element, _ = bsoncore.AppendDocumentEnd(element, start)
	return element
}

// criteriaOf returns the criteria that equal a read preference of the driver.
func criteriaOf(p *readpref.ReadPref) (selection.Criteria, error) {
	mode, err := selection.ParseMode(p.Mode().String())
	if err != nil {
		return selection.Criteria{}, err
	}
	var constraints []selection.Constraint
	for _, set := range p.TagSets() {
		tags := make(selection.Tags, len(set))
		for _, tag := range set {
			tags[tag.Name] = tag.Value
		}
		constraints = append(constraints, tags)
	}
	if limit, set := p.MaxStaleness(); set {
		constraints = append(constraints, selection.MaxStaleness(limit))
	}
	return selection.NewCriteria(&selection.ReadPreference{Mode: mode}, nil, constraints...)
}
