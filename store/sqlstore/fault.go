package sqlstore

import (
	"context"
	"errors"
	"io/fs"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// fault is an error of the driver and what it means. It matches the sentinel
// of its class and unwraps to the driver's error.
type fault struct {
	class dialect.Class
	err   error
}

func (f *fault) sentinel() error {
	switch f.class {
	case dialect.Duplicate:
		return shardway.ErrExists
	case dialect.NoTable:
		return shardway.ErrNoStore
	case dialect.Unavailable, dialect.Lost:
		return shardway.ErrUnavailable
	case dialect.Other, dialect.Transient, dialect.Outdated:
	}
	return nil
}

// Error returns the meaning, if there is one, and the driver's text.
func (f *fault) Error() string {
	if s := f.sentinel(); s != nil {
		return s.Error() + ": " + f.err.Error()
	}
	return f.err.Error()
}

// Unwrap returns meaning and cause.
func (f *fault) Unwrap() []error {
	if s := f.sentinel(); s != nil {
		return []error{s, f.err}
	}
	return []error{f.err}
}

// fault gives an error of the driver its meaning. When the caller's context
// has ended, that is the error.
func (b *database) fault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &fault{class: b.d.Classify(err), err: err}
}

// connectFault is fault for a connection that could not be had.
func (b *database) connectFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	class := b.d.Classify(err)
	switch {
	case b.file != nil && errors.Is(err, fs.ErrNotExist):
		class = dialect.NoTable
	case class != dialect.Transient:
		class = dialect.Unavailable
	}
	return &fault{class: class, err: err}
}

// worthAnother reports whether a transaction that failed n times may succeed
// when it is run again. A lost acknowledgement is for the caller to look into.
func worthAnother(err error, n int) bool {
	if errors.Is(err, store.ErrUnknownOutcome) {
		return false
	}
	var f *fault
	if !errors.As(err, &f) {
		return false
	}
	switch f.class {
	case dialect.Transient:
		return n < maxTransient
	case dialect.Lost, dialect.Outdated:
		return n < maxLost
	case dialect.Other, dialect.Duplicate, dialect.NoTable, dialect.Unavailable:
	}
	return false
}

// isClass reports whether err is a fault of the class.
func isClass(err error, class dialect.Class) bool {
	var f *fault
	return errors.As(err, &f) && f.class == class
}
