package main

import (
	"context"

	"github.com/spf13/cobra"
)

func configCommand(a *app) *cobra.Command {
	show := &cobra.Command{
		Use: "show", Short: "Show the settings that hold and where they come from, secrets masked", Args: arguments(),
		Example: example("shardway config show", "shardway config show --config other.yaml --output json"),
	}
	mapFlag(show)
	a.does(show, func(_ context.Context, _ []string) error {
		v := configView{File: a.set.file, Settings: []settingView{}}
		var rows [][]string
		for _, d := range allSettings {
			row := settingView{Name: d.name, Variable: d.variable()}
			if g, ok := a.set.values[d.name]; ok {
				row.Value, row.Source = d.show(g.text), g.source
			}
			v.Settings = append(v.Settings, row)
			rows = append(rows, []string{row.Name, row.Value, row.Source, row.Variable})
		}
		return a.emit(v, func(p *page) {
			p.table([]string{"setting", "value", "source", "environment"}, rows)
		})
	})
	return group("config", "Show the settings", "Settings come from flags, else from the environment, else from a settings file:\n\n"+settingsFile(), show)
}

type configView struct {
	File     string        `json:"file"` // empty when there is none
	Settings []settingView `json:"settings"`
}

type settingView struct {
	Name     string `json:"name"`
	Value    string `json:"value"`  // masked
	Source   string `json:"source"` // empty when it is not set
	Variable string `json:"variable"`
}

// settingsFile is an example of a settings file.
func settingsFile() string {
	return `  # shardway.yaml
  store: postgres://catalog@maps.internal/shardmaps
  store-password-file: /run/secrets/shardmaps
  shard-user: catalog
  shard-password-file: /run/secrets/shards
  postgres-options: sslmode=verify-full`
}
