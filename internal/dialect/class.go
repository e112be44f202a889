package dialect

import (
	"reflect"
	"slices"
	"strings"
)

// Class is what an error of a database means for those who asked.
type Class int

// The classes.
const (
	Other       Class = iota // anything else that the server says
	Transient                // the transaction was taken back and may be run again: deadlock, conflict, busy
	Outdated                 // the session's prepared statement does not fit the tables any more: nothing ran
	Duplicate                // a unique key is taken
	NoTable                  // there are no such tables
	Unavailable              // the server refuses us: login, rights, read-only, shutting down
	Lost                     // no answer from a server: the connection broke
)

// codes tells an engine's class of an error from what its driver says.
type codes struct {
	// read returns the error's code, or false when the error is not one that a
	// server or an embedded engine reported.
	// It looks at err alone, not at the errors that err wraps.
	read func(err error) (code string, ok bool)
	// rows holds codes and their first characters; the longest match counts.
	rows map[string]row
	// only holds a part of the text for codes that mean several things: without
	// it, an error is not worth repeating.
	only map[string]string
	// noTable is a part of the text by which a missing table is told from other
	// errors of the same code, for an engine without a code for it.
	noTable string
}

// Classify returns the class of an error that the engine's driver returned.
// Errors of contexts are the caller's business and must not come here.
func (d *Dialect) Classify(err error) Class {
	code, ok := d.codes.find(err)
	if !ok {
		return Lost
	}
	if d.codes.noTable != "" && strings.Contains(err.Error(), d.codes.noTable) {
		return NoTable
	}
	return d.codes.rows[d.codes.match(code)].class
}

// find reads the code of the first error in a tree that has one.
func (c *codes) find(err error) (code string, ok bool) {
	if err == nil {
		return "", false
	}
	if code, ok = c.read(err); ok {
		return code, true
	}
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case interface{ Unwrap() error }:
		return c.find(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if code, ok = c.find(inner); ok {
				return code, true
			}
		}
	}
	return "", false
}

// match returns the longest beginning of a code that has a row, or nothing.
func (c *codes) match(code string) string {
	for n := len(code); n > 0; n-- {
		if _, ok := c.rows[code[:n]]; ok {
			return code[:n]
		}
	}
	return ""
}

// sqlState reads the code of drivers that follow the SQL standard.
func sqlState(err error) (string, bool) {
	e, ok := err.(interface{ SQLState() string })
	if !ok {
		return "", false
	}
	return e.SQLState(), true
}

// numberField reads the field Number of go-sql-driver's MySQLError, which has
// no method for it.
func numberField(err error) (string, bool) {
	v := structOf(err)
	if !v.IsValid() || v.Type().Name() != "MySQLError" {
		return "", false
	}
	n := v.FieldByName("Number")
	if !n.CanUint() {
		return "", false
	}
	return decimal(int64(n.Uint())), true
}

// errorNumber reads the number of Microsoft's driver, which is the last one
// that the server sent. A login that fails because its database cannot be
// opened is sent as 4060, then 18456: the first says why.
func errorNumber(err error) (string, bool) {
	const loginFailed, cannotOpen = 18456, 4060
	e, ok := err.(interface{ SQLErrorNumber() int32 })
	if !ok {
		return "", false
	}
	number := int64(e.SQLErrorNumber())
	if number == loginFailed && slices.Contains(allNumbers(err), cannotOpen) {
		number = cannotOpen
	}
	return decimal(number), true
}

// allNumbers reads the numbers in the field All of Microsoft's driver's error.
func allNumbers(err error) (numbers []int64) {
	v := structOf(err)
	if !v.IsValid() {
		return nil
	}
	all := v.FieldByName("All")
	if all.Kind() != reflect.Slice {
		return nil
	}
	for i := range all.Len() {
		if one := reflect.Indirect(all.Index(i)); one.Kind() == reflect.Struct {
			if n := one.FieldByName("Number"); n.CanInt() {
				numbers = append(numbers, n.Int())
			}
		}
	}
	return numbers
}

// resultCode reads SQLite's extended result code as two parts: the primary
// code and the whole, both with an end mark.
func resultCode(err error) (string, bool) {
	e, ok := err.(interface{ Code() int })
	if !ok {
		return "", false
	}
	return decimal(int64(e.Code()&0xff)) + decimal(int64(e.Code())), true
}

// structOf returns the struct that err is or points to, or the zero Value.
func structOf(err error) reflect.Value {
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
		return v
	}
	return reflect.Value{}
}
