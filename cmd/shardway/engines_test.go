package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardway/shardway/internal/dbtest"
)

// TestEngines runs scripts on every engine.
func TestEngines(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		p := scripts("testdata/engines", func(env *testscript.Env) error {
			global := e.NewDatabase(t)
			env.Setenv("SHARDWAY_STORE", global.DSN())
			s1 := e.NewDatabase(t)
			env.Setenv("S1", location(s1))
			s1.Host = "localhost"
			env.Setenv("S1ALIAS", location(s1))
			env.Setenv("S2", location(e.NewDatabase(t)))
			if e != dbtest.EngineSQLite {
				setServer(t, env, e, global)
			}
			return nil
		})
		p.Condition = func(string) (bool, error) { return e != dbtest.EngineSQLite, nil } // [server]
		testscript.Run(t, p)
	})
}

// setServer sets the logins, and stores that let nobody in.
func setServer(t *testing.T, env *testscript.Env, e dbtest.Engine, global dbtest.Database) {
	t.Helper()
	env.Setenv("SHARDWAY_SHARD_USER", global.User)
	env.Setenv("SHARDWAY_SHARD_PASSWORD", global.Password)
	env.Setenv("SHARDWAY_"+strings.ToUpper(string(e))+"_OPTIONS", global.Query)
	user, password := e.Server(t).NewUser(t, "nobody")
	env.Setenv("NORIGHTS", global.As(user, password).DSN())
	other := global
	other.Name = "nosuchdatabase"
	env.Setenv("NODATABASE", other.DSN())
	env.Setenv("NODATABASELOCATION", location(other))
	env.Setenv("NOPASSWORD", global.As(global.User, "").DSN())
	other.Host, other.Port = "127.0.0.1", 1
	env.Setenv("NOBODY", other.DSN())
}

// location is a DSN without login and options.
func location(d dbtest.Database) string {
	d.Query = ""
	u, err := url.Parse(d.DSN())
	if err != nil {
		panic(err) // made by dbtest
	}
	u.User = nil
	return u.String()
}
