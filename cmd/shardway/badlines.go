package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// badLine is what is wrong with one line of a file.
type badLine struct {
	number int
	err    error // names file and line
}

// linesError is what is wrong with a file of mappings.
type linesError struct {
	lines []badLine
	mixed bool // the lines are bad for reasons with different exit codes
}

// judgeLines returns one error for all bad lines, in their order. When they are
// bad for different reasons it is bad input.
func judgeLines(lines []badLine) error {
	slices.SortStableFunc(lines, func(a, b badLine) int { return a.number - b.number })
	e := &linesError{lines: lines}
	first, _ := judge(context.Background(), lines[0].err)
	for _, l := range lines {
		code, _ := judge(context.Background(), l.err)
		e.mixed = e.mixed || code != first
	}
	return e
}

// Error names the bad lines, the first hundred of them.
func (e *linesError) Error() string {
	const most = 100
	var texts []string
	for _, l := range e.lines[:min(len(e.lines), most)] {
		texts = append(texts, l.err.Error())
	}
	if more := len(e.lines) - most; more > 0 {
		texts = append(texts, "and "+count(more, "bad line")+" more")
	}
	return strings.Join(texts, "\n")
}

// Is reports whether target is [shardway.ErrInvalid], for lines bad for
// different reasons.
func (e *linesError) Is(target error) bool { return e.mixed && target == shardway.ErrInvalid }

// Unwrap returns the first line's error, when it stands for all.
func (e *linesError) Unwrap() error {
	if e.mixed {
		return nil
	}
	return e.lines[0].err
}

// sorted returns the lines by their low keys.
func (b *bulk) sorted() []bulkLine {
	all := slices.Clone(b.lines)
	slices.SortStableFunc(all, func(x, y bulkLine) int { return x.mapping.Range.Low.Compare(y.mapping.Range.Low) })
	return all
}

// overlaps returns the lines that overlap another line.
func (b *bulk) overlaps() (bad []badLine) {
	var widest *bulkLine // of those before, the one that reaches highest
	for _, l := range b.sorted() {
		clash := widest != nil && b.clash(widest.mapping.Range, l.mapping.Range)
		if clash {
			first, second := *widest, l
			if first.number > second.number {
				first, second = second, first
			}
			bad = append(bad, badLine{second.number, fmt.Errorf("%s, line %d: %s overlaps %s of line %d: %w", b.name, second.number,
				b.format(second.mapping.Range), b.format(first.mapping.Range), first.number, shardway.ErrExists)})
		}
		if !clash || b.m.Kind == shardway.RangeMap && !reaches(widest.mapping.Range, l.mapping.Range) {
			widest = &l
		}
	}
	return bad
}

// reaches reports whether x ends where y ends, or above.
func reaches(x, y shardway.Range) bool {
	switch {
	case x.High.IsZero():
		return true
	case y.High.IsZero():
		return false
	}
	return x.High.Compare(y.High) >= 0
}

// taken returns the lines that overlap mappings which are there already. It
// returns none when the store does not tell.
func (s *session) taken(ctx context.Context, b *bulk) (bad []badLine) {
	if len(b.lines) == 0 {
		return nil
	}
	sorted := b.sorted()
	var there []shardway.Mapping
	for mp, err := range s.Mappings(ctx, store.MappingQuery{Map: b.m, Within: shardway.RangeFrom(sorted[0].mapping.Range.Low)}) {
		if err != nil {
			return nil
		}
		there = append(there, mp)
	}
	next := 0 // mappings before it end below the line's low key
	for _, l := range sorted {
		for next < len(there) && !b.clash(l.mapping.Range, there[next].Range) && there[next].Range.Low.Compare(l.mapping.Range.Low) < 0 {
			next++
		}
		if next == len(there) || !b.clash(l.mapping.Range, there[next].Range) {
			continue
		}
		i := slices.IndexFunc(b.shards, func(sh shardway.Shard) bool { return sh.ID == there[next].ShardID })
		on := ""
		if i >= 0 {
			on = fmt.Sprintf(" on shard %q", b.shards[i].Name)
		}
		bad = append(bad, badLine{l.number, fmt.Errorf("%s, line %d: adding mapping %s to shard map %q: it overlaps %s%s: %w", b.name, l.number,
			b.format(l.mapping.Range), b.m.Name, b.format(there[next].Range), on, shardway.ErrExists)})
	}
	return bad
}
