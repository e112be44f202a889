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

// groupText adds, as a second answer, where the other members of the group take
// readers, which is all that a member tells with a port. TRY keeps it from
// failing the first answer.
const groupText = replicaText + `;
BEGIN TRY
  SELECT a.read_only_routing_url FROM sys.availability_replicas a
  WHERE a.read_only_routing_url IS NOT NULL AND a.replica_server_name <> @@SERVERNAME
    AND a.group_id IN (SELECT r.group_id FROM {states} r WHERE r.is_local = 1 AND r.database_id = DB_ID());
END TRY
BEGIN CATCH
END CATCH`

// text is what to ask a server of a variant.
func text(variant int, h probe.Heartbeat) string {
	t, states := groupText, "sys.dm_hadr_database_replica_states"
	switch variant {
	case alone:
		t = roleText
	case azure:
		t, states = replicaText, "sys.dm_database_replica_states"
	}
	return strings.NewReplacer("{states}", states, "{age}", h.Age(), "{term}", h.Term()).Replace(t)
}

// answer is what a server said, in the order of the queries.
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
	told        []string      // addresses of other members
	sees        bool          // that it is in no group, or how it stands in it
	rtt         time.Duration
}

func read(ctx context.Context, s *probe.Session, variant int, h probe.Heartbeat) (answer, error) {
	var a answer
	targets := []any{&a.version, &a.login, &a.status, &a.mode, &a.beat, &a.term}
	if variant != alone {
		targets = append(targets, &a.primary, &a.suspended, &a.state, &a.redo, &a.sinceCommit)
	}
	rtt, err := s.Query(ctx, text(variant, h), func(set int, rows *sql.Rows) error {
		if set == 0 {
			return probe.ScanOnly(rows, targets...)
		}
		return a.readTold(rows)
	})
	a.rtt = rtt
	return a, err
}

// readTold reads URLs such as TCP://db2.example:1433.
func (a *answer) readTold(rows *sql.Rows) error {
	if columns, err := rows.Columns(); err != nil || len(columns) != 1 {
		return err
	}
	for rows.Next() {
		var url sql.NullString
		if err := rows.Scan(&url); err != nil {
			return err
		}
		scheme, place, _ := strings.Cut(url.String, "://")
		if address, err := topology.ParseAddress(place, 0); err == nil && strings.EqualFold(scheme, "tcp") {
			a.told = append(a.told, address.String())
		}
	}
	return rows.Err()
}

// writable needs an explicit answer.
func (a *answer) writable() bool {
	return a.status.String == "ONLINE" && a.mode.String == "READ_WRITE" && (!a.primary.Valid || a.primary.Int64 == 1)
}

// observe says what the answer means.
func (a *answer) observe(beats bool) topology.Observation {
	o := topology.Observation{
		Role: topology.RolePrimary, RTT: topology.Measured(a.rtt), Engine: engine, Version: a.version, Term: probe.BeatTerm(a.term),
		Told: a.told,
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
