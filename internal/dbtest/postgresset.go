package dbtest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// PostgresSetOptions shape a PostgresSet. The zero value is a primary and one secondary without proxies.
type PostgresSetOptions struct {
	// Secondaries is the number of standbys; 0 means 1.
	Secondaries int
	// Proxied puts a fault proxy before each server.
	Proxied bool
	// OwnIdentity gives the set a system identifier of its own, which takes half a second. Without it every set and
	// every private server has the same one.
	OwnIdentity bool
	// Settings of every server win over the defaults of the harness: "wal_level=logical".
	Settings []string
}

// PostgresSet is a PostgreSQL primary and its streaming standbys, for one test alone.
type PostgresSet struct{ replicaSet }

// replicationSettings let every server of a set become primary, be rewound and be followed from far behind. A
// standby that lost its connection tries again at once.
var replicationSettings = []string{
	"wal_log_hints=on", "track_commit_timestamp=on", "wal_keep_size=128MB",
	"wal_receiver_status_interval=1s", "wal_retrieve_retry_interval=100ms",
}

// NewPostgresSet starts a replica set whose standbys stream when it returns. It is ended and removed with the test.
// Without PostgreSQL's programs the test is skipped, or fails, as by [NewPostgres].
func NewPostgresSet(t testing.TB, o PostgresSetOptions) *PostgresSet {
	t.Helper()
	soft, err := locate(EnginePostgres)
	if err != nil {
		EnginePostgres.unavailable(t, err)
	}
	r := &PostgresSet{}
	for range 1 + max(1, o.Secondaries) {
		r.addServer(t, soft, append(replicationSettings[:len(replicationSettings):len(replicationSettings)], o.Settings...))
	}
	first := r.servers[0].local
	if o.OwnIdentity {
		err = soft.initialize(soft, first.as, first.home)
	} else {
		err = copyTemplate(soft, first.as, first.data())
	}
	if err != nil {
		t.Fatal(err)
	}
	r.atOnce(t, func(i int) error { // before the first server starts to change it
		return run(command(first.as, r.servers[i].local.home, "cp", "-a", first.data(), "data"))
	})
	if err := r.servers[0].startOnFreePort(); err != nil {
		t.Fatal(err)
	}
	if o.Proxied {
		r.addProxies(t, 1)
	}
	r.atOnce(t, func(i int) error {
		if err := r.makeStandby(i); err != nil {
			return err
		}
		if err := r.servers[i].startOnFreePort(); err != nil {
			return err
		}
		return r.servers[i].await(isStreaming)
	})
	if o.Proxied {
		r.addProxies(t, len(r.servers))
	}
	return r
}

// isStreaming asks a standby whether it receives what its primary writes.
const isStreaming = "SELECT EXISTS (SELECT 1 FROM pg_stat_wal_receiver WHERE status = 'streaming')"

// Promote makes a standby the primary. The former one is left as it is, and so are the servers that follow it.
func (r *PostgresSet) Promote(t testing.TB, i int) {
	t.Helper()
	if err := r.servers[i].await("SELECT pg_promote(true, 60)"); err != nil {
		t.Fatal(err)
	}
	r.primary = i
}

// Follow has a running standby follow another server of the set from now on. It returns at once.
func (r *PostgresSet) Follow(t testing.TB, i, primary int) {
	t.Helper()
	r.servers[i].mustDo(t, "ALTER SYSTEM SET primary_conninfo = "+EnginePostgres.literal(r.connInfo(i, primary)), "SELECT pg_reload_conf()")
}

// Detach has a running standby follow nobody: it stays a standby and its data stands still. [PostgresSet.Follow]
// ends it.
func (r *PostgresSet) Detach(t testing.TB, i int) {
	t.Helper()
	r.servers[i].mustDo(t, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
	if err := r.servers[i].await("SELECT NOT EXISTS (SELECT 1 FROM pg_stat_wal_receiver)"); err != nil {
		t.Fatal(err)
	}
}

// PauseReplay has a standby go on receiving changes without showing them.
func (r *PostgresSet) PauseReplay(t testing.TB, i int) {
	t.Helper()
	r.servers[i].mustDo(t, "SELECT pg_wal_replay_pause()")
	if err := r.servers[i].await("SELECT pg_get_wal_replay_pause_state() = 'paused'"); err != nil {
		t.Fatal(err)
	}
}

// ResumeReplay ends PauseReplay.
func (r *PostgresSet) ResumeReplay(t testing.TB, i int) {
	t.Helper()
	r.servers[i].mustDo(t, "SELECT pg_wal_replay_resume()")
}

// Delay has a standby show each commit only that much later; 0 ends it.
func (r *PostgresSet) Delay(t testing.TB, i int, d time.Duration) {
	t.Helper()
	setting := fmt.Sprintf("ALTER SYSTEM SET recovery_min_apply_delay = '%dms'", d.Milliseconds())
	r.servers[i].mustDo(t, setting, "SELECT pg_reload_conf()")
	if d > 0 {
		r.awaitDelay(t, i)
	}
}

// awaitDelay writes until a commit has reached the standby and is not replayed: only then has the process that
// replays taken the setting in.
func (r *PostgresSet) awaitDelay(t testing.TB, i int) {
	t.Helper()
	for range 100 {
		var written string
		err := r.servers[r.primary].adminPool().QueryRow("SELECT pg_current_wal_insert_lsn()::text FROM txid_current()").Scan(&written)
		if err == nil { // the transaction's commit lies behind written
			err = r.servers[i].await("SELECT pg_last_wal_receive_lsn() > $1::pg_lsn", written)
		}
		if err != nil {
			t.Fatal(err)
		}
		held := true
		for range 20 {
			if err := r.servers[i].adminPool().QueryRow("SELECT pg_last_wal_replay_lsn() <= $1::pg_lsn FROM pg_sleep(0.01)", written).Scan(&held); err != nil {
				t.Fatal(err)
			}
			if !held {
				break
			}
		}
		if held {
			return
		}
	}
	t.Fatal("the standby does not delay its replay")
}

// AwaitReplay waits until a standby shows everything that the primary has written by now.
func (r *PostgresSet) AwaitReplay(t testing.TB, i int) {
	t.Helper()
	var written string
	if err := r.servers[r.primary].adminPool().QueryRow("SELECT pg_current_wal_insert_lsn()::text").Scan(&written); err != nil {
		t.Fatal(err)
	}
	if err := r.servers[i].await("SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", written); err != nil {
		t.Fatal(err)
	}
}

// Rejoin makes any other server of the set a standby of the primary, running or not: a former primary, whose
// unreplicated writes are lost, or a standby that followed one. It returns when the server streams.
func (r *PostgresSet) Rejoin(t testing.TB, i int) {
	t.Helper()
	if i == r.primary {
		t.Fatalf("server %d is the primary: it follows nobody", i)
	}
	s, source := r.servers[i], r.servers[r.primary]
	s.Stop(t)
	source.mustDo(t, "CHECKPOINT") // else a fresh primary still shows the timeline that it left
	l := s.local
	// pg_rewind starts a crashed server by itself, without our arguments.
	if err := s.writeData("postgresql.auto.conf", "wal_log_hints = on\nwal_keep_size = '128MB'\n"); err != nil {
		t.Fatal(err)
	}
	err := run(command(l.as, l.home, filepath.Join(filepath.Dir(l.soft.server), "pg_rewind"),
		"--target-pgdata=data", "--no-sync", "--source-server="+connText(source.admin)+" dbname="+source.admin.Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.makeStandby(i); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	if err := s.await(isStreaming); err != nil {
		t.Fatal(err)
	}
}

// makeStandby configures a server that is not running to follow the primary.
func (r *PostgresSet) makeStandby(i int) error {
	s := r.servers[i]
	if err := s.writeData("standby.signal", ""); err != nil {
		return err
	}
	return s.writeData("postgresql.auto.conf", "primary_conninfo = "+EnginePostgres.literal(r.connInfo(i, r.primary))+"\n")
}

// connInfo is how the i-th server reaches the one that it follows.
func (r *PostgresSet) connInfo(i, followed int) string {
	return connText(r.At(r.servers[followed].admin, followed)) + fmt.Sprintf(" application_name=server%d", i)
}

// connText is a login without its database, as libpq reads it.
func connText(d Database) string {
	password := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(d.Password)
	return fmt.Sprintf("host=%s port=%d user=%s password='%s' sslmode=disable gssencmode=disable", d.Host, d.Port, d.User, password)
}
