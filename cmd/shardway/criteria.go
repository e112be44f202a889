package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/predicate"
	"github.com/shardway/shardway/selection"
)

var criteriaHelp = `The criteria are those of an application. --read-preference says which roles may serve:
primary, primaryPreferred, secondary, secondaryPreferred or nearest. --tags may be repeated:
the first set that fits any server decides, and an empty one ("") fits every server.
--max-staleness leaves out secondaries that are further behind, or whose lag is unknown.
--predicate is a rule in place of all three, such as 'role == "secondary" && tags.zone == "a"';
its fields are ` + strings.Join(predicate.Fields(), ", ") + `.
Of the servers that suit, those stay whose round trip is within --local-threshold of the
fastest one: the latency window, from which one is taken by chance and load.`

// modes are the read preferences.
var modes = []string{
	selection.ModePrimary.String(), selection.ModePrimaryPreferred.String(), selection.ModeSecondary.String(),
	selection.ModeSecondaryPreferred.String(), selection.ModeNearest.String(),
}

// criteriaFlags are the flags that say which servers suit.
type criteriaFlags struct {
	command                          *cobra.Command
	mode, staleness, threshold, rule string
	tags                             []string
}

// add adds the flags to a command; preset is its read preference without them.
func (f *criteriaFlags) add(c *cobra.Command, preset selection.Mode) {
	f.command = c
	c.Flags().StringVar(&f.mode, "read-preference", preset.String(), list(modes, "or"))
	c.Flags().StringArrayVar(&f.tags, "tags", nil, "tags that a server must have: zone=a,disk=ssd; repeat it for sets to try in order")
	c.Flags().StringVar(&f.staleness, "max-staleness", "", "how far a secondary may be behind, such as 30s (default any)")
	c.Flags().StringVar(&f.rule, "predicate", "", "a rule instead of these: 'role == \"secondary\" && tags.zone == \"a\"'")
	c.Flags().StringVar(&f.threshold, "local-threshold", selection.DefaultLocalThreshold.String(), "width of the latency window; 0s is the fastest server alone")
	complete(c, "read-preference", modes...)
}

// given reports whether any of the flags is on the command line.
func (f *criteriaFlags) given() bool {
	for _, name := range []string{"read-preference", "tags", "max-staleness", "predicate", "local-threshold"} {
		if f.command.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// wanted is what the flags say.
type wanted struct {
	criteria  selection.Criteria
	text      string        // criteria for people
	threshold time.Duration // of the latency window, as sqlshard takes it
}

// named puts the text of a rule where an explanation has the name of a function.
func (w wanted) named(e selection.Explanation) selection.Explanation {
	e.Criteria = w.text
	e.Servers = slices.Clone(e.Servers)
	for i := range e.Servers {
		if e.Servers[i].Step == selection.StepPredicate {
			e.Servers[i].Detail = ""
		}
	}
	return e
}

func (f *criteriaFlags) read() (w wanted, err error) {
	if w.threshold, err = parseLength("--local-threshold", f.threshold, 0); err != nil {
		return w, err
	}
	if w.threshold == 0 {
		w.threshold = selection.FastestOnly
	}
	if f.command.Flags().Changed("predicate") {
		w.criteria, err = f.readPredicate()
		w.text = "predicate " + oneLine(f.rule)
		return w, err
	}
	w.criteria, err = f.readPreference()
	w.text = w.criteria.String()
	return w, err
}

// readPredicate reads the rule that stands for everything but the window.
func (f *criteriaFlags) readPredicate() (selection.Criteria, error) {
	for _, name := range []string{"read-preference", "tags", "max-staleness"} {
		if f.command.Flags().Changed(name) {
			return selection.Criteria{}, &hinted{
				err:  usagef("--predicate and --%s exclude each other", name),
				hint: `a predicate says it itself: role == "secondary" && tags.zone == "a" && staleness < "30s"`,
			}
		}
	}
	p, err := predicate.Parse(f.rule)
	var refused *predicate.Error
	if errors.As(err, &refused) {
		return selection.Criteria{}, usagef("--predicate %q: line %d, column %d: %s", refused.Text, refused.Line, refused.Column, refused.Reason)
	}
	if err != nil {
		return selection.Criteria{}, err
	}
	return selection.NewCriteria(nil, p.Match)
}

func (f *criteriaFlags) readPreference() (c selection.Criteria, err error) {
	var preference selection.ReadPreference
	if preference.Mode, err = selection.ParseMode(f.mode); err != nil {
		return c, &shardway.ArgumentError{Argument: "--read-preference", Value: f.mode, Reason: "is not one of " + strings.Join(modes, ", ")}
	}
	for _, text := range f.tags {
		tags, err := parseTags(text)
		if err != nil {
			return c, err
		}
		preference.TagSets = append(preference.TagSets, tags)
	}
	if f.command.Flags().Changed("max-staleness") {
		if preference.MaxStaleness, err = parseLength("--max-staleness", f.staleness, 1); err != nil {
			return c, err
		}
	}
	c, err = selection.NewCriteria(&preference, nil)
	return c, f.refusal(err)
}

// refusal names the flag to blame for criteria that do not go together.
func (f *criteriaFlags) refusal(err error) error {
	var invalid *selection.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	switch invalid.Field {
	case "Tags":
		err = usagef("--tags %q: %w", strings.Join(f.tags, " "), err)
	case "MaxStaleness":
		err = usagef("--max-staleness %q: %w", f.staleness, err)
	default:
		err = usagef("--read-preference %q: %w", f.mode, err)
	}
	return &hinted{err: err, hint: "--read-preference takes another mode: " + strings.Join(modes[1:], ", ")}
}

// parseTags reads one tag set.
func parseTags(text string) (selection.Tags, error) {
	tags := selection.Tags{}
	if text == "" {
		return tags, nil
	}
	for _, tag := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(tag, "=")
		switch _, twice := tags[name]; {
		case !ok || name == "":
			return nil, &shardway.ArgumentError{Argument: "--tags", Value: text, Reason: "has a tag that is not name=value"}
		case twice:
			return nil, &shardway.ArgumentError{Argument: "--tags", Value: text, Reason: "has the tag " + name + " twice"}
		}
		tags[name] = value
	}
	return tags, nil
}

// parseLength reads the value of a flag that is a length of time.
func parseLength(flag, text string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, &shardway.ArgumentError{Argument: flag, Value: text, Reason: "is not a length of time such as 15ms or 30s"}
	case d < 0:
		return 0, &shardway.ArgumentError{Argument: flag, Value: text, Reason: "is negative"}
	case d < least && d == 0:
		return 0, &shardway.ArgumentError{Argument: flag, Value: text, Reason: "is not above 0"}
	case d < least:
		return 0, &shardway.ArgumentError{Argument: flag, Value: text, Reason: "is below the minimum of " + least.String()}
	}
	return d, nil
}
