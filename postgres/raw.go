package postgres

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// rawDriver is pgx's driver as pools of this package name it. Package sqlstore
// finds its ability to hand out rows as they came from the server, which loads
// large maps half again as fast as database/sql does.
type rawDriver struct{ driver.Driver }

// ReadRaw runs a query on a connection of this package and calls each for
// every row. Values are in PostgreSQL's binary format and valid until each
// returns; NULL is nil. An error of each ends it and is returned.
func (rawDriver) ReadRaw(ctx context.Context, conn any, query string, args []any, each func(values [][]byte) error) error {
	c, ok := conn.(*stdlib.Conn)
	if !ok {
		return fmt.Errorf("reading raw rows: connection is a %T, not pgx's", conn)
	}
	// The mode is named, because the simple protocol has no binary format.
	modes := []any{pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats{pgx.BinaryFormatCode}}
	rows, err := c.Conn().Query(ctx, query, append(modes, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.RawValues()); err != nil {
			return err
		}
	}
	return rows.Err()
}
