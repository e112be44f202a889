package pgxshard_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/pgxshard"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
)

func openCustomers(customers *shardway.RangeShardMap[int64], secret string, tracer pgx.QueryTracer) (*pgxshard.DB[int64], error) {
	return pgxshard.New(customers, pgxshard.Config{
		Engine:      postgres.Engine{Options: "sslmode=verify-full"},
		Credentials: shardway.Credentials{User: "app", Password: secret},
		Retry:       retry.Policy{MaxElapsed: 10 * time.Second, Budget: &retry.Budget{}},
		Configure: func(c *pgxpool.Config) error {
			c.ConnConfig.Tracer = tracer
			return nil
		},
	})
}

func rename(ctx context.Context, db *pgxshard.DB[int64], customerID int64, name string) error {
	tag, err := db.Exec(ctx, customerID, `UPDATE customer SET name = $1 WHERE id = $2`, name, customerID)
	if err == nil && tag.RowsAffected() == 0 {
		err = pgx.ErrNoRows
	}
	return err
}

func visit(ctx context.Context, db *pgxshard.DB[int64], customerID int64) (visits int64, err error) {
	err = db.InTx(ctx, customerID, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		if n := retry.AttemptNumber(ctx); n > 1 {
			fmt.Println("attempt", n)
		}
		return tx.QueryRow(ctx, `UPDATE customer SET visits = visits + 1 WHERE id = $1 RETURNING visits`, customerID).Scan(&visits)
	})
	return visits, err
}

func names(ctx context.Context, db *pgxshard.DB[int64], customerID int64) ([]string, error) {
	reports := db.With(selection.Nearest(selection.MaxStaleness(30 * time.Second)))
	rows, err := reports.Query(ctx, customerID, `SELECT name FROM customer WHERE parent = $1`, customerID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func imported(ctx context.Context, db *pgxshard.DB[int64], customerID int64, orders [][]any) (int64, error) {
	return db.CopyFrom(ctx, customerID, pgx.Identifier{"purchase"}, []string{"id", "amount"}, pgx.CopyFromRows(orders))
}

func behindPgBouncer(customers *shardway.RangeShardMap[int64], login shardway.Credentials) (*pgxshard.DB[int64], error) {
	return pgxshard.New(customers, pgxshard.Config{
		Engine:      postgres.Engine{},
		Credentials: login,
		Pooler:      true,
		Configure: func(c *pgxpool.Config) error {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // PgBouncer 1.21 with max_prepared_statements
			return nil
		},
	})
}

// A program has one DB for a shard map; all work names a key.
func Example() {
	work := func(ctx context.Context, customers *shardway.RangeShardMap[int64], secret string, tracer pgx.QueryTracer) error {
		db, err := openCustomers(customers, secret, tracer)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := rename(ctx, db, 42, "Anna"); err != nil {
			return err
		}
		_, err = visit(ctx, db, 42)
		return err
	}
	_ = work
	_, _, _ = names, imported, behindPgBouncer
}
