// Command ferretdb is a MongoDB-compatible database in one process: FerretDB
// on SQLite files. The tests run it; nothing else does.
//
//	ferretdb -dir /tmp/x -listen 127.0.0.1:0
//
// It prints the address it listens on as its first line, and ends on SIGTERM,
// or, with -until input, when its standard input ends. FerretDB's SQLite backend changes a document
// by reading it and writing it back, which two clients can do at once; the
// relay in front of it passes one command at a time, so that a command is as
// atomic as a single-document command of MongoDB is.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	dir := flag.String("dir", "", "folder for the databases' files")
	listen := flag.String("listen", "127.0.0.1:0", "host:port to listen on")
	until := flag.String("until", "input", "what ends the program besides a signal: input or signal")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *listen, *until == "input"); err != nil {
		fmt.Fprintln(os.Stderr, "ferretdb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, listen string, untilInput bool) error {
	if dir == "" {
		return fmt.Errorf("reading the arguments: -dir is missing")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if untilInput {
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, os.Stdin)
		}()
	}
	files := filepath.Join(dir, "databases")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return fmt.Errorf("making the folder for databases: %w", err)
	}
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Handler:   "sqlite",
		SQLiteURL: "file:" + files + "/?" + strings.Join(pragmas, "&"),
	})
	if err != nil {
		return fmt.Errorf("starting the database: %w", err)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- db.Run(ctx) }()
	backend, err := url.Parse(db.MongoDBURI()) // waits until it listens
	if err != nil {
		return fmt.Errorf("reading the database's address: %w", err)
	}
	r := &relay{backend: backend.Host}
	go r.serve(l)
	fmt.Println(l.Addr())
	<-ctx.Done()
	_ = l.Close()
	return <-done
}

// pragmas spare the disk: a test's data need not survive a crash of the machine.
var pragmas = []string{"_pragma=synchronous(off)", "_pragma=journal_mode(wal)"}
