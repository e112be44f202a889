// Command mongo-replicaset shows how Shardway chooses among the members of a
// MongoDB replica set, through the official driver: writes go to the primary,
// reads to a secondary with tags, to the nearest members, and to those that a
// predicate accepts; after an election writes flow to the new primary.
//
//	export MONGODB_URI='mongodb://db1,db2,db3/?replicaSet=rs0'
//	go run ./examples/mongo-replicaset
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

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/served"
	"github.com/shardway/shardway/mongoshard"
)

// The exit codes.
const (
	exitOK     = 0 // all that is said was checked
	exitFailed = 1 // a check failed, no server can be used, or the run was interrupted
	exitUsage  = 2 // a flag or the URI cannot be used
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the program without its process. It returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("mongo-replicaset", flag.ContinueOnError)
	flags.SetOutput(errs)
	uri := flags.String("uri", "", "`URI` of the replica set; preferably set MONGODB_URI instead: others can see the flags of a program")
	stepDown := flags.Bool("step-down", false, "let the primary step down, in place of waiting for you to do it; needs the right to")
	wait := flags.Duration("wait", 5*time.Minute, "how long to wait for the election")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil || flags.NArg() > 0 || *wait <= 0:
		return exitUsage
	}
	if *uri == "" {
		*uri = getenv("MONGODB_URI")
	}
	if *uri == "" {
		fmt.Fprintln(errs, "mongo-replicaset: -uri is missing, and so is MONGODB_URI")
		return exitUsage
	}
	tally := served.New("find", "insert")
	client, err := mongoshard.Connect(ctx, options.Client().ApplyURI(*uri).SetMonitor(tally.Monitor()), mongoshard.Config{})
	if err != nil {
		fmt.Fprintf(errs, "mongo-replicaset: %s\n", reason(*uri, err))
		return exitUsage
	}
	s := newStory(client, tally, out)
	s.stepDown, s.wait = *stepDown, *wait
	err = s.tell(ctx)
	if err = errors.Join(err, client.Disconnect(context.WithoutCancel(ctx))); err != nil {
		fmt.Fprintf(errs, "mongo-replicaset: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// reason is why options were refused. The driver's own words may repeat a part
// of a password, so they are shown only when there is no login in the URI.
func reason(uri string, err error) string {
	var option *mongoshard.OptionError
	if errors.As(err, &option) || !strings.Contains(uri, "@") {
		return err.Error()
	}
	return "the URI cannot be used; it holds a login, so the reason is not shown"
}
