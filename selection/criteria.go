package selection

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime"
	"strings"
	"time"
	"unique"

	"github.com/shardway/shardway/topology"
)

// Mode says which roles a read prefers. The zero value is ModePrimary.
type Mode uint8

// The modes are MongoDB's.
const (
	// ModePrimary reads from the primary only.
	ModePrimary Mode = iota
	// ModePrimaryPreferred reads from the primary, or else from a secondary.
	ModePrimaryPreferred
	// ModeSecondary reads from secondaries only.
	ModeSecondary
	// ModeSecondaryPreferred reads from a secondary, or else from the primary.
	ModeSecondaryPreferred
	// ModeNearest reads from any of them.
	ModeNearest
)

var modeNames = [...]string{"primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"}

// String returns the mode's name as ParseMode reads it.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode reads a mode's name, in any case. The error is an *InvalidError.
func ParseMode(name string) (Mode, error) {
	for i, known := range modeNames {
		if strings.EqualFold(name, known) {
			return Mode(i), nil
		}
	}
	return 0, &InvalidError{Field: "Mode", Reason: fmt.Sprintf("%q is not one of %s", name, strings.Join(modeNames[:], ", "))}
}

// ServerInfo is what a predicate sees of a server.
type ServerInfo struct {
	topology.Server
	// Kind is that of the server's set.
	Kind topology.Kind
}

// ReadPreference chooses by role, staleness and tags. The zero value is mode
// primary.
type ReadPreference struct {
	// Mode says which roles to read from.
	Mode Mode
	// TagSets are tried in order; the first that fits any server decides. An
	// empty set fits every server; no sets at all filter nothing.
	TagSets []Tags
	// MaxStaleness is the greatest lag of a secondary; 0 means no limit. MongoDB
	// replica sets need at least 90 s, and the heartbeat plus 10 s.
	MaxStaleness time.Duration
}

// Criteria say which servers an operation may use: a read preference or a
// predicate, never both. The zero value is the primary. Criteria are immutable;
// built badly they carry an error, which every selection returns at once.
type Criteria struct{ rule *rule }

type rule struct {
	mode          Mode
	tagSets       [][]topology.TagHandle
	maxStaleness  time.Duration
	staleness     bool // maxStaleness was given, maybe as 0
	predicate     func(ServerInfo) bool
	name          string
	prefer        func(ServerInfo) bool
	preferName    string
	zone          topology.TagHandle
	zoned         bool // zone was given
	weights       map[string]float64
	allowDetached bool
	err           error
	plain         bool   // valid, and the same servers suit it as long as a description lasts
	slot          uint32 // of its latency window in a description
}

var primaryRule = &rule{plain: true}

func (c Criteria) get() *rule {
	if c.rule == nil {
		return primaryRule
	}
	return c.rule
}

// NewCriteria builds Criteria of a read preference or a predicate, exactly one
// of them not nil. Every error is an *InvalidError.
func NewCriteria(preference *ReadPreference, predicate func(ServerInfo) bool, constraints ...Constraint) (Criteria, error) {
	switch {
	case preference == nil && predicate == nil:
		return refused(&InvalidError{Field: "Criteria", Reason: "neither a read preference nor a predicate is given"})
	case preference != nil && predicate != nil:
		return refused(&InvalidError{Field: "Criteria", Reason: "both a read preference and a predicate are given; a predicate replaces mode, tags and staleness"})
	}
	r := &rule{predicate: predicate}
	if predicate != nil {
		r.name = functionName(predicate)
	} else if err := r.takePreference(*preference); err != nil {
		return refused(err)
	}
	for _, constraint := range constraints {
		if constraint == nil {
			return refused(&InvalidError{Field: "Criteria", Reason: "a constraint is nil"})
		}
		if err := constraint.constrain(r); err != nil {
			return refused(err)
		}
	}
	if err := r.validate(); err != nil {
		return refused(err)
	}
	r.plain = r.predicate == nil && r.prefer == nil && !r.zoned && r.weights == nil
	r.slot = nextSlot.Add(1) % topology.MemoSlots
	return Criteria{rule: r}, nil
}

// refused returns Criteria that carry their error, so that using them without
// looking selects nothing by accident.
func refused(err error) (Criteria, error) { return Criteria{rule: &rule{err: err}}, err }

// Primary reads from the primary only, like the zero Criteria.
func Primary() Criteria { return Criteria{} }

// PrimaryPreferred reads from the primary, or else from a secondary that fits.
func PrimaryPreferred(constraints ...Constraint) Criteria {
	return preferring(ModePrimaryPreferred, constraints)
}

// Secondary reads from a secondary that fits, never from the primary.
func Secondary(constraints ...Constraint) Criteria {
	return preferring(ModeSecondary, constraints)
}

// SecondaryPreferred reads from a secondary that fits, or else from the primary.
func SecondaryPreferred(constraints ...Constraint) Criteria {
	return preferring(ModeSecondaryPreferred, constraints)
}

// Nearest reads from the primary or a secondary that fits, whichever is in the
// latency window.
func Nearest(constraints ...Constraint) Criteria {
	return preferring(ModeNearest, constraints)
}

// Where reads from the servers a predicate accepts. It replaces mode, tags and
// staleness, never the latency window, and is asked about servers that answer
// only. It must be fast, safe for concurrent use, and may not keep locks: a
// blocked predicate blocks its own selection only. A panic becomes a
// *PredicateError. Tags and MaxStaleness are refused here.
func Where(predicate func(ServerInfo) bool, constraints ...Constraint) Criteria {
	criteria, _ := NewCriteria(nil, predicate, constraints...) // the error travels in criteria
	return criteria
}

func preferring(mode Mode, constraints []Constraint) Criteria {
	criteria, _ := NewCriteria(&ReadPreference{Mode: mode}, nil, constraints...) // the error travels in criteria
	return criteria
}

// Err returns why the criteria were refused when they were built, or nil.
func (c Criteria) Err() error { return c.get().err }

// Predicate reports whether the criteria are a predicate.
func (c Criteria) Predicate() bool { return c.get().predicate != nil }

// Mode returns the mode of a read preference; it means nothing for a predicate.
func (c Criteria) Mode() Mode { return c.get().mode }

// ReadPreference returns the read preference of valid criteria, and false for a
// predicate or for criteria that carry an error. Its MaxStaleness is 0 if no
// limit was given.
func (c Criteria) ReadPreference() (ReadPreference, bool) {
	r := c.get()
	if r.err != nil || r.predicate != nil {
		return ReadPreference{}, false
	}
	p := ReadPreference{Mode: r.mode, MaxStaleness: r.maxStaleness}
	for _, set := range r.tagSets {
		tags := make(Tags, len(set))
		for _, tag := range set {
			tags[tag.Value().Key] = tag.Value().Value
		}
		p.TagSets = append(p.TagSets, tags)
	}
	return p, true
}

// String describes the criteria for people.
func (c Criteria) String() string {
	r := c.get()
	if r.err != nil {
		return "invalid criteria"
	}
	parts := []string{r.mode.String()}
	if r.predicate != nil {
		parts[0] = "predicate " + r.name
	}
	for _, set := range r.tagSets {
		parts = append(parts, "tags "+tagText(set))
	}
	if r.staleness && r.maxStaleness > 0 {
		parts = append(parts, fmt.Sprintf("max staleness %v", r.maxStaleness))
	}
	if r.prefer != nil {
		parts = append(parts, "prefer "+r.preferName)
	}
	if r.zoned {
		parts = append(parts, "zone "+r.zone.Value().Key+"="+r.zone.Value().Value)
	}
	if r.weights != nil {
		parts = append(parts, "weights")
	}
	return strings.Join(parts, ", ")
}

func tagText(set []topology.TagHandle) string {
	labels := make([]string, len(set))
	for i, tag := range set {
		labels[i] = tag.Value().Key + "=" + tag.Value().Value
	}
	return "{" + strings.Join(labels, ",") + "}"
}

func (r *rule) takePreference(p ReadPreference) error {
	if int(p.Mode) >= len(modeNames) {
		return &InvalidError{Field: "Mode", Reason: fmt.Sprintf("%v is unknown", p.Mode)}
	}
	r.mode = p.Mode
	for _, tags := range p.TagSets {
		if err := tags.constrain(r); err != nil {
			return err
		}
	}
	if p.MaxStaleness != 0 {
		return MaxStaleness(p.MaxStaleness).constrain(r)
	}
	return nil
}

func (r *rule) validate() error {
	if r.predicate == nil && r.mode == ModePrimary {
		for _, set := range r.tagSets {
			if len(set) > 0 {
				return &InvalidError{Field: "Tags", Reason: "mode primary takes no tags"}
			}
		}
		if r.maxStaleness > 0 {
			return &InvalidError{Field: "MaxStaleness", Reason: "mode primary takes no max staleness"}
		}
	}
	if r.zoned && r.weights != nil {
		return &InvalidError{Field: "Weights", Reason: "a zone already balances; give one of them"}
	}
	return nil
}

// Constraint narrows or orders the servers of Criteria: Tags, MaxStaleness,
// Prefer, Zone, Weights or AllowDetached.
type Constraint interface{ constrain(*rule) error }

// Tags are one tag set: a server fits if it has all of them. Several are tried
// in the order given.
type Tags map[string]string

func (t Tags) constrain(r *rule) error {
	if r.predicate != nil {
		return &InvalidError{Field: "Tags", Reason: "a predicate replaces tags; ask for them inside it"}
	}
	set := make([]topology.TagHandle, 0, len(t))
	for key, value := range topology.NewTags(t).All() {
		if key == "" {
			return &InvalidError{Field: "Tags", Reason: "a tag has no name"}
		}
		set = append(set, unique.Make(topology.Tag{Key: key, Value: value}))
	}
	r.tagSets = append(r.tagSets, set)
	return nil
}

// MaxStaleness is the greatest lag of a secondary; unknown lag is above every
// limit. 0 means no limit; MongoDB replica sets refuse 0 and all else below
// 90 s or below the heartbeat plus 10 s, as they only estimate. A measured lag
// may be one heartbeat old.
type MaxStaleness time.Duration

func (m MaxStaleness) constrain(r *rule) error {
	switch {
	case r.predicate != nil:
		return &InvalidError{Field: "MaxStaleness", Reason: "a predicate replaces max staleness; ask for it inside it"}
	case m < 0:
		return &InvalidError{Field: "MaxStaleness", Reason: fmt.Sprintf("%v is negative; the minimum is 0, which means no limit", time.Duration(m))}
	case r.staleness:
		return &InvalidError{Field: "MaxStaleness", Reason: "it is given twice"}
	}
	r.maxStaleness, r.staleness = time.Duration(m), true
	return nil
}

// Prefer narrows the suitable servers to those a predicate accepts, unless it
// accepts none. The rules of Where's predicate hold.
type Prefer func(ServerInfo) bool

func (p Prefer) constrain(r *rule) error {
	if p == nil {
		return &InvalidError{Field: "Prefer", Reason: "the predicate is nil"}
	}
	if r.prefer != nil {
		return &InvalidError{Field: "Prefer", Reason: "it is given twice"}
	}
	r.prefer, r.preferName = p, functionName(p)
	return nil
}

// Zone stays with the servers that have a tag, such as zone=eu-1a, as long as
// none of them gets more than 1.15 times the mean of the latency window's
// servers; the rest goes to the others. So a zone with few servers is not
// crushed by the clients next to it. Only this process's choices are counted.
type Zone struct {
	// Tag and Value are the label of the near servers.
	Tag, Value string
}

func (z Zone) constrain(r *rule) error {
	if z.Tag == "" {
		return &InvalidError{Field: "Zone", Reason: "the tag has no name"}
	}
	r.zone, r.zoned = unique.Make(topology.Tag{Key: z.Tag, Value: z.Value}), true
	return nil
}

// Weights set a server's share of the random choice, by address; 1 if not
// listed. A server of weight 0 is chosen only if all have weight 0.
type Weights map[string]float64

func (w Weights) constrain(r *rule) error {
	for address, weight := range w {
		if weight < 0 || math.IsNaN(weight) || math.IsInf(weight, 0) {
			return &InvalidError{Field: "Weights", Reason: fmt.Sprintf("weight %v of server %s is not a number of at least 0", weight, address)}
		}
	}
	r.weights = maps.Clone(w)
	return nil
}

// AllowDetached also admits secondaries that follow nobody, whose data stands
// still. A max staleness still drops them if their lag is unknown.
type AllowDetached bool

func (a AllowDetached) constrain(r *rule) error {
	r.allowDetached = bool(a)
	return nil
}

// functionName names a predicate in errors, as "package.function".
func functionName(f func(ServerInfo) bool) string {
	if fn := runtime.FuncForPC(reflect.ValueOf(f).Pointer()); fn != nil {
		name := fn.Name()
		return name[strings.LastIndexByte(name, '/')+1:]
	}
	return "func"
}
