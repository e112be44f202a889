package sqlshard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
)

// Token says how far a shard's database had got when it was asked for. A read
// that carries it sees everything committed until then, on whatever server.
// Tokens are values; they hold no secret and no data. The zero value is no token.
type Token struct {
	engine   string
	mapID    shardway.MapID
	shard    shardway.ShardID
	position string // empty: only the primary is sure to have everything
}

// TokenError is a token that cannot be used where it was, or text that is none.
type TokenError struct {
	Token  string // as text
	Reason string // to be read after it
}

// Error returns the token and the reason.
func (e *TokenError) Error() string { return fmt.Sprintf("token %q %s", e.Token, e.Reason) }

// Is reports whether target is [shardway.ErrInvalid].
func (e *TokenError) Is(target error) bool { return target == shardway.ErrInvalid }

const (
	tokenMark     = "v1"
	maxTokenBytes = 4096
)

// String returns the token as text that fits into a cookie, a URL or a header.
func (t Token) String() string {
	if t == (Token{}) {
		return ""
	}
	return fmt.Sprintf("%s.%s.%d-%d.%s", tokenMark, t.engine, t.mapID, t.shard, base64.RawURLEncoding.EncodeToString([]byte(t.position)))
}

// positions are what the positions of the engines look like. Tokens come from
// outside.
var positions = map[string]*regexp.Regexp{
	"postgres":  regexp.MustCompile(`^[0-9A-F]{1,8}/[0-9A-F]{1,8}$`),
	"mysql":     regexp.MustCompile(`^[0-9a-fA-F:,-]+$`),
	"sqlserver": regexp.MustCompile(`^$`),
	"sqlite":    regexp.MustCompile(`^$`),
}

// ParseToken reads what [Token.String] has written. Text that is no token is a
// [*TokenError].
func ParseToken(text string) (Token, error) {
	refused := &TokenError{Token: text, Reason: "is not the text of a token"}
	if len(text) > maxTokenBytes {
		return Token{}, &TokenError{Token: text[:32] + "…", Reason: "is too long"}
	}
	parts := strings.Split(text, ".")
	if len(parts) != 4 || parts[0] != tokenMark {
		return Token{}, refused
	}
	t := Token{engine: parts[1]}
	looks := positions[t.engine]
	position, err := base64.RawURLEncoding.DecodeString(parts[3])
	if looks == nil || err != nil || !looks.Match(position) {
		return Token{}, refused
	}
	t.position = string(position)
	if _, err := fmt.Sscanf(parts[2], "%d-%d", &t.mapID, &t.shard); err != nil || t.String() != text {
		return Token{}, refused
	}
	return t, nil
}

type tokenKey struct{}

// carried are the tokens of a context, the one added last first.
type carried struct {
	token Token
	next  *carried
}

// WithToken returns a context whose reads see what the token covers; see
// [Conn.Token]. It may carry tokens of several shards. Reads of other shards
// than those are refused with a [*TokenError], so that a token that went astray
// does not go unnoticed. A zero token changes nothing.
//
// Connections to the primary need no token and do not look at it.
func WithToken(ctx context.Context, t Token) context.Context {
	if t == (Token{}) {
		return ctx
	}
	next, _ := ctx.Value(tokenKey{}).(*carried)
	return context.WithValue(ctx, tokenKey{}, &carried{t, next})
}

// readToken finds the token for a shard.
func (w *opening) readToken(ctx context.Context, route shardway.Route) error {
	w.token, w.primary = nil, false
	tokens, _ := ctx.Value(tokenKey{}).(*carried)
	if w.writes || tokens == nil {
		return nil
	}
	s := route.Shard
	for c := tokens; c != nil; c = c.next {
		if c.token.mapID != s.MapID || c.token.shard != s.ID {
			continue
		}
		if c.token.engine != s.Location.Engine {
			return &TokenError{Token: c.token.String(), Reason: "is of another engine than shard " + s.Name + ", which is of " + s.Location.Engine}
		}
		w.token, w.primary = &c.token, c.token.position == ""
		return nil
	}
	return &TokenError{Token: tokens.token.String(), Reason: "is of another shard than " + s.Name}
}

// Token returns how far the database had got when the question was answered:
// everything committed before the call is covered, also by others. Ask after
// the commit, on the connection that has written or on another one to the same
// server; within a transaction it is refused. On a secondary the token covers
// what that secondary shows, for reads that must not go back in time.
//
// PostgreSQL tells a log position, MariaDB and MySQL a set of global
// transaction ids. The other engines tell nothing: reads with their tokens go
// to the primary.
func (c *Conn) Token(ctx context.Context) (Token, error) {
	t := Token{engine: c.route.Shard.Location.Engine, mapID: c.route.Shard.MapID, shard: c.route.Shard.ID}
	err := c.withSession(func(s *session) error {
		if s.inTx {
			return &shardway.ArgumentError{Argument: "Token", Reason: "is asked for within a transaction, whose writes it cannot cover: commit before"}
		}
		p, ok, err := s.positions(ctx)
		if err != nil || !ok {
			return err
		}
		t.position, err = s.text(ctx, p.Current)
		return err
	})
	if err != nil {
		return Token{}, fmt.Errorf("asking server %q for its position: %w", c.Server(), err)
	}
	t.position = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, t.position)
	return t, nil
}

// withSession calls f with the session while nobody else uses it.
func (c *Conn) withSession(f func(s *session) error) error {
	if !c.enter() {
		return sql.ErrConnDone
	}
	defer c.leave()
	return c.sc.Raw(func(dc any) error { return f(dc.(*session)) })
}

// positions returns the queries for positions, and false when the engine has none.
func (s *session) positions(ctx context.Context) (dialect.Positions, bool, error) {
	d := s.pool.engine.dialect
	if p, ok := d.Positions(""); !ok || d.Name() != "mysql" {
		return p, ok, nil
	}
	version, err := s.version(ctx)
	if err != nil {
		return dialect.Positions{}, false, err
	}
	p, ok := d.Positions(version)
	return p, ok, nil
}

// version returns what MySQL or MariaDB says it is. A pool asks once.
func (s *session) version(ctx context.Context) (string, error) {
	if known := s.pool.version.Load(); known != nil {
		return *known, nil
	}
	text, err := s.text(ctx, "SELECT VERSION()")
	if err != nil {
		return "", err
	}
	s.pool.version.Store(&text)
	return text, nil
}

// text runs a query of our own with one text as its answer.
func (s *session) text(ctx context.Context, query string) (string, error) {
	rows, err := s.askRows(ctx, query, nil)
	if err != nil {
		return "", err
	}
	values := make([]driver.Value, len(rows.Columns()))
	err = rows.Next(values)
	err = errors.Join(err, rows.Close())
	if err != nil {
		return "", err
	}
	switch v := values[0].(type) {
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	return "", fmt.Errorf("reading a position from a %T", values[0])
}
