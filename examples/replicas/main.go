// Command replicas shows how Shardway chooses among the servers of a shard, on
// a PostgreSQL primary and secondaries of your own: a write goes to the primary,
// a read to a secondary chosen by latency, another one to a server that a
// predicate accepts, and after a failover writes flow to the new primary.
//
//	export REPLICAS_PRIMARY='postgres://app:secret@db1:5432/scratch'
//	export REPLICAS_SECONDARIES='db2:5432,db3:5432'
//	go run ./examples/replicas
//
// README.md says what it needs and what it leaves.
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
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicas"
	"github.com/shardway/shardway/postgres"
)

// The exit codes.
const (
	exitOK     = 0 // all that is said was checked
	exitFailed = 1 // a check failed, a server cannot be used, or the run was interrupted
	exitUsage  = 2 // a flag or an address cannot be used
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the program without its process. It returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, out, errs io.Writer) int {
	s := &replicas.Story{Out: out}
	err := read(s, args, getenv, errs)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err == nil {
		err = s.Tell(ctx)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(errs, "replicas: %v\n", err)
	if errors.Is(err, shardway.ErrInvalid) {
		return exitUsage
	}
	return exitFailed
}

// read reads where the servers are. The DSN holds a secret and is never printed.
func read(s *replicas.Story, args []string, getenv func(string) string, errs io.Writer) (err error) {
	flags := flag.NewFlagSet("replicas", flag.ContinueOnError)
	flags.SetOutput(errs)
	primary := flags.String("primary", "", "`DSN` of the database on the primary; preferably set REPLICAS_PRIMARY instead: others can see the flags of a program")
	secondaries := flags.String("secondaries", "", "`addresses` of the secondaries, as in db2:5432,db3:5432; or set REPLICAS_SECONDARIES")
	flags.BoolVar(&s.Promote, "promote", false, "promote the last secondary by pg_promote, in place of waiting for you to do it")
	flags.DurationVar(&s.Wait, "wait", 5*time.Minute, "how long to wait for the failover")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil || flags.NArg() > 0 {
		return &shardway.ArgumentError{Argument: "command line", Reason: "has something else than the flags -primary, -secondaries, -promote, -wait"}
	}
	if *primary == "" {
		*primary = getenv("REPLICAS_PRIMARY")
	}
	if *secondaries == "" {
		*secondaries = getenv("REPLICAS_SECONDARIES")
	}
	switch {
	case *primary == "":
		return &shardway.ArgumentError{Argument: "-primary", Reason: "is missing, and so is REPLICAS_PRIMARY"}
	case *secondaries == "":
		return &shardway.ArgumentError{Argument: "-secondaries", Reason: "is missing, and so is REPLICAS_SECONDARIES"}
	case s.Wait <= 0:
		return &shardway.ArgumentError{Argument: "-wait", Value: s.Wait.String(), Reason: "is not above 0"}
	}
	if s.Engine, s.Location, s.Login, err = postgres.Parse(*primary); err != nil {
		return fmt.Errorf("primary: %w", err)
	}
	for _, address := range strings.Split(*secondaries, ",") {
		s.Location.Servers = append(s.Location.Servers, shardway.Server{Address: address})
	}
	if s.Location, err = s.Engine.Normalize(s.Location); err != nil {
		return fmt.Errorf("secondaries: %w", err)
	}
	return nil
}
