package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// reader walks through JSON text. A vocabulary with its merges is tens of megabytes in which a general decoder would spend most of the
// time of loading.
type reader struct {
	text []byte
	at   int
	buf  []byte // of the last string that had escapes
}

func (r *reader) fail(want string) error {
	if r.at >= len(r.text) {
		return fmt.Errorf("the file ends at byte %d where %s should be", r.at, want)
	}
	return fmt.Errorf("byte %d: %q where %s should be", r.at, r.text[r.at], want)
}

func (r *reader) skipSpace() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\n', '\t', '\r':
			r.at++
		default:
			return
		}
	}
}

// peek returns the next character that is not white space; 0 at the end.
func (r *reader) peek() byte {
	r.skipSpace()
	if r.at >= len(r.text) {
		return 0
	}
	return r.text[r.at]
}

func (r *reader) expect(c byte) error {
	if r.peek() != c {
		return r.fail(strconv.QuoteRune(rune(c)))
	}
	r.at++
	return nil
}

// str reads a string. The result is valid until the next call.
func (r *reader) str() ([]byte, error) {
	if err := r.expect('"'); err != nil {
		return nil, err
	}
	start := r.at
	for i := start; i < len(r.text); i++ {
		switch r.text[i] {
		case '"':
			r.at = i + 1
			return r.text[start:i:i], nil
		case '\\':
			return r.escaped(start, i)
		}
	}
	r.at = len(r.text)
	return nil, r.fail("the end of a string")
}

// escaped reads on from the first escape at i.
func (r *reader) escaped(start, i int) ([]byte, error) {
	r.buf = append(r.buf[:0], r.text[start:i]...)
	for i < len(r.text) {
		c := r.text[i]
		if c == '"' {
			r.at = i + 1
			return r.buf, nil
		}
		if c != '\\' {
			r.buf = append(r.buf, c)
			i++
			continue
		}
		r.at = i
		if i+1 >= len(r.text) {
			break
		}
		i += 2
		switch e := r.text[i-1]; e {
		case '"', '\\', '/':
			r.buf = append(r.buf, e)
		case 'b':
			r.buf = append(r.buf, '\b')
		case 'f':
			r.buf = append(r.buf, '\f')
		case 'n':
			r.buf = append(r.buf, '\n')
		case 'r':
			r.buf = append(r.buf, '\r')
		case 't':
			r.buf = append(r.buf, '\t')
		case 'u':
			c, ok := r.hex(i)
			if !ok {
				return nil, r.fail("an escape with four hexadecimal digits")
			}
			i += 4
			if 0xD800 <= c && c < 0xDC00 && i+1 < len(r.text) && r.text[i] == '\\' && r.text[i+1] == 'u' {
				if low, ok := r.hex(i + 2); ok && 0xDC00 <= low && low < 0xE000 {
					c = 0x10000 + (c-0xD800)<<10 + (low - 0xDC00)
					i += 6
				}
			}
			r.buf = utf8.AppendRune(r.buf, c)
		default:
			return nil, r.fail("a known escape")
		}
	}
	r.at = len(r.text)
	return nil, r.fail("the end of a string")
}

func (r *reader) hex(i int) (rune, bool) {
	if i+4 > len(r.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(r.text[i:i+4]), 16, 16)
	return rune(n), err == nil
}

// unsigned reads a number from 0 to limit.
func (r *reader) unsigned(limit uint32) (uint32, error) {
	c := r.peek()
	if c < '0' || c > '9' {
		return 0, r.fail("a number that is not negative")
	}
	start, n := r.at, uint64(0)
	for r.at < len(r.text) && '0' <= r.text[r.at] && r.text[r.at] <= '9' {
		if n = n*10 + uint64(r.text[r.at]-'0'); n > uint64(limit) {
			return 0, fmt.Errorf("byte %d: a number above %d", start, limit)
		}
		r.at++
	}
	if r.at < len(r.text) && (r.text[r.at] == '.' || r.text[r.at]|0x20 == 'e') {
		return 0, fmt.Errorf("byte %d: a whole number should be here", start)
	}
	return uint32(n), nil
}

// object calls field for each key; field has to read the value.
func (r *reader) object(field func(key []byte) error) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	if r.peek() == '}' {
		r.at++
		return nil
	}
	for {
		key, err := r.str()
		if err == nil {
			err = r.expect(':')
		}
		if err == nil {
			err = field(key)
		}
		if err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.at++
		case '}':
			r.at++
			return nil
		default:
			return r.fail("',' or '}'")
		}
	}
}

// array calls element where each element begins; element has to read it.
func (r *reader) array(element func() error) error {
	if err := r.expect('['); err != nil {
		return err
	}
	if r.peek() == ']' {
		r.at++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.at++
		case ']':
			r.at++
			return nil
		default:
			return r.fail("',' or ']'")
		}
	}
}

// raw reads any value and returns its text.
func (r *reader) raw() (json.RawMessage, error) {
	r.skipSpace()
	start, depth := r.at, 0
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case '"':
			if _, err := r.str(); err != nil {
				return nil, err
			}
			if depth == 0 {
				return r.text[start:r.at], nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return r.text[start:r.at], nil
			}
			if depth--; depth == 0 {
				r.at++
				return r.text[start:r.at], nil
			}
		case ',':
			if depth == 0 {
				return r.text[start:r.at], nil
			}
		}
		r.at++
	}
	return nil, r.fail("the end of a value")
}

// into decodes the next value.
func (r *reader) into(target any) error {
	start := r.at
	raw, err := r.raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, target); err != nil {
		return fmt.Errorf("byte %d: %w", start, err)
	}
	return nil
}
