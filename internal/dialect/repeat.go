package dialect

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Repeat says what running the whole unit of work once more can do about an
// error.
type Repeat int

// The answers.
const (
	Never    Repeat = iota // the same would happen again
	Again                  // it was not done, and may be tried again
	Later                  // it was not done, and may be tried again after a pause: the server is overloaded or not ready
	Broken                 // the session ended: what was asked last may have been done
	TimedOut               // no answer in time: what was asked last may have been done; trying again needs a pause
)

// Row is a row of an engine's table of codes.
type Row struct {
	Code    string // as the engine writes it; the first characters stand for a class of codes
	Text    string // part of the text without which the answer is Never; empty for most
	Repeat  Repeat
	Meaning string
}

// Rows returns the table of the engine's codes, in order.
func (d *Dialect) Rows() []Row {
	rows := make([]Row, 0, len(d.codes.rows))
	for code, r := range d.codes.rows {
		_, last, extended := strings.Cut(strings.TrimSuffix(code, "."), ".")
		if !extended {
			last = strings.TrimSuffix(code, ".")
		}
		rows = append(rows, Row{Code: last, Text: d.codes.only[code], Repeat: r.repeat, Meaning: r.meaning})
	}
	slices.SortFunc(rows, func(a, b Row) int {
		if d != &postgres {
			n, _ := strconv.Atoi(a.Code)
			m, _ := strconv.Atoi(b.Code)
			return cmp.Compare(n, m)
		}
		return strings.Compare(a.Code, b.Code)
	})
	return rows
}

// Reported tells what an error is worth that a server or an embedded engine
// reported, whichever it is: engines are told apart by the shape of their
// driver's errors. It looks at err alone, not at the errors that err wraps, and
// returns false if err is no such error.
func Reported(err error) (Repeat, bool) {
	switch e := err.(type) { //nolint:errorlint // the caller walks the tree
	case interface{ SQLState() string }:
		return postgres.codes.repeat(err, fatal(err)), true
	case interface{ SQLErrorNumber() int32 }:
		severity := severity(err)
		if e.SQLErrorNumber() == 233 && severity > 10 && severity < 17 {
			return Never, true // the server's own 233: a column cannot be null
		}
		return sqlserver.codes.repeat(err, severity >= 20), true
	case interface{ Code() int }:
		if strings.Contains(strings.ToLower(reflect.TypeOf(err).String()), "sqlite") {
			return sqlite.codes.repeat(err, false), true
		}
		return Never, false
	}
	if _, ok := numberField(err); ok {
		return mysql.codes.repeat(err, false), true
	}
	return Never, false
}

// repeat looks an error up. What is not in the table is not worth repeating;
// unless it ended the session, which hides what became of the work.
func (c *codes) repeat(err error, ended bool) Repeat {
	code, _ := c.read(err)
	match := c.match(code)
	if match == "" && ended {
		return Broken
	}
	if !strings.Contains(err.Error(), c.only[match]) {
		return Never
	}
	return c.rows[match].repeat
}

// fatal reports whether an error of pgx says that the server ended the session.
func fatal(err error) bool {
	v := structOf(err)
	if !v.IsValid() {
		return false
	}
	s := v.FieldByName("SeverityUnlocalized")
	return s.Kind() == reflect.String && (s.String() == "FATAL" || s.String() == "PANIC")
}

// severity returns the severity of an error of SQL Server: from 20 on the
// server ends the session, 11 to 16 are faults of the statement.
func severity(err error) uint8 {
	if e, ok := err.(interface{ SQLErrorClass() uint8 }); ok {
		return e.SQLErrorClass()
	}
	return 0
}
