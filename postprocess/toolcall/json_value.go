package toolcall

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonReader walks one JSON text. It is strict where it matters for what a client gets (syntax, escapes, depth) and lets
// duplicate keys through, of which the last counts, as the engines' own tools do.
type jsonReader struct {
	text  string
	at    int
	depth int
}

// member is a key and value of an object; the value is the text as it was written.
type member struct{ key, value string }

func (r *jsonReader) space() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\n', '\t', '\r':
			r.at++
		default:
			return
		}
	}
}

func (r *jsonReader) take(c byte) bool {
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

// value returns the text of the next value.
func (r *jsonReader) value() (string, bool) {
	r.space()
	start := r.at
	ok := r.skip()
	return r.text[start:r.at], ok
}

func (r *jsonReader) skip() bool {
	if r.at >= len(r.text) {
		return false
	}
	switch r.text[r.at] {
	case '{':
		return r.members(func(member) {})
	case '[':
		return r.items(func(string) {})
	case '"':
		_, ok := r.stringText(false)
		return ok
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	case 'n':
		return r.word("null")
	}
	return r.number()
}

func (r *jsonReader) word(word string) bool {
	if strings.HasPrefix(r.text[r.at:], word) {
		r.at += len(word)
		return true
	}
	return false
}

func (r *jsonReader) digits() bool {
	start := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at > start
}

func (r *jsonReader) number() bool {
	r.take('-')
	if !r.take('0') && !r.digits() {
		return false
	}
	if r.take('.') && !r.digits() {
		return false
	}
	if r.take('e') || r.take('E') {
		if !r.take('+') {
			r.take('-')
		}
		return r.digits()
	}
	return true
}

// members calls yield for each member of the object that comes next.
func (r *jsonReader) members(yield func(member)) bool {
	if r.depth++; r.depth > maxDepth || !r.take('{') {
		return false
	}
	r.space()
	if !r.take('}') {
		for {
			r.space()
			key, ok := r.stringText(true)
			if !ok {
				return false
			}
			r.space()
			if !r.take(':') {
				return false
			}
			value, ok := r.value()
			if !ok {
				return false
			}
			yield(member{key, value})
			r.space()
			if r.take('}') {
				break
			}
			if !r.take(',') {
				return false
			}
		}
	}
	r.depth--
	return true
}

// items calls yield for each element of the array that comes next.
func (r *jsonReader) items(yield func(string)) bool {
	if r.depth++; r.depth > maxDepth || !r.take('[') {
		return false
	}
	r.space()
	if !r.take(']') {
		for {
			value, ok := r.value()
			if !ok {
				return false
			}
			yield(value)
			r.space()
			if r.take(']') {
				break
			}
			if !r.take(',') {
				return false
			}
		}
	}
	r.depth--
	return true
}

// stringText reads a string; its content only when wanted.
func (r *jsonReader) stringText(want bool) (string, bool) {
	if !r.take('"') {
		return "", false
	}
	start := r.at
	for r.at < len(r.text) {
		switch c := r.text[r.at]; {
		case c == '"':
			r.at++
			return r.text[start : r.at-1], true
		case c == '\\':
			return r.escaped(start, want)
		case c < ' ':
			return "", false
		default:
			r.at++
		}
	}
	return "", false
}

// escaped reads on from the first escape of a string that began at start.
func (r *jsonReader) escaped(start int, want bool) (string, bool) {
	var b []byte
	if want {
		b = append(b, r.text[start:r.at]...)
	}
	for r.at < len(r.text) {
		c := r.text[r.at]
		r.at++
		switch {
		case c == '"':
			return string(b), true
		case c < ' ':
			return "", false
		case c != '\\':
			if want {
				b = append(b, c)
			}
			continue
		}
		if r.at >= len(r.text) {
			return "", false
		}
		c = r.text[r.at]
		r.at++
		var char rune
		switch c {
		case '"', '\\', '/':
			char = rune(c)
		case 'b':
			char = '\b'
		case 'f':
			char = '\f'
		case 'n':
			char = '\n'
		case 'r':
			char = '\r'
		case 't':
			char = '\t'
		case 'u':
			var ok bool
			if char, ok = r.unicode(); !ok {
				return "", false
			}
		default:
			return "", false
		}
		if want {
			b = utf8.AppendRune(b, char)
		}
	}
	return "", false
}

// unicode reads the digits of \u, both halves of a pair. Half a pair alone is no character.
func (r *jsonReader) unicode() (rune, bool) {
	first, ok := r.hex4()
	if !ok || !utf16.IsSurrogate(first) {
		return first, ok
	}
	if !r.word(`\u`) {
		return 0, false
	}
	second, ok := r.hex4()
	char := utf16.DecodeRune(first, second)
	return char, ok && char != utf8.RuneError
}

func (r *jsonReader) hex4() (rune, bool) {
	if r.at+4 > len(r.text) {
		return 0, false
	}
	var value rune
	for range 4 {
		digit := hexDigit(r.text[r.at])
		if digit < 0 {
			return 0, false
		}
		value = value<<4 | rune(digit)
		r.at++
	}
	return value, true
}

// validJSON tells whether the text is exactly one value, white space around it allowed.
func validJSON(text string) bool {
	r := jsonReader{text: text}
	_, ok := r.value()
	r.space()
	return ok && r.at == len(text)
}

// compact appends the JSON text without white space, strings escaped no more than needed, numbers in one spelling, of duplicate
// keys the last. It appends nothing when the text is not one value.
func compact(dst []byte, text string) ([]byte, bool) {
	if !validJSON(text) {
		return dst, false
	}
	return appendCompact(dst, strings.TrimSpace(text)), true
}

// compactString is compact for a text of its own.
func compactString(text string) (string, bool) {
	b, ok := compact(nil, text)
	return string(b), ok
}

// appendCompact expects valid JSON without white space around it.
func appendCompact(dst []byte, text string) []byte {
	r := jsonReader{text: text}
	switch text[0] {
	case '{':
		var o object
		r.members(func(m member) { o.set(m.key, m.value) })
		return o.appendTo(dst)
	case '[':
		dst = append(dst, '[')
		first := true
		r.items(func(item string) {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = appendCompact(dst, item)
		})
		return append(dst, ']')
	case '"':
		content, _ := r.stringText(true)
		return appendQuoted(dst, content)
	case 't', 'f', 'n':
		return append(dst, text...)
	}
	return appendNumber(dst, text)
}

// appendNumber keeps integers as they are and writes fractions in their shortest form.
func appendNumber(dst []byte, text string) []byte {
	if !strings.ContainsAny(text, ".eE") {
		if text == "-0" {
			return append(dst, "-0.0"...)
		}
		return append(dst, text...)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return append(dst, text...)
	}
	return appendFloat(dst, f)
}

// appendFloat writes the shortest form with a point or an exponent, so that it stays a fraction: 1500.0, 0.5, 1e16.
func appendFloat(dst []byte, f float64) []byte {
	var buffer [32]byte
	short := strconv.AppendFloat(buffer[:0], f, 'e', -1, 64)
	mantissa, exponentText, _ := strings.Cut(string(short), "e")
	exponent, _ := strconv.Atoi(exponentText)
	if exponent >= -5 && exponent < 16 {
		start := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
		if !strings.ContainsRune(string(dst[start:]), '.') {
			dst = append(dst, ".0"...)
		}
		return dst
	}
	dst = append(dst, mantissa...)
	dst = append(dst, 'e')
	return strconv.AppendInt(dst, int64(exponent), 10)
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends text as a JSON string, escaping only what must be.
func appendQuoted(dst []byte, text string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}

func quoted(text string) string { return string(appendQuoted(nil, text)) }

// object is an object being put together; values are JSON. A key that comes again replaces the value and keeps its place.
type object struct {
	list  []member
	index map[string]int // made only for large objects
}

func (o *object) find(key string) int {
	if o.index != nil {
		if at, ok := o.index[key]; ok {
			return at
		}
		return -1
	}
	for i := range o.list {
		if o.list[i].key == key {
			return i
		}
	}
	return -1
}

func (o *object) set(key, value string) {
	if at := o.find(key); at >= 0 {
		o.list[at].value = value
		return
	}
	o.list = append(o.list, member{key, value})
	switch {
	case o.index != nil:
		o.index[key] = len(o.list) - 1
	case len(o.list) == 16:
		o.index = make(map[string]int)
		for i, m := range o.list {
			o.index[m.key] = i
		}
	}
}

// appendTo writes the object compactly.
func (o *object) appendTo(dst []byte) []byte {
	dst = append(dst, '{')
	for i, m := range o.list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendQuoted(dst, m.key)
		dst = append(dst, ':')
		dst = appendCompact(dst, m.value)
	}
	return append(dst, '}')
}

func (o *object) String() string { return string(o.appendTo(nil)) }
