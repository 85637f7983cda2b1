package openai

import (
	"math"
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendString appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, text string) []byte {
	dst = append(dst, '"')
	dst = appendEscaped(dst, text)
	return append(dst, '"')
}

// appendEscaped appends the inside of a JSON string.
func appendEscaped(dst []byte, text string) []byte {
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			dst = append(dst, text[start:i]...)
			dst = append(dst, "\uFFFD"...)
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
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(dst, text[start:]...)
}

// appendFloat appends a number; JSON has no infinities, so they become the largest finite ones and NaN becomes null.
func appendFloat(dst []byte, value float64) []byte {
	switch {
	case math.IsNaN(value):
		return append(dst, "null"...)
	case math.IsInf(value, 1):
		value = math.MaxFloat64
	case math.IsInf(value, -1):
		value = -math.MaxFloat64
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, value, 'g', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// appendBytes appends a byte string as an array of numbers.
func appendBytes(dst, value []byte) []byte {
	dst = append(dst, '[')
	for i, c := range value {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(c), 10)
	}
	return append(dst, ']')
}

func appendUint(dst []byte, value uint32) []byte {
	return strconv.AppendUint(dst, uint64(value), 10)
}
