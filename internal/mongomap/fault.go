package mongomap

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/shardway/shardway"
)

// Codes of the server for a login that is refused, or has too few rights.
const (
	codeUnauthorized         = 13
	codeAuthenticationFailed = 18
)

// endLimit bounds the goodbye to a deployment that may be gone.
const endLimit = 2 * time.Second

// Disconnect disconnects clients, all at once. A deployment that does not answer
// keeps it waiting for two seconds, and is no error: the client is gone.
func Disconnect(clients iter.Seq[*mongo.Client]) error {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			err := client.Disconnect(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Fault gives an error of the driver its meaning. When the caller's context has
// ended, that is the error.
func Fault(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, shardway.ErrNoStore), errors.Is(err, shardway.ErrUnavailable):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case Unavailable(err):
		return fmt.Errorf("%w: %w", shardway.ErrUnavailable, err)
	}
	return err
}

// Unavailable reports whether an error of the driver means that the deployment
// did not answer, has no primary, or did not let us in.
func Unavailable(err error) bool {
	if mongo.IsNetworkError(err) || mongo.IsTimeout(err) || errors.Is(err, mongo.ErrClientDisconnected) {
		return true
	}
	var labelled mongo.LabeledError
	if errors.As(err, &labelled) && labelled.HasErrorLabel("RetryableWriteError") {
		return true
	}
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(codeUnauthorized) || server.HasErrorCode(codeAuthenticationFailed))
}
