package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// severity says how bad a finding is.
type severity string

// The severities, the worst first.
const (
	grave  severity = "error"   // keys cannot be routed, connections or changes are refused, or the maps say two things
	doubt  severity = "warning" // it works now, and may not in trouble
	remark severity = "note"    // may well be meant
)

// finding is one thing that doctor has found, and its JSON form.
type finding struct {
	Severity severity `json:"severity"`
	Check    string   `json:"check"` // store, version, rights, clock, operation, map, range, mapping, lock, local map, server
	Map      string   `json:"map,omitempty"`
	Shard    string   `json:"shard,omitempty"`
	Text     string   `json:"text"`
	Mend     string   `json:"mend,omitempty"` // the command that mends it, or shows more
}

// checkupView is the JSON form of all that doctor has found.
type checkupView struct {
	Verdict  string    `json:"verdict"` // ok, warning, error
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Notes    int       `json:"notes"`
	Maps     int       `json:"maps"`   // looked at
	Shards   int       `json:"shards"` // looked at
	Findings []finding `json:"findings"`
}

// What doctor found, for the exit code.
var (
	errWarnings = errors.New("look after it")
	errGrave    = errors.New("something is broken")
)

const doctorHelp = `Looks at everything once and prints one line for each finding, the worst first, with the command that
mends it or shows more:

  store       the global store and every local store answers, and belongs where it should
  version     an upgrade is due
  rights      the logins may do what they need (--as)
  clock       the clocks of this machine, the global store and the shards are together
  operation   pending operations: whose, how old, left behind by a dead client
  map         maps without shards, shards without mappings, shards that take none
  range       overlaps and gaps between the ranges of a map
  mapping     mappings that are offline, or on shards that are not there
  lock        locks that have run out
  local map   local maps that differ from the global one, and those that it does not know
  server      for shards with several servers: those that do not answer, have no role or unknown lag; and
              those that servers tell of and the map does not have

The exit code is for monitoring: 0 all is well (notes aside), 1 warnings, 2 errors. It changes nothing.`

func doctorCommand(a *app) *cobra.Command {
	var as string
	c := &cobra.Command{
		Use: "doctor", Short: "Look at stores, shards, maps and servers, and say what is wrong and what mends it", Args: arguments(), Long: doctorHelp,
		Example: example("shardway doctor", "shardway doctor --output json", "shardway doctor --as application"),
	}
	c.Flags().StringVar(&as, "as", asCatalog, "whose rights the logins should have: catalog (this tool's), or application: a router's on the global store and an\napplication's on the shards; then stores, rights, clocks and servers\nare looked at")
	complete(c, "as", asCatalog, asApplication)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		if as != asCatalog && as != asApplication {
			return usagef("--as %q is neither %s nor %s", as, asCatalog, asApplication)
		}
		d := &doctor{session: s, as: as}
		d.examine(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		v := d.view()
		if err := s.emit(v, func(p *page) { p.checkup(v) }); err != nil {
			return err
		}
		return v.judge()
	})
}

// view counts the findings and puts the worst first.
func (d *doctor) view() checkupView {
	v := checkupView{Verdict: "ok", Maps: d.maps, Shards: d.shards, Findings: []finding{}}
	for _, s := range []severity{grave, doubt, remark} {
		of := slices.DeleteFunc(slices.Clone(d.findings), func(f finding) bool { return f.Severity != s })
		slices.SortStableFunc(of, func(a, b finding) int {
			return strings.Compare(a.Map+"\x00"+a.Shard, b.Map+"\x00"+b.Shard)
		})
		v.Findings = append(v.Findings, of...)
		switch s {
		case grave:
			v.Errors = len(of)
		case doubt:
			v.Warnings = len(of)
		case remark:
			v.Notes = len(of)
		}
	}
	switch {
	case v.Errors > 0:
		v.Verdict = string(grave)
	case v.Warnings > 0:
		v.Verdict = string(doubt)
	}
	return v
}

func (v checkupView) counts() string {
	return fmt.Sprintf("%s, %s, %s", count(v.Errors, "error"), count(v.Warnings, "warning"), count(v.Notes, "note"))
}

// judge is the exit code as an error.
func (v checkupView) judge() error {
	switch {
	case v.Errors > 0:
		return fmt.Errorf("%s: %w", v.counts(), errGrave)
	case v.Warnings > 0:
		return fmt.Errorf("%s: %w", v.counts(), errWarnings)
	}
	return nil
}

func (p *page) checkup(v checkupView) {
	looked := fmt.Sprintf("looked at %s with %s", count(v.Maps, "shard map"), count(v.Shards, "shard"))
	p.line("%s: %s; %s", strings.ToUpper(v.Verdict), v.counts(), looked)
	for _, f := range v.Findings {
		where := ""
		if f.Shard != "" {
			where = fmt.Sprintf("shard %q of ", f.Shard)
		}
		if f.Map != "" {
			where += fmt.Sprintf("map %q", f.Map)
		}
		if where != "" {
			where = strings.TrimSuffix(where, " of ") + ": "
		}
		mend := ""
		if f.Mend != "" {
			mend = "  → " + f.Mend
		}
		p.line("%-8s %s: %s%s%s", f.Severity, f.Check, where, oneLine(f.Text), mend)
	}
}
