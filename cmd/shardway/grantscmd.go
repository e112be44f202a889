package main

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
)

// grantEngines are the engines that have users.
func grantEngines() []string {
	return append([]string{onMongoDB}, slices.Sorted(maps.Keys(granters))...)
}

func grantsCommand(a *app) *cobra.Command {
	var u grantees
	c := &cobra.Command{
		Use: "grants ENGINE", Short: "Print the statements that give each user the least rights it needs", Args: arguments("ENGINE"),
		Long: "Three users share the work. The router reads the global store, in every application. The\n" +
			"catalog changes shard maps, in this tool: it writes the global store and the local maps on\n" +
			"the shards. The application works on the shards and only reads the local map there. Where\n" +
			"shards have several servers, the prober sees how far each is behind: it is the user of the\n" +
			"application, unless the checks have a login of their own.\n" +
			"Prints statements for the users that are named; create them first. Nothing is executed.\n" +
			"shardway init needs the right to create tables: run it as the owner of the database. In\n" +
			"PostgreSQL a table belongs to the user that created it: shards that another user than the\n" +
			"catalog has added take a section of their own. SQLite has no users.",
		Example: example("shardway grants postgres --router router --catalog catalog --application app",
			"shardway grants postgres --application app --prober app", "shardway grants mongodb --catalog catalog --application app", "shardway grants mysql --application 'app@10.0.0.%'"),
		ValidArgs: grantEngines(),
	}
	c.Flags().StringVar(&u.router, "router", "", "user of the router")
	c.Flags().StringVar(&u.catalog, "catalog", "", "user of the catalog")
	c.Flags().StringVar(&u.application, "application", "", "user of the application")
	c.Flags().StringVar(&u.prober, "prober", "", "user of the checks of servers, often that of the application")
	c.MarkFlagsOneRequired("router", "catalog", "application", "prober")
	return a.does(c, func(_ context.Context, args []string) error {
		if isMongoDB(args[0]) {
			sections, err := mongoGrants(u)
			if err != nil {
				return err
			}
			return a.emit(sections, func(p *page) { p.mongoGrants(sections) })
		}
		e, err := findEngine(args[0])
		if err != nil {
			known := list(grantEngines(), "or")
			return &shardway.ArgumentError{Argument: "engine", Value: args[0], Reason: "is unknown: expected " + known}
		}
		sections, err := grantSections(e.name, u)
		if err != nil {
			return err
		}
		return a.emit(sections, func(p *page) {
			p.line("-- %s", granters[e.name].note)
			for _, s := range sections {
				p.line("\n-- %s, %s; as %s", s.Where, s.When, s.By)
				for _, statement := range s.Statements {
					p.line("%s;", statement)
				}
			}
		})
	})
}
