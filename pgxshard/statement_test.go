package pgxshard

import "testing"

func TestRead(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]text{
		"":                                     {},
		"SELECT 1":                             {ride: rideRead},
		"  -- x\n/* a /* b */ c */ (select 1)": {ride: rideRead},
		"SELECT 'update; commit', \"insert\"":  {ride: rideRead},
		"SELECT E'a\\'; commit'":               {ride: rideRead},
		"SELECT E'a''; commit', 'b'":           {ride: rideRead},
		"SELECT 'it''s; commit'":               {ride: rideRead},
		"SELECT $$; commit$$, $x$;commit$x$":   {ride: rideRead},
		"SELECT $1::int, 1e5":                  {ride: rideRead},
		"SELECT * INTO t FROM u":               {ride: rideWrite},
		"SELECT 1 FOR UPDATE":                  {ride: rideWrite},
		"WITH x AS (SELECT 1) SELECT * FROM x": {ride: rideRead},
		"WITH x AS (DELETE FROM t RETURNING 1) SELECT * FROM x": {ride: rideWrite},
		"EXPLAIN SELECT 1":              {ride: rideRead},
		"EXPLAIN (ANALYZE) SELECT f()":  {ride: rideWrite},
		"TABLE t":                       {ride: rideRead},
		"INSERT INTO t VALUES (1)":      {ride: rideWrite},
		"frobnicate":                    {ride: rideWrite},
		"SELECT 1; UPDATE t SET n = 1;": {ride: rideWrite, several: true},
		"SELECT 1;;":                    {ride: rideRead},
		"VACUUM t":                      {ride: rideAlone},
		"LOCK t; UPDATE t SET n = 1":    {ride: rideWrite, several: true},
		"WITH x AS (--\rDELETE FROM t RETURNING 1) TABLE x": {ride: rideWrite},
		"CREATE INDEX CONCURRENTLY ON t":                    {ride: rideAlone},
		"CREATE INDEX ON t (a)":                             {ride: rideWrite},
		"DROP DATABASE x":                                   {ride: rideAlone},
		"COPY t FROM stdin":                                 {ride: rideAlone},
		"ROLLBACK TO SAVEPOINT s":                           {ride: rideAlone},
		"rollback":                                          {ride: rideRefused},
		"SELECT 1; COMMIT":                                  {ride: rideRefused, several: true},
		"START TRANSACTION":                                 {ride: rideRefused},
		"PREPARE TRANSACTION 'x'":                           {ride: rideRefused, stays: true},
		"PREPARE x AS SELECT 1":                             {ride: rideWrite, stays: true},
		"SET search_path = x":                               {ride: rideWrite, stays: true},
		"CREATE TEMP TABLE x ()":                            {ride: rideWrite, stays: true},
		"LISTEN x":                                          {ride: rideWrite, stays: true},
		"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END": {ride: rideWrite},
		"SELECT 'open":  {ride: rideRead},
		"SELECT $a$ b":  {ride: rideRead},
		"SELECT 1 /* a": {ride: rideRead},
	} {
		if got := read(sql); got != want {
			t.Errorf("read(%q) = %+v, want %+v", sql, got, want)
		}
	}
}
