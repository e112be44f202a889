// Command shardway is the operator's tool for shard maps: it creates the
// global store, changes maps, shards and mappings, shows how a key is routed,
// and finishes what a broken client left behind. It is a thin layer over
// package catalog and the router, and the only place that joins them with
// engines and drivers.
//
//	export SHARDWAY_STORE=sqlite:maps.db
//	shardway init
//	shardway map create customers --kind range --key int64
//	shardway shard add s1 sqlite:s1.db --map customers
//	shardway mapping add --map customers --shard s1 --low 0 --high 1000
//	shardway route 42 --map customers --explain
//
// Every command is documented in docs/cli.md.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The first signal ends the context: a change under way is then brought to
	// an end in order. The next one kills the program, as without us.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program without its process. It returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	a := &app{in: in, out: out, errs: errs}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	return a.report(ctx, cmd, args, err)
}
