package mapfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/shardway/shardway"
)

// Error is what is wrong with a file, and where. It matches
// [shardway.ErrInvalid].
type Error struct {
	File  string // its name
	Line  int    // counted from 1
	Field string // its name; empty when it is not about one
	Err   error
}

// Error names file, line and field.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s, line %d", e.File, e.Line)
	if e.Field != "" {
		text += fmt.Sprintf(", field %q", e.Field)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is [shardway.ErrInvalid].
func (e *Error) Is(target error) bool { return target == shardway.ErrInvalid }

// maxErrors bounds how many mistakes of a file are reported.
const maxErrors = 20

// Read reads a file; name is what errors call it. What [Write] has written is
// read back as it was; lines, fields, shards and mappings may come in another
// order. Text that breaks off, a newer version, fields that are unknown or stand
// twice, names and keys that are taken twice, overlapping ranges and shards that
// are not there are an [Error] that names the line, or several joined.
func Read(r io.Reader, name string) (File, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		return File{}, fmt.Errorf("reading %s: %w", name, err)
	}
	p := &parser{name: name, body: body, dec: json.NewDecoder(bytes.NewReader(body))}
	if err := p.head(); err != nil {
		return File{}, err
	}
	f, err := p.file()
	if err != nil {
		return File{}, err
	}
	f.sort()
	return f, nil
}

// parser walks through the text and knows where it is.
type parser struct {
	name  string
	body  []byte
	lines []int // where lines end
	dec   *json.Decoder
	wrong []error // mistakes that do not keep from reading on
}

// line returns the number of the line at an offset.
func (p *parser) line(offset int64) int {
	if p.lines == nil {
		for i, b := range p.body {
			if b == '\n' {
				p.lines = append(p.lines, i)
			}
		}
	}
	return sort.SearchInts(p.lines, int(offset)) + 1
}

// here is the line of what is read next.
func (p *parser) here() int {
	at := p.dec.InputOffset()
	for at < int64(len(p.body)) && strings.IndexByte(" \t\r\n,:", p.body[at]) >= 0 {
		at++
	}
	return p.line(min(at, int64(len(p.body))-1))
}

func (p *parser) at(line int, field string, err error) error {
	return &Error{File: p.name, Line: line, Field: field, Err: err}
}

// note keeps a mistake for the end.
func (p *parser) note(line int, field string, err error) {
	if err != nil && len(p.wrong) <= maxErrors {
		p.wrong = append(p.wrong, p.at(line, field, err))
	}
}

var errTruncated = errors.New("the text breaks off: the file is not whole")

// broken is what is wrong with text that is no JSON.
func (p *parser) broken(err error) error {
	var syntax *json.SyntaxError
	last := p.line(int64(len(bytes.TrimRight(p.body, " \t\r\n"))))
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return p.at(last, "", errTruncated)
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(p.body)) && strings.Contains(err.Error(), "unexpected end"):
		return p.at(last, "", errTruncated)
	case errors.As(err, &syntax):
		return p.at(p.line(syntax.Offset-1), "", fmt.Errorf("no JSON: %w", err))
	}
	return p.at(p.here(), "", err)
}

// head looks at format and version before anything else: what a newer version
// has is not for this program to judge.
func (p *parser) head() error {
	if len(bytes.TrimSpace(p.body)) == 0 {
		return p.at(1, "", errors.New("the file is empty"))
	}
	if !utf8.Valid(p.body) {
		at := 0
		for r, n := utf8.DecodeRune(p.body); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(p.body[at:]) {
			at += n
		}
		return p.at(p.line(int64(at)), "", errors.New("is no UTF-8"))
	}
	var head struct {
		Format  json.RawMessage `json:"format"`
		Version json.RawMessage `json:"version"`
	}
	var other *json.UnmarshalTypeError
	if err := json.Unmarshal(p.body, &head); errors.As(err, &other) {
		return p.at(p.here(), "", fmt.Errorf("is not a file of shard maps, which is an object: it begins with %s", article(other.Value)))
	} else if err != nil {
		return p.broken(err)
	}
	var version int
	if err := json.Unmarshal(head.Version, &version); string(head.Format) != fmt.Sprintf("%q", Format) || err != nil || version < 1 {
		return p.at(1, "format", fmt.Errorf("is not a file of shard maps: it does not begin with \"format\": %q and \"version\": %d", Format, Version))
	}
	if version > Version {
		return p.at(p.line(int64(bytes.Index(p.body, head.Version))), "version",
			fmt.Errorf("is %d, this program reads files up to version %d: use a newer program", version, Version))
	}
	return nil
}

// file reads the whole.
func (p *parser) file() (File, error) {
	var f File
	lines := map[string]int{}
	maps := false
	err := p.object(func(field string, line int) error {
		switch field {
		case "format", "version":
			var seen json.RawMessage
			return p.dec.Decode(&seen)
		case "maps":
			maps = true
			return p.list(func() error {
				at := p.here()
				m, err := p.shardMap()
				if first, twice := lines[m.Name]; twice {
					p.note(at, "name", fmt.Errorf("shard map %q stands in line %d already", m.Name, first))
				}
				lines[m.Name] = at
				f.Maps = append(f.Maps, m)
				return err
			})
		}
		return p.unknown(line, field)
	})
	if err != nil {
		return File{}, err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return File{}, p.at(p.here(), "", errors.New("text follows the end of the maps"))
	}
	if !maps {
		p.note(1, "maps", errMissing)
	}
	if len(p.wrong) > maxErrors {
		p.wrong = append(p.wrong[:maxErrors], fmt.Errorf("%s: and more", p.name))
	}
	return f, errors.Join(p.wrong...)
}

func (p *parser) unknown(line int, field string) error {
	return p.at(line, field, errors.New("is unknown"))
}

// object reads an object; each reads the value of one field.
func (p *parser) object(each func(field string, line int) error) error {
	if err := p.delim('{', "an object"); err != nil {
		return err
	}
	var seen []string
	for p.dec.More() {
		line := p.here()
		token, err := p.dec.Token()
		if err != nil {
			return p.broken(err)
		}
		field, _ := token.(string)
		if slices.Contains(seen, field) {
			return p.at(line, field, errors.New("stands twice"))
		}
		seen = append(seen, field)
		if err := each(field, line); err != nil {
			return p.placed(err, line, field)
		}
	}
	_, err := p.dec.Token()
	if err != nil {
		return p.broken(err)
	}
	return nil
}

// placed gives an error its place, unless it has one.
func (p *parser) placed(err error, line int, field string) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return p.at(line, field, err)
}

// list reads a list; each reads one item.
func (p *parser) list(each func() error) error {
	if err := p.delim('[', "a list"); err != nil {
		return err
	}
	for p.dec.More() {
		if err := each(); err != nil {
			return err
		}
	}
	_, err := p.dec.Token()
	if err != nil {
		return p.broken(err)
	}
	return nil
}

func (p *parser) delim(want json.Delim, what string) error {
	line := p.here()
	token, err := p.dec.Token()
	if err != nil {
		return p.broken(err)
	}
	if token != want {
		return p.at(line, "", fmt.Errorf("%s stands where %s is due", spelled(token), what))
	}
	return nil
}

// spelled is a token as it stands in the text, in short.
func spelled(token json.Token) string {
	switch t := token.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%q", brief(t))
	}
	return fmt.Sprint(token)
}

// article is a kind of JSON value with its article.
func article(kind string) string {
	switch kind {
	case "array":
		return "a list"
	case "bool":
		return "true or false"
	case "string":
		return "text in quotes"
	}
	return "a " + strings.Fields(kind)[0]
}

// surrogate is an escape of half a character.
var surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F]`)

// text reads a string.
func (p *parser) text(into *string) error {
	var raw json.RawMessage
	if err := p.dec.Decode(&raw); err != nil {
		return p.broken(err)
	}
	if len(raw) == 0 || raw[0] != '"' {
		return fmt.Errorf("%s is no text in quotes", brief(string(raw)))
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return err
	}
	if strings.ContainsRune(*into, utf8.RuneError) && surrogate.Match(raw) {
		return errors.New("has half a character: text that is no UTF-8 is written in hex, as in key_hex")
	}
	return nil
}

// brief bounds what an error shows of its input.
func brief(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

var errMissing = errors.New("is missing")

func parseKind(text string) (shardway.MapKind, error) {
	switch text {
	case "list":
		return shardway.ListMap, nil
	case "range":
		return shardway.RangeMap, nil
	}
	return 0, fmt.Errorf("%q is neither list nor range", brief(text))
}

// online reads a status: true for online, which is also what none means.
func online(text string) (bool, error) {
	switch text {
	case "online", "":
		return true, nil
	case "offline":
		return false, nil
	}
	return true, fmt.Errorf("%q is neither online nor offline", brief(text))
}
