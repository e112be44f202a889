package mysqlprobe

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

// answer is what a server said.
type answer struct {
	version  string
	login    string
	readOnly [3]string // three settings, any of which refuses writes
	age      sql.NullInt64
	term     sql.NullInt64
	sees     bool // may see replication
	channels []channel

	rtt time.Duration
}

// channel is one connection to a server that is followed.
type channel struct {
	host   string
	port   int
	io     string // Yes, No, Connecting or Preparing; ON, OFF or CONNECTING
	sql    string // Yes or No; ON or OFF
	behind topology.Measurement
}

func read(ctx context.Context, s *probe.Session, text string) (answer, error) {
	var a answer
	rtt, err := s.Query(ctx, text, func(set int, rows *sql.Rows) error {
		switch {
		case set == 0 && s.Variant == mysqlVariant:
			return a.readMySQL(rows)
		case set == 0:
			return a.readRole(rows)
		case set == 1:
			return a.readStatus(rows)
		}
		return nil
	})
	a.rtt = rtt
	return a, err
}

func (a *answer) role() []any {
	return []any{&a.version, &a.login, &a.readOnly[0], &a.readOnly[1], &a.readOnly[2], &a.age, &a.term}
}

// readRole reads the first answer of MariaDB.
func (a *answer) readRole(rows *sql.Rows) error {
	if !rows.Next() {
		return firstError(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(a.role()...); err != nil {
		return err
	}
	for rows.Next() {
	}
	return rows.Err()
}

func firstError(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// readStatus reads MariaDB's second answer, whose columns are found by name:
// versions add some.
func (a *answer) readStatus(rows *sql.Rows) error {
	columns, err := rows.Columns()
	if err != nil || len(columns) == 0 {
		return err
	}
	a.sees = true
	values, targets := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		row := make(map[string]sql.NullString, len(columns))
		for i, column := range columns {
			row[strings.ToLower(column)] = values[i]
		}
		c := channel{host: row["master_host"].String, io: row["slave_io_running"].String, sql: row["slave_sql_running"].String}
		c.port, _ = strconv.Atoi(row["master_port"].String)                           // 0 is no port and gives no upstream
		seconds, err := strconv.ParseInt(row["seconds_behind_master"].String, 10, 32) // an error for NULL
		if err == nil && c.runs() {
			c.behind = topology.Measured(time.Duration(seconds) * time.Second)
		}
		a.channels = append(a.channels, c)
	}
	return rows.Err()
}

// readMySQL reads the answer of MySQL, with or without replication.
func (a *answer) readMySQL(rows *sql.Rows) error {
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	var (
		host, io, applier sql.NullString
		port              sql.NullInt64
		complete          sql.NullBool
		applying, applied sql.NullInt64
	)
	targets := a.role()
	if a.sees = len(columns) > len(targets); a.sees {
		targets = append(targets, &host, &port, &io, &applier, &complete, &applying, &applied)
	}
	found := false
	for ; rows.Next(); found = true {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if !host.Valid {
			continue
		}
		c := channel{host: host.String, port: int(port.Int64), io: io.String, sql: applier.String}
		switch {
		case !c.runs():
		case complete.Valid && complete.Bool:
			c.behind = topology.Measured(0)
		case complete.Valid && applying.Valid:
			c.behind = age(applying)
		case complete.Valid && applied.Valid:
			c.behind = age(applied)
		}
		a.channels = append(a.channels, c)
	}
	if !found {
		return firstError(rows.Err(), sql.ErrNoRows)
	}
	return rows.Err()
}

// age is the time since a commit that is not the last one: never zero.
func age(micros sql.NullInt64) topology.Measurement {
	if micros.Int64 <= 0 {
		return topology.Measurement{}
	}
	return topology.Measured(time.Duration(micros.Int64) * time.Microsecond)
}

// runs says that changes arrive and are applied.
func (c channel) runs() bool { return isOn(c.io) && isOn(c.sql) }

// stopped says that changes do not arrive or are not applied, and that this
// will not change by itself. A connection that is being tried is not stopped.
func (c channel) stopped() bool { return isOff(c.io) || isOff(c.sql) }

func isOn(state string) bool {
	return strings.EqualFold(state, "Yes") || strings.EqualFold(state, "ON")
}

func isOff(state string) bool {
	return state == "0" || strings.EqualFold(state, "No") || strings.EqualFold(state, "OFF")
}

// writable needs an explicit answer from each setting.
func (a *answer) writable() bool {
	for _, setting := range a.readOnly {
		if !isOff(setting) {
			return false
		}
	}
	return true
}

// observe says what the answer means.
func (a *answer) observe(beats bool) topology.Observation {
	o := topology.Observation{
		Role: topology.RolePrimary, RTT: topology.Measured(a.rtt), Engine: engine, Version: a.version, Term: probe.BeatTerm(a.term),
	}
	if len(a.channels) == 1 {
		if upstream, err := topology.NewAddress(a.channels[0].host, a.channels[0].port); err == nil {
			o.Upstream = upstream.String()
		}
	}
	if a.writable() {
		return o
	}
	o.Role = topology.RoleSecondary
	o.Detached = a.sees
	for _, c := range a.channels {
		o.Detached = o.Detached && c.stopped()
	}
	if beats {
		o.Staleness = probe.Staleness(a.age)
	} else {
		o.Staleness = a.staleness()
	}
	return o
}

// staleness is that of the channel that is farthest behind, and unknown if one
// is unknown.
func (a *answer) staleness() topology.Measurement {
	var most topology.Measurement
	for i, c := range a.channels {
		behind, known := c.behind.Value()
		if !known {
			return topology.Measurement{}
		}
		if soFar, _ := most.Value(); i == 0 || behind > soFar {
			most = c.behind
		}
	}
	return most
}
