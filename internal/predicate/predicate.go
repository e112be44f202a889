package predicate

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"

	"github.com/shardway/shardway/selection"
)

// MaxBytes is the length of the longest rule that is read.
const MaxBytes = 4096

// Predicate is a rule that was read. It is immutable and safe for concurrent use. The zero value matches nothing.
type Predicate struct {
	text string
	root func(*selection.ServerInfo) bool
}

// Error says why a rule was refused, and where.
type Error struct {
	// Text is the whole rule, cut after MaxBytes.
	Text string
	// Line and Column are from 1; a column is a character, not a byte.
	Line, Column int
	// Reason says what is wrong there, and what would be right.
	Reason string
}

// Error names the rule, the position and the reason.
func (e *Error) Error() string {
	return fmt.Sprintf("predicate %q: %d:%d: %s", e.Text, e.Line, e.Column, e.Reason)
}

// Parse reads a rule. Every error is an *Error.
func Parse(text string) (*Predicate, error) {
	c := compiler{text: text}
	switch {
	case len(text) > MaxBytes:
		c.text = strings.ToValidUTF8(text[:MaxBytes], "")
		return nil, c.refuse(0, "it has %d bytes; the limit is %d", len(text), MaxBytes)
	case !utf8.ValidString(text):
		c.text = strings.ToValidUTF8(text, "\uFFFD")
		return nil, c.refuse(0, "it is not UTF-8")
	case strings.TrimSpace(text) == "":
		return nil, c.refuse(0, "it is empty")
	}
	root, err := c.parse()
	if err != nil {
		return nil, err
	}
	v, err := c.compile(root)
	if err != nil {
		return nil, err
	}
	if v.kind != boolean {
		return nil, c.refuse(root.Location().From, "the rule is %s; it must be true or false, as in host == \"localhost\"", v.kind)
	}
	return &Predicate{text: text, root: v.truth}, nil
}

// Match reports whether a server fits the rule. It is what selection.Where takes.
func (p *Predicate) Match(s selection.ServerInfo) bool {
	if p.root == nil {
		return false
	}
	// The functions of a rule take a pointer, which would put every s on the heap.
	seen := spare.Get().(*selection.ServerInfo)
	*seen = s
	fits := p.root(seen)
	*seen = selection.ServerInfo{}
	spare.Put(seen)
	return fits
}

var spare = sync.Pool{New: func() any { return new(selection.ServerInfo) }}

// String returns the rule as it was given.
func (p *Predicate) String() string { return p.text }

// compiler turns the syntax tree into functions.
type compiler struct{ text string }

// parse reads the syntax. expr's parser tells of most mistakes by an error; should it panic, that is one too.
func (c *compiler) parse() (root ast.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, c.refuse(0, "it cannot be read")
		}
	}()
	tree, err := parser.Parse(c.text)
	if err == nil {
		return tree.Node, nil
	}
	var at *file.Error
	if errors.As(err, &at) {
		return nil, c.refuse(at.From, "%s", at.Message)
	}
	return nil, c.refuse(0, "%s", err)
}

// refuse makes an error at an offset of the text.
func (c *compiler) refuse(offset int, format string, args ...any) *Error {
	e := &Error{Text: c.text, Line: 1, Column: 1, Reason: fmt.Sprintf(format, args...)}
	for i, r := range []rune(c.text) {
		if i >= offset {
			break
		}
		e.Column++
		if r == '\n' {
			e.Line, e.Column = e.Line+1, 1
		}
	}
	return e
}
