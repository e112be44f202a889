package topology

import (
	"cmp"
	"fmt"
)

// Term orders claims to be primary: PostgreSQL's timeline, a GTID domain's
// term, MongoDB's set version with its election. A missing part is 0 and the
// smallest. The zero value is unknown.
type Term struct {
	// Major decides first.
	Major uint64
	// Minor decides between equal Majors.
	Minor uint64
}

// Known reports whether any part is present.
func (t Term) Known() bool { return t != Term{} }

// Compare returns -1, 0 or 1 as t is older than, equal to or newer than other.
func (t Term) Compare(other Term) int {
	return cmp.Or(cmp.Compare(t.Major, other.Major), cmp.Compare(t.Minor, other.Minor))
}

// String returns "major", "major.minor" or "unknown".
func (t Term) String() string {
	switch {
	case !t.Known():
		return "unknown"
	case t.Minor == 0:
		return fmt.Sprint(t.Major)
	default:
		return fmt.Sprintf("%d.%d", t.Major, t.Minor)
	}
}
