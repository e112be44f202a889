package main

import (
	"fmt"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/sqlserver"
	"github.com/shardway/shardway/topology/mysqlprobe"
	"github.com/shardway/shardway/topology/pgprobe"
	"github.com/shardway/shardway/topology/sqliteprobe"
	"github.com/shardway/shardway/topology/sqlserverprobe"
)

// engine is an engine that this program speaks. A further one is one line in
// the table below.
type engine struct {
	name    string
	aliases []string // other schemes of its DSNs
	example string   // a DSN, for messages
	parse   func(dsn string) (address, error)
	with    func(options, heartbeat string) shardway.Engine // heartbeat: table of replication, or empty
}

// address is a DSN taken apart.
type address struct {
	engine      shardway.Engine
	options     string // URL query text
	location    shardway.Location
	credentials shardway.Credentials
}

var engines = []engine{
	{
		"postgres",
		[]string{"postgresql"},
		"postgres://host:5432/database", parser(postgres.Parse, func(e postgres.Engine) string { return e.Options }),
		func(options, heartbeat string) shardway.Engine {
			return postgres.Engine{Options: options, Probe: pgprobe.Options{Heartbeat: heartbeat}}
		},
	},
	{
		"mysql",
		[]string{"mariadb"},
		"mysql://host:3306/database", parser(mysql.Parse, func(e mysql.Engine) string { return e.Options }),
		func(options, heartbeat string) shardway.Engine {
			return mysql.Engine{Options: options, Probe: mysqlprobe.Options{Heartbeat: heartbeat}}
		},
	},
	{
		"sqlserver",
		[]string{"mssql"},
		"sqlserver://host:1433?database=name", parser(sqlserver.Parse, func(e sqlserver.Engine) string { return e.Options }),
		func(options, heartbeat string) shardway.Engine {
			return sqlserver.Engine{Options: options, Probe: sqlserverprobe.Options{Heartbeat: heartbeat}}
		},
	},
	{
		"sqlite", nil, "sqlite:path/to/file.db", parser(sqlite.Parse, func(e sqlite.Engine) string { return e.Options }),
		func(options, heartbeat string) shardway.Engine {
			return sqlite.Engine{Options: options, Probe: sqliteprobe.Options{Heartbeat: heartbeat}}
		},
	},
}

func parser[E shardway.Engine](parse func(string) (E, shardway.Location, shardway.Credentials, error), options func(E) string) func(string) (address, error) {
	return func(dsn string) (address, error) {
		e, l, c, err := parse(dsn)
		if err != nil {
			return address{}, err
		}
		return address{engine: e, options: options(e), location: l, credentials: c}, nil
	}
}

// dsnExamples shows a DSN of every engine.
func dsnExamples() string {
	examples := make([]string, len(engines))
	for i, e := range engines {
		examples[i] = e.example
	}
	return list(examples, "or")
}

// engineNames are the engines that can hold a global store.
func engineNames() []string {
	names := make([]string, len(engines))
	for i, e := range engines {
		names[i] = e.name
	}
	return names
}

func findEngine(name string) (engine, error) {
	for _, e := range engines {
		if strings.EqualFold(name, e.name) {
			return e, nil
		}
		for _, alias := range e.aliases {
			if strings.EqualFold(name, alias) {
				return e, nil
			}
		}
	}
	return engine{}, &shardway.ArgumentError{Argument: "engine", Value: name, Reason: "is unknown: expected one of " + strings.Join(append(engineNames(), onMongoDB), ", ")}
}

// parseAddress takes a DSN apart. what names it in errors, which never show
// the DSN: it may hold a secret. expected are the engines that errors name.
func parseAddress(what, dsn string, expected ...string) (address, error) {
	scheme, rest, ok := strings.Cut(dsn, ":")
	if !ok || strings.ContainsAny(scheme, "/@?= ") {
		return address{}, &shardway.ArgumentError{Argument: what, Reason: "does not start with an engine: expected for example " + engines[0].example + " or sqlite:file.db"}
	}
	if isMongoDB(scheme) {
		return parseMongoDB(what, dsn)
	}
	e, err := findEngine(scheme)
	if err != nil {
		return address{}, &shardway.ArgumentError{
			Argument: what, Reason: fmt.Sprintf("begins with the engine %q, which is unknown: expected one of %s", scheme, strings.Join(expected, ", ")),
		}
	}
	a, err := e.parse(e.name + ":" + rest)
	if err != nil {
		return address{}, &addressError{what: what, err: err}
	}
	return a, nil
}

// addressError says which DSN is wrong.
type addressError struct {
	what string
	err  error
}

func (e *addressError) Error() string { return e.what + ": " + e.err.Error() }
func (e *addressError) Unwrap() error { return e.err }
