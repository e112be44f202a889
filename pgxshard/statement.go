package pgxshard

import "strings"

// ride is how a statement travels with its validation.
type ride uint8

const (
	rideRead    ride = iota // in one pipeline, validated plainly
	rideWrite               // in one pipeline, validated with the lock
	rideAlone               // PostgreSQL refuses it behind another statement: validated before
	rideRefused             // it begins or ends a transaction
)

// text is what the texts of statements say about how they travel.
type text struct {
	ride    ride
	several bool // statements
	stays   bool // it may leave something behind on its session
}

// read reads the text of one or several statements: their first words, and of
// some the words that follow. Strings, comments and quoted names are passed
// over. What it does not know counts as a write.
func read(sql string) text {
	l := lexer{rest: sql}
	var all text
	for n := 0; ; n++ {
		one, ok := l.statement()
		if !ok {
			if all.several && all.ride == rideAlone {
				// Several are one transaction, in which LOCK, DECLARE and COPY may
				// stand, next to writes; what may not fails whatever comes before.
				all.ride = rideWrite
			}
			return all
		}
		all.ride = max(all.ride, one.ride)
		all.stays = all.stays || one.stays
		all.several = n > 0
	}
}

// statement reads the next statement. It is false at the end.
func (l *lexer) statement() (t text, ok bool) {
	first := l.word()
	if first == "" {
		return text{}, false
	}
	t.ride = rideWrite
	var seen words
	for w, n := l.wordOrEnd(), 1; w != ""; w, n = l.wordOrEnd(), n+1 {
		if n == 1 {
			seen.second = w
		}
		seen.note(w)
		if first == "create" && seen.begun && w == "atomic" { // the body of a routine, with semicolons
			l.rest = ""
		}
		seen.begun = w == "begin"
	}
	switch first {
	case "select", "table", "values", "show", "with", "explain":
		if !seen.writes && !(first == "explain" && seen.analyzes) {
			t.ride = rideRead
		}
	case "begin", "start", "commit", "end", "abort":
		t.ride = rideRefused
	case "rollback":
		if t.ride = rideRefused; seen.to {
			t.ride = rideAlone
		}
	case "prepare":
		t.stays = true
		if seen.second == "transaction" {
			t.ride = rideRefused
		}
	case "vacuum", "lock", "declare", "savepoint", "release", "copy", "cluster":
		t.ride = rideAlone
	case "create", "drop", "alter", "reindex":
		switch {
		case seen.concurrently, seen.second == "database", seen.second == "tablespace", seen.second == "system", seen.second == "subscription":
			t.ride = rideAlone
		}
		t.stays = seen.temporary
	case "set", "reset", "discard", "listen", "unlisten", "load", "deallocate":
		t.stays = true
	}
	return t, true
}

// words are what was seen in a statement behind its first word.
type words struct {
	second                                        string
	writes, analyzes, concurrently, temporary, to bool
	begun                                         bool // the last word was BEGIN
}

func (s *words) note(w string) {
	switch w {
	case "insert", "update", "delete", "merge", "into":
		s.writes = true
	case "to":
		s.to = true
	case "analyze", "analyse":
		s.analyzes = true
	case "concurrently":
		s.concurrently = true
	case "temp", "temporary":
		s.temporary = true
	}
}

// lexer finds the words of SQL as PostgreSQL writes it.
type lexer struct{ rest string }

// word returns the first word of the next statement in lower case, or nothing
// at the end of the text.
func (l *lexer) word() string {
	for l.rest != "" {
		if w := l.wordOrEnd(); w != "" {
			return w
		}
	}
	return ""
}

// wordOrEnd returns the next word of the statement in lower case, or nothing at
// its end, which it passes.
func (l *lexer) wordOrEnd() string {
	for l.rest != "" {
		c := l.rest[0]
		switch {
		case c == ';':
			l.rest = l.rest[1:]
			return ""
		case c == '\'':
			l.skipQuoted('\'', false)
		case c == '"':
			l.skipQuoted('"', false)
		case strings.HasPrefix(l.rest, "--"):
			l.skipWhile(func(c byte) bool { return c != '\n' && c != '\r' })
		case strings.HasPrefix(l.rest, "/*"):
			l.skipComment()
		case c == '$':
			l.skipDollar()
		case starts(c):
			return l.take()
		default:
			l.rest = l.rest[1:]
			if '0' <= c && c <= '9' { // 1e5 has no word
				l.skipWhile(continues)
			}
		}
	}
	return ""
}

// take takes a word; one that introduces a string takes the string too.
func (l *lexer) take() string {
	n := 1
	for n < len(l.rest) && continues(l.rest[n]) {
		n++
	}
	w := strings.ToLower(l.rest[:n])
	l.rest = l.rest[n:]
	if w == "e" && strings.HasPrefix(l.rest, "'") {
		l.skipQuoted('\'', true)
	}
	return w
}

func (l *lexer) skipWhile(f func(byte) bool) {
	for l.rest != "" && f(l.rest[0]) {
		l.rest = l.rest[1:]
	}
}

// skipPast skips up to and with the end mark, or everything.
func (l *lexer) skipPast(end string) {
	_, l.rest, _ = strings.Cut(l.rest, end)
}

func (l *lexer) skipQuoted(quote byte, escapes bool) {
	for i := 1; i < len(l.rest); i++ {
		switch {
		case escapes && l.rest[i] == '\\':
			i++
		case l.rest[i] == quote: // a doubled one is two strings in a row
			l.rest = l.rest[i+1:]
			if escapes && strings.HasPrefix(l.rest, "'") {
				l.skipQuoted(quote, true)
			}
			return
		}
	}
	l.rest = ""
}

// skipComment skips a comment, which may hold others.
func (l *lexer) skipComment() {
	depth := 0
	for i := 0; i+1 < len(l.rest); i++ {
		switch l.rest[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				l.rest = l.rest[i+1:]
				return
			}
		}
	}
	l.rest = ""
}

// skipDollar skips $1, or a string between $tag$ and $tag$.
func (l *lexer) skipDollar() {
	n := 1
	for n < len(l.rest) && continues(l.rest[n]) && l.rest[n] != '$' {
		n++
	}
	if n < len(l.rest) && l.rest[n] == '$' && (n == 1 || starts(l.rest[1])) {
		tag := l.rest[:n+1]
		l.rest = l.rest[n+1:]
		l.skipPast(tag)
		return
	}
	l.rest = l.rest[n:]
}

func starts(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func continues(c byte) bool { return starts(c) || '0' <= c && c <= '9' || c == '$' }
