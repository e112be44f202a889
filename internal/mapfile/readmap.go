package mapfile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardway/shardway"
)

// placedShard and placedMapping are what a line says, before it is checked
// against the rest of its map, which may stand below.
type placedShard struct {
	line  int
	shard Shard
}

type placedMapping struct {
	line int
	mappingDocument
}

// shardMap reads one map and checks it as a whole.
func (p *parser) shardMap() (Map, error) {
	var m Map
	var kind, keys string
	var shards []placedShard
	var mappings []placedMapping
	at := p.here()
	lines := map[string]int{}
	err := p.object(func(field string, line int) error {
		lines[field] = line
		switch field {
		case "name":
			return p.text(&m.Name)
		case "kind":
			return p.text(&kind)
		case "key":
			return p.text(&keys)
		case "shards":
			return p.list(func() error {
				s, err := p.shard()
				shards = append(shards, s)
				return err
			})
		case "mappings":
			return p.list(func() error {
				mp, err := p.mapping()
				mappings = append(mappings, mp)
				return err
			})
		}
		return p.unknown(line, field)
	})
	if err != nil {
		return m, err
	}
	for _, field := range []string{"name", "kind", "key", "shards", "mappings"} {
		if _, ok := lines[field]; !ok {
			return m, p.at(at, field, errMissing)
		}
	}
	if err := shardway.CheckName("shard map name", m.Name); err != nil {
		return m, p.at(lines["name"], "name", err)
	}
	if m.Kind, err = parseKind(kind); err != nil {
		return m, p.at(lines["kind"], "kind", err)
	}
	if m.KeyKind, err = shardway.ParseKeyKind(keys); err != nil {
		return m, p.at(lines["key"], "key", err)
	}
	p.checkShards(&m, shards)
	p.checkMappings(&m, mappings)
	return m, nil
}

// shard reads one shard.
func (p *parser) shard() (placedShard, error) {
	s := placedShard{line: p.here()}
	status := ""
	err := p.object(func(field string, line int) error {
		switch field {
		case "name":
			return p.text(&s.shard.Name)
		case "status":
			return p.text(&status)
		case "engine":
			return p.text(&s.shard.Location.Engine)
		case "database":
			return p.text(&s.shard.Location.Database)
		case "servers":
			return p.list(func() error {
				srv, err := p.server()
				s.shard.Location.Servers = append(s.shard.Location.Servers, srv)
				return err
			})
		}
		return p.unknown(line, field)
	})
	if err != nil {
		return s, err
	}
	is, err := online(status)
	p.note(s.line, "status", err)
	if !is {
		s.shard.Status = shardway.ShardOffline
	}
	return s, nil
}

func (p *parser) server() (s shardway.Server, err error) {
	return s, p.object(func(field string, line int) error {
		switch field {
		case "address":
			return p.text(&s.Address)
		case "tags":
			return p.object(func(name string, _ int) error {
				if s.Tags == nil {
					s.Tags = map[string]string{}
				}
				var value string
				err := p.text(&value)
				s.Tags[name] = value
				return err
			})
		}
		return p.unknown(line, field)
	})
}

// checkShards notes what is wrong with shards beside each other.
func (p *parser) checkShards(m *Map, shards []placedShard) {
	for i, s := range shards {
		p.note(s.line, "name", shardway.CheckName("shard name", s.shard.Name))
		l := s.shard.Location
		if l.Engine == "" {
			p.note(s.line, "engine", errMissing)
		}
		if len(l.Servers) == 0 || slices.ContainsFunc(l.Servers, func(srv shardway.Server) bool { return srv.Address == "" }) {
			p.note(s.line, "servers", errors.New("are missing, or one has no address"))
		}
		for _, other := range shards[:i] {
			if other.shard.Name == s.shard.Name {
				p.note(s.line, "name", fmt.Errorf("shard %q stands in line %d already", s.shard.Name, other.line))
			} else if other.shard.Location.Overlaps(l) {
				p.note(s.line, "servers", fmt.Errorf("are those of shard %q in line %d", other.shard.Name, other.line))
			}
		}
		m.Shards = append(m.Shards, s.shard)
	}
}

// mapping reads one mapping.
func (p *parser) mapping() (placedMapping, error) {
	m := placedMapping{line: p.here()}
	fields := map[string]**string{
		"key": &m.Key, "key_hex": &m.KeyHex, "low": &m.Low, "low_hex": &m.LowHex, "high": &m.High, "high_hex": &m.HighHex,
	}
	return m, p.object(func(field string, line int) error {
		if key := fields[field]; key != nil {
			*key = new(string)
			return p.text(*key)
		}
		switch field {
		case "shard":
			return p.text(&m.Shard)
		case "status":
			return p.text(&m.Status)
		case "lock":
			m.Lock = &lockDocument{}
			return p.lock(m.Lock)
		}
		return p.unknown(line, field)
	})
}

func (p *parser) lock(l *lockDocument) error {
	return p.object(func(field string, line int) error {
		switch field {
		case "owner":
			return p.text(&l.Owner)
		case "reason":
			return p.text(&l.Reason)
		case "expires":
			return p.text(&l.Expires)
		}
		return p.unknown(line, field)
	})
}

// checkMappings turns lines into mappings and notes what is wrong with them,
// overlaps included.
func (p *parser) checkMappings(m *Map, lines []placedMapping) {
	shards := map[string]bool{}
	for _, s := range m.Shards {
		shards[s.Name] = true
	}
	type placed struct {
		line int
		Mapping
	}
	var all []placed
	for _, l := range lines {
		mp, field, err := l.value(*m)
		if err != nil {
			p.note(l.line, field, err)
			continue
		}
		if !shards[mp.Shard] {
			p.note(l.line, "shard", fmt.Errorf("%q is no shard of shard map %q", brief(mp.Shard), m.Name))
		}
		all = append(all, placed{l.line, mp})
		m.Mappings = append(m.Mappings, mp)
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.Range.Low.Compare(b.Range.Low) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		switch {
		case m.Kind == shardway.ListMap && a.Range.Low == b.Range.Low:
			p.note(max(a.line, b.line), "key", fmt.Errorf("%s is mapped in line %d already", m.format(b.Range), min(a.line, b.line)))
		case m.Kind == shardway.RangeMap && a.Range.Intersects(b.Range):
			p.note(b.line, "low", fmt.Errorf("%s overlaps %s of line %d", b.Range, a.Range, a.line))
		}
	}
}

// value checks one line by itself. field is what is wrong.
func (d *placedMapping) value(m Map) (mp Mapping, field string, err error) {
	mp.Shard = d.Shard
	key := func(name string, text, hexText *string) (k shardway.Key, err error) {
		field = name
		return parseKey(m.KeyKind, text, hexText)
	}
	switch list := m.Kind == shardway.ListMap; {
	case list && (d.Low != nil || d.LowHex != nil || d.High != nil || d.HighHex != nil):
		return mp, "low", errors.New("and high are for range maps, this one is a list: it has key")
	case !list && (d.Key != nil || d.KeyHex != nil):
		return mp, "key", errors.New("is for list maps, this one has ranges: it has low and high")
	case list:
		mp.Range.Low, err = key("key", d.Key, d.KeyHex)
	default:
		mp.Range.Low, err = key("low", d.Low, d.LowHex)
	}
	if err != nil {
		return mp, field, err
	}
	if d.High != nil || d.HighHex != nil {
		if mp.Range.High, err = key("high", d.High, d.HighHex); err == nil {
			err = mp.Range.Validate()
		}
		if err != nil {
			return mp, "high", err
		}
	}
	is, err := online(d.Status)
	if err != nil {
		return mp, "status", err
	}
	if is {
		mp.Status = shardway.Online
	}
	if d.Lock != nil {
		mp.Lock = &Lock{Owner: d.Lock.Owner, Reason: d.Lock.Reason}
		if err := shardway.CheckName("lock owner", d.Lock.Owner); err != nil {
			return mp, "owner", err
		}
		if d.Lock.Expires != "" {
			if mp.Lock.Expires, err = time.Parse(time.RFC3339Nano, d.Lock.Expires); err != nil {
				return mp, "expires", fmt.Errorf("%q is not a time such as 2026-01-31T12:00:00Z", brief(d.Lock.Expires))
			}
			mp.Lock.Expires = mp.Lock.Expires.UTC()
		}
	}
	return mp, "", nil
}

// parseKey reads a key as text or as hex digits of the bytes of a string.
func parseKey(kind shardway.KeyKind, text, hexText *string) (shardway.Key, error) {
	switch {
	case text == nil && hexText == nil:
		return shardway.Key{}, errMissing
	case text != nil && hexText != nil:
		return shardway.Key{}, errors.New("is given as text and in hex")
	case text != nil:
		return shardway.ParseKey(kind, *text)
	case kind != shardway.KindString:
		return shardway.Key{}, fmt.Errorf("in hex is for string keys, these are %s keys", kind)
	}
	b, err := hex.DecodeString(*hexText)
	if err != nil {
		return shardway.Key{}, fmt.Errorf("%q is not hex digits", brief(*hexText))
	}
	return shardway.StringKey(string(b))
}
