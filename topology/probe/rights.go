package probe

import (
	"fmt"
	"strings"
)

// RightsError says that the login of a prober may not see what it needs. A
// primary that takes writes is never refused for it.
type RightsError struct {
	// Login is the login as the server calls it.
	Login string
	// Subject is what it may not see.
	Subject string
	// Grants are the statements that give the rights.
	Grants []string
	// Err is the server's error; nil if the server hid something without one.
	Err error
}

// Error names the login, what it may not see and the statements.
func (e *RightsError) Error() string {
	text := fmt.Sprintf("login %s may not see %s, run: %s", e.Login, e.Subject, strings.Join(e.Grants, "; "))
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return text
}

// Unwrap returns the server's error.
func (e *RightsError) Unwrap() error { return e.Err }
