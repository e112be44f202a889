package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/shardway/shardway"
)

// Codes of the server for a login that is refused, or has too few rights.
const (
	codeUnauthorized         = 13
	codeAuthenticationFailed = 18
)

// fault gives an error of the driver its meaning. When the caller's context has
// ended, that is the error.
func fault(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, shardway.ErrNoStore):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case unavailable(err):
		return fmt.Errorf("%w: %w", shardway.ErrUnavailable, err)
	}
	return err
}

// unavailable reports whether the deployment did not answer or let us in.
func unavailable(err error) bool {
	if mongo.IsNetworkError(err) || mongo.IsTimeout(err) || errors.Is(err, mongo.ErrClientDisconnected) {
		return true
	}
	var labelled mongo.LabeledError
	if errors.As(err, &labelled) && labelled.HasErrorLabel("RetryableWriteError") { // no primary, or one that steps down
		return true
	}
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(codeUnauthorized) || server.HasErrorCode(codeAuthenticationFailed))
}
