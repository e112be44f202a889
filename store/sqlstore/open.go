package sqlstore

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/shardway/shardway"
)

// Pools opened here are small: stores are asked rarely.
const (
	maxConns = 8
	maxIdle  = 2
	idleTime = time.Minute
)

// NewGlobal returns the global store in the database of a pool, which it
// closes with itself. It does no I/O. Pools of the engine packages work best;
// others need the driver of the engine package, and for MySQL no location but
// UTC.
func NewGlobal(db *sql.DB, engine string) (*Global, error) {
	b, err := newDatabase(db, engine)
	if err != nil {
		return nil, err
	}
	return &Global{b: b}, nil
}

// NewLocal returns the local store in the database of a pool, as [NewGlobal] does.
func NewLocal(db *sql.DB, engine string) (*Local, error) {
	b, err := newDatabase(db, engine)
	if err != nil {
		return nil, err
	}
	return &Local{b: b}, nil
}

// OpenGlobal returns the global store at a location, with a small pool. Of
// several servers it uses the one that is primary when a transaction begins. It does no I/O: the first use connects.
func OpenGlobal(e shardway.Engine, l shardway.Location, c shardway.Credentials) (*Global, error) {
	db, err := open(e, l, c)
	if err != nil {
		return nil, fmt.Errorf("opening global store: %w", err)
	}
	return NewGlobal(db, e.Name())
}

// OpenLocal returns the local store at a location, as [OpenGlobal] does.
func OpenLocal(e shardway.Engine, l shardway.Location, c shardway.Credentials) (*Local, error) {
	db, err := open(e, l, c)
	if err != nil {
		return nil, fmt.Errorf("opening local store: %w", err)
	}
	return NewLocal(db, e.Name())
}

func open(e shardway.Engine, l shardway.Location, c shardway.Credentials) (*sql.DB, error) {
	l, err := e.Normalize(l)
	if err != nil {
		return nil, err
	}
	if len(l.Servers) > 1 {
		connector, err := newPrimaryConnector(e, l, c)
		if err != nil {
			return nil, err
		}
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(maxConns)
		db.SetMaxIdleConns(-1) // who was primary a moment ago need not be now
		return db, nil
	}
	connector, err := e.Connector(l.Servers[0].Address, l.Database, c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxIdle)
	db.SetConnMaxIdleTime(idleTime)
	return db, nil
}
