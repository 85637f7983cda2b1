// Package jsontape reads one JSON text into a flat list of nodes that point back into the text. A request body is parsed
// once, by one pass over its bytes; whoever needs a part afterwards (a template, a schema for a worker, an echo in the
// response) takes its bytes from the body, so that key order and number spelling survive and a long prompt is never copied.
package jsontape

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

const (
	// MaxDepth bounds the nesting of arrays and objects.
	MaxDepth = 128
	// MaxMembers bounds the members of one object: more than any vocabulary has tokens, for biases.
	MaxMembers = 1 << 19
	// MaxValues bounds the values and keys of a text; each takes 20 bytes of memory, whatever it takes in the text.
	MaxValues = 1 << 24
)

// Kind is the type of a JSON value.
type Kind uint8

const (
	Invalid Kind = iota // the zero Node: a member that is not there
	Null
	False
	True
	Number
	String
	Array
	Object
)

// String names the kind the way parser messages do.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case False, True:
		return "boolean"
	case Number:
		return "number"
	case String:
		return "string"
	case Array:
		return "sequence"
	case Object:
		return "map"
	}
	return "nothing"
}

type entry struct {
	kind     Kind
	escaped  bool   // a string with a backslash
	start    uint32 // of the value's text
	end      uint32
	next     uint32 // index of the entry after this value
	children uint32 // number of members or elements
}

// Document is a parsed text. It is immutable and may be shared.
type Document struct {
	text    []byte
	entries []entry
}

// Node is one value of a Document; the zero Node is an absent value.
type Node struct {
	document *Document
	index    uint32
}

// SyntaxError tells what is wrong and where; Line and Column count from 1, in bytes.
type SyntaxError struct {
	Message string
	// Field is the member of the outermost object whose value cannot be read, or that is there twice; "" for a mistake
	// elsewhere.
	Field        string
	Offset       int
	Line, Column int
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at line %d column %d", e.Message, e.Line, e.Column)
}

// Parse reads exactly one JSON value; white space may surround it. Duplicate keys, invalid UTF-8, raw control characters in
// strings and unpaired surrogate escapes are errors. The text must not change while the Document is in use.
func Parse(text []byte) (*Document, error) { return parse(text, MaxMembers, MaxValues) }

// ParseRepeating is Parse for texts whose objects may have a key several times, as those may that a model wrote.
func ParseRepeating(text []byte) (*Document, error) {
	return (&parser{text: text, member: -1, maxMembers: MaxMembers, maxValues: MaxValues, repeating: true}).parse()
}

func parse(text []byte, members, values int) (*Document, error) {
	return (&parser{text: text, member: -1, maxMembers: members, maxValues: values}).parse()
}

func (p *parser) parse() (*Document, error) {
	text := p.text
	if len(text) > math.MaxInt32 {
		return nil, &SyntaxError{Message: "text is longer than 2 GiB", Line: 1, Column: 1}
	}
	p.entries = make([]entry, 0, 32+len(text)/64)
	p.space()
	if err := p.value(0); err != nil {
		return nil, err
	}
	p.space()
	if p.at != len(text) {
		return nil, p.fail("trailing characters")
	}
	return &Document{text: text, entries: p.entries}, nil
}

// ParseLenient is Parse with two repairs tried on a text that fails: raw control characters inside strings are escaped and
// invalid UTF-8 is replaced by U+FFFD. The error is that of the first try.
func ParseLenient(text []byte) (*Document, error) {
	document, err := Parse(text)
	if err == nil {
		return document, nil
	}
	repaired, changed := repair(text)
	if !changed {
		return nil, err
	}
	if document, again := Parse(repaired); again == nil {
		return document, nil
	}
	return nil, err
}

func repair(text []byte) ([]byte, bool) {
	changed := false
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
		changed = true
	}
	out := make([]byte, 0, len(text)+16)
	inString, escaped := false, false
	for _, c := range text {
		switch {
		case !inString:
			inString = c == '"'
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			inString = false
		case c < 0x20:
			out = fmt.Appendf(out, `\u%04x`, c)
			changed = true
			continue
		}
		out = append(out, c)
	}
	return out, changed
}

type parser struct {
	text    []byte
	at      int
	entries []entry
	member  int // the entry of the outermost object's key whose value is being read; -1 for none

	maxMembers, maxValues int
	repeating             bool // an object may have a key several times
}

func (p *parser) fail(message string) error { return p.failAt(message, p.at) }

func (p *parser) failAt(message string, offset int) error {
	line, column := Position(p.text, offset)
	e := &SyntaxError{Message: message, Offset: offset, Line: line, Column: column}
	if p.member >= 0 {
		document := Document{text: p.text, entries: p.entries}
		e.Field = string(document.stringBytes(p.member))
	}
	return e
}

// Position converts a byte offset into a line and a column, both from 1.
func Position(text []byte, offset int) (line, column int) {
	offset = min(offset, len(text))
	line = 1 + bytes.Count(text[:offset], []byte{'\n'})
	column = offset - bytes.LastIndexByte(text[:offset], '\n')
	return line, column
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) value(depth int) error {
	if p.at >= len(p.text) {
		return p.fail("EOF while parsing a value")
	}
	start := p.at
	index := len(p.entries)
	if index >= p.maxValues {
		return p.fail("too many values")
	}
	p.entries = append(p.entries, entry{start: uint32(start)})
	kind, children := Invalid, 0
	var err error
	switch c := p.text[p.at]; c {
	case '{':
		kind = Object
		children, err = p.object(depth + 1)
	case '[':
		kind = Array
		children, err = p.array(depth + 1)
	case '"':
		kind = String
		var escaped bool
		escaped, err = p.stringText()
		p.entries[index].escaped = escaped
	case 't':
		kind, err = True, p.literal("true")
	case 'f':
		kind, err = False, p.literal("false")
	case 'n':
		kind, err = Null, p.literal("null")
	default:
		if c != '-' && (c < '0' || c > '9') {
			return p.fail("expected value")
		}
		kind, err = Number, p.number()
	}
	if err != nil {
		return err
	}
	e := &p.entries[index]
	e.kind, e.end, e.next, e.children = kind, uint32(p.at), uint32(len(p.entries)), uint32(children)
	return nil
}

func (p *parser) literal(word string) error {
	if !bytes.HasPrefix(p.text[p.at:], []byte(word)) {
		return p.fail("expected ident")
	}
	p.at += len(word)
	return nil
}

func (p *parser) digits() bool {
	start := p.at
	for p.at < len(p.text) && p.text[p.at]-'0' <= 9 {
		p.at++
	}
	return p.at > start
}

// number passes over a number. One that is too large for a float64 is refused here: no reader could make anything of it.
func (p *parser) number() error {
	start := p.at
	if err := p.digitsAndSigns(); err != nil {
		return err
	}
	const unsuspicious = 19 // characters without an exponent: far from the largest float64
	text := p.text[start:p.at]
	if len(text) <= unsuspicious && bytes.IndexByte(text, 'e') < 0 && bytes.IndexByte(text, 'E') < 0 {
		return nil
	}
	if value, _ := strconv.ParseFloat(string(text), 64); math.IsInf(value, 0) {
		return p.fail("number out of range")
	}
	return nil
}

func (p *parser) digitsAndSigns() error {
	if p.text[p.at] == '-' {
		p.at++
	}
	if p.at < len(p.text) && p.text[p.at] == '0' {
		p.at++
	} else if !p.digits() {
		return p.fail("invalid number")
	}
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		if !p.digits() {
			return p.fail("invalid number")
		}
	}
	if p.at < len(p.text) && p.text[p.at]|0x20 == 'e' {
		p.at++
		if p.at < len(p.text) && (p.text[p.at] == '+' || p.text[p.at] == '-') {
			p.at++
		}
		if !p.digits() {
			return p.fail("invalid number")
		}
	}
	return nil
}

// plain marks the bytes that stand for themselves inside a string.
var plain = func() (table [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// stringText passes over a string, its quotes included, and tells whether it holds escapes.
func (p *parser) stringText() (escaped bool, err error) {
	p.at++
	for {
		for p.at < len(p.text) && plain[p.text[p.at]] {
			p.at++
		}
		if p.at >= len(p.text) {
			break
		}
		c := p.text[p.at]
		switch {
		case c == '"':
			p.at++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := p.escape(); err != nil {
				return false, err
			}
		case c < 0x20:
			return false, p.fail("control character (\\u0000-\\u001F) found while parsing a string")
		default:
			r, size := utf8.DecodeRune(p.text[p.at:])
			if r == utf8.RuneError && size == 1 {
				return false, p.fail("invalid unicode code point")
			}
			p.at += size
		}
	}
	return false, p.fail("EOF while parsing a string")
}

func (p *parser) escape() error {
	start := p.at
	p.at++
	if p.at >= len(p.text) {
		return p.fail("EOF while parsing a string")
	}
	switch p.text[p.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		p.at++
		return nil
	case 'u':
		r, ok := hex4(p.text[p.at+1:])
		if !ok {
			return p.fail("invalid escape")
		}
		p.at += 5
		switch {
		case r >= 0xDC00 && r <= 0xDFFF:
			return p.failAt("lone trailing surrogate in hex escape", start)
		case r >= 0xD800 && r <= 0xDBFF:
			if p.at+6 <= len(p.text) && p.text[p.at] == '\\' && p.text[p.at+1] == 'u' {
				if low, ok := hex4(p.text[p.at+2:]); ok && low >= 0xDC00 && low <= 0xDFFF {
					p.at += 6
					return nil
				}
			}
			return p.failAt("lone leading surrogate in hex escape", start)
		}
		return nil
	}
	return p.fail("invalid escape")
}

func hex4(text []byte) (rune, bool) {
	if len(text) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range text[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func (p *parser) array(depth int) (count int, err error) {
	if depth > MaxDepth {
		return 0, p.fail("recursion limit exceeded")
	}
	p.at++
	p.space()
	if p.at < len(p.text) && p.text[p.at] == ']' {
		p.at++
		return 0, nil
	}
	for {
		p.space()
		if err := p.value(depth); err != nil {
			return 0, err
		}
		count++
		p.space()
		if p.at >= len(p.text) {
			return 0, p.fail("EOF while parsing a list")
		}
		switch p.text[p.at] {
		case ',':
			p.at++
		case ']':
			p.at++
			return count, nil
		default:
			return 0, p.fail("expected `,` or `]`")
		}
	}
}

func (p *parser) object(depth int) (count int, err error) {
	if depth > MaxDepth {
		return 0, p.fail("recursion limit exceeded")
	}
	first := len(p.entries)
	p.at++
	p.space()
	if p.at < len(p.text) && p.text[p.at] == '}' {
		p.at++
		return 0, nil
	}
	var seen map[string]struct{}
	for {
		p.space()
		if p.at >= len(p.text) {
			return 0, p.fail("EOF while parsing an object")
		}
		if p.text[p.at] != '"' {
			return 0, p.fail("key must be a string")
		}
		keyIndex := len(p.entries)
		if count >= p.maxMembers || keyIndex >= p.maxValues {
			return 0, p.fail("too many members")
		}
		p.entries = append(p.entries, entry{kind: String, start: uint32(p.at)})
		escaped, err := p.stringText()
		if err != nil {
			return 0, err
		}
		p.entries[keyIndex].escaped = escaped
		p.entries[keyIndex].end = uint32(p.at)
		p.entries[keyIndex].next = uint32(keyIndex + 1)
		count++
		if duplicate, twice := p.duplicateKey(first, keyIndex, count, &seen); twice && !p.repeating {
			if depth == 1 {
				p.member = keyIndex
			}
			return 0, p.fail("duplicate field `" + duplicate + "`")
		}
		p.space()
		if p.at >= len(p.text) || p.text[p.at] != ':' {
			return 0, p.fail("expected `:`")
		}
		p.at++
		p.space()
		if depth == 1 {
			p.member = keyIndex
		}
		if err := p.value(depth); err != nil {
			return 0, err
		}
		if depth == 1 {
			p.member = -1
		}
		p.space()
		if p.at >= len(p.text) {
			return 0, p.fail("EOF while parsing an object")
		}
		switch p.text[p.at] {
		case ',':
			p.at++
		case '}':
			p.at++
			return count, nil
		default:
			return 0, p.fail("expected `,` or `}`")
		}
	}
}

// duplicateKey compares the newest key with those before it: by a scan while there are few, by a set from then on.
func (p *parser) duplicateKey(first, keyIndex, count int, seen *map[string]struct{}) (string, bool) {
	const few = 24
	document := Document{text: p.text, entries: p.entries}
	key := document.stringBytes(keyIndex)
	if count <= few {
		for i := first; i < keyIndex; i = int(p.entries[i+1].next) {
			if bytes.Equal(document.stringBytes(i), key) {
				return string(key), true
			}
		}
		return "", false
	}
	if *seen == nil {
		*seen = make(map[string]struct{}, 2*few)
		for i := first; i < keyIndex; i = int(p.entries[i+1].next) {
			(*seen)[string(document.stringBytes(i))] = struct{}{}
		}
	}
	if _, ok := (*seen)[string(key)]; ok {
		return string(key), true
	}
	(*seen)[string(key)] = struct{}{}
	return "", false
}

// stringBytes returns the content of the string entry, without copying where it holds no escapes.
func (d *Document) stringBytes(index int) []byte {
	e := &d.entries[index]
	content := d.text[e.start+1 : e.end-1]
	if !e.escaped {
		return content
	}
	return unescape(make([]byte, 0, len(content)), content)
}

func unescape(dst, content []byte) []byte {
	for i := 0; i < len(content); {
		next := bytes.IndexByte(content[i:], '\\')
		if next < 0 {
			return append(dst, content[i:]...)
		}
		dst = append(dst, content[i:i+next]...)
		i += next + 1
		c := content[i]
		i++
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(content[i:])
			i += 4
			if r >= 0xD800 && r <= 0xDBFF {
				low, _ := hex4(content[i+2:])
				i += 6
				r = 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
