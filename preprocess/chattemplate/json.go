package chattemplate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// ParseJSON reads one JSON value. Keys keep their order (of equal keys the last value counts, at the place of the first),
// integers of any size stay integers, and numbers with a fraction or an exponent become floats, as with Python's json.loads. The bytes are
// copied once; strings without escapes point into that copy.
//
// It fails on invalid UTF-8, on values nested deeper than 1000 and on integers of more than 4300 digits.
func ParseJSON(data []byte) (Value, error) { return ParseJSONString(string(data)) }

// ParseJSONString is ParseJSON for a text; the value's strings point into it.
func ParseJSONString(text string) (Value, error) { return parseJSON(jsonParser{text: text}) }

// ParseJSON64 is ParseJSONString with numbers as programs read them that know none of more than 64 bits: integers that fit, with or
// without a sign, stay integers; longer ones and -0 become floats, and a number beyond the range of floats is an error.
func ParseJSON64(text string) (Value, error) { return parseJSON(jsonParser{text: text, limited: true}) }

func parseJSON(p jsonParser) (Value, error) {
	text := p.text
	if !utf8.ValidString(text) {
		return Value{}, errors.New("JSON: invalid UTF-8")
	}
	p.space()
	v, err := p.value(0)
	if err != nil {
		return Value{}, err
	}
	p.space()
	if p.pos < len(text) {
		return Value{}, p.fail("end of text")
	}
	return v, nil
}

type jsonParser struct {
	text    string
	pos     int
	limited bool    // numbers have 64 bits
	values  []Value // elements of the arrays that are open
	entries []Entry // and entries of the objects

	valueChunk []Value // room from which finished arrays get their storage
	entryChunk []Entry
	lists      []list
	dicts      []dict
}

// chunkSize is how many values, entries or containers are allocated at once.
const chunkSize = 32

func (p *jsonParser) fail(expected string) error {
	if p.pos >= len(p.text) {
		return fmt.Errorf("JSON: text ends at byte %d, expected %s", p.pos, expected)
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	return fmt.Errorf("JSON: unexpected %q at byte %d, expected %s", r, p.pos, expected)
}

func (p *jsonParser) space() {
	for p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *jsonParser) value(depth int) (Value, error) {
	if depth > maxValueDepth {
		return Value{}, fmt.Errorf("JSON: nested deeper than %d at byte %d", maxValueDepth, p.pos)
	}
	if p.pos >= len(p.text) {
		return Value{}, p.fail("a value")
	}
	switch c := p.text[p.pos]; c {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case '"':
		s, err := p.string()
		return String(s), err
	case 't':
		return True, p.literal("true")
	case 'f':
		return False, p.literal("false")
	case 'n':
		return None, p.literal("null")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return p.number()
		}
	}
	return Value{}, p.fail("a value")
}

func (p *jsonParser) literal(word string) error {
	if len(p.text)-p.pos < len(word) || p.text[p.pos:p.pos+len(word)] != word {
		return p.fail(word)
	}
	p.pos += len(word)
	return nil
}

func (p *jsonParser) array(depth int) (Value, error) {
	p.pos++
	base := len(p.values)
	p.space()
	if p.pos < len(p.text) && p.text[p.pos] == ']' {
		p.pos++
		return p.newList(nil), nil
	}
	for {
		p.space()
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		p.values = append(p.values, v)
		p.space()
		if p.pos >= len(p.text) {
			return Value{}, p.fail("',' or ']'")
		}
		switch p.text[p.pos] {
		case ',':
			p.pos++
		case ']':
			p.pos++
			items := p.takeValues(p.values[base:])
			p.values = p.values[:base]
			return p.newList(items), nil
		default:
			return Value{}, p.fail("',' or ']'")
		}
	}
}

func (p *jsonParser) object(depth int) (Value, error) {
	p.pos++
	base := len(p.entries)
	p.space()
	if p.pos < len(p.text) && p.text[p.pos] == '}' {
		p.pos++
		return p.newDict(nil), nil
	}
	for {
		p.space()
		if p.pos >= len(p.text) || p.text[p.pos] != '"' {
			return Value{}, p.fail("a key")
		}
		key, err := p.string()
		if err != nil {
			return Value{}, err
		}
		p.space()
		if p.pos >= len(p.text) || p.text[p.pos] != ':' {
			return Value{}, p.fail("':'")
		}
		p.pos++
		p.space()
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		p.entries = append(p.entries, Entry{String(key), v})
		p.space()
		if p.pos >= len(p.text) {
			return Value{}, p.fail("',' or '}'")
		}
		switch p.text[p.pos] {
		case ',':
			p.pos++
		case '}':
			p.pos++
			d := p.newDict(p.entries[base:])
			p.entries = p.entries[:base]
			return d, nil
		default:
			return Value{}, p.fail("',' or '}'")
		}
	}
}

// newDict makes a dict of entries that still belong to the scratch space.
func (p *jsonParser) newDict(entries []Entry) Value {
	if len(p.dicts) == 0 {
		p.dicts = make([]dict, chunkSize)
	}
	d := &p.dicts[0]
	p.dicts = p.dicts[1:]
	if len(entries) >= indexFrom {
		d.entries = make([]Entry, 0, len(entries))
		for _, e := range entries {
			d.setString(e.Key, e.Value)
		}
		return dictValue(d)
	}
	if cap(p.entryChunk)-len(p.entryChunk) < len(entries) {
		p.entryChunk = make([]Entry, 0, chunkSize)
	}
	start := len(p.entryChunk)
	d.entries = p.entryChunk[start:start]
	for _, e := range entries {
		d.setString(e.Key, e.Value)
	}
	n := len(d.entries)
	p.entryChunk = p.entryChunk[:start+n]
	d.entries = d.entries[:n:n]
	return dictValue(d)
}

func (p *jsonParser) newList(items []Value) Value {
	if len(p.lists) == 0 {
		p.lists = make([]list, chunkSize)
	}
	l := &p.lists[0]
	p.lists = p.lists[1:]
	l.items = items
	return Value{kind: kindList, ref: unsafe.Pointer(l)}
}

func (p *jsonParser) takeValues(from []Value) []Value {
	n := len(from)
	if n > chunkSize/2 {
		return append(make([]Value, 0, n), from...)
	}
	if cap(p.valueChunk)-len(p.valueChunk) < n {
		p.valueChunk = make([]Value, 0, chunkSize)
	}
	start := len(p.valueChunk)
	p.valueChunk = append(p.valueChunk, from...)
	return p.valueChunk[start : start+n : start+n]
}

func (p *jsonParser) number() (Value, error) {
	start := p.pos
	integer := true
	if p.text[p.pos] == '-' {
		p.pos++
	}
	switch {
	case p.pos < len(p.text) && p.text[p.pos] == '0':
		p.pos++
	case p.digits() == 0:
		return Value{}, p.fail("a digit")
	}
	if p.pos < len(p.text) && p.text[p.pos] == '.' {
		integer = false
		p.pos++
		if p.digits() == 0 {
			return Value{}, p.fail("a digit")
		}
	}
	if p.pos < len(p.text) && (p.text[p.pos] == 'e' || p.text[p.pos] == 'E') {
		integer = false
		p.pos++
		if p.pos < len(p.text) && (p.text[p.pos] == '+' || p.text[p.pos] == '-') {
			p.pos++
		}
		if p.digits() == 0 {
			return Value{}, p.fail("a digit")
		}
	}
	text := p.text[start:p.pos]
	if p.limited && integer && isBeyond64(text) {
		integer = false
	}
	if !integer {
		f, _ := strconv.ParseFloat(text, 64) // beyond the range: infinity, as in Python
		if p.limited && math.IsInf(f, 0) {
			return Value{}, fmt.Errorf("JSON: number out of range at byte %d", start)
		}
		return Float(f), nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return Int(i), nil
	}
	if len(text) > maxIntDigits+1 {
		return Value{}, fmt.Errorf("JSON: integer of %d digits at byte %d, at most %d are read", len(text), start, maxIntDigits)
	}
	i, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return Value{}, fmt.Errorf("JSON: invalid integer %q at byte %d", text, start)
	}
	return BigInt(i), nil
}

// isBeyond64 tells whether an integer has no place in 64 bits, or is -0.
func isBeyond64(text string) bool {
	const digits = 19 // which some of the least integers have that do not fit
	if len(text) < digits {
		return text == "-0"
	}
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		return false
	}
	_, err := strconv.ParseInt(text, 10, 64)
	return err != nil
}

// digits skips digits and returns their number.
func (p *jsonParser) digits() int {
	start := p.pos
	for p.pos < len(p.text) && p.text[p.pos] >= '0' && p.text[p.pos] <= '9' {
		p.pos++
	}
	return p.pos - start
}

func (p *jsonParser) string() (string, error) {
	start := p.pos + 1
	p.pos = plainEnd(p.text, start)
	if p.pos < len(p.text) {
		switch p.text[p.pos] {
		case '"':
			p.pos++
			return p.text[start : p.pos-1], nil
		case '\\':
			return p.escapedString(start)
		}
		return "", p.fail("no control character in a string")
	}
	return "", p.fail("'\"'")
}

// plainEnd returns the place of the first quote, backslash or control character at or after pos, or the length of the text. It
// looks at eight bytes at a time: prompts are long.
func plainEnd(text string, pos int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for ; pos+8 <= len(text); pos += 8 {
		// The lowest byte that any of the tests marks is one that they are right about.
		w := binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(text[pos:]), 8))
		quote, slash := w^('"'*ones), w^('\\'*ones)
		found := ((quote-ones)&^quote | (slash-ones)&^slash | (w-' '*ones)&^w) & highs
		if found != 0 {
			return pos + bits.TrailingZeros64(found)/8
		}
	}
	for ; pos < len(text); pos++ {
		if c := text[pos]; c == '"' || c == '\\' || c < ' ' {
			return pos
		}
	}
	return pos
}

// escapedString goes on with a string that began at start, from its first backslash.
func (p *jsonParser) escapedString(start int) (string, error) {
	b := append(make([]byte, 0, p.quoteAfter(p.pos)-start), p.text[start:p.pos]...)
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '"':
			p.pos++
			return unsafe.String(unsafe.SliceData(b), len(b)), nil
		case c == '\\':
			p.pos++
			if p.pos >= len(p.text) {
				return "", p.fail("an escape")
			}
			esc := p.text[p.pos]
			p.pos++
			switch esc {
			case '"', '\\', '/':
				b = append(b, esc)
			case 'b':
				b = append(b, '\b')
			case 'f':
				b = append(b, '\f')
			case 'n':
				b = append(b, '\n')
			case 'r':
				b = append(b, '\r')
			case 't':
				b = append(b, '\t')
			case 'u':
				r, err := p.unicodeEscape()
				if err != nil {
					return "", err
				}
				b = utf8.AppendRune(b, r)
			default:
				p.pos--
				return "", p.fail("an escape")
			}
		case c < ' ':
			return "", p.fail("no control character in a string")
		default:
			run := p.pos
			p.pos = plainEnd(p.text, run)
			b = append(b, p.text[run:p.pos]...)
		}
	}
	return "", p.fail("'\"'")
}

// quoteAfter returns the place of the quote that ends the string around pos, or the length of the text. What is between has
// no longer form without its escapes.
func (p *jsonParser) quoteAfter(pos int) int {
	for pos < len(p.text) {
		i := strings.IndexByte(p.text[pos:], '"')
		if i < 0 {
			break
		}
		pos += i
		slashes := 0
		for p.text[pos-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return pos
		}
		pos++
	}
	return len(p.text)
}

// unicodeEscape reads the digits of \u and, for the first half of a surrogate pair, the second half. A lone half has no
// UTF-8 form and becomes U+FFFD.
func (p *jsonParser) unicodeEscape() (rune, error) {
	r, err := p.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if p.pos+1 < len(p.text) && p.text[p.pos] == '\\' && p.text[p.pos+1] == 'u' {
		back := p.pos
		p.pos += 2
		second, err := p.hex4()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, second); pair != utf8.RuneError {
			return pair, nil
		}
		p.pos = back
	}
	return utf8.RuneError, nil
}

func (p *jsonParser) hex4() (rune, error) {
	if len(p.text)-p.pos < 4 {
		return 0, p.fail("four hexadecimal digits")
	}
	n, err := strconv.ParseUint(p.text[p.pos:p.pos+4], 16, 16)
	if err != nil {
		return 0, p.fail("four hexadecimal digits")
	}
	p.pos += 4
	return rune(n), nil
}
