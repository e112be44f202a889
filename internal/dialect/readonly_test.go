package dialect_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"
)

// ROLE-01: which errors mean that a server takes no writes.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine string
		err    error
		want   bool
	}{
		{"postgres", &pgconn.PgError{Code: "25006"}, true},
		{"postgres", fmt.Errorf("around: %w", &pgconn.PgError{Code: "25006"}), true},
		{"postgres", &pgconn.PgError{Code: "25001"}, false},
		{"postgres", &pgconn.PgError{Code: "57P01"}, false},
		{"postgres", io.EOF, false},
		{"mysql", &mysql.MySQLError{Number: 1290, Message: "The MariaDB server is running with the --read-only option so it cannot execute this statement"}, true},
		{"mysql", &mysql.MySQLError{Number: 1290, Message: "The MySQL server is running with the --super-read-only option so it cannot execute this statement"}, true},
		{"mysql", &mysql.MySQLError{Number: 1290, Message: "The MariaDB server is running with the --skip-grant-tables option so it cannot execute this statement"}, false},
		{"mysql", &mysql.MySQLError{Number: 1792}, true},
		{"mysql", &mysql.MySQLError{Number: 1836}, true},
		{"mysql", &mysql.MySQLError{Number: 1874}, true},
		{"mysql", &mysql.MySQLError{Number: 1213}, false},
		{"mysql", mysql.ErrInvalidConn, false},
		{"sqlserver", mssql.Error{Number: 3906}, true},
		{"sqlserver", mssql.Error{Number: 976}, true},
		{"sqlserver", mssql.Error{Number: 983}, true},
		{"sqlserver", mssql.Error{Number: 18456}, false},
		{"sqlite", sqliteError{code: 8}, true},
		{"sqlite", sqliteError{code: 8 | 4<<8}, true},
		{"sqlite", sqliteError{code: 5}, false},
	} {
		if got := dialectOf(t, c.engine).ReadOnly(c.err); got != c.want {
			t.Errorf("%s: %T %v is read-only %v, want %v", c.engine, c.err, c.err, got, c.want)
		}
		silent := c.err == io.EOF || c.err == mysql.ErrInvalidConn //nolint:errorlint // these very values
		if got := dialectOf(t, c.engine).Answered(c.err); got == silent {
			t.Errorf("%s: %T %v is an answer %v", c.engine, c.err, c.err, got)
		}
	}
}

func TestPositions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine, version string
		tells           bool
	}{
		{"postgres", "", true},
		{"mysql", "10.11.6-MariaDB", true},
		{"mysql", "8.4.0", true},
		{"sqlserver", "", false},
		{"sqlite", "", false},
	} {
		p, ok := dialectOf(t, c.engine).Positions(c.version)
		if ok != c.tells || (p.Current != "") != c.tells || (p.Reached != "") != c.tells {
			t.Errorf("%s %s tells %v by %+v", c.engine, c.version, ok, p)
		}
	}
	mariadb, _ := dialectOf(t, "mysql").Positions("10.11.6-MariaDB")
	if mysql, _ := dialectOf(t, "mysql").Positions("8.4.0"); mysql == mariadb {
		t.Error("MySQL is asked like MariaDB")
	}
}
