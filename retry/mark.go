package retry

// Uncommitted marks an error of work inside a transaction that was not asked
// to commit. What the transaction did is rolled back, whatever broke, so that a
// connection lost in it is Transient and not CommitUnknown. Errors that would
// come again stay Permanent. Uncommitted(nil) is nil; the text is err's.
func Uncommitted(err error) error {
	if err == nil {
		return nil
	}
	return &uncommittedError{err}
}

// Committing marks the error of a commit. Unless a server said that the
// transaction was rolled back, or the commit was never sent, it is
// CommitUnknown and matches [ErrCommitUnknown]. Committing(nil) is nil.
func Committing(err error) error {
	if err == nil {
		return nil
	}
	return &commitError{err}
}

type uncommittedError struct{ err error }

func (e *uncommittedError) Error() string { return e.err.Error() }
func (e *uncommittedError) Unwrap() error { return e.err }

type commitError struct{ err error }

func (e *commitError) Error() string { return "committing: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// Is reports whether target is ErrCommitUnknown and the outcome is unknown.
func (e *commitError) Is(target error) bool {
	return target == ErrCommitUnknown && weigh(e) == unknown
}
