package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway/internal/customers"
)

// replicasNote ends the demo: files have no replicas.
const replicasNote = "Reads by latency and by a predicate, and a failover, on PostgreSQL replicas: examples/replicas."

func demoCommand(a *app) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "demo", Short: "Watch Shardway at work on embedded databases, without any set-up", Args: arguments(),
		Long:    "Makes a global store and three shards of SQLite files, loads customers, routes reads and\nupdates, splits a range and moves it while readers and writers run, and checks the counts.\nThe files are removed at the end, unless --dir names a folder for them.",
		Example: example("shardway demo", "shardway demo --dir /tmp/demo"),
	}
	c.Flags().StringVar(&dir, "dir", "", "folder for the databases, which then stay (default a temporary one)")
	return a.does(c, func(ctx context.Context, _ []string) (err error) {
		defer func() {
			if err == nil {
				_, err = fmt.Fprintln(a.out, replicasNote)
			}
		}()
		if dir != "" {
			return customers.Demo(ctx, a.out, dir)
		}
		temporary, err := os.MkdirTemp("", "shardway-demo-")
		if err != nil {
			return fmt.Errorf("making a folder for the demo: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
		return customers.Demo(ctx, a.out, temporary)
	})
}
