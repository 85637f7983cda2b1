package chattemplate

import (
	"fmt"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Dialect is whose idea of Jinja a template is rendered after, where the implementations disagree.
type Dialect uint8

const (
	// Python is jinja2 as transformers sets it up: the reference.
	Python Dialect = iota
	// MiniJinja follows minijinja, the engine of servers that are written in Rust. What changes:
	//   - a printed list or dict quotes its strings with double quotes: {"a": [None, True, "x"]};
	//   - none can be looped over, as if it were empty, and whatever has no length has the length 0;
	//   - filters give lists where Python's give iterators, which can be read only once;
	//   - an attribute of a dict (schema.items) is the element of that name, before any method;
	//   - only lists are sequences, so that strings and dicts fail that test;
	//   - indent drops a line break at the end of its text;
	//   - tojson knows no argument but indent, takes undefined values (null) and iterators (lists), and its text passes the
	//     escape filter unchanged; safe text may be added to other text without escaping that.
	// Where minijinja merely lacks a method, filter or conversion that Python has, this dialect has it too.
	MiniJinja
)

func (m *machine) mini() bool { return m.template.options.Dialect == MiniJinja }

// miniTests are the tests that MiniJinja decides in another way.
var miniTests = map[string]func(Value) bool{
	"sequence": func(v Value) bool { return v.kind == kindList || v.kind == kindTuple },
	"iterable": func(v Value) bool { return isIterable(v) || v.kind == kindNone },
}

// simpleTest finds a test without arguments.
func (t *Template) simpleTest(name string) func(Value) bool {
	if t.options.Dialect == MiniJinja {
		if test := miniTests[name]; test != nil {
			return test
		}
	}
	return simpleTests[name]
}

// display prints a part of a concatenation. MiniJinja prints floats as Python does, but writes them out in full where it joins
// them with other text.
func (m *machine) display(part op) error {
	v, err := part.eval(m)
	if err != nil {
		return err
	}
	if v.kind == kindFloat {
		m.out = appendRustDecimal(m.out, v.float())
		return m.checkOutput()
	}
	return m.print(v)
}

// appendDebug appends a list or dict as MiniJinja prints it, which is how Rust prints values for programmers.
func (m *machine) appendDebug(v Value, depth int) error {
	if err := m.visit(depth); err != nil {
		return err
	}
	switch v.kind {
	case kindString:
		if err := m.spendScan(int(v.num)); err != nil {
			return err
		}
		m.out = appendRustQuoted(m.out, v.str())
	case kindMissing, kindUndefined:
		m.out = append(m.out, "undefined"...)
	case kindFloat:
		m.out = appendRustFloat(m.out, v.float())
	case kindList, kindTuple:
		m.out = append(m.out, '[')
		for i, item := range v.items() {
			if i > 0 {
				m.out = append(m.out, ", "...)
			}
			if err := m.appendDebug(item, depth+1); err != nil {
				return err
			}
		}
		m.out = append(m.out, ']')
	case kindDict:
		m.out = append(m.out, '{')
		for i := range v.dict().entries {
			e := &v.dict().entries[i]
			if i > 0 {
				m.out = append(m.out, ", "...)
			}
			if err := m.appendDebug(e.Key, depth+1); err != nil {
				return err
			}
			m.out = append(m.out, ": "...)
			if err := m.appendDebug(e.Value, depth+1); err != nil {
				return err
			}
		}
		m.out = append(m.out, '}')
	case kindIterator, kindView, kindRange:
		items, err := m.list(v)
		if err != nil {
			return err
		}
		return m.appendDebug(List(items), depth+1)
	default:
		return m.appendRepr(v, depth)
	}
	return nil
}

// appendRustQuoted quotes a string as Rust does for programmers.
func appendRustQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			b = append(b, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', c)
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == 0:
			b = append(b, '\\', '0')
		case isPrintable(r) && !unicode.In(r, unicode.Mn, unicode.Me, unicode.Other_Grapheme_Extend):
			b = append(b, s[i:i+size]...)
		default:
			b = fmt.Appendf(b, `\u{%x}`, r)
		}
		i += size
	}
	return append(b, '"')
}

// appendRustFloat writes a float as Rust does for programmers: 0.5, 1.0, 1e-5, 1e16.
func appendRustFloat(b []byte, f float64) []byte {
	abs := math.Abs(f)
	switch {
	case math.IsNaN(f):
		return append(b, "NaN"...)
	case math.IsInf(f, 0):
		if f < 0 {
			b = append(b, '-')
		}
		return append(b, "inf"...)
	case abs != 0 && abs < 1e-4 || abs >= 1e16:
		start := len(b)
		b = strconv.AppendFloat(b, f, 'e', -1, 64)
		return trimExponent(b, start)
	}
	return appendRustDecimal(b, f)
}

// appendRustDecimal writes a float without an exponent: 0.5, 1.0, 0.00001, 10000000000000000.0.
func appendRustDecimal(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return appendRustFloat(b, f)
	}
	return appendDecimal(b, f)
}

// trimExponent turns Go's 1e-05 and 1e+16 from b[start:] on into 1e-5 and 1e16.
func trimExponent(b []byte, start int) []byte {
	for i := start; i < len(b); i++ {
		if b[i] != 'e' {
			continue
		}
		digits := i + 1
		for digits < len(b)-1 && (b[digits] == '+' || b[digits] == '-' || b[digits] == '0') {
			digits++
		}
		kept := b[:i+1]
		if b[i+1] == '-' {
			kept = append(kept, '-')
		}
		return append(kept, b[digits:]...)
	}
	return b
}
