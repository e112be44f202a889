package dsn

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/topology"
)

// Rules are what an engine asks of its locations.
type Rules struct {
	Engine string
	Port   int // of a server whose address has none
	// Socket says whether the path of a Unix socket is an address.
	Socket bool
	// SocketPort says that a socket has a port too, because it is a folder.
	SocketPort bool
	// MaxDatabase bounds the bytes of a database's name.
	MaxDatabase int
}

// Normalize checks a location and returns its one spelling.
func (r Rules) Normalize(l shardway.Location) (shardway.Location, error) {
	if l.Engine != "" && l.Engine != r.Engine {
		return l, &shardway.ArgumentError{Argument: "engine", Value: l.Engine, Reason: "is not " + r.Engine}
	}
	l.Engine = r.Engine
	if err := r.checkDatabase(l.Database); err != nil {
		return l, err
	}
	if len(l.Servers) == 0 {
		return l, &shardway.ArgumentError{Argument: "server address", Reason: "is missing"}
	}
	l.Servers = slices.Clone(l.Servers)
	for i, s := range l.Servers {
		a, err := r.Address(s.Address)
		if err != nil {
			return l, err
		}
		l.Servers[i].Address = a.String()
		for _, other := range l.Servers[:i] {
			if other.Address == a.String() {
				return l, &shardway.ArgumentError{Argument: "server address", Value: a.String(), Reason: "is given twice"}
			}
		}
	}
	return l, nil
}

func (r Rules) checkDatabase(name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "is missing"
	case len(name) > r.MaxDatabase:
		reason = fmt.Sprintf("is longer than %d bytes", r.MaxDatabase)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		reason = "is not valid UTF-8 without NUL"
	default:
		return nil
	}
	return &shardway.ArgumentError{Argument: "database", Value: strings.ToValidUTF8(name, "?"), Reason: reason}
}

// Address reads a server's address.
func (r Rules) Address(text string) (topology.Address, error) {
	a, err := topology.ParseAddress(text, r.Port)
	if err != nil {
		var refused *topology.AddressError
		if !errors.As(err, &refused) {
			return a, err
		}
		reason := ": " + refused.Reason
		if refused.Hint != "" {
			reason += " (" + refused.Hint + ")"
		}
		return a, &shardway.ArgumentError{Argument: "server address", Value: refused.Address, Reason: strings.TrimPrefix(reason, ": ")}
	}
	if a.Network() != "unix" {
		return a, nil
	}
	if !r.Socket || a.Port != 0 && !r.SocketPort {
		return a, &shardway.ArgumentError{Argument: "server address", Value: text, Reason: "is not host:port"}
	}
	if r.SocketPort && a.Port == 0 {
		a.Port = r.Port
	}
	a.Host = Path(a.Host)
	return a, nil
}

// Path returns the absolute path of a file without symbolic links, as far as
// it exists.
func Path(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return filepath.Clean(path) // no working folder: the name is all there is
	}
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		if straight, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(straight, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}
