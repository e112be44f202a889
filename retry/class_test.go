package retry_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/store"

	_ "modernc.org/sqlite"
)

// fate is what an error is worth where it may occur.
type fate struct{ plain, uncommitted, committing, connecting retry.Class }

var (
	permanent  = fate{retry.Permanent, retry.Permanent, retry.Permanent, retry.Permanent}
	transient  = fate{retry.Transient, retry.Transient, retry.Transient, retry.Transient}
	overloaded = fate{retry.Overloaded, retry.Overloaded, retry.Overloaded, retry.Overloaded}
	broken     = fate{retry.CommitUnknown, retry.Transient, retry.CommitUnknown, retry.Transient}
	timedOut   = fate{retry.CommitUnknown, retry.Overloaded, retry.CommitUnknown, retry.Overloaded}
)

func (f fate) check(t *testing.T, name string, err error) {
	t.Helper()
	for _, c := range []struct {
		where string
		err   error
		want  retry.Class
	}{
		{"plain", err, f.plain},
		{"wrapped", fmt.Errorf("writing: %w", err), f.plain},
		{"joined with a rollback", errors.Join(err, sql.ErrTxDone), f.plain},
		{"in a transaction", retry.Uncommitted(fmt.Errorf("writing: %w", err)), f.uncommitted},
		{"committing", fmt.Errorf("unit: %w", retry.Committing(err)), f.committing},
		{"connecting", &shardway.LookupError{Shard: "s", Err: fmt.Errorf("connecting: %w: %w", shardway.ErrUnavailable, err)}, f.connecting},
	} {
		if got := retry.Classify(c.err); got != c.want {
			t.Errorf("%s, %s: %v, want %v", name, c.where, got, c.want)
		}
	}
	if got, want := errors.Is(retry.Committing(err), retry.ErrCommitUnknown), f.committing == retry.CommitUnknown; got != want {
		t.Errorf("%s: a failed commit matches ErrCommitUnknown: %v, want %v", name, got, want)
	}
}

// sqliteError stands for modernc.org/sqlite's error, which cannot be made from
// outside; TestClassifySQLite meets the true one.
type sqliteError int

func (e sqliteError) Error() string { return "sqlite" }
func (e sqliteError) Code() int     { return int(e) }

// engineRows says again, by hand, what the tables of the engines should say.
var engineRows = []struct {
	engine string
	fate   fate
	codes  string
}{
	{"postgres", permanent, "22 23 23505 28 3D000 3F000 40002 42 42P01 42501 57014 57P04"},
	{"postgres", transient, "08001 0A000 25006 25P03 26000 40 40001 40P01 55P03 57P05"},
	{"postgres", overloaded, "08004 53 53300 55006 57P03 58"},
	{"postgres", broken, "08 40003 57P01 57P02"},
	{"postgres", timedOut, "25P04"},
	{"mysql", permanent, "1044 1045 1049 1062 1064 1129 1130 1142 1143 1146 1227 1317 1370 1698 1792 1820 1862 1969 3024 3118 4151"},
	{"mysql", transient, "1020 1205 1213 1290 1614 1836 1874 2002 2003 3101 3572"},
	{"mysql", overloaded, "1040 1041 1047 1203 1206 1226 1637"},
	{"mysql", broken, "1026 1030 1053 1158 1160 1180 1927 2006 2013"},
	{"mysql", timedOut, "1159 1161"},
	{"sqlserver", permanent, "208 229 230 262 911 916 2601 2627 2760 18456 18486 18487 18488"},
	{"sqlserver", transient, "20 1205 1222 3906 3960 41301 41302 41305 41325 51222 33557097"},
	{"sqlserver", overloaded, "701 976 978 983 1204 4060 4221 8645 8651 10928 10929 18401 40501 40613 42108 42109 49918 49919 49920"},
	{"sqlserver", broken, "64 233 596 6005 10053 10054 40143 40197 40540"},
	{"sqlserver", timedOut, "-2 10060"},
	{"sqlite", permanent, "3 8 9 13 14 19 1555 2067 23 26"},
	{"sqlite", transient, "5 6 15 17"},
	{"sqlite", broken, "10"},
}

// full completes classes of SQLSTATE codes.
var full = map[string]string{
	"08": "08P01", "22": "22012", "23": "23503", "28": "28P01", "40": "40000", "42": "42601", "53": "53100", "58": "58030",
}

// reported makes the error of an engine's driver.
func reported(t *testing.T, engine, code, text string) error {
	t.Helper()
	if engine == "postgres" {
		if full[code] != "" {
			code = full[code]
		}
		return &pgconn.PgError{Code: code, Message: text}
	}
	n, err := strconv.Atoi(code)
	if err != nil {
		t.Fatal(err)
	}
	switch engine {
	case "mysql":
		return &mysql.MySQLError{Number: uint16(n), Message: text}
	case "sqlserver":
		return mssql.Error{Number: int32(n), Message: text}
	}
	return sqliteError(n)
}

// TestClassifyEngines has every row of the engines' tables, in the order
// SQLSTATE classes, numbers of MySQL and MariaDB, those of SQL Server, SQLite.
func TestClassifyEngines(t *testing.T) {
	t.Parallel()
	listed := map[string]fate{}
	for _, rows := range engineRows {
		for code := range strings.FieldsSeq(rows.codes) {
			listed[rows.engine+" "+code] = rows.fate
		}
	}
	for _, engine := range []string{"postgres", "mysql", "sqlserver", "sqlite"} {
		d, err := dialect.For(engine)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range d.Rows() {
			name := engine + " " + row.Code
			want, ok := listed[name]
			if !ok {
				t.Errorf("%s has no test", name)
				continue
			}
			delete(listed, name)
			want.check(t, name, reported(t, engine, row.Code, "text: "+row.Text))
			if row.Text != "" {
				permanent.check(t, name+" with another text", reported(t, engine, row.Code, "text"))
			}
		}
	}
	for name := range listed {
		t.Errorf("%s is tested but not in the table", name)
	}
}

// RTRY-03: 1290 also means that an option forbids the statement.
func TestClassifyOneNumberSeveralMeanings(t *testing.T) {
	t.Parallel()
	server := "The MySQL server is running with the --%s option so it cannot execute this statement"
	for option, want := range map[string]fate{
		"read-only": transient, "super-read-only": transient, "secure-file-priv": permanent, "skip-grant-tables": permanent,
	} {
		want.check(t, option, &mysql.MySQLError{Number: 1290, Message: fmt.Sprintf(server, option)})
	}
}

// Errors of servers that are not in the tables, and the special cases.
func TestClassifyServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want fate
	}{
		{"postgres, unknown code", &pgconn.PgError{Code: "P0001", Severity: "ERROR", SeverityUnlocalized: "ERROR"}, permanent},
		{"postgres, session ended by an unknown code", &pgconn.PgError{Code: "XX000", Severity: "FATAL", SeverityUnlocalized: "FATAL"}, broken},
		{"postgres, session ended by an unknown code, localized", &pgconn.PgError{Code: "XX000", Severity: "PANIK", SeverityUnlocalized: "PANIC"}, broken},
		{"postgres, login refused", &pgconn.PgError{Code: "28000", Severity: "FATAL", SeverityUnlocalized: "FATAL"}, permanent},
		{"mysql, unknown number", &mysql.MySQLError{Number: 9999}, permanent},
		{"mysql, broken", mysql.ErrInvalidConn, broken},
		{"sqlserver, unknown number", mssql.Error{Number: 515, Class: 16}, permanent},
		{"sqlserver, session ended", mssql.Error{Number: 823, Class: 24}, broken},
		{"sqlserver, the server's 233", mssql.Error{Number: 233, Class: 16}, permanent},
		{"sqlserver, the client's 233", mssql.Error{Number: 233, Class: 20}, broken},
		{"sqlserver, database cannot be opened", mssql.Error{Number: 18456, All: []mssql.Error{{Number: 4060}, {Number: 18456}}}, overloaded},
		{"sqlserver, login refused", mssql.Error{Number: 18456, All: []mssql.Error{{Number: 18456}}}, permanent},
		{"sqlite, snapshot is too old to write (RTRY-08)", sqliteError(5 | 2<<8), transient},
		{"pgx, rolled back by a failed statement", pgx.ErrTxCommitRollback, permanent},
	} {
		c.want.check(t, c.name, c.err)
	}
}

func TestClassifySQLite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.db")
	var conns [2]*sql.Conn
	for i := range conns {
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if conns[i], err = db.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	if _, err := conns[0].ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	_, err := conns[1].ExecContext(t.Context(), "BEGIN IMMEDIATE")
	transient.check(t, "busy", err)
	_, err = conns[1].ExecContext(t.Context(), "no SQL")
	permanent.check(t, "syntax error", err)
}

// labelled stands for an error of MongoDB's driver.
type labelled struct {
	labels string
	code   int
	error
}

func (e labelled) HasErrorLabel(l string) bool {
	for label := range strings.SplitSeq(e.labels, "+") {
		if label == l {
			return true
		}
	}
	return false
}
func (e labelled) HasErrorCode(code int) bool { return code == e.code }
func (e labelled) Unwrap() error              { return e.error }

func TestClassifyMongoDB(t *testing.T) {
	t.Parallel()
	doubtful := fate{retry.CommitUnknown, retry.CommitUnknown, retry.CommitUnknown, retry.CommitUnknown}
	want := map[string]fate{
		"UnknownTransactionCommitResult":                  doubtful,
		"TransientTransactionError+SystemOverloadedError": overloaded,
		"TransientTransactionError":                       transient,
		"RetryableError+SystemOverloadedError":            overloaded,
		"NoWritesPerformed+SystemOverloadedError":         overloaded,
		"RetryableError":                                  transient,
		"NoWritesPerformed+RetryableWriteError":           transient,
		"RetryableWriteError":                             broken,
		"NetworkError":                                    broken,
		"24":                                              transient, "91": broken, "112": transient, "189": transient, "462": overloaded,
		"10058": transient, "10107": transient, "11600": broken, "11602": broken, "13435": transient, "13436": transient,
	}
	for _, name := range retry.MongoNames() {
		f, ok := want[name]
		if !ok {
			t.Errorf("%s has no test", name)
			continue
		}
		delete(want, name)
		e := labelled{labels: name, error: io.ErrUnexpectedEOF}
		if code, err := strconv.Atoi(name); err == nil {
			e = labelled{code: code, error: errors.New("x")}
		}
		f.check(t, name, e)
	}
	for name := range want {
		t.Errorf("%s is tested but not in the table", name)
	}
	unlabelled := fate{retry.Permanent, retry.Permanent, retry.CommitUnknown, retry.Transient}
	unlabelled.check(t, "another code", labelled{code: 66, error: errors.New("x")})
	unlabelled.check(t, "NoWritesPerformed alone", labelled{labels: "NoWritesPerformed", error: errors.New("x")})
	unlabelled.check(t, "SystemOverloadedError alone says nothing of repeating", labelled{labels: "SystemOverloadedError", error: errors.New("x")})
}

func TestClassifyNetwork(t *testing.T) {
	t.Parallel()
	op := func(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
	noServer := fate{retry.SafeToRetry, retry.SafeToRetry, retry.SafeToRetry, retry.Transient}
	want := map[string]struct {
		err  error
		fate fate
	}{
		"context.Canceled":                  {context.Canceled, fate{retry.Cancelled, retry.Cancelled, retry.CommitUnknown, retry.Cancelled}},
		"context.DeadlineExceeded":          {context.DeadlineExceeded, fate{retry.Cancelled, retry.Overloaded, retry.CommitUnknown, retry.Overloaded}},
		"*tls.CertificateVerificationError": {&tls.CertificateVerificationError{Err: x509.HostnameError{Host: "h", Certificate: &x509.Certificate{}}}, permanent},
		"dial, timed out":                   {op("dial", os.ErrDeadlineExceeded), overloaded},
		"dial":                              {op("dial", os.NewSyscallError("connect", syscall.EHOSTUNREACH)), noServer},
		"*net.DNSError":                     {&net.DNSError{Err: "no such host", Name: "h"}, noServer},
		"ECONNREFUSED":                      {syscall.ECONNREFUSED, noServer},
		"read or write, timed out":          {op("read", os.ErrDeadlineExceeded), timedOut},
		"read or write":                     {op("write", syscall.EHOSTUNREACH), broken},
		"ECONNRESET":                        {syscall.ECONNRESET, broken},
		"ECONNABORTED":                      {syscall.ECONNABORTED, broken},
		"EPIPE":                             {syscall.EPIPE, broken},
		"io.ErrUnexpectedEOF":               {io.ErrUnexpectedEOF, broken},
		"net.ErrClosed":                     {net.ErrClosed, broken},
		`"invalid connection"`:              {mysql.ErrInvalidConn, broken},
		`"commit unexpectedly resulted in rollback"`: {pgx.ErrTxCommitRollback, permanent},
	}
	for _, name := range retry.NetworkNames() {
		c, ok := want[name]
		if !ok {
			t.Errorf("%s has no test", name)
			continue
		}
		delete(want, name)
		c.fate.check(t, name, c.err)
	}
	for name := range want {
		t.Errorf("%s is tested but not in the table", name)
	}
}

// safe is an error that answers the question across floors.
type safe struct {
	yes bool
	error
}

func (e safe) SafeToRetry() bool { return e.yes }
func (e safe) Unwrap() error     { return e.error }

// doubtful is an adapter's error of a commit.
type doubtful struct{ error }

func (e doubtful) CommitUnknown() bool { return true }

// badConnError is an error that says it is ErrBadConn, as Microsoft's driver has.
type badConnError struct{ error }

func (e badConnError) Is(target error) bool { return target == driver.ErrBadConn }
func (e badConnError) Unwrap() error        { return e.error }

func TestClassifyOwn(t *testing.T) {
	t.Parallel()
	want := map[string]struct {
		err   error
		class retry.Class
	}{
		"ErrUnavailable":         {shardway.ErrUnavailable, retry.Transient},
		"ErrStale":               {shardway.ErrStale, retry.SafeToRetry},
		"ErrPoolExhausted":       {shardway.ErrPoolExhausted, retry.Overloaded},
		"ErrMappingOffline":      {shardway.ErrMappingOffline, retry.Offline},
		"retry.ErrCommitUnknown": {retry.ErrCommitUnknown, retry.CommitUnknown},
		"by its method":          {store.ErrUnknownOutcome, retry.CommitUnknown},
	}
	for _, name := range append(retry.OwnErrors(), "by its method") {
		c, ok := want[name]
		if !ok {
			t.Errorf("%s has no test", name)
			continue
		}
		delete(want, name)
		for _, err := range []error{c.err, fmt.Errorf("x: %w", c.err), fmt.Errorf("x: %w: %w", c.err, errors.New("why")), &shardway.LookupError{Map: "m", Err: c.err}} {
			if got := retry.Classify(err); got != c.class {
				t.Errorf("%s: %v is %v, want %v", name, err, got, c.class)
			}
		}
	}
	for name := range want {
		t.Errorf("%s is tested but not in the table", name)
	}
}

func TestClassifyTrees(t *testing.T) {
	t.Parallel()
	lost := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	duplicate := &pgconn.PgError{Code: "23505"}
	for _, c := range []struct {
		name string
		err  error
		want retry.Class
	}{
		{"no error", nil, retry.None},
		{"the caller's own error", errors.New("insufficient funds"), retry.Permanent},
		{"the caller's own error in a transaction", retry.Uncommitted(errors.New("insufficient funds")), retry.Permanent},
		{"unknown key", &shardway.LookupError{Err: shardway.ErrKeyNotMapped}, retry.Permanent},
		{"another error with a code", codeError(5), retry.Permanent},
		{"no more rows", io.EOF, retry.Permanent},
		{"safe", safe{true, errors.New("x")}, retry.SafeToRetry},
		{"safe although the network failed", safe{true, lost}, retry.Transient},
		{"safe but in vain", safe{true, duplicate}, retry.Permanent},
		{"not known to be safe", safe{false, lost}, retry.CommitUnknown},
		{"safe next to a lost answer", errors.Join(lost, safe{true, errors.New("conn closed")}), retry.CommitUnknown},
		{"no server", &selection.Error{}, retry.SafeToRetry},
		{"no server in time", &selection.Error{Cause: context.DeadlineExceeded}, retry.Overloaded},
		{"no server for those who gave up", &selection.Error{Cause: context.Canceled}, retry.Cancelled},
		{"bad connection", driver.ErrBadConn, retry.SafeToRetry},
		{"bad connection, says an error", badConnError{lost}, retry.Transient},
		{"an adapter's doubt", fmt.Errorf("unit: %w", doubtful{lost}), retry.CommitUnknown},
		{"an adapter's doubt is not dispelled", retry.Uncommitted(doubtful{lost}), retry.CommitUnknown},
		{"a doubt next to something safe", errors.Join(safe{true, errors.New("x")}, retry.Committing(lost)), retry.CommitUnknown},
		{"a doubt below something safe", safe{true, retry.Committing(lost)}, retry.CommitUnknown},
		{"a doubt below ErrUnavailable", fmt.Errorf("%w: %w", shardway.ErrUnavailable, retry.Committing(lost)), retry.CommitUnknown},
		{"unavailable next to a lost answer", errors.Join(fmt.Errorf("connecting: %w", shardway.ErrUnavailable), lost), retry.CommitUnknown},
		{"deadlock and failed rollback", errors.Join(&pgconn.PgError{Code: "40P01"}, errors.New("rolling back")), retry.Transient},
		{"deadlock next to a duplicate", errors.Join(&pgconn.PgError{Code: "40P01"}, duplicate), retry.Permanent},
		{"commit of something unknown", retry.Committing(sql.ErrTxDone), retry.CommitUnknown},
		{"offline, whatever led there", fmt.Errorf("%w: %w", shardway.ErrMappingOffline, &pgconn.PgError{Code: "40P01"}), retry.Offline},
		{"a doubt below a label", labelled{labels: "TransientTransactionError", error: retry.Committing(lost)}, retry.CommitUnknown},
		{"offline", fmt.Errorf("%w: %w", shardway.ErrMappingOffline, errors.New("x")), retry.Offline},
		{"repeated already", &retry.StoppedError{Attempts: 3, Cause: retry.ErrAttemptsSpent, Err: driver.ErrBadConn}, retry.Permanent},
		{"repeated already, in doubt", &retry.StoppedError{Attempts: 3, Cause: retry.ErrCommitUnknown, Err: lost}, retry.CommitUnknown},
	} {
		if got := retry.Classify(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if retry.Uncommitted(nil) != nil || retry.Committing(nil) != nil {
		t.Error("no error became one")
	}
	if got := retry.Class(99).String(); got != "class 99" {
		t.Errorf("an unknown class is %q", got)
	}
}

// codeError has a method Code like SQLite's errors, and nothing to do with it.
type codeError int

func (e codeError) Error() string { return "code" }
func (e codeError) Code() int     { return int(e) }

// A port that nobody listens on, for true.
func TestClassifyDial(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err = l.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
		t.Skip("another program took the port")
	}
	if got := retry.Classify(err); got != retry.SafeToRetry {
		t.Errorf("%v is %v", err, got)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pgx.Connect(t.Context(), fmt.Sprintf("postgres://u@%s:%s/d?sslmode=disable", host, port))
	if got := retry.Classify(err); got != retry.SafeToRetry {
		t.Errorf("%v is %v", err, got)
	}
}
