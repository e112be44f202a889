// Package retry repeats whole units of work when their faults are transient: a
// server that fails over, a deadlock, a broken connection.
//
//	err := retry.Do(ctx, retry.Policy{}, func(ctx context.Context, attempt int) error {
//		conn, err := db.OpenConnectionForKey(ctx, customerID)
//		if err != nil {
//			return err
//		}
//		defer conn.Close()
//		tx, err := conn.BeginTx(ctx, nil)
//		if err != nil {
//			return retry.Uncommitted(err)
//		}
//		defer tx.Rollback()
//		if _, err = tx.ExecContext(ctx, `UPDATE customer SET visits = visits + 1 WHERE id = $1`, customerID); err != nil {
//			return retry.Uncommitted(err)
//		}
//		return retry.Committing(tx.Commit())
//	})
//
// A unit is everything from the key to the commit: route, open, work, commit.
// After a fault all of it is done again, because the key may have moved. A
// statement inside a transaction is never repeated by itself, and a unit should
// be one transaction, or do no harm when it is done twice.
//
// When a connection breaks, nobody knows what became of what was asked last. If
// that was inside a transaction that was never asked to commit, it was rolled
// back; [Uncommitted] says so. In every other case the outcome is unknown, and
// the unit is repeated only if [Policy.Applied] finds out that it did not take
// place; otherwise the error matches [ErrCommitUnknown].
//
// [Classify] says what an error is worth. It knows the drivers by the shape of
// their errors and imports none; the table stands in docs/retry.md. Adapters
// answer for their errors with a method SafeToRetry() bool, which is true when
// nothing of the unit's work was kept, or CommitUnknown() bool.
//
// The package never retries by itself, keeps no state but a [Budget], and has
// no goroutines.
package retry
