package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

func killText(text string, id int64) string { return fmt.Sprintf(text, id) }

// errHidden is what we are told when sessions cannot be looked at.
var errHidden = errors.New("there are sessions whose purpose is hidden from this login")

// endSessions ends the sessions that were checked out for the mappings that
// leave. It looks at least as often as looks says, and until it finds nobody
// twice or the time is up: a session ends a moment after it was told to, and
// one that was being validated during the change shows its tag a moment later.
func (d *draining) endSessions(ctx context.Context, looks int) error {
	if !d.ends() || !d.b.d.Tags() {
		return nil
	}
	limit := time.Now().Add(endLimit)
	for n := 1; ; n++ {
		found, err := d.endTagged(ctx)
		switch {
		case err != nil:
			if !errors.Is(err, errHidden) && !d.b.d.MayNot(err) {
				return err
			}
			e := &store.BusyError{Map: d.step.Map, Mappings: d.leaving, Users: found}
			d.explain(e, err)
			return e
		case n >= looks && (looks == 1 || len(found) == 0):
			return nil
		case !time.Now().Before(limit):
			return &store.BusyError{Map: d.step.Map, Mappings: d.leaving, Users: found, Reason: "they were ended and have not gone"}
		}
		timer := time.NewTimer(endLook)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// shown reports whether there are tags to be seen.
func (d *draining) shown(ctx context.Context, t *transaction) (bool, error) {
	if d.how.Seeing == "" {
		return true, nil
	}
	var hidden int64
	if _, err := t.one(ctx, d.how.Seeing, nil, &hidden); err != nil {
		return false, err
	}
	if hidden > 0 {
		return false, errHidden
	}
	return hidden == 0, nil
}

// endTagged ends the sessions with the tags of leaving mappings and returns who
// they are.
func (d *draining) endTagged(ctx context.Context) (found []string, err error) {
	tags := make(map[string]bool, len(d.leaving))
	list := make([]string, len(d.leaving))
	for i, m := range d.leaving {
		list[i] = dialect.Tag(int64(m.ID))
		tags[list[i]] = true
	}
	err = d.b.session(ctx, func(t *transaction) error {
		if shown, err := d.shown(ctx, t); err != nil || !shown {
			return err
		}
		var args []any
		if d.how.Ends {
			args = []any{true, list}
		}
		var numbers []int64
		err := t.query(ctx, d.how.Tagged, args, func(rows *sql.Rows) error {
			id, tag, ended, err := d.scan(rows)
			if err != nil || !tags[tag] {
				return err
			}
			numbers = append(numbers, id)
			found = append(found, fmt.Sprintf("session %d", id))
			if ended {
				d.ended[id] = true
			}
			return nil
		})
		if err != nil || d.how.Ends {
			return err
		}
		for _, id := range numbers {
			if err := d.kill(ctx, t, id); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}
