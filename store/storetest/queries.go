package storetest

import (
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// question is a query for mappings and the answer by position in a list.
type question struct {
	outcome string
	query   store.MappingQuery
	want    []int
}

// ask checks each question; all are the mappings and m the map in question.
func (w *world) ask(m shardway.ShardMap, all []shardway.Mapping, questions []question) {
	w.Helper()
	for _, q := range questions {
		var want, got []string
		at := map[shardway.MappingID]int{}
		for n, m := range all {
			at[m.ID] = n
		}
		for _, n := range q.want {
			want = append(want, fmt.Sprintf("%d %s", n, all[n].Format(m.Kind)))
		}
		q.query.Map = m
		for _, row := range w.mappings(q.query) {
			n, ok := at[row.ID]
			if !ok {
				n = -1
			}
			got = append(got, fmt.Sprintf("%d %s", n, row.Format(m.Kind)))
		}
		w.same(q.outcome, want, got)
	}
}

// queried fills a range map, next to another map, for [testRangeQueries]. all
// are its mappings in the order of the answers.
func queried(w *world) (m shardway.ShardMap, so, s1, s2 shardway.Shard, all []shardway.Mapping) {
	other := w.addMap("other", shardway.RangeMap, shardway.KindInt64)
	so = w.addShard(other, "s1")
	w.change(other, add(so, newMapping(so, spanFrom(-1000))))
	m = w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s1, s2 = w.addShard(m, "s1"), w.addShard(m, "s2")
	w.same("mappings of an empty map", []store.MappingRow(nil), w.mappings(store.MappingQuery{Map: m}))

	all = list( // a hole from 20 to 30
		newMapping(s1, span(-10, 0)),
		newMapping(s2, span(0, 10)),
		newMapping(s1, span(10, 20)),
		newMapping(s2, span(30, 40)),
		newMapping(s1, span(30, 35)), // 4 and 5: pending halves of 3
		newMapping(s2, span(35, 40)),
		newMapping(s1, spanFrom(40)),
	)
	all[0].Lock = shardway.Lock{Token: "t", Owner: "o", Reason: "r", Expires: instant.AddDate(-20, 0, 0)} // expired
	all[1].Status = shardway.Offline
	all[2].Lock = shardway.Lock{Token: "T"}
	all[5].Status = shardway.Offline
	all[6].Lock = shardway.Lock{Token: "t"}
	w.change(m, add(s1, all[6], all[2], all[0]), add(s2, all[3], all[1]))
	split := w.prepare(m, replace(s2, all[3:4], all[5:6]), add(s1, all[4]))

	want := rows(all...)
	for n := range want {
		if n >= 3 && n <= 5 {
			want[n].Operation, want[n].Pending = split.ID, n != 3
		}
	}
	w.same("all mappings", want, w.mappings(store.MappingQuery{Map: m}))
	return m, so, s1, s2, all
}

func testRangeQueries(w *world) {
	m, so, s1, s2, all := queried(w)
	online, offline := shardway.Online, shardway.Offline
	ids := func(at ...int) (ids []shardway.MappingID) {
		for _, n := range at {
			ids = append(ids, all[n].ID)
		}
		return ids
	}
	w.ask(m, all, []question{
		{"within one mapping", store.MappingQuery{Within: span(1, 2)}, list(1)},
		{"the mapping itself, not those that touch it", store.MappingQuery{Within: span(0, 10)}, list(1)},
		{"reaching one key to either side", store.MappingQuery{Within: span(-1, 11)}, list(0, 1, 2)},
		{"the first key only", store.MappingQuery{Within: span(10, 11)}, list(2)},
		{"the last key only", store.MappingQuery{Within: span(19, 20)}, list(2)},
		{"a hole that mappings touch", store.MappingQuery{Within: span(20, 30)}, nil},
		{"below all", store.MappingQuery{Within: span(-20, -10)}, nil},
		{"the lowest key", store.MappingQuery{Within: span(-20, -9)}, list(0)},
		{"pending ones, after the others of that low key", store.MappingQuery{Within: span(30, 31)}, list(3, 4)},
		{"the second half", store.MappingQuery{Within: span(36, 37)}, list(3, 5)},
		{"inside the open mapping", store.MappingQuery{Within: span(1000, 1001)}, list(6)},
		{"open end", store.MappingQuery{Within: spanFrom(39)}, list(3, 5, 6)},
		{"open end from a bound", store.MappingQuery{Within: spanFrom(40)}, list(6)},
		{"full range", store.MappingQuery{Within: shardway.FullRange(shardway.KindInt64)}, list(0, 1, 2, 3, 4, 5, 6)},
		{"by id, in key order", store.MappingQuery{IDs: ids(6, 0, 4)}, list(0, 4, 6)},
		{"by unknown id", store.MappingQuery{IDs: list(all[0].ID ^ 1)}, nil},
		{"by id and something that does not hold", store.MappingQuery{IDs: ids(0, 1), Status: &offline}, list(1)},
		{"by shard", store.MappingQuery{ShardID: s2.ID}, list(1, 3, 5)},
		{"by unknown shard", store.MappingQuery{ShardID: s2.ID ^ 1}, nil},
		{"by a shard of another map", store.MappingQuery{ShardID: so.ID}, nil},
		{"offline", store.MappingQuery{Status: &offline}, list(1, 5)},
		{"online", store.MappingQuery{Status: &online}, list(0, 2, 3, 4, 6)},
		{"by token, expired or not, in the bytes of the token", store.MappingQuery{Token: "t"}, list(0, 6)},
		{"by the other token", store.MappingQuery{Token: "T"}, list(2)},
		{"by a token nobody has", store.MappingQuery{Token: "t "}, nil},
		{"by shard, range and status", store.MappingQuery{ShardID: s1.ID, Within: span(0, 40), Status: &online}, list(2, 4)},
		{"after a low key", store.MappingQuery{After: key(10)}, list(3, 4, 5, 6)},
		{"after a key between", store.MappingQuery{After: key(9)}, list(2, 3, 4, 5, 6)},
		{"after the last", store.MappingQuery{After: key(40)}, nil},
		{"limited", store.MappingQuery{Limit: 2}, list(0, 1)},
		{"limited to more than there are", store.MappingQuery{Limit: 100}, list(0, 1, 2, 3, 4, 5, 6)},
		{"limited, the others before pending ones", store.MappingQuery{After: key(10), Limit: 2}, list(3, 4)},
		{"limited after selecting", store.MappingQuery{ShardID: s1.ID, Limit: 2}, list(0, 2)},
		{"page within a range", store.MappingQuery{Within: span(-5, 15), After: key(-10), Limit: 1}, list(1)},
	})
	testPages(w, m)
	testEarlyEnd(w, m)
}

// testPages reads the published mappings of one shard in pages of every size.
func testPages(w *world, m shardway.ShardMap) {
	shard := w.shards(m.ID)[0]
	whole := w.mappings(store.MappingQuery{Map: m, ShardID: shard.ID})
	for size := 1; size <= len(whole)+1; size++ {
		var got []store.MappingRow
		q := store.MappingQuery{Map: m, ShardID: shard.ID, Limit: size}
		for range len(whole) + 1 {
			page := w.mappings(q)
			if len(page) > size {
				w.Errorf("%d mappings in a page of %d", len(page), size)
			}
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			q.After = page[len(page)-1].Range.Low
		}
		w.same(fmt.Sprintf("in pages of %d", size), whole, got)
	}
}

// testEarlyEnd leaves the loops over rows early, and goes on with the transaction.
func testEarlyEnd(w *world, m shardway.ShardMap) {
	n := 0
	w.view(func(tx store.Reader) error {
		n = 0
		for range 3 {
			for _, err := range tx.Mappings(w.Context(), store.MappingQuery{Map: m}) {
				if err != nil {
					return err
				}
				n++
				break
			}
			for _, err := range tx.History(w.Context(), store.HistoryQuery{}) {
				if err != nil {
					return err
				}
				break
			}
			if _, err := tx.ShardMaps(w.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	if n != 3 {
		w.Errorf("%d loops began, want 3", n)
	}
}

func testListQueries(w *world) {
	m := w.addMap("m", shardway.ListMap, shardway.KindString)
	s1, s2 := w.addShard(m, "s1"), w.addShard(m, "s2")
	keys := keysOf("", "A", "a", "a\x00", "a ", "aa", "b", "ä", "\xff")
	var all []shardway.Mapping
	for n, k := range keys {
		s := s1
		if n%2 == 1 {
			s = s2
		}
		all = append(all, newMapping(s, point(k)))
	}
	all[3].Status = shardway.Offline
	w.change(m, add(s1, all[8], all[0], all[2], all[6], all[4]), add(s2, all[5], all[1], all[7], all[3]))
	moved := next(all[2])
	moved.ShardID = s2.ID
	w.prepare(m, replace(s1, all[2:3], nil), add(s2, moved))
	all = append(all, moved) // 9

	between := func(low, high string) shardway.Range {
		ends := keysOf(low, high)
		return shardway.Range{Low: ends[0], High: ends[1]}
	}
	offline := shardway.Offline
	w.ask(m, all, []question{
		{"all, in the order of the bytes", store.MappingQuery{}, list(0, 1, 2, 9, 3, 4, 5, 6, 7, 8)},
		{"low end included, high end not", store.MappingQuery{Within: between("a", "b")}, list(2, 9, 3, 4, 5)},
		{"one point", store.MappingQuery{Within: between("A", "A\x00")}, list(1)},
		{"between two points", store.MappingQuery{Within: between("B", "Z")}, nil},
		{"the empty key", store.MappingQuery{Within: between("", "\x00")}, list(0)},
		{"trailing zeros and spaces are keys of their own", store.MappingQuery{Within: between("a\x00", "aa")}, list(3, 4)},
		{"open end", store.MappingQuery{Within: shardway.RangeFrom(keys[6])}, list(6, 7, 8)},
		{"full range", store.MappingQuery{Within: shardway.FullRange(shardway.KindString)}, list(0, 1, 2, 9, 3, 4, 5, 6, 7, 8)},
		{"by shard", store.MappingQuery{ShardID: s2.ID}, list(1, 9, 3, 5, 7)},
		{"by shard within", store.MappingQuery{ShardID: s1.ID, Within: between("a", "b")}, list(2, 4)},
		{"offline", store.MappingQuery{Status: &offline}, list(3)},
		{"after the empty key", store.MappingQuery{After: keys[0], Limit: 2}, list(1, 2)},
		{"after a key that others begin with", store.MappingQuery{After: keys[2], Limit: 2}, list(3, 4)},
		{"after the last", store.MappingQuery{After: keys[8]}, nil},
	})
}
