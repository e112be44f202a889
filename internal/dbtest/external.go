package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// defaultPorts are used when the URL of a user's own server names no port.
var defaultPorts = map[Engine]int{EnginePostgres: 5432, EngineMySQL: 3306, EngineSQLServer: 1433}

// defaultAdminDatabases are used when that URL names no database.
var defaultAdminDatabases = map[Engine]string{EnginePostgres: "postgres", EngineMySQL: "mysql", EngineSQLServer: "master"}

// openExternal uses a user's own server. That it does not answer is an error: somebody asked for it by name.
func openExternal(e Engine, address string) (*Server, error) {
	admin, err := parseAddress(e, address)
	if err != nil {
		return nil, err
	}
	s := &Server{admin: admin}
	if err := s.connect(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	if err := s.adminPool().PingContext(ctx); err != nil {
		return nil, fmt.Errorf("connecting to %s as %q: %w", admin.Addr(), admin.User, err)
	}
	return s, nil
}

// parseAddress reads a URL such as DSN writes; the database and the port may be left out. Errors do not show it:
// it holds a password.
func parseAddress(e Engine, address string) (Database, error) {
	u, err := url.Parse(address)
	if err != nil {
		return Database{}, fmt.Errorf("reading the URL: it is not well formed (a password's special characters are written %%XX)")
	}
	scheme := map[string]Engine{"postgresql": EnginePostgres, "mariadb": EngineMySQL}[u.Scheme]
	if scheme == "" {
		scheme = Engine(u.Scheme)
	}
	if scheme != e || u.Hostname() == "" || u.User == nil {
		return Database{}, fmt.Errorf("reading the URL: it is not of the form %s://user:password@host:port/", e)
	}
	password, _ := u.User.Password()
	d := Database{
		Engine: string(e), Host: u.Hostname(), Port: defaultPorts[e],
		Name: strings.TrimPrefix(u.Path, "/"), User: u.User.Username(), Password: password, Query: u.RawQuery,
	}
	if u.Port() != "" {
		if d.Port, err = strconv.Atoi(u.Port()); err != nil {
			return Database{}, fmt.Errorf("reading the URL: its port is not a number")
		}
	}
	if q := u.Query(); e == EngineSQLServer && q.Has("database") {
		d.Name = q.Get("database")
	}
	if d.Name == "" {
		d.Name = defaultAdminDatabases[e]
	}
	return d, nil
}

// leaveExternal drops the logins, which can only go after every database with their rights, and disconnects.
func (s *Server) leaveExternal() error {
	s.mu.Lock()
	logins := s.logins
	s.logins = nil
	s.mu.Unlock()
	var errs []error
	for _, user := range logins {
		if err := s.do(s.Engine().dropLogin(user)); err != nil {
			errs = append(errs, fmt.Errorf("dropping login %q: %w", user, err))
		}
	}
	return errors.Join(append(errs, s.adminPool().Close())...)
}
