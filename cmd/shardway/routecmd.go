package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
)

// routeView is the JSON form of a route.
type routeView struct {
	Key     string      `json:"key"`
	Encoded string      `json:"encoded"` // hex: the bytes that stores compare
	Map     mapView     `json:"map"`
	Mapping mappingView `json:"mapping"`
	Shard   shardView   `json:"shard"`
	From    string      `json:"from"` // cache or store
	// Explained is there with --explain.
	Explained *explainView `json:"explain,omitempty"`
}

type explainView struct {
	Again     string `json:"again"`     // where the same question is answered from the second time
	Validated bool   `json:"validated"` // the shard's local map has this very mapping, online
	Local     string `json:"local"`     // what the local map says
}

func routeCommand(a *app) *cobra.Command {
	var explain bool
	c := &cobra.Command{
		Use: "route KEY --map MAP", Short: "Show how a key is routed: key → mapping → shard → servers", Args: arguments("KEY"),
		Long: "Looks a key up as an application does. --explain also says where each answer came from and\n" +
			"asks the shard's own local map, which has the last word when a connection is opened.\n" +
			"A key that begins with - comes after --. The exit code is 3 when no mapping holds the key\nand 4 when the mapping is offline.",
		Example: example("shardway route 42 --map customers", "shardway route 42 --map customers --explain", "shardway route --map customers -- -7"),
	}
	mapFlag(c)
	c.Flags().BoolVar(&explain, "explain", false, "say where each answer came from, and ask the shard's local map")
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		key, err := parseKey(m, "key", args[0])
		if err != nil {
			return err
		}
		v, err := s.route(ctx, m, key, explain)
		if err != nil {
			return err
		}
		if err := s.emit(v, func(p *page) { p.route(v) }); err != nil {
			return err
		}
		if v.Mapping.Status == shardway.Offline.String() {
			return &shardway.LookupError{Map: m.Name, Key: key.String(), Shard: v.Shard.Name, Err: shardway.ErrMappingOffline}
		}
		return nil
	})
}

func (s *session) route(ctx context.Context, m shardway.ShardMap, key shardway.Key, explain bool) (v routeView, err error) {
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
		Key: key.String(), Encoded: "0x" + hex.EncodeToString(key.Encoded()),
		Map:     mapView{Name: m.Name, Kind: m.Kind.String(), KeyKind: m.KeyKind.String(), Generation: first.Generation},
		Mapping: viewMapping(m, a.Mapping, first.Shard.Name), Shard: viewShard(*first.Shard), From: origin(first),
	}
	v.Mapping.ID, v.Mapping.Status = first.MappingID.String(), first.Status.String()
	shards, err := handle.Shards(ctx)
	if err != nil {
		return v, err
	}
	v.Map.Shards = len(shards)
	if !explain {
		return v, nil
	}
	again, err := handle.Lookup(ctx, key, shardway.CacheAndStore)
	if err != nil {
		return v, err
	}
	v.Explained = &explainView{Again: origin(again)}
	v.Explained.Validated, v.Explained.Local = s.validate(ctx, m, key, first)
	return v, nil
}

func origin(r shardway.Route) string {
	if r.FromCache {
		return "cache"
	}
	return "store"
}

// validate asks the shard's own map about a route. What keeps it from
// answering is part of the answer.
func (s *session) validate(ctx context.Context, m shardway.ShardMap, key shardway.Key, r shardway.Route) (ok bool, answer string) {
	global, err := s.global.Describe(ctx)
	if err != nil {
		return false, "not asked: " + err.Error()
	}
	local, err := s.locals.Open(ctx, r.Shard.Location)
	if err != nil {
		return false, "not asked: " + err.Error()
	}
	found, err := local.Describe(ctx)
	if err == nil && found.ID != global.ID {
		err = shardway.ErrForeignStore
	}
	if err != nil {
		return false, "no answer: " + err.Error()
	}
	maps, err := local.Read(ctx, m.ID)
	if err != nil {
		return false, "no answer: " + err.Error()
	}
	for _, lm := range maps {
		for _, mp := range lm.Mappings {
			if !holds(m, mp, key) {
				continue
			}
			switch {
			case mp.ID != r.MappingID:
				return false, fmt.Sprintf("has another mapping for the key: %s, id %s, %s", mp.Format(m.Kind), mp.ID, mp.Status)
			case mp.Status != shardway.Online:
				return false, "has this mapping, but offline"
			}
			return true, "has this mapping, online"
		}
	}
	return false, "does not own the key"
}

func holds(m shardway.ShardMap, mp shardway.Mapping, key shardway.Key) bool {
	if m.Kind == shardway.ListMap {
		return mp.Range.Low == key
	}
	return mp.Range.Contains(key)
}

func (p *page) route(v routeView) {
	if v.Explained == nil {
		p.line("key %s → mapping %s (%s) → shard %s → %s %s", v.Key, v.Mapping.covers, v.Mapping.Status, v.Shard.Name, v.Shard.Engine, v.Shard.text())
		return
	}
	verdict := "NOT validated"
	if v.Explained.Validated {
		verdict = "validated"
	}
	p.fields(
		"key", fmt.Sprintf("%s, %s key, encoded %s", v.Key, v.Map.KeyKind, v.Encoded),
		"map", fmt.Sprintf("%s, %s map at generation %d", v.Map.Name, v.Map.Kind, v.Map.Generation),
		"mapping", fmt.Sprintf("%s, %s, id %s (from the %s)", v.Mapping.covers, v.Mapping.Status, v.Mapping.ID, v.From),
		"shard", fmt.Sprintf("%s, %s, %s (from the %s)", v.Shard.Name, v.Shard.Status, strings.TrimSpace(v.Shard.Engine+" "+v.Shard.Database), v.From),
	)
	for i, srv := range v.Shard.Servers {
		p.line("%-9s%s", []string{"servers", ""}[min(i, 1)], srv)
	}
	p.line("again    from the %s", v.Explained.Again)
	p.line("local    %s: the local map on the shard %s", verdict, v.Explained.Local)
}

// text is a location for people: servers and database.
func (l locationView) text() string {
	if l.Database == "" {
		return l.servers()
	}
	return l.servers() + " database " + l.Database
}
