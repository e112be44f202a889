package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/shardway/shardway"
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

// shardError is an error of a shard's database, while the global store answers.
type shardError struct{ err error }

func (e *shardError) Error() string { return e.err.Error() }
func (e *shardError) Unwrap() error { return e.err }

// whose tells a login that a shard refuses from one that the global store
// refuses: the latter answers in the first case.
func (s *session) whose(ctx context.Context, err error) error {
	if r, ok := refusalIn(err); !ok || !r.login {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, answer := s.global.Describe(ctx)
	if _, refused := refusalIn(answer); refused {
		return err
	}
	return &shardError{err}
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
	address, storeErr := a.set.store()
	if storeErr != nil {
		return ""
	}
	_, login, shardsErr := a.set.shards(address)
	if shardsErr != nil {
		return ""
	}
	if shard := (*shardError)(nil); errors.As(err, &shard) {
		return a.set.shardLoginHint(login)
	}
	return a.set.storeLoginHint(address.credentials, login)
}

// storeLoginHint names the settings of the login on the global store.
func (s *settings) storeLoginHint(login, shards shardway.Credentials) string {
	if login.Password != "" {
		return "the store's login is " + s.origin("store-password", "store")
	}
	hint := "no password is set for the store: SHARDWAY_STORE_PASSWORD or SHARDWAY_STORE_PASSWORD_FILE gives it"
	if shards.Password != "" {
		hint += "; SHARDWAY_SHARD_PASSWORD is for the shards alone"
	}
	return hint
}

// shardLoginHint names the settings of the login on the shards.
func (s *settings) shardLoginHint(login shardway.Credentials) string {
	own := "SHARDWAY_SHARD_USER with SHARDWAY_SHARD_PASSWORD or SHARDWAY_SHARD_PASSWORD_FILE"
	_, direct := s.values["shard-password"]
	_, indirect := s.values["shard-password-file"]
	switch {
	case login.Password == "":
		return "no password is set for the shards' user: SHARDWAY_SHARD_PASSWORD or SHARDWAY_SHARD_PASSWORD_FILE gives it"
	case direct || indirect:
		return "the shards' login is " + s.origin("shard-password", "shard-user")
	}
	return "the shards get the user and password of the store: " + own + " gives them a login of their own"
}

// origin says where a password, and else where the login, comes from.
func (s *settings) origin(password, otherwise string) string {
	for _, name := range []string{password, password + "-file", otherwise} {
		if v, ok := s.values[name]; ok {
			return "that of setting " + name + " (" + v.source + ")"
		}
	}
	return "that of setting " + otherwise
}
