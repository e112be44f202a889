package pgprobe

import (
	"context"
	"database/sql"
	"time"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

// query is the whole probe. Each CASE keeps a function from a server on which
// it is an error. A login without pg_monitor sees no column of the WAL receiver;
// primary_conninfo holds a password and never leaves the
// server. pg_control_checkpoint lags behind on a promoted primary, so there the
// timeline comes from the current position.
const query = `SELECT r.recovery, current_setting('server_version'), current_user::text, r.sees,
  CASE WHEN r.recovery THEN greatest(w.received_tli, (SELECT timeline_id FROM pg_control_checkpoint()))
       ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END,
  CASE WHEN NOT r.recovery AND current_setting('default_transaction_read_only') = 'on'
       THEN (SELECT source NOT IN ('client', 'user', 'database user', 'session') FROM pg_settings WHERE name = 'default_transaction_read_only')
       ELSE false END,
  CASE WHEN r.recovery THEN pg_last_xact_replay_timestamp()
       WHEN current_setting('track_commit_timestamp') = 'on' THEN (SELECT timestamp FROM pg_last_committed_xact()) END,
  clock_timestamp(),
  CASE WHEN r.recovery AND r.sees
       THEN current_setting('primary_conninfo', true) <> '' OR current_setting('restore_command', true) <> '' END,
  coalesce(w.status = 'streaming', false),
  CASE WHEN r.recovery THEN coalesce(pg_last_wal_replay_lsn() >= greatest(pg_last_wal_receive_lsn(), w.latest_end_lsn), false)
       ELSE false END,
  (extract(epoch FROM clock_timestamp() - w.last_msg_receipt_time) * 1000000)::bigint,
  (extract(epoch FROM current_setting('wal_receiver_timeout')::interval) * 1000000)::bigint,
  w.sender_host, w.sender_port,
  {beat}
FROM (SELECT pg_is_in_recovery() AS recovery,
             pg_has_role('pg_read_all_stats', 'USAGE') AND pg_has_role('pg_read_all_settings', 'USAGE') AS sees OFFSET 0) r
LEFT JOIN pg_stat_wal_receiver w ON r.recovery`

// answer is what a server said, in the order of the query.
type answer struct {
	Recovery  bool
	Version   string
	Login     string
	Sees      bool // has the rights of pg_monitor
	Timeline  sql.NullInt64
	Frozen    bool // set to refuse writes, not only for this login
	LastWrite sql.NullTime
	Now       time.Time
	Attached  sql.NullBool  // is configured to follow
	Streaming bool          // receives changes
	CaughtUp  bool          // has replayed what it has received and what was announced
	Silence   sql.NullInt64 // microseconds since the last message
	Timeout   int64         // microseconds without a message after which it reconnects; 0 for ever
	Host      sql.NullString
	Port      sql.NullInt64
	Beat      sql.NullInt64 // microseconds since the last heartbeat

	rtt time.Duration
}

func read(ctx context.Context, s *probe.Session, text string) (answer, error) {
	var a answer
	rtt, err := s.Row(ctx, text, &a.Recovery, &a.Version, &a.Login, &a.Sees, &a.Timeline, &a.Frozen, &a.LastWrite, &a.Now,
		&a.Attached, &a.Streaming, &a.CaughtUp, &a.Silence, &a.Timeout, &a.Host, &a.Port, &a.Beat)
	a.rtt = rtt
	return a, err
}

// observe says what the answer means. It keeps in the session when the server
// was last in sync.
func (a *answer) observe(s *probe.Session, beats bool) topology.Observation {
	o := topology.Observation{
		Role: topology.RolePrimary, RTT: topology.Measured(a.rtt), Engine: engine, Version: a.Version,
		LastWrite: a.LastWrite.Time, Term: topology.Term{Major: uint64(max(a.Timeline.Int64, 0))},
	}
	if !a.Recovery && !a.Frozen {
		return o
	}
	o.Role = topology.RoleSecondary
	if a.Frozen {
		o.Detached = true
		return o
	}
	o.Detached = a.Attached.Valid && !a.Attached.Bool
	if upstream, err := topology.NewAddress(a.Host.String, int(a.Port.Int64)); err == nil {
		o.Upstream = upstream.String()
	}
	switch {
	case beats:
		o.Staleness = probe.Staleness(a.Beat)
	case a.Sees:
		o.Staleness = a.staleness(s)
	}
	return o
}

// idleSilence is how long a primary may be silent whose secondary never asks
// for a sign of life, and slack what an answer to that question may take.
const (
	idleSilence = 30 * time.Second
	slack       = time.Second
)

func (a *answer) staleness(s *probe.Session) topology.Measurement {
	silence := time.Duration(a.Silence.Int64) * time.Microsecond
	allowed := time.Duration(a.Timeout) * time.Microsecond / 2
	if allowed == 0 {
		allowed = idleSilence
	}
	inSync := a.Streaming && a.CaughtUp && a.Silence.Valid
	if inSync && silence <= allowed+slack {
		s.InSync = a.Now
		return topology.Measured(0)
	}
	var least topology.Measurement
	atMost := func(d time.Duration) {
		if value, known := least.Value(); d > 0 && (!known || d < value) {
			least = topology.Measured(d)
		}
	}
	if inSync {
		atMost(silence)
	}
	if a.LastWrite.Valid {
		atMost(a.Now.Sub(a.LastWrite.Time))
	}
	if !s.InSync.IsZero() {
		atMost(a.Now.Sub(s.InSync))
	}
	return least
}
