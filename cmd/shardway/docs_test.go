package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// leaves returns the commands that do something, but for the scripts of shells,
// whose texts are cobra's.
func leaves(c *cobra.Command) (all []*cobra.Command) {
	if c.Name() == "completion" {
		return nil
	}
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	for _, sub := range c.Commands() {
		all = append(all, leaves(sub)...)
	}
	return all
}

// TestHelp holds every command to a description and an example that it accepts.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range leaves(newRoot(&app{})) {
		t.Run(c.CommandPath(), func(t *testing.T) {
			t.Parallel()
			if c.Short == "" || c.Example == "" {
				t.Error("has no description or no example")
			}
			for line := range strings.Lines(c.Example) {
				checkExample(t, strings.TrimSpace(line))
			}
		})
	}
}

var quoted = regexp.MustCompile(`'[^']*'`)

// checkExample parses an example's command line, without running it.
func checkExample(t *testing.T, line string) {
	t.Helper()
	at := strings.Index(line, "shardway ")
	if at < 0 {
		t.Errorf("example without the program: %s", line)
		return
	}
	words := strings.Fields(quoted.ReplaceAllString(line[at:], "word"))
	c, rest, err := newRoot(&app{}).Find(words[1:])
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err == nil {
		err = c.ValidateRequiredFlags()
	}
	if err == nil {
		err = c.ValidateFlagGroups()
	}
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
}

// TestDocumentation looks for every command, flag, setting, exit code and JSON
// field in docs/cli.md.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	want := func(part string) {
		t.Helper()
		if !strings.Contains(text, part) {
			t.Errorf("docs/cli.md does not have %s", part)
		}
	}
	for _, c := range leaves(newRoot(&app{})) {
		want("`" + c.CommandPath())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { want("--" + f.Name) })
	}
	for _, d := range allSettings {
		want("`" + d.name + "`")
		want("`" + d.variable() + "`")
	}
	for _, c := range exitCodes {
		want(fmt.Sprintf("| %d | %s |", c.code, c.meaning))
	}
	for _, v := range []any{
		mapView{},
		shardView{},
		mappingView{},
		lockView{},
		changeView{},
		initView{},
		routeView{},
		choiceView{},
		memberView{},
		shardServersView{},
		unlistedView{},
		explainView{},
		entryView{},
		recoveredView{},
		storedView{},
		upgradeView{},
		checkupView{},
		finding{},
		exportView{},
		differenceView{},
		planView{},
		actionView{},
		tokenView{},
		versionView{},
		grantSection{},
		errorView{},
		configView{},
		settingView{},
	} {
		for _, name := range jsonNames(reflect.TypeOf(v)) {
			want("`" + name + "`")
		}
	}
}

func jsonNames(v reflect.Type) (names []string) {
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Anonymous {
			names = append(names, jsonNames(f.Type)...)
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// TestVerdicts holds every sentinel that the tool meets to an exit code of its
// table, and every code to a meaning.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, v := range verdicts {
		if !slices.ContainsFunc(exitCodes, func(c struct {
			code    int
			meaning string
		},
		) bool {
			return c.code == v.code
		}) {
			t.Errorf("exit code %d of %q has no meaning", v.code, v.err)
		}
		if code, _ := judge(t.Context(), fmt.Errorf("doing something: %w", v.err)); code != v.code {
			t.Errorf("%q: exit code %d, want %d", v.err, code, v.code)
		}
	}
}
