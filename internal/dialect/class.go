package dialect

import (
	"errors"
	"reflect"
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
	read func(err error) (code string, ok bool)
	// classes holds codes and their first characters; the longest match counts.
	classes map[string]Class
	// noTable is a part of the text by which a missing table is told from other
	// errors of the same code, for an engine without a code for it.
	noTable string
}

// Classify returns the class of an error that the engine's driver returned.
// Errors of contexts are the caller's business and must not come here.
func (d *Dialect) Classify(err error) Class {
	code, ok := d.codes.read(err)
	if !ok {
		return Lost
	}
	if d.codes.noTable != "" && strings.Contains(err.Error(), d.codes.noTable) {
		return NoTable
	}
	for n := len(code); n > 0; n-- {
		if c, ok := d.codes.classes[code[:n]]; ok {
			return c
		}
	}
	return Other
}

// sqlState reads the code of drivers that follow the SQL standard.
func sqlState(err error) (string, bool) {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return "", false
	}
	return e.SQLState(), true
}

// numberField reads the field Number of go-sql-driver's MySQLError, which has
// no method for it.
func numberField(err error) (string, bool) {
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct && v.Type().Name() == "MySQLError" {
		if n := v.FieldByName("Number"); n.CanUint() {
			return decimal(int64(n.Uint())), true
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return numberField(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if code, ok := numberField(inner); ok {
				return code, true
			}
		}
	}
	return "", false
}

// errorNumber reads the number of Microsoft's driver.
func errorNumber(err error) (string, bool) {
	var e interface{ SQLErrorNumber() int32 }
	if !errors.As(err, &e) {
		return "", false
	}
	return decimal(int64(e.SQLErrorNumber())), true
}

// resultCode reads SQLite's extended result code as two parts: the primary
// code and the whole, both with an end mark.
func resultCode(err error) (string, bool) {
	var e interface{ Code() int }
	if !errors.As(err, &e) {
		return "", false
	}
	return decimal(int64(e.Code()&0xff)) + decimal(int64(e.Code())), true
}
