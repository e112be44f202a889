package topology

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// maxTold bounds what is kept of one server's word, which anybody who may
// register with it can lengthen.
const maxTold = 32

// Told returns the addresses of other servers that this one tells of, beside
// Upstream: canonical, sorted, distinct, at most 32, as a copy. They are hearsay:
// nothing connects to them or selects them.
func (s Server) Told() []string { return slices.Clone(s.told) }

// Unlisted is an address that servers tell of and that is not among them.
type Unlisted struct {
	// Address is canonical text.
	Address string
	// ToldBy are the addresses of those that tell of it, in their order.
	ToldBy []string
}

// FindUnlisted returns what the servers tell, as Upstream or by Told, that is
// not one of them, sorted by address. Another spelling of a listed address is
// known as such where the text alone shows it: capitals, a final dot, an IPv4
// address written as IPv6, the names of the loopback. Names are not resolved. A
// loopback address is believed of a server that is itself listed by one; from
// any other, as a socket or an address of a zone, it means that server's own
// machine and is left out. It is pure.
func FindUnlisted(servers []Server) []Unlisted {
	listed := make(map[Address]bool, len(servers))
	for i := range servers {
		listed[servers[i].place()] = true
	}
	found := make(map[Address]*Unlisted)
	for i := range servers {
		s := &servers[i]
		for _, text := range append([]string{s.Upstream}, s.told...) {
			place, ok := s.means(text)
			if !ok || listed[place] {
				continue
			}
			u := found[place]
			if u == nil {
				u = &Unlisted{Address: text}
				found[place] = u
			}
			u.Address = min(u.Address, text)
			if !slices.Contains(u.ToldBy, s.Address) {
				u.ToldBy = append(u.ToldBy, s.Address)
			}
		}
	}
	all := make([]Unlisted, 0, len(found))
	for _, u := range found {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Unlisted) int { return cmp.Compare(a.Address, b.Address) })
	return all
}

// canonical returns the texts of told that are plain addresses, in the form that
// Told promises.
func canonical(told []string) []string {
	var kept []string
	for _, text := range told {
		if a, err := ParseAddress(text, 0); err == nil && a.plain() {
			kept = append(kept, a.String())
		}
	}
	slices.Sort(kept)
	kept = slices.Compact(kept)
	return slices.Clip(kept[:min(len(kept), maxTold)])
}

// loopback stands for every spelling of a machine's own address.
const loopback = "localhost"

func (s *Server) place() Address { return Address{Host: s.Host, Port: s.Port}.place() }

// place is the same for addresses whose texts alone show that they are one.
func (a Address) place() Address {
	a.Host = strings.TrimSuffix(a.Host, ".")
	if ip, err := netip.ParseAddr(a.Host); err == nil {
		ip = ip.Unmap()
		a.Host = ip.String()
		if ip.IsLoopback() {
			a.Host = loopback
		}
	}
	return a
}

// means returns the place of an address that the server tells of, and whether
// it means the same to everybody.
func (s *Server) means(text string) (Address, bool) {
	a, err := ParseAddress(text, 0)
	if err != nil || !a.plain() {
		return Address{}, false
	}
	place := a.place()
	return place, place.Host != loopback || s.place().Host == loopback
}

// plain says that an address can be reached from elsewhere and shown anywhere:
// what is told is text of somebody unknown.
func (a Address) plain() bool {
	const maxName = 253
	if ip, err := netip.ParseAddr(a.Host); err == nil {
		return ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast()
	}
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
	}
	return len(a.Host) <= maxName && !strings.HasPrefix(a.Host, "-") && strings.IndexFunc(a.Host, odd) < 0
}
