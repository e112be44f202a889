// Package mongodb opens MongoDB deployments for Shardway, with the official
// driver. A shard's location may be a database of one: its local map lives in
// that database's collections.
//
//	locals, err := mongodb.NewLocals(mongodb.Engine{}, credentials, sqlLocals)
//	c, err := catalog.New(global, locals, catalog.Config{})
//
// The global store is in a SQL database, always.
//
// Connections to other machines are encrypted, with the server's certificate
// checked, unless the options say otherwise (tls=false). Between addresses of
// this machine they are as the options say.
package mongodb

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
)

// Engine opens MongoDB deployments. It is a value, safe for concurrent use. It
// is no [shardway.Engine], which are for SQL.
type Engine struct {
	// Options are options of MongoDB's connection strings as URL query text,
	// such as "replicaSet=rs0&authSource=admin&tls=false"; empty is none. They
	// hold for every shard. One that the driver does not know, or that names a
	// server, database, user or password, is refused when it is used. Logins are
	// looked for in the database admin, unless authSource names another. The
	// default serverSelectionTimeoutMS is 10 s.
	Options string
}

var rules = dsn.Rules{Engine: "mongodb", Port: 27017, MaxDatabase: 63}

// Name returns "mongodb".
func (Engine) Name() string { return rules.Engine }

// Normalize checks a location and returns its one spelling: the servers are
// members of one replica set, or mongos of one cluster, or one server.
func (Engine) Normalize(l shardway.Location) (shardway.Location, error) {
	if i := strings.IndexAny(l.Database, `/\. "$*<>:|?`); i >= 0 {
		return l, &shardway.ArgumentError{Argument: "database", Value: l.Database, Reason: "has a " + l.Database[i:i+1] + ", which names of MongoDB databases must not have"}
	}
	return rules.Normalize(l)
}

// ClientOptions returns the driver's options for the deployment at a location.
// The password is asked for once, when it is needed for them.
func (e Engine) ClientOptions(ctx context.Context, l shardway.Location, c shardway.Credentials) (*options.ClientOptions, error) {
	l, err := e.Normalize(l)
	if err != nil {
		return nil, err
	}
	values, err := readOptions(e.Options)
	if err != nil {
		return nil, err
	}
	if !has(values, "tls") && !has(values, "ssl") && !local(l) {
		values.Set("tls", "true")
	}
	if !has(values, "serverSelectionTimeoutMS") {
		values.Set("serverSelectionTimeoutMS", "10000")
	}
	login := takeLogin(values)
	o := options.Client().ApplyURI(address(l, values))
	if c.User != "" || login.AuthMechanism != "" {
		login.Username = c.User
		if login.Password, err = c.Secret(ctx); err != nil {
			return nil, err
		}
		login.PasswordSet = login.Password != ""
		o.SetAuth(login)
	}
	if err := o.Validate(); err != nil {
		return nil, refused(e.Options, err)
	}
	return o, nil
}

func refused(text string, err error) error {
	return &shardway.ArgumentError{Argument: "options", Value: text, Reason: "are refused by the driver: " + err.Error()}
}

// address is a location as a connection string without a login.
func address(l shardway.Location, values url.Values) string {
	hosts := make([]string, len(l.Servers))
	for i, s := range l.Servers {
		hosts[i] = s.Address
	}
	return "mongodb://" + strings.Join(hosts, ",") + "/?" + values.Encode()
}

// readOptions reads options and refuses those that the driver does not know.
func readOptions(text string) (url.Values, error) {
	values, err := dsn.Options(text)
	if err != nil {
		return nil, err
	}
	if has(values, "loadBalanced") {
		return nil, &shardway.ArgumentError{Argument: "option", Value: "loadBalanced", Reason: "is not for shards: name the servers"}
	}
	rest := maps.Clone(values)
	takeLogin(rest)
	parsed, err := connstring.Parse("mongodb://localhost/?" + rest.Encode())
	if err != nil {
		return nil, refused(text, err)
	}
	for name := range parsed.UnknownOptions {
		return nil, &shardway.ArgumentError{Argument: "option", Value: name, Reason: "is unknown to the driver"}
	}
	return values, nil
}

// has reports whether an option is given; the driver takes names in any case.
func has(values url.Values, name string) bool {
	for key := range values {
		if strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

// takeLogin removes what the options say of logins: a connection string may
// have it only together with a user.
func takeLogin(values url.Values) options.Credential {
	login := options.Credential{AuthSource: take(values, "authSource"), AuthMechanism: take(values, "authMechanism")}
	for pair := range strings.SplitSeq(take(values, "authMechanismProperties"), ",") {
		name, value, ok := strings.Cut(pair, ":")
		if !ok {
			continue
		}
		if login.AuthMechanismProperties == nil {
			login.AuthMechanismProperties = map[string]string{}
		}
		login.AuthMechanismProperties[name] = value
	}
	if login.AuthSource == "" && (login.AuthMechanism == "" || strings.HasPrefix(login.AuthMechanism, "SCRAM-")) {
		login.AuthSource = "admin"
	}
	return login
}

// take removes an option and returns its value.
func take(values url.Values, name string) (value string) {
	for key := range values {
		if strings.EqualFold(key, name) {
			value = values.Get(key)
			values.Del(key)
		}
	}
	return value
}

// local reports whether all servers are this machine.
func local(l shardway.Location) bool {
	return !slices.ContainsFunc(l.Servers, func(s shardway.Server) bool {
		at, err := rules.Address(s.Address)
		return err != nil || !dsn.Loopback(at.Host)
	})
}

// Parse reads a DSN of the form
// mongodb://user:password@host:port,host:port/database?options. Special
// characters are written as %XX. Errors do not show the DSN.
func Parse(text string) (Engine, shardway.Location, shardway.Credentials, error) {
	fail := func(err error) (Engine, shardway.Location, shardway.Credentials, error) {
		return Engine{}, shardway.Location{}, shardway.Credentials{}, err
	}
	if strings.HasPrefix(strings.ToLower(text), "mongodb+srv:") {
		return fail(&shardway.ArgumentError{Argument: "DSN", Reason: "names servers by a DNS record: name the servers themselves, as mongodb://host:port,host:port/database"})
	}
	u, err := dsn.Parse(text, "mongodb")
	if err != nil {
		return fail(err)
	}
	e := Engine{Options: u.Options.Encode()}
	if _, err := readOptions(e.Options); err != nil {
		return fail(err)
	}
	l, err := e.Normalize(u.Location(e.Name()))
	if err != nil {
		return fail(err)
	}
	return e, l, u.Credentials, nil
}
