package dialect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/shardway/shardway/internal/dialect"
)

var engines = []string{"postgres", "mysql", "sqlserver", "sqlite"}

func dialectOf(t *testing.T, engine string) *dialect.Dialect {
	t.Helper()
	d, err := dialect.For(engine)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFor(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		if d := dialectOf(t, e); d.Name() != e {
			t.Errorf("For(%q).Name() = %q", e, d.Name())
		}
	}
	for _, e := range []string{"", "mongodb", "Postgres", "mariadb"} {
		if d, err := dialect.For(e); err == nil {
			t.Errorf("For(%q) = %v", e, d.Name())
		}
	}
}

func TestSQL(t *testing.T) {
	t.Parallel()
	const text = `SELECT a FROM {mappings} WHERE b = ? AND c = ? ORDER BY a {limit} {update}`
	for e, want := range map[string]string{
		"postgres":  `SELECT a FROM shardway.mappings WHERE b = $1 AND c = $2 ORDER BY a LIMIT $3 FOR UPDATE`,
		"mysql":     `SELECT a FROM shardway_mappings WHERE b = ? AND c = ? ORDER BY a LIMIT ? FOR UPDATE`,
		"sqlite":    `SELECT a FROM shardway_mappings WHERE b = ? AND c = ? ORDER BY a LIMIT ?`,
		"sqlserver": `SELECT a FROM shardway.mappings WHERE b = @p1 AND c = @p2 ORDER BY a OFFSET 0 ROWS FETCH NEXT @p3 ROWS ONLY`,
	} {
		if diff := cmp.Diff(want, dialectOf(t, e).SQL(text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", e, diff)
		}
	}
}

func TestValidation(t *testing.T) {
	t.Parallel()
	for e, want := range map[string][2]string{
		"postgres": {
			`SELECT status FROM shardway.local_mappings WHERE mapping_id = $1`,
			`SELECT version, status FROM shardway.local_shards WHERE map_id = $1 AND shard_id = $2`,
		},
		"mysql": {
			`SELECT status FROM shardway_local_mappings WHERE mapping_id = ?`,
			`SELECT version, status FROM shardway_local_shards WHERE map_id = ? AND shard_id = ?`,
		},
		"sqlserver": {
			`SELECT status FROM shardway.local_mappings WHERE mapping_id = @p1`,
			`SELECT version, status FROM shardway.local_shards WHERE map_id = @p1 AND shard_id = @p2`,
		},
		"sqlite": {
			`SELECT status FROM shardway_local_mappings WHERE mapping_id = ?`,
			`SELECT version, status FROM shardway_local_shards WHERE map_id = ? AND shard_id = ?`,
		},
	} {
		d := dialectOf(t, e)
		if diff := cmp.Diff(want, [2]string{d.ValidateMapping(), d.ValidateShard()}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", e, diff)
		}
	}
}

// Every engine has the same tables with the same columns, but for the one by
// which PostgreSQL grants the right to lock rows.
func TestTablesAreTheSame(t *testing.T) {
	t.Parallel()
	table := regexp.MustCompile(`(?s)CREATE TABLE (?:IF NOT EXISTS )?shardway[._](\w+) \((.*)\n\)`)
	column := regexp.MustCompile(`(?m)^    ([a-z_]+) `)
	shape := func(e string, part dialect.Part) map[string][]string {
		tables := map[string][]string{}
		for _, s := range dialectOf(t, e).Create(part) {
			if m := table.FindStringSubmatch(s); m != nil {
				for _, c := range column.FindAllStringSubmatch(m[2], -1) {
					if e != "postgres" || c[1] != "fence" {
						tables[m[1]] = append(tables[m[1]], c[1])
					}
				}
			}
		}
		return tables
	}
	for _, part := range []dialect.Part{dialect.Global, dialect.Local} {
		want := shape("postgres", part)
		if len(want) < 5 {
			t.Fatalf("%s tables of PostgreSQL: %v", part, want)
		}
		for _, e := range engines {
			if diff := cmp.Diff(want, shape(e, part)); diff != "" {
				t.Errorf("%s tables of %s (-postgres +%s):\n%s", part, e, e, diff)
			}
			// Every table that is created can be dropped.
			d := dialectOf(t, e)
			for name := range want {
				if !slices.Contains(d.Drop(part), d.SQL("DROP TABLE IF EXISTS {"+name+"}")) {
					t.Errorf("%s: table %s is not dropped", e, name)
				}
			}
		}
	}
}

func columns(rows int) []dialect.Column {
	ids, names, keys := make([]int64, rows), make([]string, rows), make([][]byte, rows)
	for i := range rows {
		ids[i], names[i], keys[i] = int64(i), fmt.Sprint(i), []byte{byte(i)}
	}
	return []dialect.Column{{Name: "id", Values: ids}, {Name: "name", Values: names}, {Name: "low_key", Values: keys}}
}

func TestInsert(t *testing.T) {
	t.Parallel()
	for e, want := range map[string]string{
		"postgres":  `INSERT INTO shardway.t (id, name, low_key) SELECT * FROM unnest(CAST($1 AS bigint[]), CAST($2 AS text[]), CAST($3 AS bytea[]))`,
		"mysql":     `INSERT INTO shardway_t (id, name, low_key) VALUES (?, ?, ?), (?, ?, ?)`,
		"sqlite":    `INSERT INTO shardway_t (id, name, low_key) VALUES (?, ?, ?), (?, ?, ?)`,
		"sqlserver": `INSERT INTO shardway.t (id, name, low_key) VALUES (@p1, @p2, @p3), (@p4, @p5, @p6)`,
	} {
		got := dialectOf(t, e).Insert("t", columns(2))
		if len(got) != 1 || got[0].Text != want {
			t.Errorf("%s: %+v, want %s", e, got, want)
			continue
		}
		args := []any{int64(0), "0", []byte{0}, int64(1), "1", []byte{1}}
		if e == "postgres" {
			args = []any{[]int64{0, 1}, []string{"0", "1"}, [][]byte{{0}, {1}}}
		}
		if diff := cmp.Diff(args, got[0].Args); diff != "" {
			t.Errorf("%s arguments (-want +got):\n%s", e, diff)
		}
	}
	if got := dialectOf(t, "mysql").Insert("t", columns(0)); len(got) != 0 {
		t.Errorf("no rows are inserted by %+v", got)
	}
}

// No statement has more parameters or rows than its engine takes, and no row
// is lost between two.
func TestInsertLimits(t *testing.T) {
	t.Parallel()
	limits := map[string]int{"postgres": 65535, "mysql": 65535, "sqlite": 32766, "sqlserver": 2099}
	for _, e := range engines {
		rows := 0
		for _, s := range dialectOf(t, e).Insert("t", columns(25_001)) {
			if len(s.Args) > limits[e] {
				t.Errorf("%s: %d parameters", e, len(s.Args))
			}
			if e == "postgres" {
				rows += len(s.Args[0].([]int64))
				continue
			}
			if n := strings.Count(s.Text, "("); n > 1001 {
				t.Errorf("%s: %d rows in a statement", e, n-1)
			}
			for i := 0; i < len(s.Args); i += 3 {
				if s.Args[i] != int64(rows) {
					t.Fatalf("%s: row %d has id %v", e, rows, s.Args[i])
				}
				rows++
			}
		}
		if rows != 25_001 {
			t.Errorf("%s: %d rows, want 25001", e, rows)
		}
	}
}

// sqliteError is modernc.org/sqlite's error, which cannot be made from outside.
type sqliteError struct {
	code int
	text string
}

func (e sqliteError) Error() string { return e.text }
func (e sqliteError) Code() int     { return e.code }

func TestClassify(t *testing.T) {
	t.Parallel()
	pg := func(code string) error { return &pgconn.PgError{Code: code} }
	my := func(n uint16) error { return &mysql.MySQLError{Number: n} }
	ms := func(n int32) error { return mssql.Error{Number: n} }
	lite := func(n int) error { return sqliteError{n, "x"} }
	for _, c := range []struct {
		engine string
		err    error
		want   dialect.Class
	}{
		{"postgres", pg("40001"), dialect.Transient},
		{"postgres", pg("40P01"), dialect.Transient},
		{"postgres", pg("23505"), dialect.Duplicate},
		{"postgres", pg("23503"), dialect.Other},
		{"postgres", pg("42P01"), dialect.NoTable},
		{"postgres", pg("3F000"), dialect.NoTable},
		{"postgres", pg("28P01"), dialect.Unavailable},
		{"postgres", pg("42501"), dialect.Unavailable},
		{"postgres", pg("3D000"), dialect.Unavailable},
		{"postgres", pg("25006"), dialect.Unavailable},
		{"postgres", pg("53300"), dialect.Unavailable},
		{"postgres", pg("57P01"), dialect.Lost},
		{"postgres", pg("57P03"), dialect.Unavailable},
		{"postgres", pg("0A000"), dialect.Outdated},
		{"postgres", pg("22012"), dialect.Other},
		{"mysql", my(1213), dialect.Transient},
		{"mysql", my(1205), dialect.Transient},
		{"mysql", my(1062), dialect.Duplicate},
		{"mysql", my(1146), dialect.NoTable},
		{"mysql", my(1045), dialect.Unavailable},
		{"mysql", my(1049), dialect.Unavailable},
		{"mysql", my(1142), dialect.Unavailable},
		{"mysql", my(1290), dialect.Unavailable},
		{"mysql", my(1064), dialect.Other},
		{"mysql", my(104), dialect.Other},
		{"mysql", my(10451), dialect.Other},
		{"mysql", mysql.ErrInvalidConn, dialect.Lost},
		{"sqlserver", ms(1205), dialect.Transient},
		{"sqlserver", ms(33557097), dialect.Transient},
		{"sqlserver", ms(51222), dialect.Transient},
		{"sqlserver", ms(2627), dialect.Duplicate},
		{"sqlserver", ms(2601), dialect.Duplicate},
		{"sqlserver", ms(208), dialect.NoTable},
		{"sqlserver", ms(18456), dialect.Unavailable},
		{"sqlserver", ms(229), dialect.Unavailable},
		{"sqlserver", ms(102), dialect.Other},
		{"sqlite", lite(5), dialect.Transient},
		{"sqlite", lite(5 | 2<<8), dialect.Transient},
		{"sqlite", lite(6), dialect.Transient},
		{"sqlite", lite(1555), dialect.Duplicate},
		{"sqlite", lite(2067), dialect.Duplicate},
		{"sqlite", lite(19 | 5<<8), dialect.Other},
		{"sqlite", lite(14), dialect.Unavailable},
		{"sqlite", lite(8), dialect.Unavailable},
		{"sqlite", lite(26), dialect.Unavailable},
		{"sqlite", sqliteError{1, "SQL logic error: no such table: x (1)"}, dialect.NoTable},
		{"sqlite", lite(1), dialect.Other},
		{"postgres", io.ErrUnexpectedEOF, dialect.Lost},
		{"sqlite", context.DeadlineExceeded, dialect.Lost},
	} {
		d := dialectOf(t, c.engine)
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err), errors.Join(errors.New("first"), c.err)} {
			if got := d.Classify(err); got != c.want {
				t.Errorf("%s: Classify(%v) = %d, want %d", c.engine, err, got, c.want)
			}
		}
	}
}
