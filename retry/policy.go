package retry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/shardway/shardway"
)

// Schedule says how pauses between attempts grow.
type Schedule int

// The schedules. n is 0 before the second attempt, 1 before the third.
const (
	Exponential Schedule = iota // min(Initial + (2^n − 1) × random(0.8…1.2) × Step, Max)
	Incremental                 // Initial + n × Step
	Fixed                       // Initial
	Off                         // no second attempt
)

// Backoff is how long to wait before an attempt is repeated. The zero value is
// exponential from 1 s to 30 s. Formulas and defaults are those of the Elastic
// Database client library.
type Backoff struct {
	// Schedule is Exponential by default; Off turns repeating off.
	Schedule Schedule
	// Initial is the shortest pause. Zero means 1 s.
	Initial time.Duration
	// Step is what pauses grow by. Zero means 10 s if exponential, else 1 s.
	Step time.Duration
	// Max is the longest pause. Zero means 30 s if exponential, else no bound.
	Max time.Duration
	// WaitFirst has the second attempt wait too. By default it follows the first
	// at once, unless the class of the error asks for a pause.
	WaitFirst bool
}

// Policy says when and how often a unit of work is repeated. The zero value
// makes up to 11 attempts with pauses of the zero [Backoff]. A Policy is a
// value: copy it to change Applied or Shard for one call.
type Policy struct {
	// Backoff is how long to wait.
	Backoff Backoff
	// MaxAttempts bounds the attempts, the first one included. Zero means 11, or
	// no bound if MaxElapsed is set; negative means no bound, which needs
	// MaxElapsed or a context with a deadline.
	MaxAttempts int
	// MaxElapsed bounds the time of all attempts and pauses: then the context of
	// the running attempt ends too. Zero means no bound.
	MaxElapsed time.Duration
	// AttemptTimeout bounds each attempt anew. Zero means no bound.
	AttemptTimeout time.Duration
	// WaitOffline repeats units whose mapping is offline, with a pause, until it
	// is online again.
	WaitOffline bool
	// Transient is asked about errors of class Permanent: true makes them
	// Transient. The unit must then have left nothing behind.
	Transient func(err error) bool
	// Applied is asked, after a commit with unknown outcome, whether the unit's
	// work was kept; if not, the unit is repeated. It should look in a way that
	// a commit still under way cannot slip past, such as inserting the row with
	// the unit's unique id. Without it such a unit is not repeated. For units
	// that may be done twice, see [Idempotent].
	Applied func(ctx context.Context) (bool, error)
	// OnAttempt is called after each attempt, before the pause; the time it
	// takes is lost, and its panics are ignored.
	OnAttempt func(Attempt)
	// Budget bounds the load of repeating. Nil means no bound.
	Budget *Budget
	// Shard names the shard in Budget: any comparable value. Nil names one too.
	Shard any
}

// Idempotent is a [Policy.Applied] for units that may be done twice without
// harm, such as reading: they are repeated whenever the outcome is unknown.
func Idempotent(context.Context) (bool, error) { return false, nil }

// defaultAttempts are those of the Elastic Database client library: 10 retries.
const defaultAttempts = 11

// check refuses policies that cannot be meant.
func (p *Policy) check(ctx context.Context) error {
	b := &p.Backoff
	_, ends := ctx.Deadline()
	var bad error
	refuse := func(argument, value, reason string) {
		bad = errors.Join(bad, &shardway.ArgumentError{Argument: argument, Value: value, Reason: reason})
	}
	if b.Schedule < Exponential || b.Schedule > Off {
		refuse("retry.Backoff.Schedule", fmt.Sprint(int(b.Schedule)), "is no schedule")
	}
	for _, d := range [...]struct {
		name   string
		length time.Duration
	}{
		{"Backoff.Initial", b.Initial},
		{"Backoff.Step", b.Step},
		{"Backoff.Max", b.Max},
		{"Policy.MaxElapsed", p.MaxElapsed},
		{"Policy.AttemptTimeout", p.AttemptTimeout},
	} {
		if d.length < 0 {
			refuse("retry."+d.name, d.length.String(), "is negative")
		}
	}
	if p.MaxAttempts < 0 && p.MaxElapsed == 0 && !ends && b.Schedule != Off {
		refuse("retry.Policy", "", "has no end: set MaxAttempts or MaxElapsed, or a deadline of the context")
	}
	if p.Shard != nil && !reflect.ValueOf(p.Shard).Comparable() {
		refuse("retry.Policy.Shard", fmt.Sprintf("%T", p.Shard), "cannot be compared")
	}
	return bad
}

// withDefaults fills in what zero means.
func (p Policy) withDefaults() Policy {
	b := &p.Backoff
	if b.Initial == 0 {
		b.Initial = time.Second
	}
	if b.Step == 0 {
		b.Step = time.Second
		if b.Schedule == Exponential {
			b.Step = 10 * time.Second
		}
	}
	if b.Max == 0 {
		b.Max = math.MaxInt64
		if b.Schedule == Exponential {
			b.Max = 30 * time.Second
		}
	}
	switch {
	case b.Schedule == Off:
		p.MaxAttempts = 1
	case p.MaxAttempts < 0, p.MaxAttempts == 0 && p.MaxElapsed > 0:
		p.MaxAttempts = 0
	case p.MaxAttempts == 0:
		p.MaxAttempts = defaultAttempts
	}
	return p
}

// pause returns the n-th pause, counted from 0. Defaults are filled in.
func (b *Backoff) pause(n int) time.Duration {
	length := float64(b.Initial)
	switch b.Schedule {
	case Exponential:
		length += (math.Exp2(float64(n)) - 1) * (0.8 + 0.4*rand.Float64()) * float64(b.Step)
	case Incremental:
		length += float64(n) * float64(b.Step)
	case Fixed, Off:
	}
	if length >= float64(b.Max) {
		return b.Max
	}
	return time.Duration(length)
}
