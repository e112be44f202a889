package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// Bounds on draining a mapping.
const (
	maxDrains = maxConns / 2           // at once in one database: each needs a second session
	endLimit  = 5 * time.Second        // for sessions to go away once they have been ended
	leastBusy = 50 * time.Millisecond  // that a single writer is waited for
	firstLook = 5 * time.Millisecond   // until somebody looks who keeps a session waiting; later ones take longer
	maxLook   = 100 * time.Millisecond // between two looks
	endLook   = 20 * time.Millisecond  // between two looks for sessions to end
	maxHolds  = 1000                   // locks against holders that a step takes
	maxShown  = 5                      // users that an error names
)

// draining is one step's way of making those leave who use the mappings that
// it takes away. It is used by one goroutine at a time.
type draining struct {
	b        *database
	step     *store.LocalStep
	taken    []shardway.Mapping // whose rows are removed
	leaving  []shardway.Mapping // of those, whose sessions may be ended
	deadline time.Time          // until then those who use them may leave by themselves
	how      dialect.Drain      // set by start

	waited map[int64]string // sessions that kept us waiting: number → description
	ended  map[int64]bool   // sessions that were ended, by number
	left   []string         // sessions that would not go
}

func (b *database) newDraining(s *store.LocalStep) *draining {
	return &draining{
		b: b, step: s, taken: s.Taken(), leaving: s.Leaving(), deadline: time.Now().Add(s.Drain.Wait()),
		waited: map[int64]string{}, ended: map[int64]bool{},
	}
}

// ends reports whether the step may end sessions once the mapping leaves.
func (d *draining) ends() bool {
	return len(d.leaving) > 0 && d.step.Drain.Mode != store.DrainNobody && d.how.Own != ""
}

// clears reports whether the step may end sessions that are in its way.
func (d *draining) clears() bool { return d.ends() && d.step.Drain.Mode != store.DrainPart }

// start waits for its turn and learns how the engine does it.
func (d *draining) start(ctx context.Context) (release func(), err error) {
	select {
	case d.b.drains <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release = func() { <-d.b.drains }
	version := ""
	if d.b.d.Name() == "mysql" {
		if version, err = d.b.versionOf(ctx); err != nil {
			release()
			return nil, err
		}
	}
	d.how = d.b.d.Drain(version)
	return release, nil
}

// versionOf asks the server once for its version.
func (b *database) versionOf(ctx context.Context) (string, error) {
	if known := b.version.Load(); known != nil {
		return *known, nil
	}
	var version string
	err := b.glance(ctx, func(t *transaction) error {
		_, err := t.one(ctx, `SELECT VERSION()`, nil, &version)
		return err
	})
	if err == nil {
		b.version.Store(&version)
	}
	return version, err
}

// write runs the transaction of the step. In an engine with a single writer
// that one is waited for as long as those who use a mapping: any transaction
// may be theirs.
func (d *draining) write(ctx context.Context, fn func(t *transaction) error) error {
	if d.b.writer == nil || len(d.taken) == 0 {
		return d.b.write(ctx, fn)
	}
	limit := time.Now().Add(max(leastBusy, time.Until(d.deadline)))
	timer := time.NewTimer(time.Until(limit))
	defer timer.Stop()
	select {
	case d.b.writer <- struct{}{}:
		defer func() { <-d.b.writer }()
	case <-timer.C:
		return d.busy(nil)
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.b.again(ctx, func() error {
		return d.b.session(ctx, func(t *transaction) error {
			if err := d.beginBy(ctx, t, limit); err != nil {
				return err
			}
			if err := fn(t); err != nil {
				return err
			}
			return t.commit(ctx)
		})
	})
}

// beginBy begins the transaction of a single writer.
func (d *draining) beginBy(ctx context.Context, t *transaction, limit time.Time) error {
	var before int64
	if _, err := t.one(ctx, "PRAGMA busy_timeout", nil, &before); err != nil {
		return err
	}
	if _, err := t.exec(ctx, d.how.Patience(time.Until(limit))); err != nil {
		return err
	}
	err := t.begin(ctx, dialect.Write)
	rest := d.impatient(ctx, t, before, err)
	switch {
	case err == nil:
		return rest
	case ctx.Err() == nil && d.b.d.TimedOutLock(err):
		return d.busy(nil)
	}
	return err
}

// exclude waits, in the transaction of the step, until nobody keeps the taken
// mappings where they are, and keeps everybody from doing so until its end.
// It comes before the lock of the local store, so that other steps need not
// wait with it.
func (d *draining) exclude(ctx context.Context, t *transaction) error {
	if d.how.Own == "" || len(d.taken) == 0 {
		return nil
	}
	changes, err := d.changes(ctx, t)
	if err != nil || !changes {
		return err
	}
	gone, staying := d.leaving, d.staying()
	if !d.clears() {
		gone, staying = nil, d.taken
	}
	var own, patience int64
	if _, err := t.one(ctx, d.how.Own, nil, &own, &patience); err != nil {
		return err
	}
	err = d.patiently(ctx, t, own, patience, staying, false)
	if err == nil {
		err = d.patiently(ctx, t, own, patience, gone, true)
	}
	return err
}

// staying are the taken mappings whose users are never ended.
func (d *draining) staying() []shardway.Mapping {
	return slices.DeleteFunc(slices.Clone(d.taken), func(m shardway.Mapping) bool {
		return slices.ContainsFunc(d.leaving, func(l shardway.Mapping) bool { return l.ID == m.ID })
	})
}

// changes reports whether the step has anything left to change: one that came
// too late must not end anybody's session.
func (d *draining) changes(ctx context.Context, t *transaction) (bool, error) {
	var forgotten int64
	var epoch, state sql.NullInt64
	_, err := t.one(ctx, `SELECT s.forgotten_seq, o.epoch, o.state FROM {local_store} s LEFT JOIN {local_operations} o ON o.op_id = ? WHERE s.one_row = 1`,
		[]any{int64(d.step.Operation)}, &forgotten, &epoch, &state)
	if err != nil || d.step.Epoch < epoch.Int64 || !epoch.Valid && d.step.Seq <= forgotten {
		return false, err
	}
	_, change, err := decide(store.StepState(state.Int64), d.step.Want)
	return err == nil && change, nil
}

// patiently takes the exclusive side of mappings while somebody looks who is in
// the way and, with end, ends them once the time is over.
func (d *draining) patiently(ctx context.Context, t *transaction, own, before int64, mappings []shardway.Mapping, end bool) error {
	if len(mappings) == 0 {
		return nil
	}
	limit := time.Until(d.deadline)
	if end {
		limit = max(limit, 0) + endLimit
	}
	if _, err := t.exec(ctx, d.how.Patience(limit)); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, max(limit, 0)+endLimit) // for many locks, one after the other
	defer cancel()
	stop, looked := make(chan struct{}), make(chan error, 1)
	go func() { looked <- d.look(bounded, stop, own, end) }()
	err := d.take(bounded, t, mappings)
	close(stop)
	trouble := <-looked
	if rest := d.impatient(ctx, t, before, err); err == nil {
		err = rest
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	if d.b.d.TimedOutLock(err) || bounded.Err() != nil {
		return d.busy(trouble)
	}
	return err
}

// impatient gives the session its patience back.
func (d *draining) impatient(ctx context.Context, t *transaction, before int64, err error) error {
	if err != nil && d.how.LocalPatience() {
		return nil // the transaction has failed, and ends
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
	defer cancel()
	_, rest := t.exec(limited, d.how.Restore(before))
	if rest != nil {
		t.drop()
	}
	return rest
}

// take locks what users of mappings lock.
func (d *draining) take(ctx context.Context, t *transaction, mappings []shardway.Mapping) error {
	if text := d.b.d.LockExclusiveHold(); text != "" {
		// Nobody holds what is offline. Servers have room for so many locks; for
		// the rest, holders are ended by their tags.
		for n, m := range mappings {
			if m.Status != shardway.Online || n >= maxHolds {
				continue
			}
			if _, err := t.conn.ExecContext(ctx, text, d.b.d.HoldKey(int64(m.ID))); err != nil {
				return t.b.fault(ctx, err)
			}
		}
	}
	for some := range slices.Chunk(ids(mappings), dialect.MaxAmong) {
		condition, args := d.b.d.Among("mapping_id", some)
		// A query, not an execution: with one that finds no row, the driver for
		// MariaDB waits for ever.
		if err := t.query(ctx, d.how.Rows[0]+condition+d.how.Rows[1], args, func(*sql.Rows) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// look finds out, again and again until stop is closed, who keeps a session
// waiting, and ends them, if end says so, once the time is over. It returns why
// somebody could not be found or ended, if so.
func (d *draining) look(ctx context.Context, stop <-chan struct{}, own int64, end bool) error {
	var trouble error
	for pause := firstLook; ; pause = min(2*pause, maxLook) {
		if left := time.Until(d.deadline); end && left <= 0 {
			pause = min(pause, endLook)
		} else if end {
			pause = max(firstLook, min(pause, left))
		}
		timer := time.NewTimer(pause)
		select {
		case <-stop:
			timer.Stop()
			return trouble
		case <-ctx.Done():
			timer.Stop()
			return trouble
		case <-timer.C:
		}
		if !looks.begin(ctx, stop, d.how.Pace) {
			return trouble
		}
		err := d.endBlockers(ctx, own, end && !time.Now().Before(d.deadline))
		looks.end(d.how.Pace)
		if err != nil && ctx.Err() == nil {
			trouble = err
		}
	}
}

// looks keeps those apart who look, where a look too early would spoil that of
// others: programs have many databases on one server.
var looks = pacer{turn: make(chan struct{}, 1)}

// pacer lets one at a time do something, and not too soon after the one before.
type pacer struct {
	turn chan struct{} // one token
	last time.Time     // guarded by turn
}

// begin waits for the turn and reports whether it has come. With pace 0 it is
// always one's turn.
func (p *pacer) begin(ctx context.Context, stop <-chan struct{}, pace time.Duration) bool {
	if pace == 0 {
		return true
	}
	select {
	case p.turn <- struct{}{}:
	case <-stop:
		return false
	case <-ctx.Done():
		return false
	}
	timer := time.NewTimer(time.Until(p.last.Add(pace)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	<-p.turn
	return false
}

func (p *pacer) end(pace time.Duration) {
	if pace > 0 {
		p.last = time.Now()
		<-p.turn
	}
}

// endBlockers notes who keeps a session waiting and, when time is over, ends
// them.
func (d *draining) endBlockers(ctx context.Context, own int64, over bool) error {
	var found map[int64]bool
	err := d.b.session(ctx, func(t *transaction) error {
		if d.how.Snapshot != "" {
			t.open = true
			if _, err := t.exec(ctx, d.how.Snapshot); err != nil {
				return err
			}
		}
		var err error
		if found, err = d.blockers(ctx, t, own, over); err != nil || !over || d.how.Ends {
			if err != nil && over {
				_, _ = d.blockers(ctx, t, own, false) // to say who it is
			}
			return err
		}
		for id := range found {
			if id == 0 {
				continue
			}
			if err := d.kill(ctx, t, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && over && !d.how.Ends && found[0] {
		_, err = d.endTagged(ctx) // who has no number here may have a tag
	}
	return err
}

// blockers notes who keeps a session waiting and returns them.
func (d *draining) blockers(ctx context.Context, t *transaction, own int64, end bool) (map[int64]bool, error) {
	text, args := d.how.Blockers, []any{own}
	if d.how.Ends {
		args = []any{end, own}
	} else if d.how.Pace > 0 {
		text = fmt.Sprintf(text, fmt.Sprintf("look %016x", store.NewID()))
	}
	found := map[int64]bool{}
	err := t.query(ctx, text, args, func(rows *sql.Rows) error {
		id, who, ended, err := d.scan(rows)
		if err != nil {
			return err
		}
		d.waited[id], found[id] = who, true
		if ended {
			d.ended[id] = true
		}
		return nil
	})
	return found, err
}

func (d *draining) scan(rows *sql.Rows) (id int64, text string, ended bool, err error) {
	if d.how.Ends {
		err = rows.Scan(&id, &text, &ended)
	} else {
		err = rows.Scan(&id, &text)
	}
	return id, text, ended, err
}

// kill ends a session; one that is gone is no error.
func (d *draining) kill(ctx context.Context, t *transaction, id int64) error {
	_, err := t.exec(ctx, killText(d.how.Kill, id))
	if err != nil && d.b.d.NoSession(err) {
		return nil
	}
	if err == nil {
		d.ended[id] = true
	}
	return err
}

// busy is the error of a step whose mappings are in use. trouble is why somebody
// could not be found or ended.
func (d *draining) busy(trouble error) error {
	e := &store.BusyError{Map: d.step.Map, Mappings: d.taken, Users: slices.Sorted(maps.Values(d.waited))}
	if len(e.Users) > maxShown {
		e.Users = append(e.Users[:maxShown], "others")
	}
	d.explain(e, trouble)
	if e.Reason == "" && d.clears() && d.waited[0] != "" {
		e.Reason = d.waited[0] + " cannot be ended from here"
	}
	return e
}

// explain says why somebody could not be found or ended.
func (d *draining) explain(e *store.BusyError, trouble error) {
	if trouble == nil {
		return
	}
	if e.Reason = trouble.Error(); !errors.Is(trouble, errHidden) && !d.b.d.MayNot(trouble) {
		return
	}
	version := ""
	if v := d.b.version.Load(); v != nil {
		version = *v
	}
	e.Grants = d.b.d.DrainRights(version)
}

// report adds what the step has met to what its caller counts.
func (d *draining) report() {
	if d.step.Drained == nil {
		return
	}
	d.step.Drained.Waited += len(d.waited)
	d.step.Drained.Ended += len(d.ended)
	d.step.Drained.Left += len(d.left)
}
