package sqlstore_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

var rewrite = flag.Bool("rewrite", false, "write the files in testdata anew")

// TestTransactSQL pins every statement for SQL Server, which no test here can
// run without a server of the user's own.
func TestTransactSQL(t *testing.T) {
	t.Parallel()
	s := &script{}
	var transcript strings.Builder
	section := func(name string, do func()) {
		s.statements = nil
		do()
		transcript.WriteString("---- " + name + "\n" + strings.Join(s.statements, "\n\n") + "\n\n")
	}
	g, err := sqlstore.NewGlobal(s.open(t), "sqlserver")
	if err != nil {
		t.Fatal(err)
	}
	l, err := sqlstore.NewLocal(s.open(t), "sqlserver")
	if err != nil {
		t.Fatal(err)
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	playGlobal(t, g, section, must)
	playLocal(t, l, section, must)

	got := transcript.String()
	const file = "testdata/sqlserver.txt"
	if *rewrite {
		must(nil, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(nil, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; run the test with -rewrite and read it (-want +got):\n%s", file, diff)
	}
	// Not in every server that speaks the protocol, or not in the language.
	for _, banned := range []string{`\bMERGE\b`, `\bWITH \(`, `\bLIMIT\b`, `\bFOR UPDATE\b`, `\?`, `\bRETURNING\b`, `\bON CONFLICT\b`, `[{}]`} {
		if found := regexp.MustCompile(banned).FindString(got); found != "" {
			t.Errorf("statements for SQL Server use %q", found)
		}
	}
}

func playGlobal(t *testing.T, g *sqlstore.Global, section func(string, func()), must func(any, error)) {
	ctx := t.Context()
	m := shardway.ShardMap{ID: 1, Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
	shard := shardway.Shard{ID: 1, MapID: 1, Name: "s", Version: 1}
	mapping := shardway.Mapping{ID: 1, MapID: 1, ShardID: 1, Range: shardway.RangeFrom(shardway.Int64Key(5))}
	o := &store.Operation{ID: 1, Map: m, Epoch: 1, Steps: []store.Step{
		{Shard: shard, Before: &shard, After: &shard, Remove: []shardway.Mapping{mapping}},
		{Shard: shard, After: &shard},
	}}
	adding := &store.Operation{ID: 1, Map: m, Epoch: 1, Steps: []store.Step{{Shard: shard, Before: &shard, Remove: []shardway.Mapping{mapping}, Add: []shardway.Mapping{mapping}}}}
	update := func(id shardway.MapID, d store.Delta) func() {
		return func() {
			must(nil, g.Update(ctx, id, func(store.Reader, time.Time) (store.Delta, error) { return d, nil }))
		}
	}
	view := func(do func(tx store.Reader)) func() {
		return func() { must(nil, g.View(ctx, func(tx store.Reader) error { do(tx); return nil })) }
	}
	section("replace the global store", func() { must(g.Deploy(ctx, true)) })
	section("upgrade the global store from 1.0", func() { must(upgraded(g.Upgrade(ctx))) })
	section("add a map", update(0, store.Delta{AddMap: &m}))
	section("prepare", update(1, store.Delta{Prepare: o}))
	section("publish", update(1, store.Delta{Publish: adding, History: []store.Entry{{Operation: 1}}}))
	section("abort", update(1, store.Delta{Abort: adding}))
	section("lease", update(1, store.Delta{Lease: o}))
	section("lock", update(1, store.Delta{Lock: []shardway.Mapping{mapping}}))
	section("find a map", func() { must(g.ShardMap(ctx, "m")) })
	section("look up a key", func() { must(g.Lookup(ctx, m, shardway.Int64Key(7))) })
	section("load a range", func() {
		must(g.Load(ctx, m, shardway.RangeFrom(shardway.Int64Key(7)), func(shardway.MappingRow) error { return nil }))
	})
	section("changes", func() { must(g.Changes(ctx, m, 1)) })
	section("maps", view(func(tx store.Reader) { must(tx.ShardMaps(ctx)) }))
	section("shards", view(func(tx store.Reader) { must(tx.Shards(ctx, 1)) }))
	section("operations", view(func(tx store.Reader) { must(tx.Operations(ctx, store.OperationQuery{ID: 1, Map: 1})) }))
	section("history", view(func(tx store.Reader) {
		for e, err := range tx.History(ctx, store.HistoryQuery{Operation: 1, Map: 1, Limit: 2}) {
			must(e, err)
		}
	}))
	status := shardway.Online
	section("mappings by everything", view(func(tx store.Reader) {
		q := store.MappingQuery{
			Map: m, IDs: []shardway.MappingID{1, 2}, Within: shardway.Range{Low: shardway.Int64Key(7), High: shardway.Int64Key(9)},
			ShardID: 1, Status: &status, Token: "t", After: shardway.Int64Key(1),
		}
		for row, err := range tx.Mappings(ctx, q) {
			must(row, err)
		}
	}))
	section("mappings, one page", view(func(tx store.Reader) {
		for row, err := range tx.Mappings(ctx, store.MappingQuery{Map: m, Limit: 3}) {
			must(row, err)
		}
	}))
}

func playLocal(t *testing.T, l *sqlstore.Local, section func(string, func()), must func(any, error)) {
	ctx := t.Context()
	m := shardway.ShardMap{ID: 1, Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
	shard := shardway.Shard{ID: 1, MapID: 1, Name: "s", Version: 1}
	mapping := shardway.Mapping{ID: 1, MapID: 1, ShardID: 1, Range: shardway.RangeFrom(shardway.Int64Key(5))}
	step := store.LocalStep{Operation: 1, Seq: 5, Epoch: 1, Map: m, Want: store.StepApplied, Step: store.Step{
		Shard: shard, Before: &shard, After: &shard, Remove: []shardway.Mapping{mapping}, Add: []shardway.Mapping{mapping},
	}}
	section("deploy a local store", func() { must(nil, l.Deploy(ctx, "m")) })
	section("upgrade a local store from 1.0", func() { must(upgraded(l.Upgrade(ctx))) })
	section("apply a step", func() { must(l.Step(ctx, step)) })
	step.Want = store.StepUndone
	section("undo an unknown step", func() { must(l.Step(ctx, step)) })
	section("read a local map", func() { must(l.Read(ctx, 1)) })
}

func upgraded(from, to store.Version, err error) (any, error) {
	if err == nil && (from != store.Version{Major: 1} || to != store.Current) {
		err = fmt.Errorf("upgraded from %s to %s", from, to)
	}
	return to, err
}
