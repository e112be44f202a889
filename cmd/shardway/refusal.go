package main

import (
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// refusal is what a server says when it does not let us in, or not do something.
type refusal struct {
	engine string
	login  bool // the login itself is refused; else a right is missing
}

// Codes of refused logins and of missing rights.
var (
	postgresLogins  = []string{"28P01", "28000"}
	postgresRights  = []string{"42501"}
	mysqlLogins     = []uint16{1045, 1698}
	mysqlRights     = []uint16{1044, 1142, 1143, 1227, 1370, 1410}
	sqlserverLogins = []int32{18456}
	sqlserverRights = []int32{229, 230, 262, 297, 300, 916, 2760, 15247}
)

// refusalIn finds a refusal among the causes of an error.
func refusalIn(err error) (refusal, bool) {
	var pg interface{ SQLState() string }
	var my *mysql.MySQLError
	var ms interface{ SQLErrorNumber() int32 }
	switch {
	case errors.As(err, &pg):
		return refused("postgres", pg.SQLState(), postgresLogins, postgresRights)
	case errors.As(err, &my):
		return refused("mysql", my.Number, mysqlLogins, mysqlRights)
	case errors.As(err, &ms):
		return refused("sqlserver", ms.SQLErrorNumber(), sqlserverLogins, sqlserverRights)
	}
	return refusal{}, false
}

func refused[C comparable](engine string, code C, logins, rights []C) (refusal, bool) {
	login := slices.Contains(logins, code)
	return refusal{engine, login}, login || slices.Contains(rights, code)
}

// accessHint says what to do when a server does not let us in.
func (a *app) accessHint(code int, err error) string {
	r, ok := refusalIn(err)
	switch {
	case !ok:
		return ""
	case !r.login && code == exitUnavailable:
		return "the user lacks a right: shardway grants " + r.engine + " prints the rights that each user needs, and who gives them"
	case !r.login:
		return ""
	}
	address, err := a.set.store()
	if err != nil {
		return ""
	}
	_, shards, err := a.set.shards(address)
	if err != nil {
		return ""
	}
	switch storeLogin := address.credentials; {
	case storeLogin.Password == "":
		hint := "no password is set for the store: SHARDWAY_STORE_PASSWORD or SHARDWAY_STORE_PASSWORD_FILE gives it"
		if shards.Password != "" {
			hint += "; SHARDWAY_SHARD_PASSWORD is for the shards alone"
		}
		return hint
	case shards.Password == "":
		return "no password is set for the shards' user: SHARDWAY_SHARD_PASSWORD or SHARDWAY_SHARD_PASSWORD_FILE gives it"
	}
	return ""
}
