package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardway/shardway"
)

// DefaultDrain is how long a change waits for those who use a mapping that it
// takes away, unless it is told otherwise.
const DefaultDrain = 5 * time.Second

// Drain says what becomes of those who use a mapping that a change takes from
// its shard: transactions that keep it where it is, holders, and sessions
// checked out for it. The zero value waits [DefaultDrain] for transactions and
// holders and then ends the sessions that are left.
//
// Only a change that takes a mapping away, or offline, ends sessions; see
// [LocalStep.Leaving]. One that replaces a mapping by others on the same shard
// waits as long as Limit says for transactions and holders, and is refused with
// [ErrMappingBusy] then.
type Drain struct {
	Mode DrainMode
	// Limit bounds the wait for transactions and holders. Zero: DefaultDrain.
	// Negative: refused. It means nothing with DrainAtOnce.
	Limit time.Duration
}

// DrainMode says how sessions are made to leave a mapping.
type DrainMode uint8

// The modes.
const (
	DrainThenEnd DrainMode = 0 // wait up to the limit, then end sessions
	DrainAtOnce  DrainMode = 1 // do not wait, end sessions
	DrainNobody  DrainMode = 2 // wait up to the limit, then give the change up: no session is ended
	// DrainPart is a part of a longer wait: who is in the way when the limit is
	// over is not ended, and the step is refused. When nobody is, it is as
	// DrainThenEnd.
	DrainPart DrainMode = 3
)

// Check returns an [shardway.ArgumentError] for a negative limit or an unknown mode.
func (d Drain) Check() error {
	if d.Limit < 0 {
		return &shardway.ArgumentError{Argument: "drain limit", Value: d.Limit.String(), Reason: "is negative"}
	}
	if d.Mode > DrainPart {
		return &shardway.ArgumentError{Argument: "drain mode", Value: fmt.Sprint(uint8(d.Mode)), Reason: "is not a drain mode"}
	}
	return nil
}

// Wait returns how long to wait before sessions are ended or the change is
// given up.
func (d Drain) Wait() time.Duration {
	if d.Mode == DrainAtOnce {
		return 0
	}
	return cmp.Or(d.Limit, DefaultDrain)
}

// Drained counts the sessions that a change has met.
type Drained struct {
	Waited int // sessions and prepared transactions that kept the change waiting, as far as they were seen
	Ended  int // sessions ended
	Left   int // sessions that were to be ended and are still there: the mapping has left all the same
}

// ErrMappingBusy is a change of a mapping that is in use: those who use it did
// not leave in time and were not to be ended, or could not be. Nothing has
// changed. A [BusyError] says more.
var ErrMappingBusy = errors.New("mapping is in use")

// BusyError says who uses a mapping. It matches [ErrMappingBusy].
type BusyError struct {
	Map      shardway.ShardMap
	Mappings []shardway.Mapping // those that the step was to remove
	Users    []string           // who is known to use them: "session 4711 of app"
	Reason   string             // why they could not be ended; empty if they were not to be
	Grants   []string           // rights, as the engine names them, of which one is missing; nil if none is
}

// Error names the mappings, who uses them, and what is missing to end them.
func (e *BusyError) Error() string {
	var b strings.Builder
	for i, m := range e.Mappings {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(e.Mappings)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(m.Format(e.Map.Kind))
	}
	text := fmt.Sprintf("%s of shard map %q: %v", b.String(), e.Map.Name, ErrMappingBusy)
	if len(e.Users) > 0 {
		text += " by " + strings.Join(e.Users, ", ")
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if len(e.Grants) > 0 {
		text += "; to end sessions of others takes the rights " + strings.Join(e.Grants, ", ")
	}
	return text
}

// Is reports whether target is [ErrMappingBusy].
func (e *BusyError) Is(target error) bool { return target == ErrMappingBusy }

// Taken returns the mappings whose rows the step removes: those of Remove, or
// those of Add when it is to be undone.
func (s *LocalStep) Taken() []shardway.Mapping {
	switch s.Want {
	case StepApplied:
		return s.Step.Remove
	case StepUndone:
		return s.Step.Add
	case StepSeen:
	}
	return nil
}

// Leaving returns the mappings that the shard gives up when the step is
// applied: those it removes that are online, and of whose keys not every one is
// in an online mapping that it adds. For a step that is to be undone it returns
// nil: what it added has not been visible to anybody.
func (s *LocalStep) Leaving() []shardway.Mapping {
	if s.Want != StepApplied {
		return nil
	}
	stay := slices.DeleteFunc(slices.Clone(s.Step.Add), func(m shardway.Mapping) bool { return m.Status != shardway.Online })
	slices.SortFunc(stay, func(a, b shardway.Mapping) int { return a.Range.Low.Compare(b.Range.Low) })
	var leaving []shardway.Mapping
	for _, m := range s.Step.Remove {
		if m.Status == shardway.Online && !covered(s.Map.Kind, m.Range, stay) {
			leaving = append(leaving, m)
		}
	}
	return leaving
}

// covered reports whether every key of a mapping is in one of others, which
// are in order and do not overlap.
func covered(kind shardway.MapKind, r shardway.Range, others []shardway.Mapping) bool {
	// i is the last one that begins at the low end or before it.
	i, exact := slices.BinarySearchFunc(others, r.Low, func(m shardway.Mapping, low shardway.Key) int { return m.Range.Low.Compare(low) })
	if kind == shardway.ListMap || exact {
		if !exact {
			return false
		}
	} else if i--; i < 0 {
		return false
	}
	if kind == shardway.ListMap {
		return true
	}
	for next := others[i].Range.Low; i < len(others); i++ {
		o := others[i].Range
		if next != o.Low {
			return false
		}
		if o.Open() || !r.Open() && o.High.Compare(r.High) >= 0 {
			return true
		}
		if next = o.High; next.Compare(r.Low) <= 0 {
			return false
		}
	}
	return false
}
