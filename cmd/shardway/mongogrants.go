package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
)

// mongoGrantsNote is what is up to the reader.
const mongoGrantsNote = "Commands for mongosh. Run them in every shard's database: use DATABASE first. Users are those of the database admin. " +
	"The router and the checks of servers need no rights on MongoDB; the global store is in a SQL database."

// mongoPrivilege is what a role may do with one collection.
type mongoPrivilege struct {
	collection string
	actions    []string
}

var mongoCatalogPrivileges = []mongoPrivilege{
	{mongomap.Store, []string{"find", "insert", "update"}},
	{mongomap.Operations, []string{"createIndex", "find", "insert", "update", "remove"}},
	{mongomap.Rows, []string{"createIndex", "find", "insert", "update", "remove"}},
	{mongomap.Lanes, []string{"find", "insert", "update"}},
}

// An application that runs no transactions by key needs nothing on the lanes.
var mongoApplicationPrivileges = []mongoPrivilege{
	{mongomap.Store, []string{"find"}},
	{mongomap.Operations, []string{"find"}},
	{mongomap.Rows, []string{"find"}},
	{mongomap.Lanes, []string{"find", "insert", "update"}},
}

// mongoGrants are the sections for shards on MongoDB.
func mongoGrants(u grantees) ([]grantSection, error) {
	s := grantSection{Where: "every shard's database", When: "before shardway shard add", By: administrator}
	for _, g := range []struct {
		role, user string
		privileges []mongoPrivilege
	}{
		{"shardwayCatalog", u.catalog, mongoCatalogPrivileges},
		{"shardwayApplication", u.application, mongoApplicationPrivileges},
	} {
		if g.user == "" {
			continue
		}
		if err := shardway.CheckName("user", g.user); err != nil {
			return nil, err
		}
		s.Statements = append(s.Statements, createRole(g.role, g.privileges), fmt.Sprintf(
			`db.getSiblingDB("admin").grantRolesToUser(%s, [{role: %s, db: db.getName()}])`, javaScript(g.user), javaScript(g.role)))
	}
	if len(s.Statements) == 0 {
		return []grantSection{}, nil
	}
	return []grantSection{s}, nil
}

func createRole(name string, privileges []mongoPrivilege) string {
	all := make([]string, len(privileges))
	for i, p := range privileges {
		all[i] = fmt.Sprintf("{resource: {db: db.getName(), collection: %s}, actions: %s}", javaScript(p.collection), javaScript(p.actions))
	}
	return fmt.Sprintf("db.createRole({role: %s, roles: [], privileges: [\n  %s]})", javaScript(name), strings.Join(all, ",\n  "))
}

// javaScript is a value as a literal.
func javaScript(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of texts alone
	}
	return string(text)
}

// mongoGrants prints the sections.
func (p *page) mongoGrants(sections []grantSection) {
	p.line("// %s", mongoGrantsNote)
	for _, s := range sections {
		p.line("\n// %s, %s; as %s", s.Where, s.When, s.By)
		for _, statement := range s.Statements {
			p.line("%s;", statement)
		}
	}
}
