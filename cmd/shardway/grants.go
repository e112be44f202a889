package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardway/shardway"
)

// The three users of design: the router reads the global store, the catalog
// changes both stores, the application asks a shard whether it owns a key.
type grantees struct{ router, catalog, application string }

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

var applicationRights = []right{{"local_mappings", "SELECT"}, {"local_shards", "SELECT"}}

// granter knows how one engine writes grants.
type granter struct {
	prefix string // before table names
	user   func(name string) string
	reach  func(user string) []string            // what lets a user see the tables at all
	deploy func(user string, r []right) []string // what lets the catalog create the local tables, and use them
	note   string                                // what is up to the reader
}

var granters = map[string]granter{
	"postgres": {
		prefix: "shardway.",
		user:   func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` },
		reach:  func(user string) []string { return []string{"GRANT USAGE ON SCHEMA shardway TO " + user} },
		// Who creates the tables owns them and needs no more rights.
		deploy: func(user string, _ []right) []string {
			return []string{"CREATE SCHEMA IF NOT EXISTS shardway", "GRANT USAGE, CREATE ON SCHEMA shardway TO " + user}
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
		note: "Tables are those of the current database: USE it first. A user is name or name@host; the host is % if none is given.",
	},
	"sqlserver": {
		prefix: "shardway.",
		user:   func(name string) string { return "[" + strings.ReplaceAll(name, "]", "]]") + "]" },
		reach:  func(string) []string { return nil },
		deploy: func(user string, _ []right) []string {
			return []string{
				"IF SCHEMA_ID('shardway') IS NULL EXEC('CREATE SCHEMA shardway')",
				"GRANT CREATE TABLE TO " + user,
				"GRANT ALTER, SELECT, INSERT, UPDATE, DELETE ON SCHEMA::shardway TO " + user,
			}
		},
		note: "Users are those of the database: CREATE USER ... FOR LOGIN ... first.",
	},
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
	Statements []string `json:"statements"`
}

// grantSections returns the statements that give each user what it needs, and no more.
func grantSections(engineName string, u grantees) ([]grantSection, error) {
	g, ok := granters[engineName]
	if !ok {
		return nil, &shardway.ArgumentError{Argument: "engine", Value: engineName, Reason: "has no users: who may read and write the files of the databases is up to the file system"}
	}
	for _, name := range []string{u.router, u.catalog, u.application} {
		if name == "" {
			continue
		}
		if err := shardway.CheckName("user", name); err != nil {
			return nil, err
		}
	}
	global := grantSection{Where: "global store's database", When: "after shardway init"}
	g.grant(&global, u.router, routerRights)
	g.grant(&global, u.catalog, catalogRights)
	before := grantSection{Where: "every shard's database", When: "before shardway shard add"}
	if u.catalog != "" {
		before.Statements = g.deploy(g.user(u.catalog), catalogLocalRights)
	}
	after := grantSection{Where: "every shard's database", When: "after shardway shard add"}
	g.grant(&after, u.application, applicationRights)
	return slices.DeleteFunc([]grantSection{global, before, after}, func(s grantSection) bool { return len(s.Statements) == 0 }), nil
}

func (g granter) grant(s *grantSection, user string, rights []right) {
	if user == "" {
		return
	}
	user = g.user(user)
	s.Statements = append(s.Statements, g.reach(user)...)
	for _, r := range rights {
		s.Statements = append(s.Statements, fmt.Sprintf("GRANT %s ON %s%s TO %s", r.privileges, g.prefix, r.table, user))
	}
}
