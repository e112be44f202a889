package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootHelp = `Shardway routes a request to the right database: key → shard → server → connection.
This tool creates and changes the shard maps in a global store, and shows how a key is routed.

Settings come from flags, else from the environment (SHARDWAY_STORE, ...), else from a
settings file: --config, else ./shardway.yaml, else shardway/shardway.yaml in your
configuration folder. "shardway config show" says what holds and where it comes from.
Passwords are never flags.

`

// environmentText lists the settings with their variables.
func environmentText() string {
	var b strings.Builder
	b.WriteString("Environment:\n")
	for _, d := range allSettings {
		fmt.Fprintf(&b, "  %-29s %s\n", d.variable(), d.usage)
	}
	return b.String() + "\n"
}

const rootExample = `  export SHARDWAY_STORE=sqlite:maps.db
  shardway init
  shardway map create customers --kind range --key int64
  shardway shard add s1 sqlite:s1.db --map customers
  shardway mapping add --map customers --shard s1 --low 0 --high 1000
  shardway route 42 --map customers --explain`

// newRoot returns the whole tree of commands.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "shardway",
		Short:         "Operate shard maps: which database holds which keys",
		Long:          rootHelp + environmentText() + exitCodesText(),
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSubcommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	flags := root.PersistentFlags()
	flags.String("config", "", "settings file (default ./shardway.yaml, then the one in your configuration folder)")
	for _, d := range allSettings {
		if d.flag && !d.local {
			flags.String(d.name, d.preset, d.usage)
		}
	}
	complete(root, "output", "table", "json")
	root.AddGroup(
		&cobra.Group{ID: "map", Title: "Shard maps:"},
		&cobra.Group{ID: "see", Title: "Routing and what goes on:"},
		&cobra.Group{ID: "store", Title: "Stores:"},
		&cobra.Group{ID: "tool", Title: "This tool:"},
	)
	grouped := func(id string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	grouped("store", initCommand(a), statusCommand(a), doctorCommand(a), upgradeCommand(a), grantsCommand(a))
	grouped("map", mapCommand(a), shardCommand(a), mappingCommand(a), exportCommand(a), importCommand(a), diffCommand(a), applyCommand(a))
	grouped("see", routeCommand(a), serversCommand(a), historyCommand(a), operationsCommand(a), recoverCommand(a), recoveryCommand(a))
	grouped("see", mongoCommand(a))
	grouped("tool", demoCommand(a), configCommand(a), versionCommand(a))
	root.SetHelpCommandGroupID("tool")
	root.SetCompletionCommandGroupID("tool")
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil && c != root { // else a shell's name may be anything
		c.Args, c.RunE = noSubcommand, func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	return root
}

// group returns a command that only holds others.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: noSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(commands...)
	return c
}

// noSubcommand refuses what is not the name of a command.
func noSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	text := ""
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		text = ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%s has no command %q%s", c.CommandPath(), args[0], text)
}

// arguments demands the named arguments. The last one may be optional, as in
// [KEY], or stand for one or more, as in LOCATION...
func arguments(names ...string) cobra.PositionalArgs {
	most, least := len(names), len(names)
	if most > 0 && strings.HasPrefix(names[most-1], "[") {
		least--
	}
	if most > 0 && strings.HasSuffix(names[most-1], "...") {
		most = math.MaxInt
	}
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s: %s is missing", c.CommandPath(), strings.TrimSuffix(names[len(args)], "..."))
		case len(args) > most:
			return usagef("%s: unexpected argument %q", c.CommandPath(), args[most])
		}
		for i, arg := range args {
			// A key may be the empty text: its kind decides.
			if name := strings.Trim(names[min(i, len(names)-1)], "[]."); arg == "" && name != "KEY" {
				return usagef("%s: %s is empty", c.CommandPath(), name)
			}
		}
		return nil
	}
}

// mayBeEmpty reports whether the value of a flag may be the empty text: keys,
// whose kind decides, what may as well be left out, and settings, which are not
// set then. All others name something: an empty one comes from a variable of
// the shell that is not set.
func mayBeEmpty(flag string) bool {
	switch flag {
	case "reason", "token", "right-token", "tags":
		return true
	}
	return isKey(flag) || slices.ContainsFunc(allSettings, func(s setting) bool { return s.name == flag && !s.local })
}

// isKey reports whether the value of a flag is a key, which may be any text.
func isKey(flag string) bool {
	return slices.Contains([]string{"key", "left", "right", "at", "low", "high"}, flag)
}

// flagIn returns the name of the flag that stands among values, empty for none.
func flagIn(flags *pflag.FlagSet, values []string) string {
	for _, v := range values {
		name, long := strings.CutPrefix(v, "--")
		if name, _, _ = strings.Cut(name, "="); long && flags.Lookup(name) != nil {
			return name
		}
	}
	return ""
}

// checkFlags refuses flags that were given and are empty, and those that have
// taken the next flag for their value.
func checkFlags(flags *pflag.FlagSet) error {
	var empty []string
	var swallowed error
	flags.Visit(func(f *pflag.Flag) {
		given := []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			given = several.GetSlice()
		}
		if name := flagIn(flags, given); name != "" && !isKey(f.Name) {
			swallowed = usagef("--%s has no value: --%s follows", f.Name, name)
		}
		if slices.Contains(given, "") && !mayBeEmpty(f.Name) {
			empty = append(empty, "--"+f.Name)
		}
	})
	switch len(empty) {
	case 0:
		return swallowed
	case 1:
		return usagef("%s is empty", empty[0])
	}
	return usagef("%s are empty", list(empty, "and"))
}

// example returns an example text of one command a line.
func example(lines ...string) string { return "  " + strings.Join(lines, "\n  ") }
