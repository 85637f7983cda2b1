package chattemplate

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonStyle is how tojson writes.
type jsonStyle struct {
	ascii     bool
	indented  bool
	indent    string
	item, key string // separators
	sortKeys  bool
	lenient   bool // undefined values and iterators are accepted
	short     bool // exponents have neither plus signs nor leading zeros
}

var tojsonParams = params{fn: "tojson", names: []string{"ensure_ascii", "indent", "separators", "sort_keys"}}

// filterToJSON is json.dumps with ensure_ascii off, as transformers defines the filter.
func filterToJSON(m *machine, v Value, args arguments) (Value, error) {
	style := jsonStyle{item: ", ", key: ": "}
	if m.mini() {
		return m.miniJSON(v, args, &style)
	}
	if len(args.positional)+len(args.names) > 0 {
		var given [4]Value
		if err := tojsonParams.bind(args, given[:]); err != nil {
			return v, err
		}
		if err := style.set(m, given); err != nil {
			return v, err
		}
	}
	start := len(m.out)
	if err := m.appendJSON(v, &style, 0); err != nil {
		return v, err
	}
	return m.capture(start)
}

// miniJSON is MiniJinja's tojson.
func (m *machine) miniJSON(v Value, args arguments, style *jsonStyle) (Value, error) {
	style.lenient = true
	for i, name := range args.names {
		if name == "indent" {
			if err := style.set(m, [4]Value{1: args.named[i]}); err != nil {
				return v, err
			}
		}
	}
	start := len(m.out)
	if err := m.appendJSON(v, style, 0); err != nil {
		return v, err
	}
	text, err := m.capture(start)
	text.done = true
	return text, err
}

func (s *jsonStyle) set(m *machine, given [4]Value) error {
	s.ascii = given[0].Truthy()
	switch indent := given[1]; {
	case indent.kind == kindMissing || indent.kind == kindNone:
	case indent.isSmall():
		s.indented, s.item = true, ","
		if err := m.allocate(int(max(indent.num, 0))); err != nil {
			return err
		}
		s.indent = strings.Repeat(" ", int(max(indent.num, 0)))
	case indent.kind == kindString:
		s.indented, s.item, s.indent = true, ",", indent.str()
	default:
		return typeError("can't use '%s' as an indent", indent.typeName())
	}
	if sep := given[2]; sep.kind != kindMissing && sep.kind != kindNone {
		pair, err := m.list(sep)
		if err != nil {
			return err
		}
		if len(pair) != 2 || pair[0].kind != kindString || pair[1].kind != kindString {
			return valueError("separators must be a pair of strings")
		}
		s.item, s.key = pair[0].str(), pair[1].str()
	}
	s.sortKeys = given[3].Truthy()
	return nil
}

func (m *machine) appendJSON(v Value, s *jsonStyle, depth int) error {
	if err := m.visit(depth); err != nil {
		return err
	}
	switch v.kind {
	case kindNone:
		m.out = append(m.out, "null"...)
	case kindBool:
		m.out = strconv.AppendBool(m.out, v.num != 0)
	case kindInt:
		if v.ref == nil {
			m.out = strconv.AppendInt(m.out, v.num, 10)
			return nil
		}
		text, err := printInt(v)
		m.out = append(m.out, text...)
		return err
	case kindFloat:
		if s.short {
			m.out = appendShortFloat(m.out, v.float())
			return nil
		}
		m.out = appendJSONFloat(m.out, v.float())
	case kindString:
		if err := m.spendScan(int(v.num)); err != nil {
			return err
		}
		m.out = appendJSONString(m.out, v.str(), s.ascii)
	case kindList, kindTuple:
		return m.appendJSONList(v.items(), s, depth)
	case kindDict:
		return m.appendJSONDict(v.dict(), s, depth)
	default:
		if s.lenient {
			return m.appendLenientJSON(v, s, depth)
		}
		return typeError("Object of type %s is not JSON serializable", v.typeName())
	}
	return nil
}

// appendLenientJSON writes what Python's json refuses.
func (m *machine) appendLenientJSON(v Value, s *jsonStyle, depth int) error {
	switch v.kind {
	case kindMissing, kindUndefined:
		m.out = append(m.out, "null"...)
		return nil
	case kindIterator, kindView, kindRange:
		items, err := m.list(v)
		if err != nil {
			return err
		}
		return m.appendJSONList(items, s, depth)
	}
	return typeError("Object of type %s is not JSON serializable", v.typeName())
}

func (m *machine) newline(s *jsonStyle, depth int) error {
	if !s.indented {
		return nil
	}
	m.out = append(m.out, '\n')
	for i := 0; i < depth; i++ {
		m.out = append(m.out, s.indent...)
		if err := m.checkOutput(); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) appendJSONList(items []Value, s *jsonStyle, depth int) error {
	if len(items) == 0 {
		m.out = append(m.out, "[]"...)
		return nil
	}
	m.out = append(m.out, '[')
	for i, item := range items {
		if i > 0 {
			m.out = append(m.out, s.item...)
		}
		if err := m.newline(s, depth+1); err != nil {
			return err
		}
		if err := m.appendJSON(item, s, depth+1); err != nil {
			return err
		}
	}
	if err := m.newline(s, depth); err != nil {
		return err
	}
	m.out = append(m.out, ']')
	return nil
}

func (m *machine) appendJSONDict(d *dict, s *jsonStyle, depth int) error {
	entries := d.entries
	if len(entries) == 0 {
		m.out = append(m.out, "{}"...)
		return nil
	}
	if s.sortKeys {
		var err error
		if entries, err = m.sortedEntries(entries); err != nil {
			return err
		}
	}
	m.out = append(m.out, '{')
	for i := range entries {
		if i > 0 {
			m.out = append(m.out, s.item...)
		}
		if err := m.newline(s, depth+1); err != nil {
			return err
		}
		key, err := jsonKey(entries[i].Key)
		if err != nil {
			return err
		}
		m.out = appendJSONString(m.out, key, s.ascii)
		m.out = append(m.out, s.key...)
		if err := m.appendJSON(entries[i].Value, s, depth+1); err != nil {
			return err
		}
	}
	if err := m.newline(s, depth); err != nil {
		return err
	}
	m.out = append(m.out, '}')
	return nil
}

func (m *machine) sortedEntries(entries []Entry) ([]Entry, error) {
	if err := m.allocate(len(entries) * entryBytes); err != nil {
		return nil, err
	}
	sorted := append([]Entry(nil), entries...)
	var failed error
	sort.SliceStable(sorted, func(i, j int) bool {
		less, err := m.compare(opLt, sorted[i].Key, sorted[j].Key)
		if err != nil && failed == nil {
			failed = err
		}
		return less
	})
	return sorted, failed
}

func jsonKey(key Value) (string, error) {
	switch key.kind {
	case kindString:
		return key.str(), nil
	case kindNone:
		return "null", nil
	case kindBool:
		return strconv.FormatBool(key.num != 0), nil
	case kindInt:
		return printInt(key)
	case kindFloat:
		return string(appendJSONFloat(nil, key.float())), nil
	}
	return "", typeError("keys must be str, int, float, bool or None, not %s", key.typeName())
}

func appendJSONFloat(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	case math.IsNaN(f):
		return append(b, "NaN"...)
	}
	return appendFloat(b, f)
}

// appendJSONString quotes a string as json.dumps does.
func appendJSONString(b []byte, s string, ascii bool) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf && !(c == 0x7f && ascii) {
			i++
			continue
		}
		if c >= utf8.RuneSelf && !ascii {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c == '\n':
			b = append(b, '\\', 'n')
			i++
		case c == '\r':
			b = append(b, '\\', 'r')
			i++
		case c == '\t':
			b = append(b, '\\', 't')
			i++
		case c == '\b':
			b = append(b, '\\', 'b')
			i++
		case c == '\f':
			b = append(b, '\\', 'f')
			i++
		case c < utf8.RuneSelf:
			b = fmt.Appendf(b, `\u%04x`, c)
			i++
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			if r >= 0x10000 {
				r -= 0x10000
				b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			} else {
				b = fmt.Appendf(b, `\u%04x`, r)
			}
			i += size
		}
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// JSON returns v as Python's json.dumps writes it with ensure_ascii off.
func (v Value) JSON() (string, error) {
	m := &machine{template: &Template{}, limits: Limits{}.withDefaults()}
	m.steps, m.allocated = m.limits.Steps, m.limits.AllocatedBytes
	if err := m.appendJSON(v, &jsonStyle{item: ", ", key: ": "}, 0); err != nil {
		return "", err
	}
	return string(m.out), nil
}

// SortedJSON returns v as JSON without spaces, the members of objects in the order of their names, and exponents as [Value.ShortJSON]
// writes them.
func (v Value) SortedJSON() (string, error) {
	m := &machine{template: &Template{}, limits: Limits{}.withDefaults()}
	m.steps, m.allocated = m.limits.Steps, m.limits.AllocatedBytes
	if err := m.appendJSON(v, &jsonStyle{item: ",", key: ":", sortKeys: true, short: true}, 0); err != nil {
		return "", err
	}
	return string(m.out), nil
}

// ShortJSON is JSON with exponents as 1e-7 instead of 1e-07.
func (v Value) ShortJSON() (string, error) {
	m := &machine{template: &Template{}, limits: Limits{}.withDefaults()}
	m.steps, m.allocated = m.limits.Steps, m.limits.AllocatedBytes
	if err := m.appendJSON(v, &jsonStyle{item: ", ", key: ": ", short: true}, 0); err != nil {
		return "", err
	}
	return string(m.out), nil
}

func appendShortFloat(b []byte, f float64) []byte {
	if a := math.Abs(f); math.IsNaN(f) || a != 0 && a < 1e-5 || a >= 1e16 {
		text := strconv.FormatFloat(f, 'e', -1, 64)
		return append(b, strings.NewReplacer("e-0", "e-", "e+0", "e+").Replace(text)...)
	}
	return appendDecimal(b, f)
}
