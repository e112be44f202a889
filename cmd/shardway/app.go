package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store/sqlstore"
)

// app is one run of the program.
type app struct {
	in        io.Reader
	out, errs io.Writer
	set       settings
	began     bool // the command line was fine: errors are of the work itself
	emitted   bool // the result was printed
}

// work is what a command does once its settings are read.
type work func(ctx context.Context, args []string) error

// does makes a command run work.
func (a *app) does(c *cobra.Command, do work) *cobra.Command {
	a.completeNames(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkFlags(cmd.Flags()); err != nil {
			return err
		}
		a.began = true
		if err := a.set.load(cmd.Flags()); err != nil {
			return err
		}
		return do(cmd.Context(), args)
	}
	return c
}

// withStore makes a command run work on the global store that the settings name.
func (a *app) withStore(c *cobra.Command, do func(ctx context.Context, s *session, args []string) error) *cobra.Command {
	return a.does(c, func(ctx context.Context, args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		return errors.Join(s.whose(ctx, do(ctx, s, args)), s.close())
	})
}

// session is the work of one command on one global store.
type session struct {
	*app
	*catalog.Catalog
	address address // of the global store
	global  *sqlstore.Global
	locals  *localStores
	login   shardway.Credentials // on the shards
}

// open does no I/O: the first use of the store connects.
func (a *app) open() (*session, error) {
	address, err := a.set.store()
	if err != nil {
		return nil, err
	}
	speak, login, err := a.set.shards(address)
	if err != nil {
		return nil, err
	}
	cfg := catalog.Config{Who: a.who(), Logger: slog.New(&notes{w: a.errs})}
	if cfg.Lease, err = a.set.duration("lease"); err != nil {
		return nil, err
	}
	if cfg.Wait, err = a.set.duration("wait"); err != nil {
		return nil, err
	}
	s := &session{app: a, address: address, login: login}
	if s.locals, err = newLocalStores(&a.set, speak, login); err != nil {
		return nil, err
	}
	if s.global, err = sqlstore.OpenGlobal(address.engine, address.location, address.credentials); err != nil {
		return nil, errors.Join(err, s.locals.Close())
	}
	if s.Catalog, err = catalog.New(s.global, s.locals, cfg); err != nil {
		var wrong *shardway.ArgumentError
		if errors.As(err, &wrong) && wrong.Argument == "Lease" {
			err = a.set.wrong("lease", wrong.Reason)
		}
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *session) close() error { return errors.Join(s.locals.Close(), s.global.Close()) }

// json reports whether programs read the output.
func (a *app) json() bool { return a.set.text("output") == "json" }

// who is the name that the history gets.
func (a *app) who() string {
	if name := a.set.text("who"); name != "" {
		return name
	}
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil && name == "" {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}
