package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/recovery"
)

// strays looks for local maps that the global store does not account for.
func (d *doctor) strays(ctx context.Context, facts []*mapFacts) {
	var ids []shardway.ShardID
	for _, f := range facts {
		for _, sh := range f.shards {
			if !d.silent[sh.ID] {
				ids = append(ids, sh.ID)
			}
		}
	}
	if len(ids) == 0 {
		return
	}
	r, end, err := d.recovery()
	if err != nil {
		d.find(finding{Severity: grave, Check: "local map", Text: fmt.Sprintf("looking for unknown local maps: %v", err)})
		return
	}
	defer end()
	all, err := r.Strays(ctx, ids...)
	if err != nil {
		d.find(finding{Severity: grave, Check: "local map", Text: fmt.Sprintf("looking for unknown local maps: %v", err)})
	}
	for _, s := range all {
		d.find(judgeStray(s))
	}
}

// judgeStray says how a local map that the global store does not account for
// comes back. One of a known map is what detach leaves.
func judgeStray(s recovery.Stray) finding {
	f := finding{
		Severity: doubt, Check: "local map", Map: s.Map.Name, Shard: s.Shard.Name,
		Text: fmt.Sprintf("the local store at %s has it, with %s; the global store does not know the map", s.Location, count(s.Mappings, "mapping")),
		Mend: fmt.Sprintf("shardway shard attach %s --map %s", locationWords(s.Location), word(s.Map.Name)),
	}
	switch {
	case s.SameName:
		f.Text += ", and has another one of this name: that one must be deleted before it can come back"
		f.Mend = "shardway map list"
	case s.Known:
		f.Severity = remark
		f.Text = fmt.Sprintf("the local store at %s keeps it, with %s; it is not in the global map", s.Location, count(s.Mappings, "mapping"))
	default:
		f.Mend += " --restore-map"
	}
	return f
}

// locationWords is a location as a shell takes it.
func locationWords(l shardway.Location) string {
	var words []string
	for _, srv := range l.Servers {
		one := shardway.Location{Engine: l.Engine, Servers: []shardway.Server{{Address: srv.Address}}}.String()
		switch {
		case l.Database == "":
		case l.Engine == "sqlserver":
			one += "?database=" + url.QueryEscape(l.Database)
		default:
			one += "/" + url.PathEscape(l.Database)
		}
		words = append(words, word(one))
		if len(srv.Tags) == 0 {
			continue
		}
		tagged := srv.Address
		for _, name := range slices.Sorted(maps.Keys(srv.Tags)) {
			tagged += "," + name + "=" + srv.Tags[name]
		}
		words = append(words, "--server "+word(tagged))
	}
	return strings.Join(words, " ")
}
