package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/shardway/shardway/topology"
)

// connectError is a connection that could not be had: one line that tells the
// decisive cause. The driver's own text begins with the first of its attempts,
// which with sslmode=prefer is a server without encryption, and hides the
// reason why the last one failed.
type connectError struct {
	at             topology.Address
	database, user string
	err            error // the driver's
}

// Error names the place and the decisive cause.
func (e *connectError) Error() string {
	text := fmt.Sprintf("connecting to %s, database %q", e.at, e.database)
	if e.user != "" {
		text += fmt.Sprintf(", user %q", e.user)
	}
	return text + ": " + strings.Join(strings.Fields(decisive(e.err).Error()), " ")
}

// Unwrap returns the driver's error.
func (e *connectError) Unwrap() error { return e.err }

// decisive returns the cause that matters among those of all attempts: what a
// server has said, else the last that is not a server without encryption, else
// the last.
func decisive(err error) error {
	attempts := attemptsOf(err)
	for i := len(attempts) - 1; i >= 0; i-- {
		var said *pgconn.PgError
		if errors.As(attempts[i], &said) {
			return said
		}
	}
	last := attempts[len(attempts)-1]
	for i := len(attempts) - 1; i >= 0; i-- {
		if !strings.Contains(attempts[i].Error(), "refused TLS") {
			last = attempts[i]
			break
		}
	}
	// The driver's outer errors repeat the place.
	if inner := errors.Unwrap(last); inner != nil {
		return inner
	}
	return last
}

// attemptsOf returns the errors of the single attempts, at least one.
func attemptsOf(err error) []error {
	var failed *pgconn.ConnectError
	if !errors.As(err, &failed) {
		return []error{err}
	}
	inner := failed.Unwrap()
	if several, ok := inner.(interface{ Unwrap() []error }); ok {
		if all := several.Unwrap(); len(all) > 0 {
			return all
		}
	}
	return []error{inner}
}
