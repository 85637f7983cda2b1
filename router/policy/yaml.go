package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Error is a mistake in a policy file.
type Error struct {
	// File is the name that the file was read under; Path leads to the place inside it, as in "policy_classes[0].quantum". Line and
	// Column count from 1; 0 where the mistake has no place.
	File, Path   string
	Line, Column int
	// Problem says what is wrong.
	Problem string
	// Syntax tells that the file cannot be read as what it should be; otherwise it can and breaks a rule.
	Syntax bool
}

// Text returns the message without the place of a broken rule.
func (e *Error) Text() string {
	if !e.Syntax {
		return "invalid router policy config: " + e.Problem
	}
	text := "failed to parse router policy config " + e.File + ": "
	if e.Path != "" {
		text += e.Path + ": "
	}
	text += e.Problem
	if e.Line > 0 {
		text += fmt.Sprintf(" at line %d column %d", e.Line, e.Column)
	}
	return text
}

// Error implements error.
func (e *Error) Error() string {
	if e.Syntax {
		return e.Text()
	}
	place := []string{e.File}
	if e.Line > 0 {
		place = append(place, fmt.Sprintf("line %d column %d", e.Line, e.Column))
	}
	if e.Path != "" {
		place = append(place, e.Path)
	}
	return e.Text() + " (" + strings.Join(place, ", ") + ")"
}

// maxDepth bounds nesting, maxNodes what is read in all; both count what aliases repeat.
const (
	maxDepth = 32
	maxNodes = 1 << 18
)

// document is a file while it is read. The first problem stays.
type document struct {
	file    string
	anchors map[string]ast.Node
	nodes   int
	problem *Error
}

// node is a place in a document. A node without value was left out.
type node struct {
	in    *document
	value ast.Node
	at    *token.Position
	path  string
	depth int
}

// open parses a text of one document.
func open(file string, text []byte) (node, error) {
	d := &document{file: file, anchors: make(map[string]ast.Node)}
	parsed, err := parser.ParseBytes(text, 0)
	if err != nil {
		problem := &Error{File: file, Problem: err.Error(), Syntax: true}
		var known yaml.Error
		if errors.As(err, &known) {
			problem.Problem = known.GetMessage()
			if at := known.GetToken(); at != nil && at.Position != nil {
				problem.Line, problem.Column = at.Position.Line, at.Position.Column
			}
		}
		return node{}, problem
	}
	bodies := slices.DeleteFunc(slices.Clone(parsed.Docs), func(doc *ast.DocumentNode) bool { return doc.Body == nil })
	if len(bodies) > 1 {
		return node{}, &Error{File: file, Problem: fmt.Sprintf("%d documents in one file; exactly one is read", len(bodies)), Syntax: true}
	}
	if len(bodies) == 0 {
		return node{in: d}, nil
	}
	for anchored := range anchors(bodies[0].Body) {
		name := anchored.Name.String()
		if _, twice := d.anchors[name]; !twice {
			d.anchors[name] = anchored.Value
		}
	}
	return node{in: d}.with(bodies[0].Body, ""), nil
}

// anchors visits every anchor below n.
func anchors(n ast.Node) func(yield func(*ast.AnchorNode) bool) {
	return func(yield func(*ast.AnchorNode) bool) {
		ast.Walk(visitor(func(at ast.Node) bool {
			anchored, is := at.(*ast.AnchorNode)
			return !is || yield(anchored)
		}), n)
	}
}

type visitor func(ast.Node) bool

// Visit implements ast.Visitor.
func (v visitor) Visit(n ast.Node) ast.Visitor {
	if v(n) {
		return v
	}
	return nil
}

// with returns the node at a value, its anchors, aliases and tags resolved.
func (n node) with(value ast.Node, path string) node {
	next := node{in: n.in, path: path, depth: n.depth + 1}
	if value == nil {
		return next
	}
	if start := value.GetToken(); start != nil {
		next.at = start.Position
	}
	if n.in.nodes++; n.in.nodes > maxNodes {
		next.fail("more than %d values, aliases counted each time", maxNodes)
		return next
	}
	for steps := 0; ; steps++ {
		if next.depth > maxDepth || steps > maxDepth {
			next.fail("nested deeper than %d levels", maxDepth)
			return next
		}
		switch wrapped := value.(type) {
		case *ast.AnchorNode:
			value = wrapped.Value
		case *ast.TagNode:
			value = wrapped.Value
		case *ast.AliasNode:
			name := wrapped.Value.String()
			target, known := n.in.anchors[name]
			if !known {
				next.fail("alias *%s has no anchor", name)
				return next
			}
			value = target
		case *ast.NullNode:
			return next // a null is the same as nothing
		default:
			next.value = value
			return next
		}
	}
}

func (n node) present() bool { return n.value != nil }

// fail notes that the text is not what it should be here.
func (n node) fail(format string, args ...any) { n.note(true, n.path, format, args...) }

func (n node) note(syntax bool, path, format string, args ...any) {
	if n.in.problem != nil {
		return
	}
	n.in.problem = &Error{File: n.in.file, Path: path, Problem: fmt.Sprintf(format, args...), Syntax: syntax}
	if n.at != nil {
		n.in.problem.Line, n.in.problem.Column = n.at.Line, n.at.Column
	}
}

// breaks returns the error of a rule that is broken here.
func (n node) breaks(format string, args ...any) *Error {
	e := &Error{File: n.in.file, Path: n.path, Problem: fmt.Sprintf(format, args...)}
	if n.at != nil {
		e.Line, e.Column = n.at.Line, n.at.Column
	}
	return e
}

// describe says what a value is, for messages.
func (n node) describe() string {
	switch value := n.value.(type) {
	case nil:
		return "null"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a sequence"
	case *ast.StringNode:
		return fmt.Sprintf("string %q", value.Value)
	case *ast.LiteralNode:
		return fmt.Sprintf("string %q", value.Value.Value)
	case *ast.IntegerNode:
		return fmt.Sprintf("integer `%v`", value.Value)
	case *ast.BoolNode:
		return fmt.Sprintf("boolean `%v`", value.Value)
	}
	return "`" + n.value.String() + "`"
}

func (n node) wrongType(expected string) {
	n.fail("invalid type: %s, expected %s", n.describe(), expected)
}

// member is one entry of a mapping.
type member struct {
	key string
	node
}

// members returns the entries of a mapping, in order; known are the keys that may be there, nil for any.
func (n node) members(known []string) []member {
	var entries []*ast.MappingValueNode
	switch value := n.value.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		entries = value.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{value}
	default:
		n.wrongType("a mapping")
		return nil
	}
	var list []member
	for _, entry := range entries {
		where := node{in: n.in, path: n.path, at: entry.Key.GetToken().Position}
		if entry.Key.IsMergeKey() {
			list = append(list, n.with(entry.Value, n.path).members(known)...)
			continue
		}
		key, isText := scalarText(entry.Key)
		switch {
		case !isText:
			where.fail("a key must be a word, not %s", entry.Key.String())
			return nil
		case known != nil && !slices.Contains(known, key):
			where.fail("unknown field `%s`, expected one of `%s`", key, strings.Join(known, "`, `"))
			return nil
		case slices.ContainsFunc(list, func(m member) bool { return m.key == key }):
			where.fail("duplicate field `%s`", key)
			return nil
		}
		list = append(list, member{key, n.with(entry.Value, join(n.path, key))})
	}
	return list
}

func scalarText(n ast.Node) (string, bool) {
	switch value := n.(type) {
	case *ast.StringNode:
		return value.Value, true
	case *ast.MappingKeyNode:
		return scalarText(value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// elements returns the entries of a sequence.
func (n node) elements() []node {
	if !n.present() {
		return nil
	}
	sequence, is := n.value.(*ast.SequenceNode)
	if !is {
		n.wrongType("a sequence")
		return nil
	}
	list := make([]node, 0, len(sequence.Values))
	for i, value := range sequence.Values {
		list = append(list, n.with(value, fmt.Sprintf("%s[%d]", n.path, i)))
	}
	return list
}

func (n node) text() string {
	switch value := n.value.(type) {
	case *ast.StringNode:
		return value.Value
	case *ast.LiteralNode:
		return value.Value.Value
	}
	n.wrongType("a string")
	return ""
}

func (n node) count() uint64 {
	if number, is := n.value.(*ast.IntegerNode); is {
		switch value := number.Value.(type) {
		case uint64:
			return value
		case int64:
			if value >= 0 {
				return uint64(value)
			}
		}
	}
	n.wrongType("a non-negative integer")
	return 0
}

func (n node) number() float64 {
	switch value := n.value.(type) {
	case *ast.FloatNode:
		return value.Value
	case *ast.IntegerNode:
		switch whole := value.Value.(type) {
		case uint64:
			return float64(whole)
		case int64:
			return float64(whole)
		}
	case *ast.InfinityNode:
		return value.Value
	case *ast.NanNode:
		return math.NaN()
	}
	n.wrongType("a number")
	return 0
}

// any returns a value as plain Go data, for parts of the file that others read.
func (n node) any() any {
	switch value := n.value.(type) {
	case nil:
		return nil
	case *ast.MappingNode, *ast.MappingValueNode:
		var items yaml.MapSlice
		for _, m := range n.members(nil) {
			items = append(items, yaml.MapItem{Key: m.key, Value: m.any()})
		}
		return items
	case *ast.SequenceNode:
		items := []any{}
		for _, element := range n.elements() {
			items = append(items, element.any())
		}
		return items
	case *ast.StringNode:
		return value.Value
	case *ast.LiteralNode:
		return value.Value.Value
	case ast.ScalarNode:
		return value.GetValue()
	}
	n.wrongType("a value")
	return nil
}
