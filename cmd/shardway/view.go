package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mapfile"
)

// The views are the JSON forms of what the tool shows. Field names are part of
// the interface: docs/cli.md lists them, they are added to and never renamed.

type mapView struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	KeyKind    string `json:"key"`
	Generation int64  `json:"generation"`
	Shards     int    `json:"shard_count"`
}

func viewMap(m shardway.ShardMap, shards int) mapView {
	return mapView{Name: m.Name, Kind: m.Kind.String(), KeyKind: m.KeyKind.String(), Generation: m.Generation, Shards: shards}
}

type serverView struct {
	Address string            `json:"address"`
	Tags    map[string]string `json:"tags"`
}

func (s serverView) String() string {
	text := s.Address
	for _, name := range slices.Sorted(maps.Keys(s.Tags)) {
		text += "," + name + "=" + s.Tags[name]
	}
	return text
}

type locationView struct {
	Engine   string       `json:"engine"`
	Database string       `json:"database"`
	Servers  []serverView `json:"servers"`
}

func viewLocation(l shardway.Location) locationView {
	v := locationView{Engine: l.Engine, Database: l.Database, Servers: []serverView{}}
	for _, s := range l.Servers {
		tags := s.Tags
		if tags == nil {
			tags = map[string]string{}
		}
		v.Servers = append(v.Servers, serverView{Address: s.Address, Tags: tags})
	}
	return v
}

func (l locationView) servers() string {
	texts := make([]string, len(l.Servers))
	for i, s := range l.Servers {
		texts[i] = s.String()
	}
	return strings.Join(texts, " ")
}

type shardView struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	locationView
}

func viewShard(s shardway.Shard) shardView {
	return shardView{Name: s.Name, Status: s.Status.String(), locationView: viewLocation(s.Location)}
}

func viewShards(shards []shardway.Shard) []shardView {
	views := []shardView{}
	for _, s := range shards {
		views = append(views, viewShard(s))
	}
	return views
}

func (p *page) shards(views []shardView) {
	var rows [][]string
	for _, v := range views {
		rows = append(rows, []string{v.Name, v.Status, v.Engine, v.Database, v.servers()})
	}
	p.table([]string{"shard", "status", "engine", "database", "servers"}, rows)
}

type lockView struct {
	Owner   string `json:"owner"`
	Reason  string `json:"reason"`
	Expires string `json:"expires,omitempty"`
}

// hexKeys are keys that are text and no UTF-8, which JSON cannot hold: the hex
// digits of their bytes, in place of the fields without _hex.
type hexKeys struct {
	KeyHex  *string `json:"key_hex,omitempty"`
	LowHex  *string `json:"low_hex,omitempty"`
	HighHex *string `json:"high_hex,omitempty"`
}

type mappingView struct {
	ID   string  `json:"id"`
	Key  *string `json:"key,omitempty"`  // of a list map
	Low  *string `json:"low,omitempty"`  // of a range map
	High *string `json:"high,omitempty"` // of a range map; absent for an open end
	hexKeys
	Shard  string    `json:"shard"`
	Status string    `json:"status"`
	Lock   *lockView `json:"lock,omitempty"`
	covers string    // for people
}

// viewMapping leaves the lock's token out: it is for its owner alone. now is the
// store's time, by which locks run out.
func viewMapping(m shardway.ShardMap, mp shardway.Mapping, shard string, now time.Time) mappingView {
	v := mappingView{ID: mp.ID.String(), Shard: shard, Status: mp.Status.String(), covers: mp.Format(m.Kind)}
	if m.Kind == shardway.ListMap {
		v.Key, v.KeyHex = mapfile.KeyText(mp.Range.Low)
	} else {
		v.Low, v.LowHex = mapfile.KeyText(mp.Range.Low)
		v.High, v.HighHex = mapfile.KeyText(mp.Range.High)
	}
	if mp.Lock.Held(now) {
		v.Lock = &lockView{Owner: mp.Lock.Owner, Reason: mp.Lock.Reason, Expires: instant(mp.Lock.Expires)}
	}
	return v
}

func (l *lockView) String() string {
	if l == nil {
		return ""
	}
	text := l.Owner
	if l.Reason != "" {
		text += ": " + l.Reason
	}
	if l.Expires != "" {
		text += " (until " + l.Expires + ")"
	}
	return text
}

func (p *page) mappings(m shardway.ShardMap, views []mappingView) {
	head := "range"
	if m.Kind == shardway.ListMap {
		head = "key"
	}
	locked := slices.ContainsFunc(views, func(v mappingView) bool { return v.Lock != nil })
	header := []string{"id", head, "shard", "status"}
	if locked {
		header = append(header, "lock")
	}
	var rows [][]string
	for _, v := range views {
		row := []string{v.ID, v.covers, v.Shard, v.Status}
		if locked {
			row = append(row, oneLine(v.Lock.String()))
		}
		rows = append(rows, row)
	}
	p.table(header, rows)
}
