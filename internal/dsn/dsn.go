// Package dsn holds what the engine packages share: reading a DSN, checking
// driver options, and bringing locations into their one spelling. No error of
// it repeats a DSN, a password or a part of one. It does no network I/O.
package dsn

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/shardway/shardway"
)

// URL is a DSN of the form scheme://user:password@host:port,…/database?options.
type URL struct {
	Credentials shardway.Credentials
	Hosts       []string // with ports where they were given; none when the DSN has none
	Database    string
	Options     url.Values
}

// Parse reads a DSN with one of the schemes. Special characters in its parts
// are written as %XX.
func Parse(dsn string, schemes ...string) (URL, error) {
	scheme, rest, ok := strings.Cut(dsn, "://")
	if !ok || !slices.Contains(schemes, strings.ToLower(scheme)) {
		return URL{}, refuse("has not the form " + schemes[0] + "://user:password@host:port/database?options")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	path, query, _ := strings.Cut(tail, "?")
	at := strings.LastIndexByte(authority, '@')
	// An @ behind the host, or a #, is a password that was cut in the middle.
	if strings.Contains(tail, "#") || strings.Contains(path, "@") || at < 0 && strings.Contains(tail, "@") {
		return URL{}, refuse("has special characters: write those of user and password as %XX, such as %40 for @, %2F for /, %3F for ?, %23 for #")
	}
	var u URL
	var err error
	if at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		if u.Credentials.User, err = url.PathUnescape(user); err != nil {
			return URL{}, refuse("has a user that cannot be read: write % as %25")
		}
		if u.Credentials.Password, err = url.PathUnescape(password); err != nil {
			return URL{}, refuse("has a password that cannot be read: write % as %25")
		}
	}
	if hosts := authority[at+1:]; hosts != "" {
		u.Hosts = strings.Split(hosts, ",")
	}
	path = strings.TrimPrefix(path, "/")
	if strings.Contains(path, "/") {
		return URL{}, refuse("has more than one / behind the host: write a / in the name of the database as %2F")
	}
	if u.Database, err = url.PathUnescape(path); err != nil {
		return URL{}, refuse("has a database that cannot be read: write % as %25")
	}
	if u.Options, err = url.ParseQuery(query); err != nil {
		return URL{}, refuse("has options that cannot be read: write them as name=value&name=value with special characters as %XX")
	}
	return u, nil
}

// Take removes an option and returns its value.
func (u *URL) Take(name string) string {
	v := u.Options.Get(name)
	u.Options.Del(name)
	return v
}

// Location returns what the DSN says about the place, not normalized.
func (u *URL) Location(engine string) shardway.Location {
	l := shardway.Location{Engine: engine, Database: u.Database}
	for _, h := range u.Hosts {
		l.Servers = append(l.Servers, shardway.Server{Address: h})
	}
	return l
}

func refuse(reason string) error { return &shardway.ArgumentError{Argument: "DSN", Reason: reason} }

// taken are the options that would say what location and credentials say, or
// hold a secret, in the spelling of plain. Each driver knows some of them.
var taken = []string{
	"host", "hostaddr", "hostname", "server", "addr", "address", "networkaddress", "datasource", "port", "net", "network", "protocol",
	"socket", "unixsocket", "pipe", "failoverpartner", "failoverport", "service", "servicefile",
	"database", "dbname", "db", "initialcatalog", "user", "username", "userid", "uid", "login", "passfile",
}

// Options reads driver options in the form of a URL query. One that says what
// the location or the credentials say is refused by its name, whatever its
// spelling; so is one that holds a secret.
func Options(text string) (url.Values, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, &shardway.ArgumentError{Argument: "options", Reason: "cannot be read: write them as name=value&name=value with special characters as %XX"}
	}
	for name := range values {
		word := plain(name)
		if slices.Contains(taken, word) || strings.Contains(word, "password") || strings.Contains(word, "passwd") || strings.Contains(word, "pwd") {
			return nil, &shardway.ArgumentError{
				Argument: "option", Value: name,
				Reason: "is not for options: server, port and database come from the location, user and password from the credentials",
			}
		}
	}
	return values, nil
}

// plain is a name without case, spaces, dashes and underscores.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" _-.", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// Loopback reports whether a host, or the path of a socket, is this machine:
// encryption is not required there by default.
func Loopback(host string) bool {
	if strings.HasPrefix(host, "/") || host == "localhost" || host == "localhost." {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
