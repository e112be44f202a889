package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/shardway/shardway"
)

// script is a driver that writes down the statements it gets and answers as a
// store with one map would. With it the text for engines that cannot be had is
// pinned, and faults are placed exactly.
type script struct {
	mu         sync.Mutex // guards the fields below
	statements []string
	fail       map[string][]error // beginning of a statement → errors of its next runs; nil is success
	connects   int
}

func (s *script) Connect(context.Context) (driver.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connects++
	return &scriptConn{s: s}, nil
}

func (s *script) Driver() driver.Driver { return scriptDriver{} }

type scriptDriver struct{}

func (scriptDriver) Open(string) (driver.Conn, error) { return nil, io.EOF }

func (s *script) open(t testing.TB) *sql.DB {
	t.Helper()
	db := sql.OpenDB(s)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// take records a statement and returns the error that is planned for it.
func (s *script) take(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statements = append(s.statements, text)
	for begin, errs := range s.fail {
		if strings.HasPrefix(text, begin) && len(errs) > 0 {
			s.fail[begin] = errs[1:]
			return errs[0]
		}
	}
	return nil
}

// count is how often a statement with this beginning ran.
func (s *script) count(begin string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.statements {
		if strings.HasPrefix(text, begin) {
			n++
		}
	}
	return n
}

type scriptConn struct{ s *script }

func (c *scriptConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (c *scriptConn) Close() error                        { return nil }
func (c *scriptConn) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }

func (c *scriptConn) ExecContext(ctx context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.s.take(text); err != nil {
		return nil, err
	}
	return driver.RowsAffected(1), nil
}

func (c *scriptConn) QueryContext(ctx context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.s.take(text); err != nil {
		return nil, err
	}
	return answer(text), nil
}

// answer makes up one row that fits the columns asked for; questions whether
// something is there already get none.
func answer(text string) driver.Rows {
	list, _, _ := strings.Cut(strings.TrimPrefix(text, "SELECT "), "\nFROM ")
	list, _, _ = strings.Cut(list, " FROM ")
	if strings.Contains(text, "local_operations WHERE op_id") {
		return &scriptRows{columns: strings.Split(list, ", ")}
	}
	if strings.HasPrefix(list, "COUNT(*)") {
		n := int64(0)
		if strings.Contains(text, ".mappings") {
			n = 1
		}
		if strings.Contains(list, "MIN(seq)") {
			return &scriptRows{columns: []string{"known", "seq"}, rows: [][]driver.Value{{n, n}}}
		}
		return &scriptRows{columns: []string{"n"}, rows: [][]driver.Value{{n}}}
	}
	low := shardway.Int64Key(5).Encoded()
	var columns []string
	var row []driver.Value
	for column := range strings.SplitSeq(strings.ReplaceAll(list, "(microsecond, ", "("), ", ") {
		if strings.HasPrefix(column, "SYSUTCDATETIME") {
			continue // the end of an expression
		}
		_, name, found := strings.Cut(column, ".")
		if !found {
			name = column
		}
		columns = append(columns, name)
		row = append(row, scriptValue(name, low))
	}
	return &scriptRows{columns: columns, rows: [][]driver.Value{row}}
}

func scriptValue(name string, low []byte) driver.Value {
	switch name {
	case "low_key":
		return low
	case "high_key", "lock_token":
		return nil
	case "ranges":
		return []byte{1, 0}
	case "servers":
		return "[]"
	case "body":
		return `{"v":1,"map":{"id":"01","key_kind":"int64"},"steps":[]}`
	case "name", "engine", "database_name", "lock_owner", "lock_reason", "kind_text", "who", "reason", "summary", "owner", "map_name", "store_id":
		return "m"
	case "kind":
		return int64(2)
	case "key_kind":
		return int64(shardway.KindInt64)
	case "minor":
		return int64(0)
	}
	return int64(1)
}

type scriptRows struct {
	columns []string
	rows    [][]driver.Value
}

func (r *scriptRows) Columns() []string { return r.columns }
func (r *scriptRows) Close() error      { return nil }

func (r *scriptRows) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	if len(dest) != len(r.rows[0]) {
		return fmt.Errorf("%d columns, %d values", len(dest), len(r.rows[0]))
	}
	copy(dest, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}
