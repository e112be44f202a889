package sqlserverprobe

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

const roleText = `SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), SUSER_SNAME(),
  CAST(DATABASEPROPERTYEX(DB_NAME(), 'Status') AS nvarchar(128)), CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(128)),
  {age}, {term}`

// replicaText adds what the member of a group knows of itself.
const replicaText = roleText + `,
  CAST(r.is_primary_replica AS int), CAST(r.is_suspended AS int), r.synchronization_state_desc, r.redo_queue_size,
  DATEDIFF_BIG(microsecond, r.last_commit_time, GETDATE())
FROM (SELECT 1 AS one) o
LEFT JOIN {states} r ON r.is_local = 1 AND r.database_id = DB_ID()`

// text is what to ask a server of a variant.
func text(variant int, h probe.Heartbeat) string {
	t, states := replicaText, "sys.dm_hadr_database_replica_states"
	switch variant {
	case alone:
		t = roleText
	case azure:
		states = "sys.dm_database_replica_states"
	}
	return strings.NewReplacer("{states}", states, "{age}", h.Age(), "{term}", h.Term()).Replace(t)
}

// answer is what a server said, in the order of the query.
type answer struct {
	version     string
	login       string
	status      sql.NullString
	mode        sql.NullString // READ_WRITE or READ_ONLY
	beat, term  sql.NullInt64
	primary     sql.NullInt64 // 1 or 0; NULL outside groups, as the following
	suspended   sql.NullInt64
	state       sql.NullString
	redo        sql.NullInt64 // kilobytes received and not yet shown
	sinceCommit sql.NullInt64 // microseconds
	sees        bool          // that it is in no group, or how it stands in it
	rtt         time.Duration
}

func read(ctx context.Context, s *probe.Session, variant int, h probe.Heartbeat) (answer, error) {
	var a answer
	targets := []any{&a.version, &a.login, &a.status, &a.mode, &a.beat, &a.term}
	if variant != alone {
		targets = append(targets, &a.primary, &a.suspended, &a.state, &a.redo, &a.sinceCommit)
	}
	rtt, err := s.Row(ctx, text(variant, h), targets...)
	a.rtt = rtt
	return a, err
}

// writable needs an explicit answer.
func (a *answer) writable() bool {
	return a.status.String == "ONLINE" && a.mode.String == "READ_WRITE" && (!a.primary.Valid || a.primary.Int64 == 1)
}

// observe says what the answer means.
func (a *answer) observe(beats bool) topology.Observation {
	o := topology.Observation{
		Role: topology.RolePrimary, RTT: topology.Measured(a.rtt), Engine: engine, Version: a.version, Term: probe.BeatTerm(a.term),
	}
	if a.writable() {
		return o
	}
	o.Role = topology.RoleSecondary
	if a.status.String != "ONLINE" {
		o.Role = topology.RoleOther // restoring, recovering, offline
		return o
	}
	o.Detached = a.sees && (!a.primary.Valid || a.suspended.Int64 == 1)
	switch {
	case beats:
		o.Staleness = probe.Staleness(a.beat)
	case a.sees:
		o.Staleness = a.staleness()
	}
	return o
}

func (a *answer) staleness() topology.Measurement {
	if a.suspended.Valid && a.suspended.Int64 == 0 && a.state.String == "SYNCHRONIZED" && a.redo.Valid && a.redo.Int64 == 0 {
		return topology.Measured(0)
	}
	if a.sinceCommit.Int64 <= 0 { // NULL, or clocks that differ
		return topology.Measurement{}
	}
	return topology.Measured(time.Duration(a.sinceCommit.Int64) * time.Microsecond)
}
