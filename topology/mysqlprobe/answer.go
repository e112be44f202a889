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
	told     []string // addresses of those that registered as replicas

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
		}
		return a.readShown(rows)
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

// readShown reads one of MariaDB's further answers, any of which may be missing.
// It and its columns are known by their names: versions add some.
func (a *answer) readShown(rows *sql.Rows) error {
	columns, err := rows.Columns()
	if err != nil || len(columns) == 0 {
		return err
	}
	values, targets := make([]sql.NullString, len(columns)), make([]any, len(columns))
	position := make(map[string]int, len(columns))
	for i, column := range columns {
		targets[i] = &values[i]
		position[strings.ToLower(column)] = i
	}
	cell := func(column string) string {
		if i, found := position[column]; found {
			return values[i].String
		}
		return ""
	}
	_, status := position["slave_io_running"]
	a.sees = a.sees || status
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if status {
			a.channels = append(a.channels, readChannel(cell))
		} else if told, ok := address(cell("host"), cell("port")); ok {
			a.told = append(a.told, told)
		}
	}
	return rows.Err()
}

func readChannel(cell func(column string) string) channel {
	c := channel{host: cell("master_host"), io: cell("slave_io_running"), sql: cell("slave_sql_running")}
	c.port, _ = strconv.Atoi(cell("master_port"))                           // 0 is no port and gives no upstream
	seconds, err := strconv.ParseInt(cell("seconds_behind_master"), 10, 32) // an error for NULL
	if err == nil && c.runs() {
		c.behind = topology.Measured(time.Duration(seconds) * time.Second)
	}
	return c
}

// address needs both host and port.
func address(host, port string) (string, bool) {
	number, err := strconv.Atoi(port)
	if err != nil {
		return "", false
	}
	a, err := topology.NewAddress(host, number)
	return a.String(), err == nil
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
		Told: a.told,
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
