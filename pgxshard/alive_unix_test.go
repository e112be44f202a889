//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgxshard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/shardway/shardway/internal/dbtest"
)

// A session that is idle and open is silent; one that the server has ended is not.
func TestSilent(t *testing.T) {
	t.Parallel()
	db := dbtest.EnginePostgres.NewDatabase(t)
	conn, err := pgx.Connect(t.Context(), db.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background()) // it is ended
	if !silent(conn) {
		t.Error("an idle session is not silent")
	}
	dbtest.Postgres(t).Exec(t, "", fmt.Sprintf("SELECT pg_terminate_backend(%d)", conn.PgConn().PID()))
	for end := time.Now().Add(20 * time.Second); silent(conn); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a session that was ended is silent")
		}
	}
}
