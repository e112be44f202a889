package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// errorView is the JSON form of an error. It is the whole standard output of a
// command that fails before it has a result.
type errorView struct {
	Error string   `json:"error"`
	Code  int      `json:"code"`
	Hints []string `json:"hints,omitempty"` // what to do about it
}

// report tells an error to people and, when no result has been printed, to
// programs that read JSON. It returns the exit code.
func (a *app) report(ctx context.Context, cmd *cobra.Command, args []string, err error) int {
	var v errorView
	if a.began {
		code, hint := judge(ctx, err)
		v = errorView{Error: printable(message(err)), Code: code, Hints: []string{a.filled(hint, err), a.accessHint(code, err)}}
	} else {
		v = errorView{Error: printable(sentence(err)), Code: exitUsage, Hints: []string{usageHint(cmd.CommandPath(), args)}}
	}
	v.Hints = slices.DeleteFunc(v.Hints, func(h string) bool { return h == "" })
	for i, h := range v.Hints {
		v.Hints[i] = printable(bounded(h))
	}
	fmt.Fprintf(a.errs, "shardway: %s\n", v.Error)
	for _, h := range v.Hints {
		fmt.Fprintf(a.errs, "hint: %s\n", h)
	}
	if !a.emitted && a.jsonWanted(cmd, args) {
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		_ = e.Encode(v) // the exit code tells of the error already
	}
	return v.Code
}

// jsonWanted is json for command lines and settings that may be wrong.
func (a *app) jsonWanted(cmd *cobra.Command, args []string) bool {
	if a.set.values != nil {
		return a.json()
	}
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	for i, arg := range args {
		switch value, given := strings.CutPrefix(arg, "--output="); {
		case given:
			return value == "json"
		case arg == "--output" && i+1 < len(args):
			return args[i+1] == "json"
		}
	}
	if a.set.load(cmd.Root().PersistentFlags()) == nil {
		return a.json()
	}
	return os.Getenv("SHARDWAY_OUTPUT") == "json"
}

// groupErrors are the parser's sentences about flags that belong together, and ours.
var groupErrors = []struct {
	theirs *regexp.Regexp
	ours   func(flags []string) string
}{
	{regexp.MustCompile(`^required flag\(s\) (.*) not set$`), func(flags []string) string {
		if len(flags) == 1 {
			return flags[0] + " is missing"
		}
		return list(flags, "and") + " are missing"
	}},
	{regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`), func(flags []string) string {
		return list(flags, "or") + " is missing"
	}},
	{regexp.MustCompile(`^if any flags in the group .* are set none of the others can be; \[(.*)\] were all set$`), func(flags []string) string {
		return list(flags, "and") + " exclude each other"
	}},
}

// badValue is the parser's sentence about the value of a flag, and what it
// expects by what the reader of the value says.
var badValue = regexp.MustCompile(`(?s)^invalid argument (".*") for "(?:-\w, )?(--[a-z-]+)" flag: (.*)$`)

func expected(reader string) string {
	switch {
	case strings.HasSuffix(reader, "value out of range"):
		return "is too large or too small"
	case strings.HasPrefix(reader, "strconv.ParseBool"):
		return "is neither true nor false"
	case strings.HasPrefix(reader, "strconv."):
		return "is not a whole number"
	case strings.HasPrefix(reader, "time: "):
		return "is not a length of time such as 30s"
	}
	return "cannot be used: " + reader
}

// sentence is the text of a mistake in the command line.
func sentence(err error) string {
	if bad := badValue.FindStringSubmatch(err.Error()); bad != nil {
		return bounded(bad[2] + " " + bad[1] + " " + expected(bad[3]))
	}
	text := message(err)
	for _, g := range groupErrors {
		found := g.theirs.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		flags := strings.FieldsFunc(found[1], func(r rune) bool { return strings.ContainsRune(`", `, r) })
		for i := range flags {
			flags[i] = "--" + flags[i]
		}
		return g.ours(flags)
	}
	return text
}

// list joins words as in "a, b and c".
func list(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// usageHint says what to do about a mistake in the command line.
func usageHint(command string, args []string) string {
	before, after := args, []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		before, after = args[:i], args[i+1:]
	}
	for _, arg := range after {
		if len(arg) > 1 && arg[0] == '-' && !number(arg[1:]) {
			return "flags go before --, what follows it is a key or a name: " + command + " " + arg + " ... -- " + after[0]
		}
	}
	for i, arg := range before {
		value := i > 0 && strings.HasPrefix(before[i-1], "--") && !strings.Contains(before[i-1], "=") // of a flag
		if len(arg) > 1 && arg[0] == '-' && number(arg[1:]) && !value {
			return fmt.Sprintf("a key that begins with - comes after --: %s --map %s -- %s", command, mapIn(before), arg)
		}
	}
	return "see " + command + " --help"
}

// mapIn is the map that a command line names, although it cannot be read as a whole.
func mapIn(args []string) string {
	for i, arg := range args {
		if name, given := strings.CutPrefix(arg, "--map="); given && name != "" {
			return word(name)
		}
		if arg == "--map" && i+1 < len(args) && args[i+1] != "" {
			return word(args[i+1])
		}
	}
	if name := os.Getenv(findSetting("map").variable()); name != "" {
		return word(name)
	}
	return "MAP"
}

func number(text string) bool { return text[0] >= '0' && text[0] <= '9' }
