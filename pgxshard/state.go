package pgxshard

import (
	"container/list"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// state is what is known of one session as long as it lives. Its user alone has
// it.
type state struct {
	builder  pgx.ExtendedQueryBuilder
	fences   [2]fenceState // by whether it locks
	tagged   bool          // the session may have the tag of an earlier use
	prepared cache         // statements under a name
	shapes   cache         // descriptions
	names    int
	gone     []string // names of statements that the server may forget
	id       [8]byte  // of the mapping, as the server reads it
	idValues [1][]byte
}

// fenceState is a validation that is kept prepared on the session.
type fenceState struct {
	statement pgconn.StatementDescription
	prepared  bool
}

// stateKey names the state in the connection's custom data.
const stateKey = "shardway"

// stateOf returns the state of a session, and whether the session was used
// before.
func stateOf(conn *pgx.Conn) (s *state, reused bool) {
	data := conn.PgConn().CustomData()
	if s, ok := data[stateKey].(*state); ok {
		return s, true
	}
	s = &state{}
	for i, sql := range [...]string{fencePlain, fenceLocked} {
		s.fences[i].statement = pgconn.StatementDescription{
			Name: "shardway_fence_" + strconv.Itoa(i), SQL: sql, ParamOIDs: []uint32{pgtype.Int8OID},
			Fields: []pgconn.FieldDescription{{Name: "int4", DataTypeOID: pgtype.Int4OID, DataTypeSize: 4, TypeModifier: -1}},
		}
	}
	data[stateKey] = s
	return s, false
}

// forget gives up all that is prepared: the server may not have it any more.
func (s *state) forget() {
	for i := range s.fences {
		if f := &s.fences[i]; f.prepared {
			f.prepared = false
			s.gone = append(s.gone, f.statement.Name)
		}
	}
	s.gone = append(s.gone, s.prepared.clear()...)
	s.shapes.clear()
}

// remember keeps a prepared statement, and has the server forget the one that
// was not used for longest if there are too many.
func (s *state) remember(sd *pgconn.StatementDescription, capacity int) {
	if old := s.prepared.put(sd, capacity); old != nil {
		s.gone = append(s.gone, old.Name)
	}
}

// invalidate gives up what is kept for a text: an error may come from there.
func (s *state) invalidate(sql string) {
	if old := s.prepared.remove(sql); old != nil {
		s.gone = append(s.gone, old.Name)
	}
	s.shapes.remove(sql)
}

// name returns a new name for a statement.
func (s *state) name() string {
	s.names++
	return "shardway_" + strconv.Itoa(s.names)
}

// cache holds statements by their text, the last used first. The zero value is
// empty.
type cache struct {
	byText map[string]*list.Element
	order  list.List // of *pgconn.StatementDescription
}

func (c *cache) get(sql string) *pgconn.StatementDescription {
	e := c.byText[sql]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*pgconn.StatementDescription)
}

// put adds a statement and returns the one it displaces, if any.
func (c *cache) put(sd *pgconn.StatementDescription, capacity int) (displaced *pgconn.StatementDescription) {
	if c.byText == nil {
		c.byText = map[string]*list.Element{}
	}
	if c.order.Len() >= max(capacity, 1) {
		displaced = c.remove(c.order.Back().Value.(*pgconn.StatementDescription).SQL)
	}
	c.byText[sd.SQL] = c.order.PushFront(sd)
	return displaced
}

func (c *cache) remove(sql string) *pgconn.StatementDescription {
	e := c.byText[sql]
	if e == nil {
		return nil
	}
	delete(c.byText, sql)
	return c.order.Remove(e).(*pgconn.StatementDescription)
}

// clear empties the cache and returns the names of what it held.
func (c *cache) clear() (names []string) {
	for e := c.order.Front(); e != nil; e = e.Next() {
		names = append(names, e.Value.(*pgconn.StatementDescription).Name)
	}
	*c = cache{}
	return names
}
