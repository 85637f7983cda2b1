package wire

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"signalbox/inference"
	"signalbox/internal/jsontape"
)

// AppendJSON appends the JSON text of one MessagePack value to dst. Integers keep all 64 bits, a 32-bit float is spelled
// with the digits that it needs at 32 bits, a whole float keeps its ".0", binary data becomes an array of numbers, and what
// JSON can't say (infinities, extensions) becomes null: all of it as the reference's own serialisers do.
func AppendJSON(dst, value []byte) ([]byte, error) {
	s := scanner{data: value, part: "MessagePack value"}
	dst = appendJSONValue(dst, &s, MaxDepth)
	if s.failed == nil && s.at != len(s.data) {
		s.fail("bytes after the end of the value")
	}
	return dst, s.err()
}

func appendJSONValue(dst []byte, s *scanner, depth int) []byte {
	if depth == 0 {
		s.fail(fmt.Sprintf("nested deeper than %d levels", MaxDepth))
	}
	lead := s.peek()
	if s.failed != nil {
		return dst
	}
	switch {
	case lead == 0xc0:
		s.at++
		return append(dst, "null"...)
	case lead == 0xc2 || lead == 0xc3:
		return strconv.AppendBool(dst, s.boolean())
	case lead == 0xca:
		s.at++
		return appendFloat(dst, float64(math.Float32frombits(uint32(s.width(4)))), 32)
	case lead == 0xcb:
		return appendFloat(dst, s.float(), 64)
	case lead >= 0xcc && lead <= 0xcf:
		return strconv.AppendUint(dst, s.uint(math.MaxUint64), 10)
	case lead < 0x80 || lead >= 0xe0 || lead >= 0xd0 && lead <= 0xd3:
		value, _ := s.integer()
		return strconv.AppendInt(dst, value, 10)
	case lead&0xe0 == 0xa0 || lead >= 0xd9 && lead <= 0xdb:
		return appendString(dst, s.text())
	case lead >= 0xc4 && lead <= 0xc6:
		return appendByteList(dst, s.text())
	case lead&0xf0 == 0x90 || lead == 0xdc || lead == 0xdd:
		dst = append(dst, '[')
		for i := range s.arrayLen() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSONValue(dst, s, depth-1)
			if s.failed != nil {
				return dst
			}
		}
		return append(dst, ']')
	case lead&0xf0 == 0x80 || lead == 0xde || lead == 0xdf:
		dst = append(dst, '{')
		for i := range s.mapLen() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSONKey(dst, s)
			dst = append(dst, ':')
			dst = appendJSONValue(dst, s, depth-1)
			if s.failed != nil {
				return dst
			}
		}
		return append(dst, '}')
	}
	s.skip()
	return append(dst, "null"...)
}

// appendJSONKey writes a map key; JSON has only strings, so numbers are quoted.
func appendJSONKey(dst []byte, s *scanner) []byte {
	lead := s.peek()
	switch {
	case s.failed != nil:
		return dst
	case lead&0xe0 == 0xa0 || lead >= 0xd9 && lead <= 0xdb || lead >= 0xc4 && lead <= 0xc6:
		return appendString(dst, s.text())
	case lead < 0x80 || lead >= 0xe0 || lead >= 0xca && lead <= 0xd3 || lead == 0xc2 || lead == 0xc3:
		dst = append(dst, '"')
		dst = appendJSONValue(dst, s, 2)
		return append(dst, '"')
	}
	s.fail("a map key must be a string or a number, found " + kindName(lead))
	return dst
}

func appendByteList(dst, data []byte) []byte {
	dst = append(dst, '[')
	for i, b := range data {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}

func appendFloat(dst []byte, value float64, bits int) []byte {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return append(dst, "null"...)
	}
	format := byte('f')
	if size := math.Abs(value); size != 0 && (size < 1e-5 || size >= 1e16) {
		format = 'e'
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, value, format, -1, bits)
	if format == 'f' {
		for _, c := range dst[start:] {
			if c == '.' {
				return dst
			}
		}
		dst = append(dst, ".0"...)
	}
	return dst
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string. Bytes that are no UTF-8 become U+FFFD.
func appendString[T []byte | string](dst []byte, text T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := decodeRune(text, i)
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			dst = append(dst, text[start:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			i++
			start = i
			continue
		}
		dst = append(dst, text[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}

func decodeRune[T []byte | string](text T, at int) (rune, int) {
	end := min(at+utf8.UTFMax, len(text))
	var window [utf8.UTFMax]byte
	n := copy(window[:], text[at:end])
	return utf8.DecodeRune(window[:n])
}

// AppendMessagePack appends the MessagePack form of one JSON text to dst: integers in the shortest form, other numbers as
// 64-bit floats.
func AppendMessagePack(dst, text []byte) ([]byte, error) {
	document, err := jsontape.Parse(text)
	if err != nil {
		return dst, fmt.Errorf("JSON value: %w", err)
	}
	return appendMessagePackNode(dst, document.Root()), nil
}

func appendMessagePackNode(dst []byte, node jsontape.Node) []byte {
	switch node.Kind() {
	case jsontape.False, jsontape.True:
		return msgp.AppendBool(dst, node.Kind() == jsontape.True)
	case jsontape.Number:
		if value, ok := node.Uint(); ok {
			return msgp.AppendUint64(dst, value)
		}
		if value, ok := node.Int(); ok && value != 0 { // "-0" stays a float: as an integer it would lose its sign
			return msgp.AppendInt64(dst, value)
		}
		value, _ := node.Float()
		return msgp.AppendFloat64(dst, value)
	case jsontape.String:
		return msgp.AppendStringFromBytes(dst, node.Bytes())
	case jsontape.Array:
		dst = msgp.AppendArrayHeader(dst, uint32(node.Len()))
		for _, element := range node.Elements {
			dst = appendMessagePackNode(dst, element)
		}
		return dst
	case jsontape.Object:
		dst = msgp.AppendMapHeader(dst, uint32(node.Len()))
		for key, value := range node.Members {
			dst = msgp.AppendString(dst, key)
			dst = appendMessagePackNode(dst, value)
		}
		return dst
	}
	return msgp.AppendNil(dst)
}

// AppendOpaque appends an engine-owned value in the wanted encoding: unchanged when it is in that already, nil when there is
// none.
func AppendOpaque(dst []byte, value inference.Opaque, codec inference.Codec) ([]byte, error) {
	switch {
	case value.IsZero() && codec == inference.JSON:
		return append(dst, "null"...), nil
	case value.IsZero():
		return msgp.AppendNil(dst), nil
	case value.Codec == codec:
		return append(dst, value.Bytes...), nil
	case codec == inference.JSON:
		return AppendJSON(dst, value.Bytes)
	}
	return AppendMessagePack(dst, value.Bytes)
}
