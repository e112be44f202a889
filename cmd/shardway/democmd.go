package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway/internal/customers"
	"github.com/shardway/shardway/internal/replicas"
)

func demoCommand(a *app) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "demo", Short: "Watch Shardway at work on embedded databases, without any set-up", Args: arguments(),
		Long:    "Makes a global store and three shards of SQLite files, loads customers, routes reads and\nupdates, splits a range and moves it while readers and writers run, and checks the counts.\nWhere PostgreSQL is installed, it then starts a primary and two secondaries and shows reads by latency and by a\npredicate, and a failover. The files are removed at the end, unless --dir names a folder for them.",
		Example: example("shardway demo", "shardway demo --dir /tmp/demo"),
	}
	c.Flags().StringVar(&dir, "dir", "", "folder for the databases, which then stay (default a temporary one)")
	return a.does(c, func(ctx context.Context, _ []string) (err error) {
		if dir == "" {
			temporary, err := os.MkdirTemp("", "shardway-demo-")
			if err != nil {
				return fmt.Errorf("making a folder for the demo: %w", err)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
			dir = temporary
		}
		if err := customers.Demo(ctx, a.out, dir); err != nil {
			return err
		}
		return demoReplicas(ctx, a.out)
	})
}

// demoReplicas tells of servers that hold the same shard, which files do not have.
func demoReplicas(ctx context.Context, out io.Writer) (err error) {
	dir, err := replicas.Folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintln(out, "\nOne shard on three servers: PostgreSQL, a primary and two secondaries")
	err = replicas.Demo(ctx, out, dir)
	if errors.Is(err, replicas.ErrNoPostgres) {
		_, err = fmt.Fprintf(out, "SKIPPED: %v. Install PostgreSQL, or run examples/replicas on servers of your own.\n", err)
	}
	return err
}
