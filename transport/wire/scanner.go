package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// MaxDepth bounds the nesting of arrays and maps in a body, in both encodings.
const MaxDepth = 128

// FormatError says what is wrong with bytes that don't follow the plane's format.
type FormatError struct {
	// Part names what was being read, e.g. "response item" or "token_ids".
	Part string
	// Problem says what was found and what would be right.
	Problem string
	// Offset is where in the part, in bytes.
	Offset int
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: %s (at byte %d)", e.Part, e.Problem, e.Offset)
}

// scanner walks over one MessagePack value after the other. The first failure sticks: every later read returns zero values,
// so that callers check once, at the end. It allocates only for failures and for the strings that it returns.
type scanner struct {
	data   []byte
	at     int
	part   string
	failed *FormatError
}

func (s *scanner) fail(problem string) {
	if s.failed == nil {
		s.failed = &FormatError{Part: s.part, Problem: problem, Offset: s.at}
	}
	s.at = len(s.data)
}

func (s *scanner) err() error {
	if s.failed == nil {
		return nil
	}
	return s.failed
}

// peek returns the next lead byte without consuming it; nil's when nothing is left.
func (s *scanner) peek() byte {
	if s.at >= len(s.data) {
		s.fail("the value is cut off")
		return 0xc0
	}
	return s.data[s.at]
}

// take returns the next n bytes; nil when they aren't there.
func (s *scanner) take(n int) []byte {
	if n < 0 || n > len(s.data)-s.at {
		s.fail("the value is cut off")
		return nil
	}
	piece := s.data[s.at : s.at+n]
	s.at += n
	return piece
}

// width reads a big-endian unsigned integer of 1, 2, 4 or 8 bytes.
func (s *scanner) width(n int) uint64 {
	piece := s.take(n)
	if piece == nil {
		return 0
	}
	switch n {
	case 1:
		return uint64(piece[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(piece))
	case 4:
		return uint64(binary.BigEndian.Uint32(piece))
	}
	return binary.BigEndian.Uint64(piece)
}

// null consumes a nil and tells whether there was one.
func (s *scanner) null() bool {
	if s.at < len(s.data) && s.data[s.at] == 0xc0 {
		s.at++
		return true
	}
	return false
}

// count checks an announced number of elements: each takes at least `least` bytes, so that a short text can't ask for much
// memory.
func (s *scanner) count(n uint64, least int) int {
	if n > uint64(len(s.data)-s.at)/uint64(least) {
		s.fail(fmt.Sprintf("%d elements announced, %d bytes left", n, len(s.data)-s.at))
		return 0
	}
	return int(n)
}

// mapLen reads the head of a map and returns its number of members; nil counts as an empty map.
func (s *scanner) mapLen() int {
	lead := s.peek()
	switch {
	case s.failed != nil:
		return 0
	case lead&0xf0 == 0x80:
		s.at++
		return s.count(uint64(lead&0x0f), 2)
	case lead == 0xde:
		s.at++
		return s.count(s.width(2), 2)
	case lead == 0xdf:
		s.at++
		return s.count(s.width(4), 2)
	case lead == 0xc0:
		s.at++
		return 0
	}
	s.fail("a map was expected, found " + kindName(lead))
	return 0
}

// arrayLen reads the head of an array and returns its number of elements; nil counts as an empty array.
func (s *scanner) arrayLen() int {
	lead := s.peek()
	switch {
	case s.failed != nil:
		return 0
	case lead&0xf0 == 0x90:
		s.at++
		return s.count(uint64(lead&0x0f), 1)
	case lead == 0xdc:
		s.at++
		return s.count(s.width(2), 1)
	case lead == 0xdd:
		s.at++
		return s.count(s.width(4), 1)
	case lead == 0xc0:
		s.at++
		return 0
	}
	s.fail("an array was expected, found " + kindName(lead))
	return 0
}

// text reads a string or binary value as bytes that point into the data.
func (s *scanner) text() []byte {
	lead := s.peek()
	if s.failed != nil {
		return nil
	}
	switch {
	case lead&0xe0 == 0xa0:
		s.at++
		return s.take(int(lead & 0x1f))
	case lead == 0xd9 || lead == 0xc4:
		s.at++
		return s.take(int(s.width(1)))
	case lead == 0xda || lead == 0xc5:
		s.at++
		return s.take(int(s.width(2)))
	case lead == 0xdb || lead == 0xc6:
		s.at++
		return s.take(int(s.width(4)))
	}
	s.fail("a string was expected, found " + kindName(lead))
	return nil
}

// str reads a string; nil counts as the empty one.
func (s *scanner) str() string {
	if s.null() {
		return ""
	}
	return string(s.text())
}

// uint reads an unsigned integer of any width that is at most limit. Floats count when they are whole: encoders of dynamic
// languages write them.
func (s *scanner) uint(limit uint64) uint64 {
	start := s.at
	value, ok := uint64(0), true
	lead := s.peek()
	switch {
	case s.failed != nil:
		return 0
	case lead < 0x80:
		s.at++
		value = uint64(lead)
	case lead >= 0xcc && lead <= 0xcf:
		s.at++
		value = s.width(1 << (lead - 0xcc))
	default:
		signed, isInt := s.integer()
		value, ok = uint64(signed), isInt && signed >= 0
	}
	if s.failed == nil && (!ok || value > limit) {
		s.at = start
		s.fail(fmt.Sprintf("a whole number from 0 to %d was expected, found %s", limit, describe(s.data[start:])))
		return 0
	}
	return value
}

// integer reads a signed integer of any width; false when the value is no whole number in the range of int64.
func (s *scanner) integer() (int64, bool) {
	lead := s.peek()
	switch {
	case s.failed != nil:
		return 0, false
	case lead < 0x80:
		s.at++
		return int64(lead), true
	case lead >= 0xe0:
		s.at++
		return int64(int8(lead)), true
	case lead >= 0xcc && lead <= 0xcf:
		s.at++
		value := s.width(1 << (lead - 0xcc))
		return int64(value), value <= math.MaxInt64
	case lead == 0xd0:
		s.at++
		return int64(int8(s.width(1))), true
	case lead == 0xd1:
		s.at++
		return int64(int16(s.width(2))), true
	case lead == 0xd2:
		s.at++
		return int64(int32(s.width(4))), true
	case lead == 0xd3:
		s.at++
		return int64(s.width(8)), true
	case lead == 0xca || lead == 0xcb:
		value := s.float()
		if value != math.Trunc(value) || math.Abs(value) >= 1<<63 {
			return 0, false
		}
		return int64(value), true
	}
	return 0, false
}

// int reads a signed integer between the bounds.
func (s *scanner) int(low, high int64) int64 {
	start := s.at
	value, ok := s.integer()
	if s.failed == nil && (!ok || value < low || value > high) {
		s.at = start
		s.fail(fmt.Sprintf("a whole number from %d to %d was expected, found %s", low, high, describe(s.data[start:])))
		return 0
	}
	return value
}

// float reads a number of any kind.
func (s *scanner) float() float64 {
	lead := s.peek()
	switch {
	case s.failed != nil:
		return 0
	case lead == 0xca:
		s.at++
		return float64(math.Float32frombits(uint32(s.width(4))))
	case lead == 0xcb:
		s.at++
		return math.Float64frombits(s.width(8))
	case lead == 0xcf:
		s.at++
		return float64(s.width(8))
	}
	value, ok := s.integer()
	if !ok {
		s.fail("a number was expected, found " + kindName(lead))
	}
	return float64(value)
}

// boolean reads true or false.
func (s *scanner) boolean() bool {
	lead := s.peek()
	switch {
	case s.failed != nil:
		return false
	case lead == 0xc2 || lead == 0xc3:
		s.at++
		return lead == 0xc3
	}
	s.fail("true or false was expected, found " + kindName(lead))
	return false
}

// skip steps over one value of any kind.
func (s *scanner) skip() { s.skipNested(MaxDepth) }

func (s *scanner) skipNested(depth int) {
	if depth == 0 {
		s.fail(fmt.Sprintf("nested deeper than %d levels", MaxDepth))
	}
	lead := s.peek()
	if s.failed != nil {
		return
	}
	switch {
	case lead < 0x80 || lead >= 0xe0 || lead == 0xc0 || lead == 0xc2 || lead == 0xc3:
		s.at++
	case lead&0xf0 == 0x80 || lead == 0xde || lead == 0xdf:
		for range 2 * s.mapLen() {
			s.skipNested(depth - 1)
			if s.failed != nil {
				return
			}
		}
	case lead&0xf0 == 0x90 || lead == 0xdc || lead == 0xdd:
		for range s.arrayLen() {
			s.skipNested(depth - 1)
			if s.failed != nil {
				return
			}
		}
	case lead >= 0xcc && lead <= 0xcf:
		s.take(1 + 1<<(lead-0xcc))
	case lead >= 0xd0 && lead <= 0xd3:
		s.take(1 + 1<<(lead-0xd0))
	case lead == 0xca:
		s.take(5)
	case lead == 0xcb:
		s.take(9)
	case lead >= 0xd4 && lead <= 0xd8: // fixed extension: type byte and 1, 2, 4, 8 or 16 bytes
		s.take(2 + 1<<(lead-0xd4))
	case lead >= 0xc7 && lead <= 0xc9: // extension: length, type byte, bytes
		s.at++
		s.take(int(s.width(1<<(lead-0xc7))) + 1)
	case lead == 0xc1:
		s.fail("0xc1 is no MessagePack value")
	default:
		s.text()
	}
}

// raw steps over one value and returns its bytes, which point into the data; nil for a nil value.
func (s *scanner) raw() []byte {
	if s.null() {
		return nil
	}
	start := s.at
	s.skip()
	if s.failed != nil {
		return nil
	}
	return s.data[start:s.at]
}

// kindName names the kind of value that a lead byte starts.
func kindName(lead byte) string {
	switch {
	case lead < 0x80 || lead >= 0xe0 || lead >= 0xcc && lead <= 0xd3:
		return "an integer"
	case lead&0xf0 == 0x80 || lead == 0xde || lead == 0xdf:
		return "a map"
	case lead&0xf0 == 0x90 || lead == 0xdc || lead == 0xdd:
		return "an array"
	case lead&0xe0 == 0xa0 || lead >= 0xd9 && lead <= 0xdb:
		return "a string"
	case lead >= 0xc4 && lead <= 0xc6:
		return "binary data"
	case lead == 0xc0:
		return "nil"
	case lead == 0xc2 || lead == 0xc3:
		return "a boolean"
	case lead == 0xca || lead == 0xcb:
		return "a float"
	case lead == 0xc1:
		return "the unused byte 0xc1"
	}
	return "an extension"
}

// describe shows the value at the start of data when it is a number, else names its kind.
func describe(data []byte) string {
	s := scanner{data: data}
	if lead := s.peek(); lead >= 0xcc && lead <= 0xcf {
		s.at++
		return fmt.Sprint(s.width(1 << (lead - 0xcc)))
	}
	if value, ok := s.integer(); ok {
		return fmt.Sprint(value)
	}
	if len(data) == 0 {
		return "nothing"
	}
	return kindName(data[0])
}
