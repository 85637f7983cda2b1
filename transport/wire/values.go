package wire

import "github.com/tinylib/msgp/msgp"

// Appenders for values that may be unset. Integers take the shortest form, as the reference's encoder writes them.

func appendOptionalUint[T uint8 | uint32 | uint64](dst []byte, value *T) []byte {
	if value == nil {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendUint64(dst, uint64(*value))
}

func appendOptionalInt[T int32 | int64](dst []byte, value *T) []byte {
	if value == nil {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendInt64(dst, int64(*value))
}

func appendOptionalFloat32(dst []byte, value *float32) []byte {
	if value == nil {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendFloat32(dst, *value)
}

func appendOptionalFloat64(dst []byte, value *float64) []byte {
	if value == nil {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendFloat64(dst, *value)
}

func appendOptionalBool(dst []byte, value *bool) []byte {
	if value == nil {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendBool(dst, *value)
}

// appendOptionalText writes "" as nil.
func appendOptionalText(dst []byte, text string) []byte {
	if text == "" {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendString(dst, text)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(list)))
	for _, text := range list {
		dst = msgp.AppendString(dst, text)
	}
	return dst
}

// appendOptionalStrings writes an empty list as nil.
func appendOptionalStrings(dst []byte, list []string) []byte {
	if len(list) == 0 {
		return msgp.AppendNil(dst)
	}
	return appendStrings(dst, list)
}

func appendUint32s(dst []byte, list []uint32) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(list)))
	for _, value := range list {
		dst = msgp.AppendUint32(dst, value)
	}
	return dst
}

// appendOptionalUint32s writes an empty list as nil.
func appendOptionalUint32s(dst []byte, list []uint32) []byte {
	if len(list) == 0 {
		return msgp.AppendNil(dst)
	}
	return appendUint32s(dst, list)
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

func (s *scanner) strings() []string {
	var list []string
	for range s.arrayLen() {
		list = append(list, s.str())
	}
	return list
}

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
