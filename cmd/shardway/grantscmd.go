package main

import (
	"context"

	"github.com/spf13/cobra"
)

func grantsCommand(a *app) *cobra.Command {
	var u grantees
	c := &cobra.Command{
		Use: "grants ENGINE", Short: "Print the statements that give each user the least rights it needs", Args: arguments("ENGINE"),
		Long: "Three users share the work. The router reads the global store, in every application. The\n" +
			"catalog changes shard maps, in this tool: it writes the global store and the local maps on\n" +
			"the shards. The application works on the shards and only reads the local map there.\n" +
			"Prints statements for the users that are named; create them first. Nothing is executed.\n" +
			"shardway init needs the right to create tables: run it as the owner of the database.",
		Example: example("shardway grants postgres --router router --catalog catalog --application app",
			"shardway grants mysql --application 'app@10.0.0.%'"),
		ValidArgs: []string{"postgres", "mysql", "sqlserver"},
	}
	c.Flags().StringVar(&u.router, "router", "", "user of the router")
	c.Flags().StringVar(&u.catalog, "catalog", "", "user of the catalog")
	c.Flags().StringVar(&u.application, "application", "", "user of the application")
	c.MarkFlagsOneRequired("router", "catalog", "application")
	return a.does(c, func(_ context.Context, args []string) error {
		e, err := findEngine(args[0])
		if err != nil {
			return err
		}
		sections, err := grantSections(e.name, u)
		if err != nil {
			return err
		}
		return a.emit(sections, func(p *page) {
			p.line("-- %s", granters[e.name].note)
			for _, s := range sections {
				p.line("\n-- %s, %s", s.Where, s.When)
				for _, statement := range s.Statements {
					p.line("%s;", statement)
				}
			}
		})
	})
}
