package main

import (
	"slices"
	"strings"
)

// What a message shows of its input at most: words of so many bytes, lines of
// so many, and so many lines. The page on the tool tells.
const (
	maxWord  = 200
	maxLong  = 2000
	maxLines = 150
)

// message is the text of an error without lines that stand in it already
// (joined errors often have one cause) and without saying twice what two layers
// have both said. Input of any length may be quoted in an error: this is the one
// place where it is cut.
func message(err error) string {
	var lines []string
	seen := map[string]bool{}
	rest := 0
	for line := range strings.Lines(err.Error()) {
		line = once(bounded(strings.TrimSpace(line)))
		switch {
		case line == "" || seen[line] || slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, line) }):
			continue
		case len(lines) == maxLines:
			rest++
			continue
		}
		if len(lines) > 0 && strings.HasPrefix(line, "hint:") { // which is for the tool itself to say
			line = "  " + line
		}
		seen[line] = true
		lines = append(lines, line)
	}
	if rest > 0 {
		lines = append(lines, "… and "+count(rest, "line")+" more")
	}
	return strings.Join(lines, "\n")
}

// bounded cuts words, and then the middle of a line, that nobody wants to read.
func bounded(line string) string {
	if len(line) <= maxWord {
		return line
	}
	words := strings.Split(line, " ")
	for i, w := range words {
		if len(w) > maxWord {
			end := "" // the closing quote and what follows it
			if at := strings.LastIndexByte(w, '"'); w[0] == '"' && len(w)-at < 4 {
				end = w[at:]
			}
			words[i] = strings.ToValidUTF8(w[:maxWord], "") + "…" + end
		}
	}
	line = strings.Join(words, " ")
	if len(line) <= maxLong {
		return line
	}
	const tail = maxLong / 4 // where the cause stands
	return strings.ToValidUTF8(line[:maxLong-tail], "") + " … " + strings.ToValidUTF8(line[len(line)-tail:], "")
}

// once drops what stands twice in a row between colons, as in
// `reading shard map "m": reading shard map "m": not found`.
func once(line string) string {
	parts := strings.Split(line, ": ")
	for size := 1; size <= len(parts)/2; size++ {
		for i := 0; i+2*size <= len(parts); {
			run := parts[i : i+size]
			if slices.Equal(run, parts[i+size:i+2*size]) && len(strings.Join(run, "")) > 8 {
				parts = slices.Delete(parts, i, i+size)
			} else {
				i++
			}
		}
	}
	return strings.Join(parts, ": ")
}
