package sqlshard

import "strings"

// changesSession reports whether a statement may leave something behind on its
// session that the next user of the session could notice. It reads the text of
// any engine and is wrong on one side only: what it does not know counts as a
// change. The package documentation lists what it looks for.
func changesSession(query string, inTx bool) bool {
	for {
		rest, ok := skipSpace(query)
		if !ok {
			return true
		}
		if rest == "" {
			return false
		}
		if word := firstWord(rest); !plain(word) && !(inTx && savepoint(rest, word)) {
			return true
		}
		if query, ok = scanStatement(rest, strings.EqualFold(firstWord(rest), "explain")); !ok {
			return true
		}
	}
}

// skipSpace drops space, comments, opening brackets and semicolons before a
// statement. It is false for a comment that MySQL would run or that has no end.
func skipSpace(s string) (string, bool) {
	for s != "" {
		switch {
		case strings.IndexByte(" \t\r\n\f(;", s[0]) >= 0:
			s = s[1:]
		case strings.HasPrefix(s, "--"):
			end := strings.IndexByte(s, '\n')
			if end < 0 {
				return "", true
			}
			s = s[end+1:]
		case strings.HasPrefix(s, "/*"):
			end := strings.Index(s, "*/")
			if end < 0 || runs(s) {
				return "", false
			}
			s = s[end+2:]
		default:
			return s, true
		}
	}
	return "", true
}

// runs reports whether a comment is one whose text MySQL or MariaDB runs.
func runs(comment string) bool {
	return len(comment) > 2 && (comment[2] == '!' || comment[2] == 'M')
}

func firstWord(s string) string {
	n := 0
	for n < len(s) && wordByte(s[n]) {
		n++
	}
	return s[:n]
}

func wordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c >= 0x80
}

// plain reports whether statements that begin with the word leave the session
// alone, but for what scanStatement finds.
func plain(word string) bool {
	for _, p := range [...]string{"select", "insert", "update", "delete", "replace", "with", "values", "merge", "explain"} {
		if strings.EqualFold(word, p) {
			return true
		}
	}
	return false
}

// savepoint reports whether a statement only sets or ends a savepoint.
func savepoint(s, word string) bool {
	if strings.EqualFold(word, "savepoint") || strings.EqualFold(word, "release") {
		return true
	}
	next := firstWord(strings.TrimLeft(s[len(word):], " \t\r\n"))
	return strings.EqualFold(word, "rollback") && strings.EqualFold(next, "to")
}

// scanStatement reads one statement and returns what follows its semicolon. It
// is false when the statement, or a text or comment in it, has a mark of a
// change of the session.
func scanStatement(s string, explain bool) (rest string, ok bool) {
	into, variable := false, false
	for i := 0; i < len(s); {
		c := s[i]
		if wordByte(c) {
			word := firstWord(s[i:])
			i += len(word)
			if marked(word, s[i:], into) || explain && acts(word) {
				return "", false
			}
			into = strings.EqualFold(word, "into")
			continue
		}
		switch c {
		case ';':
			return s[i+1:], true
		case '@', '#':
			if into { // into @variable, into #temporary
				return "", false
			}
			variable = variable || c == '@'
		case ':':
			if variable && strings.HasPrefix(s[i:], ":=") {
				return "", false
			}
		case '/':
			if strings.HasPrefix(s[i:], "/*") && runs(s[i:]) {
				return "", false
			}
		case '&':
			if i > 0 && s[i-1]|0x20 == 'u' { // U&"\0073et_config"
				return "", false
			}
		}
		if strings.IndexByte(" \t\r\n[\"`", c) < 0 {
			into = false
		}
		i++
	}
	return "", true
}

// marked reports whether a word within a statement is a mark of a change; rest
// is what follows it, into whether the word before was INTO. Statements pass
// here before they are sent, so it looks at the first letter before all else.
func marked(word, rest string, into bool) bool {
	is := func(mark string) bool { return strings.EqualFold(word, mark) }
	switch word[0] | 0x20 {
	case 'd':
		const mark = "dblink_connect"
		return len(word) >= len(mark) && strings.EqualFold(word[:len(mark)], mark)
	case 'g':
		return is("get_lock")
	case 'i':
		return is("isolation")
	case 'l':
		return is("load_extension")
	case 'p':
		return is("pg_temp") || len(word) > len("advisory_lock") && strings.Contains(strings.ToLower(word), "advisory_lock")
	case 's':
		return is("setseed") || is("set_config") && !localOnly(rest)
	case 't':
		return into && (is("temp") || is("temporary"))
	}
	return false
}

// acts reports whether a word after EXPLAIN begins a statement that EXPLAIN may
// run and that is not plain.
func acts(word string) bool {
	return strings.EqualFold(word, "create") || strings.EqualFold(word, "execute") || strings.EqualFold(word, "declare")
}

// localOnly reports whether the arguments of set_config end in ", true)": the
// setting then ends with the transaction.
func localOnly(arguments string) bool {
	end := strings.IndexByte(arguments, ')')
	if end < 0 {
		return false
	}
	last := arguments[strings.LastIndexByte(arguments[:end], ',')+1 : end]
	return strings.EqualFold(strings.TrimSpace(last), "true")
}
