package selection

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/shardway/shardway/topology"
)

// Step is a stage of the selection, in the order they are taken.
type Step uint8

// The steps. A server has the step that dropped it, or one of the last two.
const (
	// StepDeprioritized: it failed this unit of work before.
	StepDeprioritized Step = iota + 1
	// StepUnknown: it does not answer, or its claim to be primary is refused.
	StepUnknown
	// StepRole: its role does not suit the operation or the mode.
	StepRole
	// StepDetached: it follows nobody.
	StepDetached
	// StepPredicate: the predicate refused it.
	StepPredicate
	// StepStaleness: it is too far behind, or how far is unknown.
	StepStaleness
	// StepTags: it lacks the tags of the deciding tag set.
	StepTags
	// StepPrefer: others are preferred.
	StepPrefer
	// StepWindow: it suits, but is outside the latency window.
	StepWindow
	// StepInWindow: it could have been chosen.
	StepInWindow
	// StepChosen: it was chosen.
	StepChosen
)

var stepNames = [...]string{
	"", "deprioritized", "unknown", "role", "detached", "predicate", "staleness",
	"tags", "not preferred", "latency window", "in window", "chosen",
}

// String returns the step's name.
func (s Step) String() string {
	if int(s) < len(stepNames) {
		return stepNames[s]
	}
	return fmt.Sprintf("Step(%d)", uint8(s))
}

// Verdict says what became of one server.
type Verdict struct {
	// Server is its description.
	Server topology.Server
	// InFlight is its number of operations when the selection was made.
	InFlight int64
	// Step dropped it, or says that it was in the window or chosen.
	Step Step
	// Detail says why, with the numbers compared; it may be empty.
	Detail string
}

// Suitable reports whether the server passed every step before the window.
func (v Verdict) Suitable() bool { return v.Step >= StepWindow }

// InWindow reports whether the server could have been chosen.
func (v Verdict) InWindow() bool { return v.Step >= StepInWindow }

// Explanation says what became of every server of a set.
type Explanation struct {
	// Kind is the set's.
	Kind topology.Kind
	// Operation and Criteria are the request's.
	Operation Operation
	// Criteria is their text.
	Criteria string
	// LocalThreshold is the width of the latency window; FastestOnly shows as 0.
	LocalThreshold time.Duration
	// Fallback is true if the deprioritized servers had to be considered after
	// all, because no other suits.
	Fallback bool
	// Servers has one Verdict per server, in the set's order.
	Servers []Verdict
	// Conflict is the set's conflict between claims to be primary, or nil.
	Conflict error
	// Final says why waiting cannot help; empty if it can.
	Final string
}

// Chosen returns the chosen server's Verdict, and whether there is one.
func (e Explanation) Chosen() (Verdict, bool) {
	for _, verdict := range e.Servers {
		if verdict.Step == StepChosen {
			return verdict, true
		}
	}
	return Verdict{}, false
}

// String has one line per server: address, role, round trip, step and detail.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, window %v\n", e.Operation, e.Criteria, e.LocalThreshold)
	for _, v := range e.Servers {
		fmt.Fprintf(&b, "%s %s rtt %s in flight %d: %s", v.Server.Address, v.Server.Role, v.Server.AverageRTT, v.InFlight, v.Step)
		if v.Detail != "" {
			b.WriteString(" (" + v.Detail + ")")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// group lists the servers by reason in at most limit bytes, if that is not 0.
func (e Explanation) group(maxDetail, limit int) string {
	var reasons []string
	members := make(map[string][]string) // reason → addresses
	for _, v := range e.Servers {
		reason := v.Step.String()
		if detail := shorten(v.Detail, maxDetail); detail != "" {
			reason += " (" + detail + ")"
		}
		if members[reason] == nil {
			reasons = append(reasons, reason)
		}
		members[reason] = append(members[reason], v.Server.Address)
	}
	var b strings.Builder
	left := len(e.Servers)
	for _, reason := range reasons {
		for i, address := range members[reason] {
			item := ", " + address
			if i == 0 {
				item = "; " + reason + ": " + address
			}
			if limit > 0 && b.Len()+len(item) > limit {
				fmt.Fprintf(&b, "; and %d more", left)
				return b.String()
			}
			b.WriteString(item)
			left--
		}
	}
	return b.String()
}

func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	if limit == 0 {
		return ""
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// trace follows a search and remembers for each server the step that dropped it.
type trace struct {
	left     []uint64 // bitmap of the servers not dropped yet
	steps    []Step   // by server
	fallback bool
}

// restart forgets all steps: a search begins with all n servers.
func (t *trace) restart(n int) {
	if t == nil {
		return
	}
	t.steps = make([]Step, n)
	t.left = make([]uint64, (n+63)/64)
	for i := range n {
		t.left[i/64] |= 1 << (i % 64)
	}
}

// dropped notes that the servers no longer among the candidates went in a step.
func (t *trace) dropped(step Step, candidates []uint64) {
	if t != nil {
		t.note(step, candidates)
	}
}

func (t *trace) note(step Step, candidates []uint64) {
	for w := range t.left {
		for gone := t.left[w] &^ candidates[w]; gone != 0; gone &= gone - 1 {
			t.steps[w*64+bits.TrailingZeros64(gone)] = step
		}
		t.left[w] &= candidates[w]
	}
}

// adopt takes candidates back that another branch of the search had dropped.
func (t *trace) adopt(candidates []uint64) {
	if t != nil {
		copy(t.left, candidates)
	}
}

// explanation turns the steps into verdicts; winner is -1 if there is none.
func (q *query) explanation(t *trace, winner int) Explanation {
	e := Explanation{
		Kind:           q.ix.Kind,
		Operation:      q.operation,
		Criteria:       Criteria{rule: q.rule}.String(),
		LocalThreshold: q.width(),
		Fallback:       t.fallback,
		Servers:        make([]Verdict, q.set.Len()),
		Conflict:       q.set.Conflict(),
		Final:          q.final(),
	}
	if q.operation == Write {
		e.Criteria = "writable servers"
	}
	fastest := int64(topology.NoValue)
	for i, step := range t.steps {
		if step == 0 || step == StepWindow {
			fastest = min(fastest, q.ix.RTT[i])
		}
	}
	for i := range e.Servers {
		server := q.set.Server(i)
		step := t.steps[i]
		switch {
		case i == winner:
			step = StepChosen
		case step == 0:
			step = StepInWindow
		case step == StepRole && !server.Role.Available():
			step = StepUnknown
		}
		e.Servers[i] = Verdict{Server: server, InFlight: server.InFlight(), Step: step, Detail: q.detail(step, &server, fastest)}
	}
	return e
}

func (q *query) detail(step Step, s *topology.Server, fastest int64) string {
	switch step {
	case StepUnknown:
		if s.Err != nil {
			return s.Err.Error()
		}
		return "not checked yet"
	case StepRole:
		return s.Role.String()
	case StepDetached:
		return "not replicating"
	case StepPredicate:
		return q.rule.name
	case StepPrefer:
		return q.rule.preferName
	case StepStaleness:
		return fmt.Sprintf("%s, limit %v", s.Staleness, q.rule.maxStaleness)
	case StepTags:
		if s.Tags.Len() == 0 {
			return "no tags"
		}
		return s.Tags.String()
	case StepWindow:
		if !s.AverageRTT.Known() {
			return "no round trip measured"
		}
		return fmt.Sprintf("%s, limit %v", s.AverageRTT, topology.Measured(time.Duration(fastest)+q.width()))
	}
	return ""
}

// Explain says what a Select of the same request would do. It counts no
// operation; the random choice is its own. Invalid requests and panicking
// predicates are errors; a set without a suitable server is not.
func Explain(set topology.Set, request Request) (Explanation, error) {
	q := newQuery(set, &request)
	if err := q.check(); err != nil {
		return Explanation{}, err
	}
	_, explanation, err := q.explain()
	return explanation, err
}

// SelectExplained is Select with the Explanation of this very choice. It
// allocates.
func SelectExplained(set topology.Set, request Request) (Choice, Explanation, error) {
	q := newQuery(set, &request)
	if err := q.check(); err != nil {
		return Choice{}, Explanation{}, err
	}
	winner, explanation, err := q.explain()
	switch {
	case err != nil:
		return Choice{}, Explanation{}, err
	case winner < 0:
		return Choice{}, explanation, &Error{Explanation: explanation}
	}
	return q.begin(winner), explanation, nil
}

// explain runs the search with a trace.
func (q *query) explain() (int, Explanation, error) {
	t := new(trace)
	t.restart(q.set.Len())
	words := len(q.ix.Available)
	scratch := make([]uint64, 2*words)
	winner, err := q.search(scratch[:words], scratch[words:], t)
	if err != nil {
		return -1, Explanation{}, err
	}
	return winner, q.explanation(t, winner), nil
}
