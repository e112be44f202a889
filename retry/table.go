package retry

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/shardway/shardway"
)

// own are Shardway's errors. What led to them may say more: login refused is
// ErrUnavailable too, and permanent.
var own = [...]struct {
	name    string
	err     error
	verdict verdict
	meaning string
}{
	{"ErrUnavailable", shardway.ErrUnavailable, again, "a store or shard cannot be reached or does not let us in"},
	{"ErrStale", shardway.ErrStale, safe, "changed by somebody else: read or routed again"},
	{"ErrPoolExhausted", shardway.ErrPoolExhausted, later, "no connection was free in time"},
	{"ErrMappingOffline", shardway.ErrMappingOffline, offline, "the mapping is offline: maintenance, or a move"},
	{"retry.ErrCommitUnknown", ErrCommitUnknown, unknown, "what Do returns in doubt"},
}

// networkRow is a fault that no server reported.
type networkRow struct {
	name    string
	is      func(err error) bool // looks at err alone
	verdict verdict
	meaning string
}

// networkRows are tried in order; the first that fits counts.
var networkRows = [...]networkRow{
	{"context.Canceled", same(context.Canceled), cancelled, "the caller gave up"},
	{"context.DeadlineExceeded", same(context.DeadlineExceeded), expired, "the time of the caller, or of an adapter, is over"},
	{"*tls.CertificateVerificationError", isCertificate, never, "the server is not whom it should be"},
	{"dial, timed out", dialTimedOut, later, "nobody answered while connecting"},
	{"dial", isDial, safe, "nobody there while connecting"},
	{"*net.DNSError", isDNS, safe, "the server's name was not found"},
	{"ECONNREFUSED", same(syscall.ECONNREFUSED), safe, "nobody listens"},
	{"read or write, timed out", isTimeout, timedOut, "no answer in time"},
	{"read or write", isOperation, broken, "the network failed"},
	{"ECONNRESET", same(syscall.ECONNRESET), broken, "the other side has closed the connection"},
	{"ECONNABORTED", same(syscall.ECONNABORTED), broken, "this side has closed the connection"},
	{"EPIPE", same(syscall.EPIPE), broken, "written to a closed connection"},
	{"io.ErrUnexpectedEOF", same(io.ErrUnexpectedEOF), broken, "the connection ended within an answer"},
	{"net.ErrClosed", same(net.ErrClosed), broken, "the connection was closed meanwhile"},
	{`"invalid connection"`, text("invalid connection"), broken, "what go-sql-driver/mysql says of a connection that broke"},
	{`"commit unexpectedly resulted in rollback"`, text("commit unexpectedly resulted in rollback"), never, "what pgx says of a commit after a statement that failed"},
}

// network returns the verdict on err alone if it is a fault of the network or
// the end of a context.
func network(err error) (verdict, bool) {
	for i := range networkRows {
		if networkRows[i].is(err) {
			return networkRows[i].verdict, true
		}
	}
	return unmarked, false
}

func same(want error) func(error) bool {
	return func(err error) bool { return err == want } //nolint:errorlint // weigh walks the tree
}

// text matches an error of a driver that is a value without a type of its own:
// the whole text, of an error that wraps nothing.
func text(want string) func(error) bool {
	return func(err error) bool { return err.Error() == want && errors.Unwrap(err) == nil }
}

func isCertificate(err error) bool {
	_, ok := err.(*tls.CertificateVerificationError) //nolint:errorlint // weigh walks the tree
	return ok
}

func isDial(err error) bool {
	e, ok := err.(*net.OpError) //nolint:errorlint // weigh walks the tree
	return ok && e.Op == "dial"
}

func dialTimedOut(err error) bool { return isDial(err) && isTimeout(err) }

func isDNS(err error) bool {
	_, ok := err.(*net.DNSError) //nolint:errorlint // weigh walks the tree
	return ok
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error) //nolint:errorlint // weigh walks the tree
	return ok && e.Timeout()
}

func isOperation(err error) bool {
	_, ok := err.(*net.OpError) //nolint:errorlint // weigh walks the tree
	return ok
}
