package main

import (
	"fmt"
	"strings"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// unlistedView is the JSON form of an address that servers tell of and the map
// does not have.
type unlistedView struct {
	Address string   `json:"address"`
	ToldBy  []string `json:"told_by"` // addresses of the map
}

func viewUnlisted(e selection.Explanation) []unlistedView {
	servers := make([]topology.Server, len(e.Servers))
	for i, verdict := range e.Servers {
		servers[i] = verdict.Server
	}
	all := []unlistedView{}
	for _, u := range topology.FindUnlisted(servers) {
		all = append(all, unlistedView(u))
	}
	return all
}

func (u unlistedView) source() string { return "told by " + strings.Join(u.ToldBy, ", ") }

// judgeUnlisted is the note on addresses that a shard's servers tell of. One
// command adds them all: each replaces the list.
func judgeUnlisted(name string, v shardServersView) []finding {
	if len(v.Unlisted) == 0 {
		return nil
	}
	var told []string
	for _, u := range v.Unlisted {
		told = append(told, fmt.Sprintf("%s (%s)", u.Address, u.source()))
	}
	return []finding{{
		Severity: remark, Check: "server", Map: name, Shard: v.Shard, Mend: addUnlisted(name, v),
		Text: fmt.Sprintf("not in the map: %s; where one is a server of this shard, and no other name of one or a reader of changes, add it", strings.Join(told, ", ")),
	}}
}

// addUnlisted is the command that keeps the servers of a shard, with their
// tags, and adds those that they tell of.
func addUnlisted(name string, v shardServersView) string {
	var b strings.Builder
	fmt.Fprintf(&b, "shardway shard update %s --map %s", word(v.Shard), word(name))
	for _, m := range v.Members {
		fmt.Fprintf(&b, " --server %s", word(m.serverView.String()))
	}
	for _, u := range v.Unlisted {
		fmt.Fprintf(&b, " --server %s", word(u.Address))
	}
	return b.String()
}
