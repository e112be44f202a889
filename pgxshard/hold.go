package pgxshard

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
)

// Hold returns a session as [DB.Acquire] does, and keeps the mapping where it is
// until the session is released or ends: a change of the mapping waits for that,
// up to its drain limit. It takes two round trips, and waits for a change that
// is under way.
//
// The hold belongs to the session. A pooler that gives out a session for each
// transaction would leave it to others: with Config.Pooler, or when the server
// process is another one than was connected to, Hold is refused with ErrInvalid.
// So it is on a DB for reads.
func (d *DB[K]) Hold(ctx context.Context, k K) (*Conn, error) {
	var refusal error
	switch {
	case d.opener.cfg.Pooler:
		refusal = errPooled()
	case !d.want.writes:
		refusal = &shardway.ArgumentError{Argument: "criteria", Value: d.want.criteria.String(), Reason: "are for reads: a secondary cannot hold a mapping"}
	}
	var got *Conn
	err := d.at(ctx, k, refusal, func(_, opening context.Context, v *visit) error {
		if err := v.hold(opening); err != nil {
			return err
		}
		if err := v.tag(opening); err != nil {
			v.unhold()
			return err
		}
		got = &Conn{v: v, held: true}
		return nil
	})
	return got, err
}

func errPooled() error {
	return &shardway.ArgumentError{Argument: "Pooler", Reason: "is in the way: behind a pooler that gives out a session for each transaction a session cannot hold a mapping"}
}

// hold takes the lock of a holder.
func (v *visit) hold(ctx context.Context) error {
	var server uint32
	conn := v.conn.Conn()
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid(), ("+postgres.LockHold()+")::text", v.holdKey()).Scan(&server, nil); err != nil {
		v.dirty = true
		return v.checkFailed(ctx, err)
	}
	if server != conn.PgConn().PID() {
		v.unhold() // if the pooler still lets us
		v.dirty = true
		return errPooled()
	}
	return nil
}

func (v *visit) holdKey() any { return postgres.HoldKey(int64(v.route.MappingID)) }

// unhold gives up the lock of a holder. A session on which that fails is closed.
func (v *visit) unhold() {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackLimit)
	defer cancel()
	if pg := v.conn.Conn().PgConn(); pg.IsClosed() || pg.IsBusy() || pg.TxStatus() != 'I' {
		v.dirty = true
		return
	}
	var free bool
	err := v.conn.QueryRow(ctx, postgres.ReleaseHold(), v.holdKey()).Scan(&free)
	if err == nil && !free {
		err = fmt.Errorf("the session did not hold mapping %d", v.route.MappingID)
	}
	if err != nil {
		v.dirty = true
		v.o.cfg.Logger.Warn("closing a session that could not give up its hold", "server", v.pool.address, "error", err)
	}
}
