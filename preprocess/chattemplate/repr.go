package chattemplate

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is Python's str(v).
func (m *machine) str(v Value) (string, error) {
	switch v.kind {
	case kindString:
		return v.str(), nil
	case kindMissing, kindUndefined:
		return "", nil
	case kindFloat:
		if m.mini() {
			text := string(appendRustDecimal(nil, v.float()))
			return text, m.allocate(len(text))
		}
	}
	start := len(m.out)
	if err := m.appendStr(v); err != nil {
		return "", err
	}
	s, err := m.capture(start)
	return s.str(), err
}

func (m *machine) appendStr(v Value) error {
	switch v.kind {
	case kindString:
		m.out = append(m.out, v.str()...)
		return nil
	case kindMissing, kindUndefined:
		return nil
	case kindList, kindTuple, kindDict, kindIterator, kindView, kindRange:
		if m.mini() {
			return m.appendDebug(v, 0)
		}
	}
	return m.appendRepr(v, 0)
}

// visit is what printing begins with at each value, whatever the form: a value may be nested deeply, have many parts or share
// them.
func (m *machine) visit(depth int) error {
	if depth > maxValueDepth {
		return recursionError()
	}
	if err := m.spend(1); err != nil {
		return err
	}
	return m.checkOutput()
}

// appendRepr appends Python's repr(v) to the output. Its length is checked as it grows, since a value may share its parts
// and print far larger than it is.
func (m *machine) appendRepr(v Value, depth int) error {
	if err := m.visit(depth); err != nil {
		return err
	}
	switch v.kind {
	case kindMissing, kindUndefined:
		m.out = append(m.out, "Undefined"...)
	case kindNone:
		m.out = append(m.out, "None"...)
	case kindBool:
		if v.num != 0 {
			m.out = append(m.out, "True"...)
		} else {
			m.out = append(m.out, "False"...)
		}
	case kindInt:
		if v.ref == nil {
			m.out = strconv.AppendInt(m.out, v.num, 10)
			return nil
		}
		s, err := printInt(v)
		m.out = append(m.out, s...)
		return err
	case kindFloat:
		m.out = appendFloat(m.out, v.float())
	case kindString:
		if err := m.spendScan(int(v.num)); err != nil {
			return err
		}
		if v.safe {
			m.out = append(m.out, "Markup("...)
			m.out = append(appendQuoted(m.out, v.str()), ')')
		} else {
			m.out = appendQuoted(m.out, v.str())
		}
	case kindList:
		return m.appendItems("[", v.items(), "]", depth)
	case kindTuple:
		if len(v.items()) == 1 {
			return m.appendItems("(", v.items(), ",)", depth)
		}
		return m.appendItems("(", v.items(), ")", depth)
	case kindDict:
		return m.appendDict(v.dict(), depth)
	case kindNamespace:
		m.out = append(m.out, "<Namespace "...)
		if err := m.appendDict(&(*namespace)(v.ref).attrs, depth); err != nil {
			return err
		}
		m.out = append(m.out, '>')
	case kindView:
		return m.appendView((*dictView)(v.ref), depth)
	case kindRange:
		r := (*rangeValue)(v.ref)
		m.out = fmt.Appendf(m.out, "range(%d, %d", r.start, r.stop)
		if r.step != 1 {
			m.out = fmt.Appendf(m.out, ", %d", r.step)
		}
		m.out = append(m.out, ')')
	case kindMacro:
		name := (*macro)(v.ref).def.name
		if name == "" {
			m.out = append(m.out, "<Macro anonymous>"...)
		} else {
			m.out = append(appendQuoted(append(m.out, "<Macro "...), name), '>')
		}
	case kindLoop:
		l := (*loopContext)(v.ref)
		n, err := l.len(m)
		m.out = fmt.Appendf(m.out, "<LoopContext %d/%d>", l.index0+1, n)
		return err
	case kindFunction:
		m.out = append(append(append(m.out, "<function "...), (*function)(v.ref).name...), '>')
	default:
		m.out = append(append(append(m.out, '<'), v.typeName()...), " object>"...)
	}
	return nil
}

func (m *machine) appendItems(open string, items []Value, close string, depth int) error {
	m.out = append(m.out, open...)
	for i, item := range items {
		if i > 0 {
			m.out = append(m.out, ", "...)
		}
		if err := m.appendRepr(item, depth+1); err != nil {
			return err
		}
	}
	m.out = append(m.out, close...)
	return nil
}

func (m *machine) appendDict(d *dict, depth int) error {
	m.out = append(m.out, '{')
	for i := range d.entries {
		if i > 0 {
			m.out = append(m.out, ", "...)
		}
		if err := m.appendRepr(d.entries[i].Key, depth+1); err != nil {
			return err
		}
		m.out = append(m.out, ": "...)
		if err := m.appendRepr(d.entries[i].Value, depth+1); err != nil {
			return err
		}
	}
	m.out = append(m.out, '}')
	return nil
}

func (m *machine) appendView(view *dictView, depth int) error {
	m.out = append(append(m.out, view.typeName()...), "(["...)
	for i, e := range view.of.entries {
		if i > 0 {
			m.out = append(m.out, ", "...)
		}
		var err error
		switch view.part {
		case fromKeys:
			err = m.appendRepr(e.Key, depth+1)
		case fromValues:
			err = m.appendRepr(e.Value, depth+1)
		default:
			err = m.appendItems("(", []Value{e.Key, e.Value}, ")", depth+1)
		}
		if err != nil {
			return err
		}
	}
	m.out = append(m.out, "])"...)
	return nil
}

// appendQuoted is Python's repr() of a string.
func appendQuoted(b []byte, s string) []byte {
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	b = append(b, quote)
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == quote || c == '\\':
				b = append(b, '\\', c)
			case c == '\n':
				b = append(b, '\\', 'n')
			case c == '\r':
				b = append(b, '\\', 'r')
			case c == '\t':
				b = append(b, '\\', 't')
			case c < ' ' || c == 0x7f:
				b = fmt.Appendf(b, `\x%02x`, c)
			default:
				b = append(b, c)
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case isPrintable(r):
			b = append(b, s[i:i+size]...)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
		i += size
	}
	return append(b, quote)
}

// isPrintable is Python's str.isprintable() of one character.
func isPrintable(r rune) bool { return r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Z, r) }
