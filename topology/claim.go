package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrClosed is the error of every server once the Monitor has ended.
var ErrClosed = errors.New("topology monitor is closed")

// ConflictError says why a claim to be primary was refused.
type ConflictError struct {
	// Servers are the addresses concerned: first the refused, then the one that
	// spoke against it; or all claimants if nothing decides between them.
	Servers []string
	// Terms are the terms of Servers, in the same order.
	Terms []Term
	// Undecided is true if nothing decides: then no server takes writes.
	Undecided bool

	reason string
}

// Error names the servers and their terms.
func (e *ConflictError) Error() string {
	claims := make([]string, len(e.Servers))
	for i, server := range e.Servers {
		claims[i] = fmt.Sprintf("%s (term %s)", server, e.Terms[i])
	}
	if e.Undecided {
		return strings.Join(claims, " and ") + " all claim to be primary and nothing decides: writes are refused"
	}
	return fmt.Sprintf("claim of %s to be primary is refused: %s %s", claims[0], claims[1], e.reason)
}

// compareClaims derives each server's Role and Err from what it said of
// itself, and the set's primary. It depends on claims and on what this process
// has seen before, never on the order of the servers.
func (d *description) compareClaims() {
	d.primary, d.conflict = -1, nil
	for i := range d.servers {
		s := &d.servers[i]
		s.Role, s.Err = s.Claimed, s.seenErr
		if s.Role.Available() && s.Term.Compare(d.newest) > 0 {
			d.newest, d.newestBy = s.Term, s.Address
		}
	}
	if !d.config.Kind.replicaSet() {
		return
	}
	claimants := d.currentClaimants()
	claimants = d.dropFollowers(claimants)
	switch {
	case len(claimants) == 1:
		d.accept(claimants[0])
	case len(claimants) > 1:
		d.refuseAll(claimants)
	}
	for i := range d.servers {
		s := &d.servers[i]
		if s.wasPrimary && i != d.primary && (s.Role.Available() || d.primary >= 0 || s.Claimed == RolePrimary) {
			s.wasPrimary = false
			s.Demotions++
		}
	}
}

// currentClaimants returns the servers that claim to be primary in the newest
// term this process has seen, and refuses the others. A server that reported
// that term itself keeps its claim while it cannot tell its term.
func (d *description) currentClaimants() []int {
	var claimants []int
	for i := range d.servers {
		s := &d.servers[i]
		if s.Claimed != RolePrimary {
			continue
		}
		current := s.Term.Compare(d.newest) == 0 || (!s.Term.Known() && s.Address == d.newestBy)
		if current {
			claimants = append(claimants, i)
			continue
		}
		d.refuse(i, d.newestBy, d.newest, "reported a newer term")
	}
	return claimants
}

// dropFollowers refuses claimants that follow another server of the set: being
// writable alone is no proof of being primary. Two servers may follow each
// other; then the one that calls itself secondary speaks for the claim. While
// the followed server is silent, only the last accepted primary keeps its claim.
func (d *description) dropFollowers(claimants []int) []int {
	var kept []int
	for _, i := range claimants {
		s := &d.servers[i]
		up := d.find(s.Upstream)
		if s.Upstream == "" || up < 0 || up == i {
			kept = append(kept, i)
			continue
		}
		followed := &d.servers[up]
		switch {
		case slices.Contains(claimants, up) && followed.Upstream != s.Address:
			d.refuse(i, followed.Address, followed.Term, "is the server it follows")
		case !followed.Claimed.Available() && d.sitting != "" && d.sitting != s.Address:
			d.refuse(i, followed.Address, followed.Term, "is the server it follows and does not answer")
		default:
			kept = append(kept, i)
		}
	}
	return kept
}

func (d *description) accept(i int) {
	s := &d.servers[i]
	d.primary, d.sitting = i, s.Address
	s.wasPrimary = true
}

func (d *description) refuse(i int, against string, term Term, reason string) {
	s := &d.servers[i]
	conflict := &ConflictError{Servers: []string{s.Address, against}, Terms: []Term{s.Term, term}, reason: reason}
	s.Role, s.Err = RoleUnknown, conflict
	if d.conflict == nil {
		d.conflict = conflict
	}
}

func (d *description) refuseAll(claimants []int) {
	conflict := &ConflictError{Undecided: true}
	for _, i := range claimants {
		conflict.Servers = append(conflict.Servers, d.servers[i].Address)
		conflict.Terms = append(conflict.Terms, d.servers[i].Term)
	}
	for _, i := range claimants {
		d.servers[i].Role, d.servers[i].Err = RoleUnknown, conflict
	}
	d.conflict = conflict
}
