package sqlshard

import (
	"context"
	"database/sql/driver"
	"time"
)

// Pauses between two questions to a secondary whether it has reached a token.
const (
	firstTokenPause = 2 * time.Millisecond
	lastTokenPause  = 25 * time.Millisecond
)

// awaitToken waits until the session's server shows everything up to a
// position. Its error is errBehind when that takes too long.
func (c *Conn) awaitToken(ctx context.Context, position string) error {
	s := c.session
	fail := func(err error) error {
		s.dirty = true
		return s.pool.checkFailed(ctx, err, false)
	}
	p, ok, err := s.positions(ctx)
	switch {
	case err != nil:
		return fail(err)
	case !ok:
		return errBehind
	}
	args := []driver.NamedValue{{Ordinal: 1, Value: position}}
	limit := time.Now().Add(s.pool.cfg.Servers.TokenWait)
	for pause := firstTokenPause; ; pause = min(2*pause, lastTokenPause) {
		var answer [1]int64
		found, err := s.ask(ctx, p.Reached, args, answer[:])
		switch {
		case err != nil:
			return fail(err)
		case found && answer[0] == p.Yes:
			return nil
		case time.Now().Add(pause).After(limit):
			return errBehind
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errBehind // to lag is no fault
		}
	}
}
