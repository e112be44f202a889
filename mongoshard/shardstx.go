package mongoshard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// TxOptions shape a transaction of [Shards.InTx]. The zero value is one that can
// write.
type TxOptions struct {
	// ReadOnly is a transaction that only reads: one state of the shard, which
	// had the key in it. It writes nothing and holds up no change of a mapping.
	ReadOnly bool
	// Applied finds out, after a commit whose acknowledgement was lost, whether
	// it took place: see [retry.Policy.Applied]. Nil leaves the outcome open.
	Applied func(ctx context.Context) (bool, error)
}

// Bounds on what a transaction does beyond its body.
const (
	commitTries = 3 // sending a commit whose answer was lost
	abortLimit  = 5 * time.Second
)

// inTx repeats a unit while its faults are transient.
func (o *shardOpener) inTx(ctx context.Context, key shardway.Key, options *TxOptions, fn func(ctx context.Context, db *mongo.Database) error) error {
	if options == nil {
		options = &TxOptions{}
	}
	if fn == nil {
		return &shardway.ArgumentError{Argument: "fn", Reason: "is missing"}
	}
	policy := o.cfg.Retry
	if options.Applied != nil {
		policy.Applied = options.Applied
	}
	if route, err := o.m.Lookup(ctx, key, shardway.CacheOnly); err == nil {
		policy.Shard = route.Shard.ID
	}
	return retry.Do(ctx, policy, func(ctx context.Context, _ int) error {
		u := &unit{shardOpener: o, options: *options, fn: fn}
		err := o.each(ctx, key, u.visit)
		switch {
		case u.begun: // the body's error, or that of the commit
			return u.err
		case err != nil:
			return retry.Uncommitted(err)
		}
		return nil
	})
}

// unit is one run of a transaction.
type unit struct {
	*shardOpener

	options TxOptions
	fn      func(ctx context.Context, db *mongo.Database) error
	begun   bool  // fn was called: nothing is tried on another shard
	err     error // after that
}

// visit runs the transaction on the shard of a route, unless it turns out before
// fn is called that the shard is not the right one.
func (u *unit) visit(ctx context.Context, route shardway.Route) error {
	client, err := u.client(ctx, route.Shard, selection.Criteria{})
	if err != nil {
		return err
	}
	if err := u.checkDeployment(ctx, client, route); err != nil {
		return err
	}
	session, err := client.StartSession()
	if err != nil {
		return u.fault(ctx, err)
	}
	defer session.EndSession(context.WithoutCancel(ctx)) // also aborts, when fn panics
	err = session.StartTransaction(options.Transaction().SetReadConcern(readconcern.Snapshot()).
		SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary()))
	if err != nil {
		return u.fault(ctx, err)
	}
	in := mongo.NewSessionContext(ctx, session)
	db := client.Database(route.Shard.Location.Database)
	if err := u.hold(in, db, route.MappingID); err != nil {
		abort(ctx, session)
		return err
	}
	u.begun = true
	u.err = u.finish(ctx, session, u.fn(in, db))
	return nil
}

// checkDeployment refuses a deployment that has no transactions. One that is not
// known yet is asked about the mapping first.
func (u *unit) checkDeployment(ctx context.Context, client *mongo.Client, route shardway.Route) error {
	set, err := Servers(client)
	if err == nil && set.Kind() == topology.KindUnknown {
		if err := u.validate(ctx, route); err != nil {
			return err
		}
		set, err = Servers(client)
	}
	if err != nil || set.Kind() != topology.KindSingle {
		return err
	}
	for _, server := range set.Servers() {
		if server.Role != topology.RoleStandalone {
			return nil // one member of a set, connected to directly
		}
	}
	h, err := handleOf(client)
	if err != nil {
		return err
	}
	return &TransactionError{Deployment: h.deployment.name}
}

// hold checks in the transaction that the shard has the mapping, and keeps it
// from losing it before the transaction ends.
func (u *unit) hold(ctx context.Context, db *mongo.Database, id shardway.MappingID) error {
	ask := mongomap.Hold
	if u.options.ReadOnly {
		ask = mongomap.Ask
	}
	answer, err := ask(ctx, db, id)
	if mongo.IsDuplicateKeyError(err) { // somebody else has just written the lane for the first time
		return &changingError{}
	}
	if err != nil {
		var labelled mongo.LabeledError
		if errors.As(err, &labelled) && labelled.HasErrorLabel("TransientTransactionError") {
			return fmt.Errorf("holding the mapping: %w", err)
		}
		return fmt.Errorf("holding the mapping: %w", u.fault(ctx, err))
	}
	if err := judge(answer); err != nil {
		return err
	}
	if answer.Leaving && !u.options.ReadOnly {
		return &changingError{}
	}
	return nil
}

// finish ends the transaction after its body.
func (u *unit) finish(ctx context.Context, session *mongo.Session, failed error) error {
	running := session.TransactionRunning()
	switch {
	case failed != nil:
		abort(ctx, session)
		return retry.Uncommitted(failed)
	case !running:
		return &shardway.ArgumentError{Argument: "fn", Reason: "has ended the transaction by itself"}
	case ctx.Err() != nil:
		abort(ctx, session)
		return retry.Uncommitted(fmt.Errorf("the transaction was aborted: %w", context.Cause(ctx)))
	}
	return retry.Committing(commit(ctx, session))
}

// commit sends the commit, and again while nobody knows what became of it.
func commit(ctx context.Context, session *mongo.Session) (err error) {
	for range commitTries {
		err = session.CommitTransaction(ctx)
		var labelled mongo.LabeledError
		if err == nil || ctx.Err() != nil || !errors.As(err, &labelled) || !labelled.HasErrorLabel("UnknownTransactionCommitResult") {
			return err
		}
	}
	return err
}

// abort aborts a transaction for which there may be no time left.
func abort(ctx context.Context, session *mongo.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortLimit)
	defer cancel()
	_ = session.AbortTransaction(ctx) // the server does it too when it does not arrive
}
