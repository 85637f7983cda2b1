package upstream

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scan walks through one JSON text that a server sent, once and without keeping anything of it. After the first mistake every method
// does nothing; who scans looks at err at the end.
type scan struct {
	text []byte
	at   int
	err  error
}

// maxDepth bounds the nesting of values that are passed over.
const maxDepth = 128

func (s *scan) fail(want string) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d of %d is no %s", s.at, len(s.text), want)
	}
}

// next returns the next byte that is no white space; 0 at the end.
func (s *scan) next() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// enter goes into an object or a list; false when it is empty or null, which is then passed over.
func (s *scan) enter(open byte) bool {
	if s.err != nil || s.null() {
		return false
	}
	if s.next() != open {
		s.fail("beginning of " + map[byte]string{'{': "an object", '[': "a list"}[open])
		return false
	}
	s.at++
	if s.next() == open+2 { // the bracket that closes, in both cases
		s.at++
		return false
	}
	return true
}

// more goes on to the next member after one was read; false at the end.
func (s *scan) more(open byte) bool {
	if s.err != nil {
		return false
	}
	switch s.next() {
	case ',':
		s.at++
		return true
	case open + 2:
		s.at++
		return false
	}
	s.fail("end of a member")
	return false
}

// key reads a member's name. It is valid until the text changes; escapes in it stay.
func (s *scan) key() []byte {
	raw := s.quoted()
	if s.err == nil && s.next() != ':' {
		s.fail("colon")
		return nil
	}
	s.at++
	return raw
}

// quoted reads a string's inside as it is written.
func (s *scan) quoted() []byte {
	if s.err != nil || s.next() != '"' {
		s.fail("string")
		return nil
	}
	start := s.at + 1
	for i := start; i < len(s.text); i++ {
		switch s.text[i] {
		case '\\':
			i++
		case '"':
			s.at = i + 1
			return s.text[start:i]
		}
	}
	s.fail("end of a string")
	return nil
}

// str reads a string; "" for null.
func (s *scan) str() string {
	if s.null() {
		return ""
	}
	raw := s.quoted()
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	return string(unescape(make([]byte, 0, len(raw)), raw))
}

// unescape appends the inside of a string. Escapes that are none stay; halves of characters become U+FFFD.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			dst = append(dst, raw[i])
			continue
		}
		i++
		switch c := raw[i]; c {
		case 'n':
			dst = append(dst, '\n')
		case 't':
			dst = append(dst, '\t')
		case 'r':
			dst = append(dst, '\r')
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'u':
			unit, ok := hex4(raw[i+1:])
			if !ok {
				dst = append(dst, '\\', 'u')
				continue
			}
			i += 4
			if utf16.IsSurrogate(unit) {
				second := rune(utf8.RuneError)
				if len(raw) > i+6 && raw[i+1] == '\\' && raw[i+2] == 'u' {
					second, _ = hex4(raw[i+3:])
				}
				if unit = utf16.DecodeRune(unit, second); unit != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, unit)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func hex4(text []byte) (rune, bool) {
	if len(text) < 4 {
		return 0, false
	}
	value, err := strconv.ParseUint(string(text[:4]), 16, 16)
	return rune(value), err == nil
}

// null passes over a null, if that is next.
func (s *scan) null() bool {
	if s.err == nil && s.next() == 'n' && bytes.HasPrefix(s.text[s.at:], []byte("null")) {
		s.at += 4
		return true
	}
	return false
}

// number reads a number's text.
func (s *scan) number() []byte {
	if s.err != nil {
		return nil
	}
	s.next()
	start := s.at
	for s.at < len(s.text) && (s.text[s.at]-'0' <= 9 || bytes.IndexByte([]byte("+-.eE"), s.text[s.at]) >= 0) {
		s.at++
	}
	if s.at == start {
		s.fail("number")
	}
	return s.text[start:s.at]
}

// count reads a whole number from 0 to 2³²-1; ok is false for null.
func (s *scan) count() (value uint32, ok bool) {
	if s.null() {
		return 0, false
	}
	text := s.number()
	if s.err != nil {
		return 0, false
	}
	total := uint64(0)
	for _, c := range text {
		if c < '0' || c > '9' || total > math.MaxUint32 {
			s.fail("whole number")
			return 0, false
		}
		total = 10*total + uint64(c-'0')
	}
	if total > math.MaxUint32 {
		s.fail("number below 2³²")
		return 0, false
	}
	return uint32(total), true
}

// float reads a number; 0 for null.
func (s *scan) float() float64 {
	if s.null() {
		return 0
	}
	text := s.number()
	if s.err != nil {
		return 0
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil && math.IsInf(value, 0) {
		value = math.Copysign(math.MaxFloat64, value)
	} else if err != nil {
		s.fail("number")
	}
	return value
}

// truth reads true or false; false for null.
func (s *scan) truth() bool {
	if s.err != nil || s.null() {
		return false
	}
	s.next()
	switch rest := s.text[s.at:]; {
	case bytes.HasPrefix(rest, []byte("true")):
		s.at += 4
		return true
	case bytes.HasPrefix(rest, []byte("false")):
		s.at += 5
	default:
		s.fail("true or false")
	}
	return false
}

// counts appends a list of whole numbers to dst.
func (s *scan) counts(dst []uint32) []uint32 {
	for in := s.enter('['); in; in = s.more('[') {
		value, ok := s.count()
		if s.err != nil {
			return dst
		}
		if ok {
			dst = append(dst, value)
		}
	}
	return dst
}

// skip passes over a value.
func (s *scan) skip() {
	depth := 0
	for s.err == nil {
		switch c := s.next(); c {
		case '"':
			s.quoted()
		case '{', '[':
			s.at++
			if depth++; depth > maxDepth {
				s.fail("value that is nested less deeply")
				return
			}
			continue
		case '}', ']':
			if depth == 0 {
				s.fail("value")
				return
			}
			s.at++
			depth--
		case ',', ':':
			if depth == 0 {
				s.fail("value")
				return
			}
			s.at++
			continue
		case 't', 'f':
			s.truth()
		case 'n':
			if !s.null() {
				s.fail("value")
			}
		default:
			s.number()
		}
		if depth == 0 {
			return
		}
	}
}

// raw passes over a value and returns its text, valid until the text changes.
func (s *scan) raw() []byte {
	s.next()
	start := s.at
	s.skip()
	if s.err != nil {
		return nil
	}
	return s.text[start:s.at]
}

// kind tells what is next by its first byte: a digit or '-' for numbers.
func (s *scan) kind() byte {
	if s.err != nil {
		return 0
	}
	return s.next()
}
