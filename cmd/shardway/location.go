package main

import (
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/mongodb"
)

const locationHelp = `A location is a DSN without login and options, such as postgres://db1:5432/tenants,
mysql://db1:3306/tenants, sqlserver://db1:1433?database=tenants, sqlite:tenants.db or
mongodb://db1:27017,db2:27017/tenants.
User and password are settings (shard-user, SHARDWAY_SHARD_PASSWORD), never part of the
map; driver options are settings too (postgres-options and the like). Several locations
are several servers of the same database. --server adds a server to those of the
command line, or tags to one of them: --server db2:5432,zone=eu-1a,disk=ssd`

// parseLocation reads the location of a shard from DSNs of the same database
// and from texts like host:port,tag=value.
func parseLocation(dsns, servers []string) (shardway.Location, error) {
	var l shardway.Location
	for _, dsn := range dsns {
		next, err := parseShardDSN(dsn)
		if err != nil {
			return l, err
		}
		switch {
		case l.Engine == "":
			l = next
		case l.Engine != next.Engine || l.Database != next.Database:
			return l, &shardway.ArgumentError{Argument: "location", Value: next.String(), Reason: "is not the same database on another server as " + l.String()}
		default:
			l.Servers = append(l.Servers, next.Servers...)
		}
	}
	return addServers(l, servers)
}

// parseShardDSN reads a DSN that must hold nothing that does not belong into a
// shard map. Its errors never show the DSN.
func parseShardDSN(dsn string) (shardway.Location, error) {
	a, err := parseAddress("location", dsn, append(engineNames(), onMongoDB)...)
	if err != nil {
		return shardway.Location{}, err
	}
	refuse := func(what, instead string) (shardway.Location, error) {
		return shardway.Location{}, &shardway.ArgumentError{
			Argument: "location", Value: a.location.String(),
			Reason: "holds " + what + ", which do not belong into a shard map: use the " + instead,
		}
	}
	switch {
	case a.credentials.Password != "":
		return refuse("user and password", "settings shard-user and shard-password")
	case a.credentials.User != "":
		return refuse("credentials (a user)", "setting shard-user")
	case a.options != "":
		return refuse("driver options", "setting "+a.location.Engine+"-options")
	}
	return a.location, nil
}

// addServers adds servers to a location; one that it has already gets the tags.
func addServers(l shardway.Location, texts []string) (shardway.Location, error) {
	for _, text := range texts {
		srv, err := parseServer(text)
		if err != nil {
			return l, err
		}
		known := false
		for i := range l.Servers {
			same, err := sameServer(l, l.Servers[i], srv)
			if err != nil {
				return l, err
			}
			if same && l.Servers[i].Tags == nil {
				l.Servers[i].Tags = srv.Tags
				known = srv.Tags != nil
			}
		}
		if !known {
			l.Servers = append(l.Servers, srv)
		}
	}
	return l, nil
}

// sameServer reports whether two servers of a location have the same address,
// whatever its spelling.
func sameServer(l shardway.Location, a, b shardway.Server) (bool, error) {
	var e interface {
		Normalize(l shardway.Location) (shardway.Location, error)
	} = mongodb.Engine{}
	if l.Engine != onMongoDB {
		known, err := findEngine(l.Engine)
		if err != nil {
			return false, err
		}
		e = known.with("", "")
	}
	spelling := func(s shardway.Server) (string, error) {
		n, err := e.Normalize(shardway.Location{Engine: l.Engine, Database: l.Database, Servers: []shardway.Server{s}})
		if err != nil {
			return "", err
		}
		return n.Servers[0].Address, nil
	}
	left, err := spelling(a)
	if err != nil {
		return false, err
	}
	right, err := spelling(b)
	return left == right, err
}

func parseServer(text string) (shardway.Server, error) {
	parts := strings.Split(text, ",")
	refuse := func(reason string) (shardway.Server, error) {
		shown := text
		if strings.ContainsAny(text, "@?&; ") || strings.Contains(text, "://") { // may be user:password@host, or hold an option
			shown = ""
		}
		return shardway.Server{}, &shardway.ArgumentError{Argument: "server", Value: shown, Reason: reason}
	}
	srv := shardway.Server{Address: parts[0]}
	switch {
	case srv.Address == "" || strings.Contains(srv.Address, "="):
		return refuse("does not begin with an address: expected host:port,tag=value")
	case strings.Contains(srv.Address, "@") || strings.Contains(srv.Address, "://"):
		return refuse("is not an address: expected host:port,tag=value, without user or scheme")
	}
	for _, tag := range parts[1:] {
		name, value, ok := strings.Cut(tag, "=")
		if !ok || name == "" {
			return refuse("has a tag that is not name=value")
		}
		if _, twice := srv.Tags[name]; twice {
			return refuse("has the tag " + name + " twice")
		}
		if srv.Tags == nil {
			srv.Tags = map[string]string{}
		}
		srv.Tags[name] = value
	}
	return srv, nil
}
