// Command customers runs the main job of Shardway on databases of your own: a
// sharded customer database on PostgreSQL, MariaDB, MySQL or SQLite. It is the
// story of `shardway demo`, with the counts that prove it, and takes the
// databases from flags or from the environment:
//
//	export CUSTOMERS_GLOBAL='postgres://app:secret@127.0.0.1:5432/shardmaps'
//	export CUSTOMERS_SHARD1='postgres://app:secret@127.0.0.1:5432/shard1'
//	export CUSTOMERS_SHARD2='postgres://app:secret@127.0.0.1:5432/shard2'
//	export CUSTOMERS_SHARD3='postgres://app:secret@127.0.0.1:5432/shard3'
//	go run ./examples/customers
//
// README.md says what it creates there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/customers"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlite"
)

// The exit codes.
const (
	exitOK     = 0 // all counts are right
	exitFailed = 1 // a count is wrong, a database cannot be used, or the run was interrupted
	exitUsage  = 2 // a flag or a DSN cannot be used
)

func main() {
	// The first signal ends the story where it is; the next one kills.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the program without its process. It returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, out, errs io.Writer) int {
	dbs, err := databases(args, getenv, errs)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err == nil {
		err = customers.Run(ctx, out, dbs)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(errs, "customers: %v\n", err)
	if errors.Is(err, shardway.ErrInvalid) {
		return exitUsage
	}
	return exitFailed
}

// databases reads the four DSNs, from flags or else from the environment. DSNs
// hold secrets, so neither they nor presets of flags are ever printed.
func databases(args []string, getenv func(string) string, errs io.Writer) (dbs customers.Databases, err error) {
	flags := flag.NewFlagSet("customers", flag.ContinueOnError)
	flags.SetOutput(errs)
	places := []struct {
		flag, variable, what string
		db                   *customers.Database
		dsn                  *string
	}{
		{flag: "global", variable: "CUSTOMERS_GLOBAL", what: "of the global shard map", db: &dbs.Global},
		{flag: "shard1", variable: "CUSTOMERS_SHARD1", what: "of the first shard", db: &dbs.Shards[0]},
		{flag: "shard2", variable: "CUSTOMERS_SHARD2", what: "of the second shard", db: &dbs.Shards[1]},
		{flag: "shard3", variable: "CUSTOMERS_SHARD3", what: "of the third shard", db: &dbs.Shards[2]},
	}
	for i := range places {
		p := &places[i]
		p.dsn = flags.String(p.flag, "", "`DSN` "+p.what+"; preferably set "+p.variable+" instead: others can see the flags of a program")
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return dbs, err
	} else if err != nil || flags.NArg() > 0 {
		return dbs, &shardway.ArgumentError{Argument: "command line", Reason: "has something else than the flags -global, -shard1, -shard2, -shard3"}
	}
	for _, p := range places {
		dsn := *p.dsn
		if dsn == "" {
			dsn = getenv(p.variable)
		}
		if dsn == "" {
			return dbs, &shardway.ArgumentError{Argument: "-" + p.flag, Reason: "is missing, and so is " + p.variable}
		}
		if *p.db, err = parse(dsn); err != nil {
			return dbs, fmt.Errorf("database %s: %w", p.what, err)
		}
	}
	return dbs, nil
}

// parse reads a DSN by the rules of its engine.
func parse(dsn string) (db customers.Database, err error) {
	scheme, _, _ := strings.Cut(dsn, ":")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		db.Engine, db.Location, db.Credentials, err = postgres.Parse(dsn)
	case "mysql", "mariadb":
		db.Engine, db.Location, db.Credentials, err = mysql.Parse(dsn)
	case "sqlite":
		db.Engine, db.Location, db.Credentials, err = sqlite.Parse(dsn)
	default:
		err = &shardway.ArgumentError{Argument: "DSN", Reason: "does not begin with postgres://, mysql:// or sqlite:"}
	}
	return db, err
}
