package wire

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// Appenders for values that may be unset. Integers take the shortest form, as the reference's encoder writes them.

// appendInt appends a signed integer; one that is not negative takes the unsigned form.
func appendInt[T int32 | int64](dst []byte, value T) []byte {
	if value >= 0 {
		return msgp.AppendUint64(dst, uint64(value))
	}
	return msgp.AppendInt64(dst, int64(value))
}

func appendOptionalUint32(dst []byte, value *uint32) []byte {
	if value == nil {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendUint32(dst, *value)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(list)))
	for _, text := range list {
		dst = msgp.AppendString(dst, text)
	}
	return dst
}

func appendUint32s(dst []byte, list []uint32) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(list)))
	for _, value := range list {
		dst = msgp.AppendUint32(dst, value)
	}
	return dst
}

// Readers for values that may be nil.

func (s *scanner) optionalUint32() *uint32 {
	return optional(s, func() uint32 { return uint32(s.uint(1<<32 - 1)) })
}
func (s *scanner) optionalUint64() *uint64 {
	return optional(s, func() uint64 { return s.uint(1<<64 - 1) })
}
func (s *scanner) optionalUint8() *uint8 {
	return optional(s, func() uint8 { return uint8(s.uint(255)) })
}
func (s *scanner) optionalInt32() *int32 {
	return optional(s, func() int32 { return int32(s.int(-1<<31, 1<<31-1)) })
}
func (s *scanner) optionalInt64() *int64 {
	return optional(s, func() int64 { return s.int(-1<<63, 1<<63-1) })
}
func (s *scanner) optionalFloat32() *float32 {
	return optional(s, func() float32 { return float32(s.float()) })
}
func (s *scanner) optionalFloat64() *float64 { return optional(s, s.float) }
func (s *scanner) optionalBool() *bool       { return optional(s, s.boolean) }

func optional[T any](s *scanner, read func() T) *T {
	if s.null() {
		return nil
	}
	value := read()
	return &value
}

// maxStrings bounds a list of strings in a body: an empty string takes one byte on the wire and 16 in memory.
const maxStrings = 1 << 16

// bounded reads the head of an array that may have at most limit elements.
func (s *scanner) bounded(limit int) int {
	n := s.arrayLen()
	if n > limit {
		s.fail(fmt.Sprintf("%d elements announced, at most %d are allowed here", n, limit))
		return 0
	}
	return n
}

// strings reads a list of strings; nil for nil.
func (s *scanner) strings() []string {
	if s.null() {
		return nil
	}
	list := []string{}
	for range s.bounded(maxStrings) {
		list = append(list, s.str())
	}
	return list
}

func (s *scanner) uint64s() []uint64 {
	if s.null() {
		return nil
	}
	list := []uint64{}
	for range s.bounded(maxStrings) {
		list = append(list, s.uint(1<<64-1))
	}
	return list
}

// flag reads a boolean that may be nil, which means false.
func (s *scanner) flag() bool { return !s.null() && s.boolean() }

func (s *scanner) uint32s() []uint32 {
	if s.null() {
		return nil
	}
	n := 0
	if lead := s.peek(); lead&0xf0 == 0x90 || lead == 0xdc || lead == 0xdd {
		head := *s
		n = head.arrayLen()
	}
	return appendTokenIDs(make([]uint32, 0, n), s)
}
