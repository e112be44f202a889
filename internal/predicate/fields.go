package predicate

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// kind is that of a value.
type kind uint8

const (
	boolean kind = iota
	text
	number
	duration // a number of milliseconds
	tagSet
	list
)

// String completes "it is …".
func (k kind) String() string {
	return [...]string{"true or false", "a text", "a number", "a time", "the tags", "a list"}[k]
}

// value is a part of a rule. Of the functions it has the one of its kind.
type value struct {
	kind     kind
	truth    func(*selection.ServerInfo) bool
	text     func(*selection.ServerInfo) string
	number   func(*selection.ServerInfo) float64
	constant any      // string, float64 or bool if the value is the same for every server
	domain   []string // all texts that it can be; nil means any
	lower    bool     // the text is in lower case
	items    []value  // of a list
}

func textOf(f func(*selection.ServerInfo) string) value { return value{kind: text, text: f} }

func numberOf(f func(*selection.ServerInfo) float64) value { return value{kind: number, number: f} }

func durationOf(f func(*selection.ServerInfo) topology.Measurement) value {
	return value{kind: duration, number: func(s *selection.ServerInfo) float64 {
		d, known := f(s).Value()
		if !known {
			return math.Inf(1)
		}
		return milliseconds(d)
	}}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// fields are the names that a rule may use.
var fields = func() map[string]value {
	role := textOf(func(s *selection.ServerInfo) string { return s.Role.String() })
	for r := topology.RoleUnknown; r <= topology.RolePossiblePrimary; r++ {
		role.domain = append(role.domain, r.String())
	}
	set := textOf(func(s *selection.ServerInfo) string { return s.Kind.String() })
	for k := topology.KindUnknown; k <= topology.KindLoadBalanced; k++ {
		set.domain = append(set.domain, k.String())
	}
	address := textOf(func(s *selection.ServerInfo) string { return s.Address })
	host := textOf(func(s *selection.ServerInfo) string { return s.Host })
	// Paths of sockets keep their case, so only constants that are no paths are lowered.
	address.lower, host.lower = true, true
	return map[string]value{
		"address": address, "host": host, "role": role, "type": role, "kind": set,
		"tags": {kind: tagSet},
		"port": numberOf(func(s *selection.ServerInfo) float64 { return float64(s.Port) }),
		"rtt":  durationOf(func(s *selection.ServerInfo) topology.Measurement { return s.AverageRTT }),
		"staleness": durationOf(func(s *selection.ServerInfo) topology.Measurement {
			if s.Role != topology.RoleSecondary {
				return topology.Measured(0)
			}
			return s.Staleness
		}),
		"inFlight":       numberOf(func(s *selection.ServerInfo) float64 { return float64(s.InFlight()) }),
		"engine":         textOf(func(s *selection.ServerInfo) string { return s.Engine }),
		"version":        textOf(func(s *selection.ServerInfo) string { return s.Version }),
		"setName":        textOf(func(s *selection.ServerInfo) string { return s.SetName }),
		"setVersion":     numberOf(func(s *selection.ServerInfo) float64 { return float64(s.SetVersion) }),
		"minWireVersion": numberOf(func(s *selection.ServerInfo) float64 { return float64(s.MinWireVersion) }),
		"maxWireVersion": numberOf(func(s *selection.ServerInfo) float64 { return float64(s.MaxWireVersion) }),
		"upstream":       textOf(func(s *selection.ServerInfo) string { return s.Upstream }),
		"detached":       {kind: boolean, truth: func(s *selection.ServerInfo) bool { return s.Detached }},
		"error": textOf(func(s *selection.ServerInfo) string {
			if s.Err == nil {
				return ""
			}
			return s.Err.Error()
		}),
	}
}()

// Fields returns the names that a rule may use, in order.
func Fields() []string { return slices.Sorted(maps.Keys(fields)) }

func known() string { return strings.Join(Fields(), ", ") }

// tag is the text of a tag, or "".
func tag(name string) value {
	return textOf(func(s *selection.ServerInfo) string {
		v, _ := s.Tags.Get(name)
		return v
	})
}
