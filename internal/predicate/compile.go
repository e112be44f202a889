package predicate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"

	"github.com/shardway/shardway/selection"
)

// compile checks a node and turns it into functions.
func (c *compiler) compile(node ast.Node) (value, error) {
	at := node.Location().From
	switch n := node.(type) {
	case *ast.BoolNode:
		return value{kind: boolean, constant: n.Value, truth: func(*selection.ServerInfo) bool { return n.Value }}, nil
	case *ast.StringNode:
		return constantText(n.Value), nil
	case *ast.IntegerNode:
		return constantNumber(float64(n.Value)), nil
	case *ast.FloatNode:
		return constantNumber(n.Value), nil
	case *ast.IdentifierNode:
		v, ok := fields[n.Value]
		if !ok {
			return value{}, c.refuse(at, "unknown name %q; known are %s", n.Value, known())
		}
		return v, nil
	case *ast.MemberNode:
		return c.member(n)
	case *ast.UnaryNode:
		return c.unary(n)
	case *ast.BinaryNode:
		return c.binary(n)
	case *ast.ArrayNode:
		return c.array(n)
	case *ast.ConditionalNode:
		return value{}, c.refuse(n.Cond.Location().From, "conditions are written with && and ||")
	default:
		return value{}, c.refuse(at, "functions, arithmetic and variables are not part of a predicate")
	}
}

func constantText(s string) value {
	v := textOf(func(*selection.ServerInfo) string { return s })
	v.constant = s
	return v
}

func constantNumber(f float64) value {
	v := numberOf(func(*selection.ServerInfo) float64 { return f })
	v.constant = f
	return v
}

func (c *compiler) member(n *ast.MemberNode) (value, error) {
	name, constant := n.Property.(*ast.StringNode)
	if of, ok := n.Node.(*ast.IdentifierNode); !ok || of.Value != "tags" || !constant || n.Optional {
		return value{}, c.refuse(n.Location().From, "only tags have parts, as in tags.zone or tags[\"zone\"]")
	}
	return tag(name.Value), nil
}

func (c *compiler) unary(n *ast.UnaryNode) (value, error) {
	v, err := c.compile(n.Node)
	if err != nil {
		return value{}, err
	}
	at := n.Location().From
	switch n.Operator {
	case "!", "not":
		if v.kind != boolean {
			return value{}, c.refuse(at, "%s needs true or false, not %s", n.Operator, v.kind)
		}
		inner := v.truth
		return value{kind: boolean, truth: func(s *selection.ServerInfo) bool { return !inner(s) }}, nil
	case "-", "+":
		f, ok := v.constant.(float64)
		if !ok {
			return value{}, c.refuse(at, "%s needs a constant number", n.Operator)
		}
		if n.Operator == "-" {
			f = -f
		}
		return constantNumber(f), nil
	default:
		return value{}, c.refuse(at, "operator %s is not part of a predicate", n.Operator)
	}
}

func (c *compiler) array(n *ast.ArrayNode) (value, error) {
	if len(n.Nodes) == 0 {
		return value{}, c.refuse(n.Location().From, "the list is empty")
	}
	all := value{kind: list}
	for _, node := range n.Nodes {
		item, err := c.compile(node)
		if err != nil {
			return value{}, err
		}
		if item.constant == nil || item.kind == boolean {
			return value{}, c.refuse(node.Location().From, "a list has constant texts or numbers only")
		}
		all.items = append(all.items, item)
	}
	return all, nil
}

func (c *compiler) binary(n *ast.BinaryNode) (value, error) {
	left, err := c.compile(n.Left)
	if err != nil {
		return value{}, err
	}
	right, err := c.compile(n.Right)
	if err != nil {
		return value{}, err
	}
	at := n.Location().From
	switch n.Operator {
	case "&&", "and", "||", "or":
		if left.kind != boolean || right.kind != boolean {
			return value{}, c.refuse(at, "%s needs true or false on both sides, not %s and %s", n.Operator, left.kind, right.kind)
		}
		return join(n.Operator, left.truth, right.truth), nil
	case "==", "!=", "<", "<=", ">", ">=":
		return c.comparison(n, left, right)
	case "in":
		return c.membership(n, left, right)
	case "contains", "startsWith", "endsWith", "matches":
		return c.search(n, left, right)
	default:
		return value{}, c.refuse(at, "operator %s is not part of a predicate", n.Operator)
	}
}

func join(operator string, a, b func(*selection.ServerInfo) bool) value {
	if operator == "&&" || operator == "and" {
		return value{kind: boolean, truth: func(s *selection.ServerInfo) bool { return a(s) && b(s) }}
	}
	return value{kind: boolean, truth: func(s *selection.ServerInfo) bool { return a(s) || b(s) }}
}

// comparison compares two values of one kind.
func (c *compiler) comparison(n *ast.BinaryNode, left, right value) (value, error) {
	var err error
	if right, err = c.suit(n.Right, right, left); err != nil {
		return value{}, err
	}
	if left, err = c.suit(n.Left, left, right); err != nil {
		return value{}, err
	}
	at := n.Location().From
	equality := n.Operator == "==" || n.Operator == "!="
	switch {
	case left.kind != right.kind || left.kind == tagSet || left.kind == list:
		return value{}, c.refuse(at, "%s cannot compare %s with %s", n.Operator, left.kind, right.kind)
	case left.kind == boolean && !equality:
		return value{}, c.refuse(at, "%s needs an order, and true and false have none", n.Operator)
	case left.kind == boolean:
		same, a, b := n.Operator == "==", left.truth, right.truth
		return value{kind: boolean, truth: func(s *selection.ServerInfo) bool { return (a(s) == b(s)) == same }}, nil
	case left.kind == text:
		return compared(n.Operator, left.text, right.text), nil
	default:
		return compared(n.Operator, left.number, right.number), nil
	}
}

func compared[T cmp.Ordered](operator string, a, b func(*selection.ServerInfo) T) value {
	truths := map[string]func(*selection.ServerInfo) bool{
		"==": func(s *selection.ServerInfo) bool { return a(s) == b(s) },
		"!=": func(s *selection.ServerInfo) bool { return a(s) != b(s) },
		"<":  func(s *selection.ServerInfo) bool { return a(s) < b(s) },
		"<=": func(s *selection.ServerInfo) bool { return a(s) <= b(s) },
		">":  func(s *selection.ServerInfo) bool { return a(s) > b(s) },
		">=": func(s *selection.ServerInfo) bool { return a(s) >= b(s) },
	}
	return value{kind: boolean, truth: truths[operator]}
}

// suit makes a constant fit what it is compared with: a length of time becomes milliseconds, a host is lowered, and a
// text that the other side can never be is refused.
func (c *compiler) suit(node ast.Node, constant, with value) (value, error) {
	at := node.Location().From
	if f, ok := constant.constant.(float64); ok && with.kind == duration {
		constant = constantNumber(f)
		constant.kind = duration
		return constant, nil
	}
	word, ok := constant.constant.(string)
	if !ok {
		return constant, nil
	}
	switch {
	case with.kind == duration:
		d, err := time.ParseDuration(word)
		if err != nil {
			return value{}, c.refuse(at, "%q is not a length of time such as \"15ms\" or \"30s\"", word)
		}
		constant = constantNumber(milliseconds(d))
		constant.kind = duration
		return constant, nil
	case with.lower && !strings.HasPrefix(word, "/"):
		return constantText(strings.ToLower(word)), nil
	case with.domain != nil && !slices.Contains(with.domain, word):
		return value{}, c.refuse(at, "%q is never so; it is one of %s", word, strings.Join(with.domain, ", "))
	}
	return constant, nil
}

// membership is left in right.
func (c *compiler) membership(n *ast.BinaryNode, left, right value) (value, error) {
	at := n.Location().From
	if right.kind == tagSet {
		name, ok := left.constant.(string)
		if !ok {
			return value{}, c.refuse(at, "in needs a constant name before tags")
		}
		return value{kind: boolean, truth: func(s *selection.ServerInfo) bool { _, has := s.Tags.Get(name); return has }}, nil
	}
	if right.kind != list {
		return value{}, c.refuse(at, "in needs a list or tags after it, not %s", right.kind)
	}
	var texts []string
	var numbers []float64
	for i, item := range right.items {
		node := n.Right.(*ast.ArrayNode).Nodes[i]
		item, err := c.suit(node, item, left)
		if err != nil {
			return value{}, err
		}
		if item.kind != left.kind {
			return value{}, c.refuse(node.Location().From, "%s is never in a list with %s", left.kind, item.kind)
		}
		if item.kind == text {
			texts = append(texts, item.constant.(string))
		} else {
			numbers = append(numbers, item.constant.(float64))
		}
	}
	if left.kind == text {
		of := left.text
		return value{kind: boolean, truth: func(s *selection.ServerInfo) bool { return slices.Contains(texts, of(s)) }}, nil
	}
	of := left.number
	return value{kind: boolean, truth: func(s *selection.ServerInfo) bool { return slices.Contains(numbers, of(s)) }}, nil
}

// search looks into a text.
func (c *compiler) search(n *ast.BinaryNode, left, right value) (value, error) {
	if left.kind != text || right.kind != text {
		return value{}, c.refuse(n.Location().From, "%s needs two texts, not %s and %s", n.Operator, left.kind, right.kind)
	}
	a, b := left.text, right.text
	var truth func(*selection.ServerInfo) bool
	switch n.Operator {
	case "contains":
		truth = func(s *selection.ServerInfo) bool { return strings.Contains(a(s), b(s)) }
	case "startsWith":
		truth = func(s *selection.ServerInfo) bool { return strings.HasPrefix(a(s), b(s)) }
	case "endsWith":
		truth = func(s *selection.ServerInfo) bool { return strings.HasSuffix(a(s), b(s)) }
	default:
		pattern, ok := right.constant.(string)
		if !ok {
			return value{}, c.refuse(n.Right.Location().From, "matches needs a constant pattern")
		}
		expression, err := regexp.Compile(pattern)
		if err != nil {
			return value{}, c.refuse(n.Right.Location().From, "%v", err)
		}
		truth = func(s *selection.ServerInfo) bool { return expression.MatchString(a(s)) }
	}
	return value{kind: boolean, truth: truth}, nil
}
