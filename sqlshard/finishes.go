package sqlshard

import (
	"strings"
)

// allows refuses a statement that would end the transaction.
func (f *fence) allows(engine, query string) error {
	if f == nil || !endsTransaction(engine, query) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finishing {
		return nil
	}
	rest, _ := skipSpace(query)
	return f.misused("must not end its transaction: " + strings.ToUpper(firstWord(rest)) + " was not sent")
}

// enders are the words that begin statements which end a transaction, in every
// engine.
var enders = []string{"commit", "rollback", "end", "abort", "begin", "start"}

// mysqlEnders are further ones of MySQL and MariaDB, which commit before and
// after them.
var mysqlEnders = []string{
	"alter", "analyze", "cache", "check", "create", "drop", "flush", "grant", "install", "load", "lock", "optimize",
	"rename", "repair", "revoke", "truncate", "uninstall", "unlock",
}

// endsTransaction reports whether a statement ends the transaction that it is
// run in. It looks at the first statement of a text alone; a driver that runs
// several notices the end of the transaction when it is to commit, except that
// of MySQL.
func endsTransaction(engine, query string) bool {
	rest, ok := skipSpace(query)
	word := firstWord(rest)
	if ok && plain(word) {
		return false
	}
	is := func(words []string) bool {
		for _, w := range words {
			if strings.EqualFold(w, word) {
				return true
			}
		}
		return false
	}
	next := firstWord(strings.TrimLeft(rest[len(word):], " \t\r\n"))
	switch {
	case savepoint(rest, word):
		return false
	case engine == "sqlserver" && strings.EqualFold(word, "begin"):
		return len(next) >= 4 && strings.EqualFold(next[:4], "tran") || strings.EqualFold(next, "distributed")
	case is(enders):
		return true
	case strings.EqualFold(word, "prepare"):
		return strings.EqualFold(next, "transaction")
	case engine != "mysql":
		return false
	case !ok: // a comment that the server runs
		return true
	case strings.EqualFold(word, "create") || strings.EqualFold(word, "drop"):
		return !strings.EqualFold(next, "temporary")
	case strings.EqualFold(word, "set"):
		lower := strings.ToLower(rest)
		return strings.Contains(lower, "autocommit") || strings.Contains(lower, "password")
	}
	return is(mysqlEnders)
}
