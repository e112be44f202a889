package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
)

// emit prints a result: as JSON for programs, else what text writes.
func (a *app) emit(v any, text func(p *page)) error {
	var p page
	if a.json() {
		e := json.NewEncoder(&p)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("writing result: %w", err)
		}
	} else {
		text(&p)
	}
	a.emitted = true
	if _, err := a.out.Write(p.Bytes()); err != nil {
		return fmt.Errorf("writing result: %w", err)
	}
	return nil
}

// page is text for people in the making.
type page struct{ bytes.Buffer }

// line adds one line.
func (p *page) line(format string, args ...any) {
	p.WriteString(printable(fmt.Sprintf(format, args...)) + "\n")
}

// table adds a table, or none when there are no rows.
func (p *page) table(header []string, rows [][]string) {
	if len(rows) == 0 {
		p.line("(none)")
		return
	}
	w := table.NewWriter()
	w.SetStyle(plainStyle())
	w.AppendHeader(cells(header))
	for _, r := range rows {
		w.AppendRow(cells(r))
	}
	for line := range strings.Lines(w.Render()) {
		p.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// fields adds lines of a name and a value; those without a value are left out.
func (p *page) fields(pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i]))
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			p.line("%-*s  %s", width, pairs[i], pairs[i+1])
		}
	}
}

func cells(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, t := range texts {
		row[i] = printable(t)
	}
	return row
}

// plainStyle is columns with two spaces between, easy to read and to cut.
func plainStyle() table.Style {
	s := table.StyleDefault
	s.Box.PaddingLeft, s.Box.PaddingRight = "", "  "
	s.Options = table.OptionsNoBordersAndSeparators
	return s
}

// printable makes text safe for a terminal: control characters and invalid
// UTF-8, but for line ends and tabs, are written as Go escapes.
func printable(text string) string {
	clean := func(r rune) bool {
		return r != unicode.ReplacementChar && (unicode.IsPrint(r) || r == '\n' || r == '\t')
	}
	if strings.IndexFunc(text, func(r rune) bool { return !clean(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if clean(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRuneToASCII(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// oneLine is text for a cell of a table. Lines of an error are facts of their own.
func oneLine(text string) string {
	var one string
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		switch {
		case line == "":
			continue
		case one == "":
		case strings.ContainsRune(":;,.", rune(one[len(one)-1])):
			one += " "
		default:
			one += "; "
		}
		one += line
	}
	return one
}

// instant is a time for people and programs: UTC, to the second; empty for none.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
