package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mapfile"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/store"
)

// routeView is the JSON form of a route.
type routeView struct {
	Key     *string     `json:"key,omitempty"`
	KeyHex  *string     `json:"key_hex,omitempty"` // of text that is no UTF-8, in place of key
	Encoded string      `json:"encoded"`           // hex: the bytes that stores compare
	Map     mapView     `json:"map"`
	Mapping mappingView `json:"mapping"`
	Shard   shardView   `json:"shard"`
	From    string      `json:"from"` // cache or store
	// Choice is there when a server was chosen: with --explain where there are
	// several, and with flags that say which one.
	Choice *choiceView `json:"choice,omitempty"`
	// Explained is there with --explain.
	Explained *explainView `json:"explain,omitempty"`
	// unanswered is why the local map has given no answer, or not the one that is due.
	unanswered error
	text       string // the key, for people
}

func routeCommand(a *app) *cobra.Command {
	var f criteriaFlags
	var explain bool
	c := &cobra.Command{
		Use: "route KEY --map MAP", Short: "Show how a key is routed: key → mapping → shard → server", Args: arguments("KEY"),
		Long: "Looks a key up as an application does. --explain also says where each answer came from and\n" +
			"asks the shard's own local map, which has the last word when a connection is opened.\n" +
			"Where a shard has several servers, or criteria are given, they are checked and one is\n" +
			"chosen; --explain says for every other one which step has dropped it.\n" +
			"A key that begins with - comes after --. The exit code is 3 when no mapping holds the key,\n" +
			"4 when the mapping is offline and 5 when no server suits or the local map gives no answer.\n\n" + criteriaHelp,
		Example: example("shardway route 42 --map customers", "shardway route 42 --map customers --explain", "shardway route --map customers -- -7",
			"shardway route 42 --map customers --read-preference nearest --tags zone=a,disk=ssd --tags zone=b --max-staleness 30s --explain"),
	}
	mapFlag(c)
	f.add(c, selection.ModePrimary)
	c.Flags().BoolVar(&explain, "explain", false, "say where each answer came from, and ask the shard's local map")
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		w, err := f.read()
		if err != nil {
			return err
		}
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		key, err := parseKey(m, "key", args[0])
		if err != nil {
			return err
		}
		v, err := s.route(ctx, m, key, routing{wanted: w, choose: f.given(), explain: explain})
		if err != nil {
			return emptyKey(key, err)
		}
		if err := s.emit(v, func(p *page) { p.route(v) }); err != nil {
			return err
		}
		if v.Mapping.Status == shardway.Offline.String() {
			return &shardway.LookupError{Map: m.Name, Key: key.String(), Shard: v.Shard.Name, Err: shardway.ErrMappingOffline}
		}
		return v.unanswered
	})
}

// routing is what a route is to show.
type routing struct {
	wanted
	choose  bool // a server, whether or not there are several
	explain bool
}

func (s *session) route(ctx context.Context, m shardway.ShardMap, key shardway.Key, r routing) (v routeView, err error) {
	router, err := shardway.Open(ctx, s.global, shardway.Config{})
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, router.Close()) }()
	handle, err := router.Map(ctx, m.Name)
	if err != nil {
		return v, err
	}
	first, err := handle.Lookup(ctx, key, shardway.CacheAndStore)
	if err != nil {
		return v, err
	}
	// A route has no range: that is asked for here, for people, with no more
	// rights than a router has.
	a, err := s.global.Lookup(ctx, m, key)
	if err == nil && !a.Found {
		err = shardway.ErrKeyNotMapped
	}
	if err != nil {
		return v, &shardway.LookupError{Map: m.Name, Key: key.String(), Err: err}
	}
	v = routeView{
		text: shardway.Mapping{Range: shardway.RangeFrom(key)}.Format(shardway.ListMap), Encoded: "0x" + hex.EncodeToString(key.Encoded()),
		Map:     mapView{Name: m.Name, Kind: m.Kind.String(), KeyKind: m.KeyKind.String(), Generation: first.Generation},
		Mapping: viewMapping(m, a.Mapping, first.Shard.Name, s.lockTime(ctx, a.Mapping)), Shard: viewShard(*first.Shard), From: origin(first),
	}
	v.Key, v.KeyHex = mapfile.KeyText(key)
	v.Mapping.ID, v.Mapping.Status = first.MappingID.String(), first.Status.String()
	shards, err := handle.Shards(ctx)
	if err != nil {
		return v, err
	}
	v.Map.Shards = len(shards)
	if r.choose || r.explain && len(v.Shard.Servers) > 1 {
		if v.Choice, err = s.choose(ctx, handle, v.Shard.Name, r.wanted); err != nil {
			return v, err
		}
		v.unanswered = v.Choice.none
	}
	if !r.explain {
		return v, nil
	}
	again, err := handle.Lookup(ctx, key, shardway.CacheAndStore)
	if err != nil {
		return v, err
	}
	v.Explained = &explainView{Again: origin(again)}
	server := first.Shard.Location.Servers[0].Address
	switch {
	case v.unanswered != nil:
		v.Explained.Local = "was not asked: no server suits"
		return v, nil
	case v.Choice != nil:
		server = v.Choice.Chosen
	}
	v.Explained.Validated, v.Explained.Local, v.unanswered = s.validate(ctx, m, key, first, server)
	if !v.Explained.Validated && v.unanswered == nil {
		v.unanswered = &hinted{
			err:  fmt.Errorf("the local map on shard %q %s: %w", v.Shard.Name, v.Explained.Local, store.ErrMapsDiffer),
			hint: fmt.Sprintf("shardway recovery show %s --map %s lists the differences; while a change is under way there are some", word(v.Shard.Name), word(m.Name)),
		}
	}
	return v, nil
}

// choose checks the servers of a shard and chooses one.
func (s *session) choose(ctx context.Context, m *shardway.Map, shard string, w wanted) (c *choiceView, err error) {
	db, err := s.servers(m, w, answerWithin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	e, err := lookAt(ctx, db, shard)
	if err != nil {
		return nil, err
	}
	v := viewChoice(e, w, true)
	return &v, nil
}

func origin(r shardway.Route) string {
	if r.FromCache {
		return "cache"
	}
	return "store"
}

func (p *page) route(v routeView) {
	if v.Explained == nil {
		p.line("key %s → mapping %s (%s) → shard %s → %s", v.text, v.Mapping.covers, v.Mapping.Status, v.Shard.Name, v.target())
		return
	}
	verdict := "NOT validated"
	if v.Explained.Validated {
		verdict = "validated"
	}
	p.fields(
		"key", fmt.Sprintf("%s, %s key, encoded %s", v.text, v.Map.KeyKind, v.Encoded),
		"map", fmt.Sprintf("%s, %s map at generation %d", v.Map.Name, v.Map.Kind, v.Map.Generation),
		"mapping", fmt.Sprintf("%s, %s, id %s (from the %s)", v.Mapping.covers, v.Mapping.Status, v.Mapping.ID, v.From),
		"shard", fmt.Sprintf("%s, %s, %s (from the %s)", v.Shard.Name, v.Shard.Status, strings.TrimSpace(v.Shard.Engine+" "+v.Shard.Database), v.From),
	)
	if v.Choice != nil {
		p.choice(*v.Choice)
	} else {
		for i, srv := range v.Shard.Servers {
			p.line("%-9s%s", []string{"servers", ""}[min(i, 1)], srv)
		}
	}
	p.line("again    from the %s", v.Explained.Again)
	p.line("local    %s: the local map on the shard %s", verdict, v.Explained.Local)
}

// target is where a route leads, for people.
func (v routeView) target() string {
	switch {
	case v.Choice == nil:
		return v.Shard.Engine + " " + v.Shard.text()
	case v.Choice.none != nil:
		return "no server for " + v.Choice.Criteria
	}
	m := v.Choice.member()
	return fmt.Sprintf("server %s (%s, round trip %s, staleness %s)", m, m.role(), m.trip(), m.lag())
}

// text is a location for people: servers and database.
func (l locationView) text() string {
	if l.Database == "" {
		return l.servers()
	}
	return l.servers() + " database " + l.Database
}
