package sqlshard

import "testing"

func TestChangesSession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		query string
		want  bool
	}{
		{"", false},
		{"SELECT 1", false},
		{"  select * from customer where id = $1 for update", false},
		{"-- name: GetCustomer :one\nSELECT id FROM customer", false},
		{"/* service=shop */ UPDATE customer SET name = ? WHERE id = ?;", false},
		{"INSERT INTO customer (a) VALUES (1) RETURNING id; -- done\n", false},
		{"(SELECT 1) UNION (SELECT 2)", false},
		{"WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", false},
		{"REPLACE INTO t VALUES (1)", false},
		{"MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", false},
		{"EXPLAIN (ANALYZE, FORMAT json) SELECT 1", false},
		{"DELETE FROM a; DELETE FROM b", false},
		{"SELECT set_config('app.tenant', $1, true)", false},
		{"SELECT pg_catalog.set_config('app.tenant', $1 , TRUE ), 1", false},
		{"SELECT pg_advisory_xact_lock(1)", false},
		{"SELECT temp FROM temperature INTO STRICT", false},
		{"INSERT INTO temperature (temp) VALUES (1)", false},
		{"SELECT @p1, @@version", false},
		{"SELECT make_interval(days := 1)", false},

		{"SET search_path = x", true},
		{"set session authorization bob", true},
		{"SET LOCAL x = 1", true}, // the session's own in MySQL
		{"SELECT 1; SET x = 1", true},
		{"SELECT ';'; SET x = 1", true},
		{"-- select\nSET x = 1", true},
		{"/* a */ /* b */ RESET ALL", true},
		{"/*!50000 SET x = 1 */", true},
		{"/*M!100000 SET x = 1 */", true},
		{"SELECT 1 /*! INTO @x */", true},
		{"/* no end", true},
		{"CREATE TEMPORARY TABLE t (a int)", true},
		{"SELECT * INTO TEMP t FROM s", true},
		{"SELECT * INTO\n temporary t FROM s", true},
		{"SELECT * INTO pg_temp.t FROM s", true},
		{"SELECT * INTO #t FROM s", true},
		{"SELECT * INTO [#t] FROM s", true},
		{"SELECT a INTO @a FROM s", true},
		{"SELECT @a := 1", true},
		{"SELECT GET_LOCK('x', 1)", true},
		{"SELECT pg_advisory_lock(1)", true},
		{"SELECT pg_try_advisory_lock_shared(1)", true},
		{"SELECT set_config('search_path', 'x', false)", true},
		{"SELECT set_config('search_path', 'x', $1)", true},
		{`SELECT "set_config"('search_path', 'x', false)`, true},
		{`SELECT U&"\0073et_config"('search_path', 'x', false)`, true},
		{"SELECT set_config('a', 'b', true), set_config('c', 'd', false)", true},
		{"EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1", true},
		{"SELECT load_extension('x')", true},
		{"SELECT setseed(0.5)", true},
		{"SELECT 1 SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", true}, // SQL Server needs no semicolon
		{"BEGIN", true},
		{"COMMIT", true},
		{"START TRANSACTION", true},
		{"SAVEPOINT a", true},
		{"ROLLBACK TO a", true},
		{"LISTEN x", true},
		{"PREPARE x AS SELECT 1", true},
		{"DECLARE c CURSOR FOR SELECT 1", true},
		{"LOCK TABLES t READ", true},
		{"USE other", true},
		{"PRAGMA query_only = 1", true},
		{"ATTACH 'x' AS y", true},
		{"CALL p()", true},
		{"EXEC sp_getapplock", true},
		{"DO $$ BEGIN END $$", true},
		{"$tag$", true},
	} {
		if got := changesSession(tt.query, false); got != tt.want {
			t.Errorf("%q: got %v", tt.query, got)
		}
	}
	for query, want := range map[string]bool{
		"SAVEPOINT a":               false,
		"release savepoint a":       false,
		"ROLLBACK TO SAVEPOINT a":   false,
		"rollback  to a; SELECT 1":  false,
		"ROLLBACK":                  true,
		"ROLLBACK WORK":             true,
		"SAVEPOINT a; SET x = 1":    true,
		"SET LOCAL search_path = x": true,
	} {
		if got := changesSession(query, true); got != want {
			t.Errorf("in a transaction, %q: got %v", query, got)
		}
	}
}

func FuzzChangesSession(f *testing.F) {
	f.Add("SELECT 1; SET x = 1", false)
	f.Add("/* -- */ ROLLBACK TO a", true)
	f.Fuzz(func(t *testing.T, query string, inTx bool) {
		if !changesSession(query, inTx) && !changesSession(query+"; SET x = 1", inTx) {
			// Unless what was added is within a comment that runs to the end.
			if rest, ok := skipSpace(query); ok && rest != "" && !endsInComment(query) {
				t.Errorf("%q hides the SET after it", query)
			}
		}
	})
}

// endsInComment reports whether the last line of a text may be in a comment.
func endsInComment(s string) bool {
	for i := len(s) - 1; i >= 0 && s[i] != '\n'; i-- {
		if i > 0 && s[i] == '-' && s[i-1] == '-' {
			return true
		}
	}
	return false
}

func BenchmarkChangesSession(b *testing.B) {
	const query = "SELECT c.id, c.name, o.total FROM customer c JOIN orders o ON o.customer_id = c.id WHERE c.id = $1 AND o.created_at > $2 ORDER BY o.created_at DESC LIMIT 50"
	b.ReportAllocs()
	for b.Loop() {
		if changesSession(query, false) {
			b.Fatal("changes the session")
		}
	}
}
