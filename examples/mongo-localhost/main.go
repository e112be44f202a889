// Command mongo-localhost reads from the mongos on localhost, of several that a
// sharded MongoDB cluster has, through the official driver.
//
//	export MONGODB_URI='mongodb://mongos1,mongos2,localhost:27017/'
//	go run ./examples/mongo-localhost
//
// README.md says what it needs and what it leaves.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/served"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
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
	flags := flag.NewFlagSet("mongo-localhost", flag.ContinueOnError)
	flags.SetOutput(errs)
	uri := flags.String("uri", "", "`URI` of the cluster with several mongos; preferably set MONGODB_URI instead: others can see the flags of a program")
	prefer := flags.Bool("prefer", false, "use the others while no mongos on localhost answers, in place of failing")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil || flags.NArg() > 0:
		return exitUsage
	}
	if *uri == "" {
		*uri = getenv("MONGODB_URI")
	}
	if *uri == "" {
		fmt.Fprintln(errs, "mongo-localhost: -uri is missing, and so is MONGODB_URI")
		return exitUsage
	}
	criteria := required()
	if *prefer {
		criteria = preferred()
	}
	tally := served.New("find", "getMore", "aggregate")
	client, err := connect(ctx, *uri, criteria, tally)
	if err != nil {
		fmt.Fprintf(errs, "mongo-localhost: %s\n", reason(*uri, err))
		return exitUsage
	}
	err = tell(ctx, client, tally, *prefer, out)
	if err = errors.Join(err, client.Disconnect(context.WithoutCancel(ctx))); err != nil {
		fmt.Fprintf(errs, "mongo-localhost: %v\n", err)
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

// required is a predicate: no other server is ever read from.
func required() selection.Criteria {
	return selection.Where(func(s selection.ServerInfo) bool { return s.Host == "localhost" })
}

// preferred is a wish: the others are used while nobody on localhost answers.
func preferred() selection.Criteria {
	local := selection.Prefer(func(s selection.ServerInfo) bool { return s.Host == "localhost" })
	return selection.Nearest(local)
}

func connect(ctx context.Context, uri string, criteria selection.Criteria, tally *served.Tally) (*mongo.Client, error) {
	return mongoshard.Connect(ctx, options.Client().ApplyURI(uri).SetMonitor(tally.Monitor()), mongoshard.Config{
		Criteria: criteria,
	})
}

const (
	documents = 100
	reads     = 20
	patience  = time.Second // for a mongos that is only preferred
)

// tell writes documents, reads them, and checks who served the reads.
func tell(ctx context.Context, client *mongo.Client, tally *served.Tally, prefer bool, out io.Writer) (err error) {
	greetings := client.Database("shardway_example").Collection("greetings_" + bson.NewObjectID().Hex())
	defer func() {
		if dropped := greetings.Drop(context.WithoutCancel(ctx)); err == nil {
			err = dropped
		}
	}()
	var batch []bson.D
	for i := range documents {
		batch = append(batch, bson.D{{Key: "_id", Value: i}})
	}
	if _, err := greetings.InsertMany(ctx, batch); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	set, err := mongoshard.Servers(client)
	if err != nil {
		return err
	}
	if set.Kind() != topology.KindSharded {
		return fmt.Errorf("%v is no sharded cluster: name its mongos servers", set.Kind())
	}
	// The write may have used any mongos. The first read waits for the one on
	// localhost, which cannot be preferred before it has answered.
	first, cancel := mongoshard.WithCriteria(ctx, required()), context.CancelFunc(func() {})
	if prefer {
		first, cancel = context.WithTimeout(first, patience)
	}
	err = read(first, greetings)
	cancel()
	if err != nil && !prefer {
		return fmt.Errorf("reading: %w", err)
	}
	if set, err = mongoshard.Servers(client); err != nil {
		return err
	}
	fmt.Fprintf(out, "The deployment is %v:\n", set.Kind())
	for _, s := range set.Servers() {
		fmt.Fprintf(out, "   %s is %v, round trip %v\n", s.Address, s.Role, s.AverageRTT)
	}
	tally.Take()
	for range reads {
		if err := read(ctx, greetings); err != nil {
			return fmt.Errorf("reading: %w", err)
		}
	}
	counts := tally.Take()
	fmt.Fprintf(out, "%d commands of %d reads were served by %v\n", counts.Total(), reads, counts)
	if !prefer && !counts.Only(onLocalhost) {
		return errors.New("a read was not served by localhost")
	}
	fmt.Fprintln(out, "This was told by the driver's own command events.")
	return nil
}

// read counts the documents and fetches them in batches: a cursor stays on its server.
func read(ctx context.Context, greetings *mongo.Collection) error {
	n, err := greetings.CountDocuments(ctx, bson.D{})
	if err != nil {
		return err
	}
	cursor, err := greetings.Find(ctx, bson.D{}, options.Find().SetBatchSize(documents/4))
	if err != nil {
		return err
	}
	var found []bson.D
	if err := cursor.All(ctx, &found); err != nil {
		return err
	}
	if n != documents || len(found) != documents {
		return fmt.Errorf("%d documents counted and %d found, of %d", n, len(found), documents)
	}
	return nil
}

func onLocalhost(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && host == "localhost"
}
