package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
)

// Bounds on what is in order.
const (
	maxSkew     = 2 * time.Second  // between two clocks, beyond what the way takes
	longRunning = 10 * time.Minute // of an operation whose owner is alive
)

// word is a name as a shell takes it.
func word(name string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:", r)
	}
	if name != "" && !strings.HasPrefix(name, "-") && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// mendStore is what to do about a global store that cannot be used.
func mendStore(err error) string {
	switch {
	case errors.Is(err, shardway.ErrNoStore):
		return "shardway init"
	case errors.Is(err, shardway.ErrStoreVersion):
		return "shardway version"
	}
	return ""
}

// mendLocal is what to do about a local store that cannot be used.
func mendLocal(err error, of finding) string {
	switch {
	case errors.Is(err, shardway.ErrNoStore):
		return fmt.Sprintf("shardway recovery rebuild local %s --map %s", word(of.Shard), word(of.Map))
	case errors.Is(err, shardway.ErrForeignStore):
		return fmt.Sprintf("shardway recovery show %s --map %s", word(of.Shard), word(of.Map))
	case errors.Is(err, shardway.ErrStoreVersion):
		return "shardway status"
	}
	return fmt.Sprintf("shardway servers %s --map %s", word(of.Shard), word(of.Map))
}

func judgeVersion(kind string, v store.Version) []finding {
	switch {
	case v.Minor < store.Current.Minor:
		return []finding{{Severity: doubt, Check: "version", Text: fmt.Sprintf("%s store has version %s, this program creates %s", kind, v, store.Current), Mend: "shardway upgrade --global"}}
	case v.Minor > store.Current.Minor:
		return []finding{{Severity: remark, Check: "version", Text: fmt.Sprintf("%s store has version %s, newer than this program's %s: a newer program may say more", kind, v, store.Current)}}
	}
	return nil
}

// judgeClock compares a clock that was read between two instants of ours.
func judgeClock(whose string, now, sent, received time.Time) []finding {
	var skew time.Duration
	switch {
	case now.Before(sent):
		skew = now.Sub(sent)
	case now.After(received):
		skew = now.Sub(received)
	}
	if skew.Abs() <= maxSkew {
		return nil
	}
	how := "ahead of"
	if skew < 0 {
		how = "behind"
	}
	return []finding{{
		Severity: doubt, Check: "clock",
		Text: fmt.Sprintf("the clock of %s is %s %s this machine's: times of expiry are not what people think", whose, skew.Abs().Round(time.Millisecond), how),
	}}
}

func judgeOperations(ops []store.Operation, now time.Time) (all []finding) {
	for _, o := range ops {
		v := viewOperation(o, now)
		f := finding{
			Severity: remark, Check: "operation", Map: v.Map, Mend: "shardway operations",
			Text: fmt.Sprintf("%s (%s %s) of %s is under way since %s", v.Operation, v.Kind, v.Summary, v.Owner, age(v.Age)),
		}
		switch {
		case v.Lapsed:
			f.Severity, f.Mend = doubt, "shardway recover"
			f.Text = fmt.Sprintf("%s (%s %s) was left behind by %s %s ago", v.Operation, v.Kind, v.Summary, v.Owner, age(v.Age))
		case now.Sub(o.Started) > longRunning:
			f.Severity = doubt
		}
		all = append(all, f)
	}
	return all
}

// mapFacts are what rows of the global store come to, collected one by one in
// the order of keys.
type mapFacts struct {
	m      shardway.ShardMap
	now    time.Time
	shards []shardway.Shard // without those being added

	last                       shardway.Range // of those so far, the one that reaches highest
	begun                      bool
	on                         map[shardway.ShardID]int
	offline, expired, lost     tally
	gaps, overlaps             tally
	firstOffline, firstExpired shardway.Key
	mappings                   int
	names                      map[shardway.ShardID]string
}

// tally counts objects and remembers the first.
type tally struct {
	n     int
	first string
}

func (t *tally) add(what string) {
	if t.n == 0 {
		t.first = what
	}
	t.n++
}

func (t tally) text(noun string) string {
	if t.n == 1 {
		return "1 " + noun + ": " + t.first
	}
	return fmt.Sprintf("%ss, the first is %s", strconv.Itoa(t.n)+" "+noun, t.first)
}

func newMapFacts(m shardway.ShardMap, now time.Time) *mapFacts {
	return &mapFacts{m: m, now: now, on: map[shardway.ShardID]int{}, names: map[shardway.ShardID]string{}}
}

func (f *mapFacts) take(rows []store.ShardRow) {
	for _, row := range rows {
		f.names[row.ID] = row.Name
		if !row.Pending {
			f.shards = append(f.shards, row.Shard)
		}
	}
}

// see takes the next mapping.
func (f *mapFacts) see(row store.MappingRow) {
	if row.Pending {
		return
	}
	f.mappings++
	f.on[row.ShardID]++
	what := row.Format(f.m.Kind)
	if _, known := f.names[row.ShardID]; !known {
		f.lost.add(what)
	}
	if row.Status == shardway.Offline {
		if f.offline.n == 0 {
			f.firstOffline = row.Range.Low
		}
		f.offline.add(fmt.Sprintf("%s on shard %q", what, f.names[row.ShardID]))
	}
	if row.Lock.Token != "" && !row.Lock.Held(f.now) {
		if f.expired.n == 0 {
			f.firstExpired = row.Range.Low
		}
		f.expired.add(fmt.Sprintf("%s, locked by %q until %s", what, row.Lock.Owner, instant(row.Lock.Expires)))
	}
	if f.m.Kind == shardway.RangeMap {
		f.seeRange(row.Range)
	}
}

func (f *mapFacts) seeRange(r shardway.Range) {
	if f.begun {
		switch {
		case f.last.Intersects(r):
			f.overlaps.add(fmt.Sprintf("%s and %s", f.last, r))
		case f.last.High != r.Low:
			f.gaps.add(shardway.Range{Low: f.last.High, High: r.Low}.String())
		}
	}
	if !f.begun || !f.last.Covers(r) {
		f.last = r
	}
	f.begun = true
}

// judge says what is wrong with a map.
func (f *mapFacts) judge() (all []finding) {
	name := word(f.m.Name)
	add := func(s severity, check, shard, text, mend string) {
		all = append(all, finding{Severity: s, Check: check, Map: f.m.Name, Shard: shard, Text: text, Mend: mend})
	}
	if f.lost.n > 0 {
		add(grave, "mapping", "", f.lost.text("mapping")+": the shard is not there, the rows of the store were changed by somebody else", "shardway recovery detect --map "+name)
	}
	if f.overlaps.n > 0 {
		add(grave, "range", "", f.overlaps.text("overlap")+": keys with two owners", "shardway mapping list --map "+name)
	}
	if f.gaps.n > 0 {
		add(remark, "range", "", f.gaps.text("gap")+": keys without a shard", "shardway mapping list --map "+name)
	}
	if f.offline.n > 0 {
		add(doubt, "mapping", "", f.offline.text("offline mapping"), fmt.Sprintf("shardway mapping online --key %s --map %s", keyWord(f.firstOffline), name))
	}
	if f.expired.n > 0 {
		add(remark, "lock", "", f.expired.text("lock")+": run out, and no hindrance any more", fmt.Sprintf("shardway mapping unlock --key %s --force --map %s", keyWord(f.firstExpired), name))
	}
	if len(f.shards) == 0 {
		add(doubt, "map", "", "has no shards: no key can be mapped", "shardway shard add NAME LOCATION --map "+name)
	}
	for _, sh := range f.shards {
		switch {
		case f.on[sh.ID] == 0:
			add(remark, "map", sh.Name, "has no mappings", fmt.Sprintf("shardway mapping add --shard %s --map %s", word(sh.Name), name))
		case sh.Status == shardway.ShardOffline:
			add(remark, "map", sh.Name, "is offline: it takes no new mappings", fmt.Sprintf("shardway shard update %s --status online --map %s", word(sh.Name), name))
		}
	}
	return all
}

// keyWord is a key as a shell takes it.
func keyWord(k shardway.Key) string { return word(k.String()) }

func judgeReport(r recovery.Report) []finding {
	f := finding{
		Severity: grave, Check: "local map", Map: r.Map.Name, Shard: r.Shard.Name,
		Mend: fmt.Sprintf("shardway recovery show %s --map %s", word(r.Shard.Name), word(r.Map.Name)),
	}
	switch {
	case r.Clean():
		return nil
	case r.State == recovery.Differs && len(r.Differences) > 0:
		d := r.Differences[0]
		f.Text = fmt.Sprintf("%s from the global map, the first is %s: %s", count(len(r.Differences), "difference"),
			shardway.Mapping{Range: d.Range}.Format(r.Map.Kind), d.Place())
	case r.State == recovery.Differs:
		f.Text = "the shard's row differs from the global one"
	default:
		f.Text = strings.TrimSpace(string(r.State) + " " + r.Problem)
	}
	if r.Changing {
		f.Severity = remark
		f.Text += "; the map was changing all the time, so look again"
	}
	return []finding{f}
}

// judgeServers says what is wrong with the servers of one shard.
func judgeServers(name string, v shardServersView) (all []finding) {
	mend := fmt.Sprintf("shardway servers %s --map %s", word(v.Shard), word(name))
	add := func(s severity, mend, format string, args ...any) {
		all = append(all, finding{Severity: s, Check: "server", Map: name, Shard: v.Shard, Text: fmt.Sprintf(format, args...), Mend: mend})
	}
	if v.err != nil {
		add(grave, mend, "its servers could not be checked: %s", v.Error)
		return all
	}
	if v.Conflict != "" {
		add(grave, mend, "%s", v.Conflict)
	}
	primary := false
	for _, m := range v.Members {
		switch {
		case m.Role == "unknown":
			add(doubt, mend, "server %s: no evidence of its role: %s", m.Address, m.Detail)
		case m.Detached:
			add(doubt, mend, "server %s follows nobody: what it has stands still", m.Address)
		case m.Role == "secondary" && m.Staleness == nil:
			add(doubt, "shardway grants ENGINE --prober USER", "server %s: nobody knows how far it is behind, so a limit on staleness leaves it out", m.Address)
		}
		primary = primary || m.Role == "primary"
	}
	if !primary && v.Conflict == "" {
		add(grave, mend, "no server is primary: writes are refused")
	}
	return append(all, judgeUnlisted(name, v)...)
}
