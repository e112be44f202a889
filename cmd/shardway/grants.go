package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/topology/mysqlprobe"
	"github.com/shardway/shardway/topology/pgprobe"
	"github.com/shardway/shardway/topology/sqlserverprobe"
)

// The users of design: the router reads the global store, the catalog changes
// both stores, the application asks a shard whether it owns a key. The prober
// checks the servers of shards that have several; it may be the application.
type grantees struct{ router, catalog, application, prober string }

// right is what one user may do with one table.
type right struct{ table, privileges string }

var routerRights = []right{
	{"store", "SELECT"}, {"shard_maps", "SELECT"}, {"shards", "SELECT"}, {"mappings", "SELECT"}, {"history", "SELECT"},
}

// The catalog can add to the history and never change it. It locks the one row
// of table store, which takes the right to update it.
var catalogRights = []right{
	{"store", "SELECT, UPDATE"},
	{"counters", "SELECT, UPDATE"},
	{"shard_maps", "SELECT, INSERT, UPDATE, DELETE"},
	{"shards", "SELECT, INSERT, UPDATE, DELETE"},
	{"mappings", "SELECT, INSERT, UPDATE, DELETE"},
	{"pending_mappings", "SELECT, INSERT, UPDATE, DELETE"},
	{"operations", "SELECT, INSERT, UPDATE, DELETE"},
	{"operation_parts", "SELECT, INSERT, DELETE"},
	{"history", "SELECT, INSERT"},
}

var catalogLocalRights = []right{
	{"local_store", "SELECT, INSERT, UPDATE"},
	{"local_shard_maps", "SELECT, INSERT, DELETE"},
	{"local_shards", "SELECT, INSERT, DELETE"},
	{"local_mappings", "SELECT, INSERT, DELETE"},
	{"local_operations", "SELECT, INSERT, UPDATE, DELETE"},
}

// The application reads the local map, and locks the row of a mapping while a
// transaction for it is open; the catalog waits for that lock.
var applicationRights = []right{{"local_mappings", "SELECT"}, {"local_shards", "SELECT"}}

// granter knows how one engine writes grants.
type granter struct {
	prefix string // before table names
	schema string // what makes the place for the tables, if it takes one
	user   func(name string) string
	reach  func(user string) []string            // what lets a user see the tables at all
	deploy func(user string, r []right) []string // what lets the catalog create the local tables, and use them
	locks  string                                // right that locking a row takes besides SELECT; may be empty
	owners bool                                  // deploy lets the catalog use only those tables that it has created
	drain  func(user string) []grantSection      // what lets the catalog end the sessions of others that are at work for a mapping
	probe  func(user string) []grantSection      // what lets a user see how far a secondary is behind
	note   string                                // what is up to the reader
}

const administrator = "an administrator"

var granters = map[string]granter{
	"postgres": {
		prefix: "shardway.",
		schema: "CREATE SCHEMA IF NOT EXISTS shardway",
		user:   func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` },
		reach:  func(user string) []string { return []string{"GRANT USAGE ON SCHEMA shardway TO " + user} },
		// Who creates the tables owns them and needs no more rights; who does not
		// create them has none.
		owners: true,
		// Column fence holds NULL and nothing else: who may update it may lock
		// rows and cannot change them.
		locks: ", UPDATE (fence)",
		deploy: func(user string, _ []right) []string {
			return []string{"GRANT USAGE, CREATE ON SCHEMA shardway TO " + user}
		},
		drain: func(user string) []grantSection {
			return []grantSection{{Where: shardServer, Statements: []string{"GRANT " + drainRights("postgres", "") + " TO " + user}}}
		},
		probe: func(user string) []grantSection {
			return []grantSection{{
				Where: "primary of every shard with several servers", By: administrator,
				Statements: pgprobe.Grants(user, pgprobe.Options{}),
			}}
		},
		note: "Where CONNECT is revoked from PUBLIC, grant it on the database too.",
	},
	"mysql": {
		prefix: "shardway_",
		user:   mysqlUser,
		reach:  func(string) []string { return nil },
		deploy: func(user string, rights []right) []string {
			var all []string
			for _, r := range rights {
				all = append(all, "GRANT CREATE, "+r.privileges+" ON shardway_"+r.table+" TO "+user)
			}
			return all
		},
		drain: func(user string) []grantSection {
			return []grantSection{
				{Where: shardServer + ", on MariaDB", Statements: grantEach("mysql", "MariaDB", user)},
				{Where: shardServer + ", on MySQL", Statements: grantEach("mysql", "", user)},
			}
		},
		probe: func(account string) []grantSection {
			const primary = "primary of every shard with several servers, "
			return []grantSection{
				{Where: primary + "on MariaDB", By: administrator, Statements: mysqlprobe.GrantsMariaDB(account, mysqlprobe.Options{})},
				{Where: primary + "on MySQL", By: administrator, Statements: mysqlprobe.GrantsMySQL(account, mysqlprobe.Options{})},
			}
		},
		note: "Tables are those of the current database: USE it first. A user is name or name@host; the host is % if none is given. " +
			"Before MySQL 8.0.22 the application also needs LOCK TABLES on the database.",
	},
	"sqlserver": {
		prefix: "shardway.",
		schema: "IF SCHEMA_ID('shardway') IS NULL EXEC('CREATE SCHEMA shardway')",
		user:   func(name string) string { return "[" + strings.ReplaceAll(name, "]", "]]") + "]" },
		reach:  func(string) []string { return nil },
		deploy: func(user string, _ []right) []string {
			return []string{
				"GRANT CREATE TABLE TO " + user,
				"GRANT ALTER, SELECT, INSERT, UPDATE, DELETE ON SCHEMA::shardway TO " + user,
			}
		},
		drain: func(user string) []grantSection {
			return []grantSection{{Where: "database master on " + shardServer, Statements: []string{"GRANT " + drainRights("sqlserver", "") + " TO " + user}}}
		},
		probe: func(user string) []grantSection {
			return []grantSection{
				{
					Where: "database master on every server of shards with several servers", By: administrator,
					Statements: sqlserverprobe.Grants(user, sqlserverprobe.Options{}),
				},
				{
					Where: "every shard's database with several servers, on Azure SQL in place of that", By: administrator,
					Statements: sqlserverprobe.GrantsAzure(user, sqlserverprobe.Options{}),
				},
			}
		},
		note: "Users are those of the database: CREATE USER ... FOR LOGIN ... first.",
	},
}

const shardServer = "every shard's server"

// drainRights lists what it takes to see and to end the sessions of others.
func drainRights(engine, version string) string {
	return strings.Join(rightsToDrain(engine, version), ", ")
}

func grantEach(engine, version, user string) []string {
	var all []string
	for _, r := range rightsToDrain(engine, version) {
		all = append(all, "GRANT "+r+" TO "+user)
	}
	return all
}

func rightsToDrain(engine, version string) []string {
	d, err := dialect.For(engine)
	if err != nil {
		panic(err) // engines of this table are those of the dialects
	}
	return d.DrainRights(version)
}

// mysqlUser writes name or name@host as an account.
func mysqlUser(text string) string {
	name, host := text, "%"
	if at := strings.LastIndexByte(text, '@'); at > 0 {
		name, host = text[:at], text[at+1:]
	}
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
	}
	return quote(name) + "@" + quote(host)
}

// grantSection is a list of statements for one kind of database and moment.
type grantSection struct {
	Where      string   `json:"where"`
	When       string   `json:"when"`
	By         string   `json:"by"` // who may run them
	Statements []string `json:"statements"`
}

// grantSections returns the statements that give each user what it needs, and no more.
func grantSections(engineName string, u grantees) ([]grantSection, error) {
	g, ok := granters[engineName]
	if !ok {
		return nil, &shardway.ArgumentError{Argument: "engine", Value: engineName, Reason: "has no users: who may read and write the files of the databases is up to the file system"}
	}
	for _, name := range []string{u.router, u.catalog, u.application, u.prober} {
		if name == "" {
			continue
		}
		if err := shardway.CheckName("user", name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(g.sections(u), func(s grantSection) bool { return len(s.Statements) == 0 }), nil
}

// sections are in the order in which they are run. The schema on a shard may
// belong to another user than its tables: each section is for one of them.
func (g granter) sections(u grantees) []grantSection {
	const everywhere, added, owner = "every shard's database", "after shardway shard add", "the user that ran shardway shard add, or an administrator"
	global := grantSection{Where: "global store's database", When: "after shardway init", By: "the user that ran shardway init, or an administrator"}
	before := grantSection{Where: everywhere, When: "before shardway shard add", By: "the owner of the database, or an administrator"}
	others := grantSection{Where: "shards that another user than the catalog added", When: added, By: owner}
	after := grantSection{Where: everywhere, When: added, By: owner}
	if u.router != "" {
		global.Statements = append(g.reach(g.user(u.router)), g.grants(u.router, routerRights)...)
	}
	if u.catalog != "" {
		user := g.user(u.catalog)
		global.Statements = append(append(global.Statements, g.reach(user)...), g.grants(u.catalog, catalogRights)...)
		before.Statements = g.deploy(user, catalogLocalRights)
		if g.owners {
			others.Statements = g.grants(u.catalog, g.locking(catalogLocalRights, "local_mappings"))
		}
	}
	if u.application != "" {
		before.Statements = append(before.Statements, g.reach(g.user(u.application))...)
		after.Statements = g.grants(u.application, g.locking(applicationRights, "local_mappings", "local_shards"))
	}
	if g.schema != "" && len(before.Statements) > 0 {
		before.Statements = append([]string{g.schema}, before.Statements...)
	}
	sections := []grantSection{global, before, others, after}
	if u.catalog != "" {
		for _, s := range g.drain(g.user(u.catalog)) {
			s.When, s.By = "so that changes can end the sessions of others", administrator
			sections = append(sections, s)
		}
	}
	if u.prober != "" {
		for _, s := range g.probe(u.prober) {
			s.When = "before the second server is added"
			sections = append(sections, s)
		}
	}
	return sections
}

func (g granter) grants(user string, rights []right) []string {
	all := make([]string, len(rights))
	for i, r := range rights {
		all[i] = fmt.Sprintf("GRANT %s ON %s%s TO %s", r.privileges, g.prefix, r.table, g.user(user))
	}
	return all
}

// locking adds the right to lock rows of some tables.
func (g granter) locking(rights []right, tables ...string) []right {
	rights = slices.Clone(rights)
	for i := range rights {
		if slices.Contains(tables, rights[i].table) {
			rights[i].privileges += g.locks
		}
	}
	return rights
}
