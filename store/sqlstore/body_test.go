package sqlstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// full is an operation in which everything that a body holds is filled in.
func full(t *testing.T) *store.Operation {
	t.Helper()
	key := func(s string) shardway.Key {
		k, err := shardway.StringKey(s)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	s1 := shardway.Shard{ID: 0x11, MapID: 0x7fffffffffffffff, Name: "eins", Status: shardway.ShardOffline, Version: 0x33, Location: shardway.Location{
		Engine: "postgres", Database: "customers",
		Servers: []shardway.Server{{Address: "db1.example:5432", Tags: map[string]string{"zone": "eu-1a", "disk": "ssd"}}, {Address: "[::1]:5432"}},
	}}
	s2 := s1
	s2.Name, s2.Version, s2.Status = "zwei ü", 0x34, shardway.ShardOnline
	s2.Location = shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: "/var/lib/two.db"}}}
	return &store.Operation{
		ID:  0x5,
		Map: shardway.ShardMap{ID: 0x7fffffffffffffff, Name: "customers ü", Kind: shardway.RangeMap, KeyKind: shardway.KindString, Generation: 12},
		Steps: []store.Step{
			{Shard: s1, Before: &s1, After: &s2, Remove: []shardway.Mapping{{
				ID: 0x21, MapID: 0x7fffffffffffffff, ShardID: 0x11, Status: shardway.Online, Range: shardway.Range{Low: key(""), High: key("a\x00\xff")},
				Lock: shardway.Lock{Token: "t1", Owner: "anna <a@b>", Reason: "why & how", Expires: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)},
			}}},
			{Shard: s2, Add: []shardway.Mapping{
				{ID: 0x22, MapID: 0x7fffffffffffffff, ShardID: 0x11, Range: shardway.RangeFrom(key("m")), Lock: shardway.Lock{Token: "t2"}},
				{ID: 0x23, MapID: 0x7fffffffffffffff, ShardID: 0x11, Range: shardway.Range{Low: key("a"), High: key("b")}},
			}},
		},
	}
}

var compareKeys = cmp.AllowUnexported(shardway.Key{})

// UPG-01: the stored form of operations never changes by accident. Bodies of
// every version that was ever released are read; today's is written exactly so.
func TestBodyGolden(t *testing.T) {
	t.Parallel()
	stored, err := os.ReadFile("testdata/operation-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	want := full(t)
	got := store.Operation{ID: want.ID}
	if err := decodeBody(string(stored), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*want, got, compareKeys); diff != "" {
		t.Errorf("testdata/operation-v1.json is read differently (-want +got):\n%s", diff)
	}
	text, err := encodeBody(want)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(compact.String(), text); diff != "" {
		t.Errorf("an operation is written differently (-stored +now):\n%s\n%s", diff, text)
	}
}

func TestBodyRefused(t *testing.T) {
	t.Parallel()
	valid, err := encodeBody(full(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body string
		want error
	}{
		"a newer version": {strings.Replace(valid, `"v":1`, `"v":2`, 1), shardway.ErrStoreVersion},
		"no version":      {`{}`, shardway.ErrStoreVersion},
		"cut":             {valid[:len(valid)/2], nil},
		"a bad key":       {strings.Replace(valid, `"low":"0001"`, `"low":"00"`, 1), shardway.ErrInvalid},
		"a bad id":        {strings.Replace(valid, `"id":"0000000000000021"`, `"id":"x"`, 1), nil},
		"a bad kind":      {strings.Replace(valid, `"key_kind":"string"`, `"key_kind":"text"`, 1), shardway.ErrInvalid},
	} {
		err := decodeBody(c.body, &store.Operation{ID: 5})
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: decodeBody = %v, want %v", name, err, c.want)
		}
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "a", "abcdef", strings.Repeat("aü😀", 100)} {
		for size := 4; size < 12; size++ {
			pieces := parts(body, size)
			if joined := strings.Join(pieces, ""); joined != body {
				t.Errorf("parts(%q, %d) join to %q", body, size, joined)
			}
			for _, p := range pieces {
				if len(p) > size || !utf8.ValidString(p) {
					t.Errorf("parts(%q, %d) has the part %q", body, size, p)
				}
			}
		}
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	at := shardway.Int64Key
	for name, ranges := range map[string][]shardway.Range{
		"none":   nil,
		"points": {{Low: at(-1)}, {Low: at(5)}},
		"ranges": {{Low: at(-1), High: at(5)}, shardway.RangeFrom(at(7)), shardway.FullRange(shardway.KindInt64)},
		"uuids":  {shardway.FullRange(shardway.KindUUID)},
	} {
		b := encodeRanges(ranges, false)
		got, only, err := decodeRanges(b)
		if diff := cmp.Diff(ranges, got, compareKeys); err != nil || only || diff != "" {
			t.Errorf("%s: %v, shards only: %t (-want +got):\n%s", name, err, only, diff)
		}
		for n := range b {
			if part, _, err := decodeRanges(b[:n]); err == nil && n != 2 && len(part) >= len(ranges) {
				t.Errorf("%s: the first %d of %d bytes decode to %v", name, n, len(b), part)
			}
		}
	}
	many := make([]shardway.Range, maxRangeBytes/8)
	for i := range many {
		many[i].Low = at(int64(i))
	}
	if got, only, err := decodeRanges(encodeRanges(many, false)); err != nil || only || got != nil {
		t.Errorf("too many ranges decode to %d, %v, shards only: %t; want none, the whole map", len(got), err, only)
	}
	if _, _, err := decodeRanges([]byte{9, 2}); err == nil {
		t.Error("a form of another version is read")
	}
}

// What programs of store 1.0 and 1.1 wrote before there was a mark for changes
// of shards stays the whole map, and they, who read a kind and then ranges until
// the end, see no range behind the mark.
func TestShardsOnly(t *testing.T) {
	t.Parallel()
	if ranges, only, err := decodeRanges([]byte{1, 0}); err != nil || only || ranges != nil {
		t.Errorf("an old entry of the whole map decodes to %v, shards only: %t, %v", ranges, only, err)
	}
	b := encodeRanges(nil, true)
	if len(b) != 2 || b[0] != 1 {
		t.Errorf("old programs cannot read %x", b)
	}
	if ranges, only, err := decodeRanges(b); err != nil || !only || ranges != nil {
		t.Errorf("a change of shards only decodes to %v, shards only: %t, %v", ranges, only, err)
	}
	changed := []shardway.Range{shardway.RangeFrom(shardway.Int64Key(7))}
	if ranges, only, err := decodeRanges(encodeRanges(changed, true)); err != nil || only || len(ranges) != 1 {
		t.Errorf("ranges are lost to a wrong mark: %v, %t, %v", ranges, only, err)
	}
}
