package main

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/shardway/shardway"
)

// TestMessageBounds quotes input of any length: what is shown of it is bounded,
// and the cause, which stands at the end, is still there.
func TestMessageBounds(t *testing.T) {
	t.Parallel()
	const cause = ": shard map not found"
	for name, text := range map[string]string{
		"one word":         strings.Repeat("x", 1<<20),
		"many words":       strings.Repeat("ab ", 1<<18),
		"many parts":       strings.Repeat("part: ", 1<<16),
		"characters":       strings.Repeat("ü", 1<<18),
		"words and quotes": strings.Repeat(`"äöü" `, 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := message(errors.New(`reading shard map "` + text + `"` + cause))
			if len(got) > maxLong+10 || !strings.Contains(got, "…") || !utf8.ValidString(got) {
				t.Errorf("%d bytes: %.300q", len(got), got)
			}
			if !strings.HasPrefix(got, "reading shard map ") || !strings.HasSuffix(got, cause) {
				t.Errorf("no begin or no end: %.60q ... %q", got, got[max(0, len(got)-60):])
			}
		})
	}
	var lines []error
	for i := range 10 * maxLines {
		lines = append(lines, errors.New("line "+strings.Repeat("i", i+1)+" is bad"))
	}
	got := message(errors.Join(lines...))
	if n := strings.Count(got, "\n"); n != maxLines || !strings.HasSuffix(got, "… and 1350 lines more") {
		t.Errorf("%d line ends, and at the end %q", n, got[max(0, len(got)-60):])
	}
}

// TestLockByStoreTime shows a lock as held or not by the time that it is given,
// which is the store's, whatever this machine's clock says.
func TestLockByStoreTime(t *testing.T) {
	t.Parallel()
	for _, years := range []int{-100, 100} { // this machine is ahead, or behind
		expires := time.Now().AddDate(years, 0, 0)
		mp := shardway.Mapping{Range: shardway.FullRange(shardway.KindInt64), Lock: shardway.Lock{Token: "t", Owner: "me", Expires: expires}}
		m := shardway.ShardMap{Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
		if v := viewMapping(m, mp, "s", expires.Add(-time.Second)); v.Lock == nil {
			t.Errorf("%d years: a second before its end the lock is not shown", years)
		}
		if v := viewMapping(m, mp, "s", expires); v.Lock != nil {
			t.Errorf("%d years: at its end the lock is shown", years)
		}
	}
}

// TestOneLine: errors that were joined stay apart in the cell of a table.
func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                    "",
		" one \t two ":                        "one two",
		"db1: refused\ndb2 is secondary\n":    "db1: refused; db2 is secondary",
		"no server:\n  db1,\r\n\n  db2\nnone": "no server: db1, db2; none",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", text, got, want)
		}
	}
}
