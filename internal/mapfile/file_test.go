package mapfile_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mapfile"
)

var rewrite = flag.Bool("rewrite", false, "write the files in testdata anew")

var compareKeys = cmp.AllowUnexported(shardway.Key{})

func text(t testing.TB, s string) shardway.Key {
	t.Helper()
	k, err := shardway.StringKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func key[K shardway.KeyType](t testing.TB, v K) shardway.Key {
	t.Helper()
	k, err := shardway.KeyOf(v)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func shard(name, engine, database string, servers ...shardway.Server) mapfile.Shard {
	return mapfile.Shard{Name: name, Location: shardway.Location{Engine: engine, Database: database, Servers: servers}}
}

// full is a file with everything that a file can hold, out of order.
func full(t testing.TB) mapfile.File {
	t.Helper()
	off := shard("eu2 \"ü\"", "sqlite", "", shardway.Server{Address: `C:\maps\<a>&b.db`})
	off.Status = shardway.ShardOffline
	eu1 := shard("eu1", "postgres", "tenants", shardway.Server{Address: "db1:5432", Tags: map[string]string{"zone": "a", "disk": "ssd"}}, shardway.Server{Address: "[::1]:5432"})
	until := time.Date(2036, 1, 2, 3, 4, 5, 678000, time.UTC)
	return mapfile.File{Maps: []mapfile.Map{
		{
			Name: "words", Kind: shardway.RangeMap, KeyKind: shardway.KindString, Shards: []mapfile.Shard{off, eu1},
			Mappings: []mapfile.Mapping{
				{Range: shardway.RangeFrom(text(t, "z\xff\xfe")), Shard: off.Name},
				{Range: shardway.Range{Low: shardway.MinKey(shardway.KindString), High: text(t, "a\x00\u2028\"<ü>\ufffd")}, Shard: "eu1", Status: shardway.Online},
				{
					Range: shardway.Range{Low: text(t, "m"), High: text(t, "z\xff\xfe")}, Shard: "eu1", Status: shardway.Online,
					Lock: &mapfile.Lock{Owner: "mover <x@y>", Reason: "copies & checks", Expires: until},
				},
			},
		},
		{Name: "empty", Kind: shardway.ListMap, KeyKind: shardway.KindBytes},
		{
			Name: "customers", Kind: shardway.ListMap, KeyKind: shardway.KindInt64, Shards: []mapfile.Shard{eu1},
			Mappings: []mapfile.Mapping{
				{Range: shardway.RangeFrom(shardway.Int64Key(42)), Shard: "eu1", Status: shardway.Online},
				{Range: shardway.RangeFrom(shardway.Int64Key(math.MinInt64)), Shard: "eu1", Lock: &mapfile.Lock{Owner: "anna"}},
			},
		},
	}}
}

func written(t testing.TB, f mapfile.File) string {
	t.Helper()
	var b bytes.Buffer
	if err := mapfile.Write(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func read(t testing.TB, body string) mapfile.File {
	t.Helper()
	f, err := mapfile.Read(strings.NewReader(body), "maps.json")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// UPG-01: the form of version 1 never changes by accident; files of today are
// read for ever.
func TestGolden(t *testing.T) {
	t.Parallel()
	const file = "testdata/version-1.json"
	got := written(t, full(t))
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("version 1 is written differently (-stored +now):\n%s", diff)
	}
	f := full(t)
	written(t, f) // puts it in order
	if diff := cmp.Diff(f, read(t, string(want)), compareKeys); diff != "" {
		t.Errorf("version 1 is read differently (-written +read):\n%s", diff)
	}
}

// Keys of every kind come back bit for bit, text that is no UTF-8 included.
func TestKeysRoundTrip(t *testing.T) {
	t.Parallel()
	far := time.Date(-4000, 1, 1, 0, 0, 0, 1000, time.UTC)
	for _, keys := range [][]shardway.Key{
		{shardway.Int32Key(math.MinInt32), shardway.Int32Key(-1), shardway.Int32Key(math.MaxInt32)},
		{shardway.Int64Key(math.MinInt64), shardway.Int64Key(1<<53 + 1), shardway.Int64Key(math.MaxInt64)},
		{shardway.Uint64Key(0), shardway.Uint64Key(math.MaxUint64)},
		{shardway.UUIDKey([16]byte{}), shardway.UUIDKey([16]byte{0xff, 1})},
		{text(t, ""), text(t, "\x00"), text(t, "\"\\\u2028<&>"), text(t, "a b"), text(t, "a\xc3"), text(t, strings.Repeat("\x80", 128)), text(t, "ü\ufffd"), text(t, "\xff")},
		{key(t, []byte{}), key(t, []byte{0}), key(t, []byte{0, 0xff}), key(t, bytes.Repeat([]byte{0xff}, 128))},
		{key(t, far), key(t, time.Unix(0, 999_000).UTC()), key(t, time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC))},
		{shardway.DurationKey(math.MinInt64), shardway.DurationKey(1), shardway.DurationKey(math.MaxInt64)},
	} {
		kind := keys[0].Kind()
		for _, form := range []shardway.MapKind{shardway.ListMap, shardway.RangeMap} {
			m := mapfile.Map{Name: "m", Kind: form, KeyKind: kind, Shards: []mapfile.Shard{shard("s", "sqlite", "", shardway.Server{Address: "/s"})}}
			for i, k := range keys {
				r := shardway.RangeFrom(k)
				if form == shardway.RangeMap && i+1 < len(keys) {
					r.High = keys[i+1]
				}
				m.Mappings = append(m.Mappings, mapfile.Mapping{Range: r, Shard: "s", Status: shardway.Online})
			}
			f := mapfile.File{Maps: []mapfile.Map{m}}
			body := written(t, f)
			if diff := cmp.Diff(f, read(t, body), compareKeys); diff != "" {
				t.Errorf("%s keys in a %s map (-written +read):\n%s\n%s", kind, form, diff, body)
			}
		}
	}
}

// TestRefused takes a good file and breaks it; each mistake is named with its
// line and field.
func TestRefused(t *testing.T) {
	t.Parallel()
	const good = `{
  "format": "shardway map",
  "version": 1,
  "maps": [
    {
      "name": "m",
      "kind": "range",
      "key": "int64",
      "shards": [
        {"name": "s1", "status": "online", "engine": "sqlite", "servers": [{"address": "/1"}]},
        {"name": "s2", "status": "online", "engine": "sqlite", "servers": [{"address": "/2"}]}
      ],
      "mappings": [
        {"low": "0", "high": "10", "shard": "s1", "status": "online"},
        {"low": "10", "shard": "s2", "status": "offline"}
      ]
    }
  ]
}
`
	read(t, good)
	for name, c := range map[string]struct{ old, new, want string }{
		"a newer version":       {`"version": 1`, `"version": 2`, `line 3, field "version": is 2, this program reads files up to version 1`},
		"no version":            {`"version": 1,`, ``, "is not a file of shard maps"},
		"another format":        {`shardway map`, `package-lock`, "is not a file of shard maps"},
		"text after it":         {"  ]\n}\n", "  ]\n}\n{}\n", "line 20: no JSON: "},
		"a comma too many":      {`"status": "offline"}`, `"status": "offline"},`, "line 16: no JSON: "},
		"a comma too few":       {`"high": "10",`, `"high": "10"`, "line 14: no JSON: "},
		"a merge conflict":      {`        {"low": "10"`, "<<<<<<< HEAD\n" + `        {"low": "10"`, "line 15: no JSON: "},
		"an overlap":            {`"low": "10"`, `"low": "9"`, `line 15, field "low": [9, +inf) overlaps [0, 10) of line 14`},
		"the same range":        {`{"low": "10", "shard"`, `{"low": "0", "high": "10", "shard"`, `line 15, field "low": [0, 10) overlaps [0, 10) of line 14`},
		"an unknown shard":      {`"shard": "s2"`, `"shard": "s3"`, `line 15, field "shard": "s3" is no shard of shard map "m"`},
		"a shard twice":         {`"name": "s2"`, `"name": "s1"`, `line 11, field "name": shard "s1" stands in line 10 already`},
		"a database twice":      {`"/2"`, `"/1"`, `line 11, field "servers": are those of shard "s1" in line 10`},
		"an unknown field":      {`"low": "10"`, `"lo": "10"`, `line 15, field "lo": is unknown`},
		"a field in capitals":   {`"low": "10"`, `"Low": "10"`, `line 15, field "Low": is unknown`},
		"a field twice":         {`"shard": "s2"`, `"shard": "s1", "shard": "s2"`, `line 15, field "shard": stands twice`},
		"no low end":            {`"low": "10", `, ``, `line 15, field "low": is missing`},
		"a bad key":             {`"low": "10"`, `"low": "ten"`, `line 15, field "low": key "ten" is not an int64 key`},
		"a number for a key":    {`"low": "10"`, `"low": 10`, `line 15, field "low": 10 is no text in quotes`},
		"null for a key":        {`"low": "10"`, `"low": null`, `line 15, field "low": null is no text in quotes`},
		"hex for a number":      {`"low": "10"`, `"low_hex": "0a"`, `line 15, field "low": in hex is for string keys`},
		"an empty range":        {`"high": "10"`, `"high": "0"`, `line 14, field "high": range`},
		"a key in a range map":  {`"low": "10"`, `"key": "10"`, `line 15, field "key": is for list maps`},
		"a bad status":          {`"status": "offline"`, `"status": "off"`, `line 15, field "status": "off" is neither online nor offline`},
		"a bad shard status":    {`"s2", "status": "online"`, `"s2", "status": "up"`, `line 11, field "status": "up" is neither`},
		"no engine":             {`"s2", "status": "online", "engine": "sqlite"`, `"s2", "status": "online"`, `line 11, field "engine": is missing`},
		"no servers":            {`"servers": [{"address": "/2"}]`, `"servers": []`, `line 11, field "servers": are missing`},
		"a bad kind":            {`"kind": "range"`, `"kind": "hash"`, `line 7, field "kind": "hash" is neither list nor range`},
		"a bad key kind":        {`"key": "int64"`, `"key": "int"`, `line 8, field "key": key kind "int" is none of`},
		"no kind":               {`      "kind": "range",` + "\n", ``, `line 5, field "kind": is missing`},
		"an empty name":         {`"name": "m"`, `"name": ""`, `line 6, field "name": shard map name is empty`},
		"a secret":              {`"engine": "sqlite", "servers": [{"address": "/2"}]`, `"engine": "sqlite", "password": "x", "servers": [{"address": "/2"}]`, `line 11, field "password": is unknown`},
		"a lock without owner":  {`"status": "offline"`, `"lock": {"reason": "x"}`, `line 15, field "owner": lock owner is empty`},
		"a bad expiry":          {`"status": "offline"`, `"lock": {"owner": "x", "expires": "soon"}`, `line 15, field "expires": "soon" is not a time`},
		"a token":               {`"status": "offline"`, `"lock": {"owner": "x", "token": "y"}`, `line 15, field "token": is unknown`},
		"a list for a map":      {`"maps": [`, `"maps": {`, "line "},
		"not UTF-8":             {`"s2", "status"`, "\"s2\xff\", \"status\"", "line 11: is no UTF-8"},
		"half a character":      {`"name": "m"`, `"name": "m\ud800"`, `line 6, field "name": has half a character`},
		"a map twice":           {"    }\n  ]\n}", "    },\n" + `    {"name": "m", "kind": "list", "key": "uuid", "shards": [], "mappings": []}` + "\n  ]\n}", `line 18, field "name": shard map "m" stands in line 5 already`},
		"a password in a DSN":   {`"address": "/2"`, `"address": "/2", "dsn": "postgres://a:b@c"`, `field "dsn": is unknown`},
		"two mistakes, the 1st": {`"shard": "s1", "status": "online"},` + "\n" + `        {"low": "10", "shard": "s2"`, `"shard": "s8", "status": "online"},` + "\n" + `        {"low": "10", "shard": "s9"`, `line 14, field "shard": "s8"`},
		"two mistakes, the 2nd": {`"shard": "s1", "status": "online"},` + "\n" + `        {"low": "10", "shard": "s2"`, `"shard": "s8", "status": "online"},` + "\n" + `        {"low": "10", "shard": "s9"`, `line 15, field "shard": "s9"`},
	} {
		broken := strings.Replace(good, c.old, c.new, 1)
		if broken == good {
			t.Errorf("%s: nothing was broken", name)
		}
		_, err := mapfile.Read(strings.NewReader(broken), "maps.json")
		if !errors.Is(err, shardway.ErrInvalid) || !strings.Contains(err.Error(), "maps.json, line ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Read = %v, want ErrInvalid with %q", name, err, c.want)
		}
	}
}

// A file that breaks off anywhere is refused.
func TestTruncated(t *testing.T) {
	t.Parallel()
	whole := strings.TrimRight(written(t, full(t)), "\n")
	for n := range whole {
		_, err := mapfile.Read(strings.NewReader(whole[:n]), "maps.json")
		if !errors.Is(err, shardway.ErrInvalid) {
			t.Fatalf("the first %d of %d bytes: Read = %v, want ErrInvalid", n, len(whole), err)
		}
	}
	half := strings.TrimRight(whole[:len(whole)/2], " \n")
	_, err := mapfile.Read(strings.NewReader(half), "maps.json")
	if want := fmt.Sprintf("line %d: the text breaks off", 1+strings.Count(half, "\n")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Read = %v, want %q", err, want)
	}
}

// A tool that puts fields, lines and white space in another order changes nothing.
func TestOtherOrder(t *testing.T) {
	t.Parallel()
	const body = "\n\t" + `{"maps":[{"mappings":[{"status":"online","shard":"s","key":"b"},{"shard":"s","key":"a"}],"key":"string","shards":[{"servers":[{"tags":{},"address":"/s"}],"engine":"sqlite","name":"s"}],"kind":"list","name":"m"}],"version":1,"format":"shardway map"}`
	want := mapfile.File{Maps: []mapfile.Map{{
		Name: "m", Kind: shardway.ListMap, KeyKind: shardway.KindString,
		Shards: []mapfile.Shard{shard("s", "sqlite", "", shardway.Server{Address: "/s"})},
		Mappings: []mapfile.Mapping{
			{Range: shardway.RangeFrom(text(t, "a")), Shard: "s", Status: shardway.Online},
			{Range: shardway.RangeFrom(text(t, "b")), Shard: "s", Status: shardway.Online},
		},
	}}}
	if d := mapfile.Diff(want, read(t, body)); len(d) > 0 {
		t.Errorf("Diff = %+v", d)
	}
}

// FuzzRead looks for text that ends the program, and for files that are not
// read back as they were.
func FuzzRead(f *testing.F) {
	f.Add(written(f, full(f)))
	f.Add(`{"format":"shardway map","version":1,"maps":[]}`)
	f.Add(`{"format":"shardway map","version":1,"maps":[{"name":"m","kind":"list","key":"string","shards":[],"mappings":[{"key_hex":"ff"}]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		v, err := mapfile.Read(strings.NewReader(body), "f")
		if err != nil {
			return
		}
		again := written(t, v)
		if d := mapfile.Diff(v, read(t, again)); len(d) > 0 || written(t, read(t, again)) != again {
			t.Errorf("%q is written as %q, which differs: %+v", body, again, d)
		}
	})
}
