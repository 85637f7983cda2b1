package tokenizer

import (
	"unicode/utf8"
	"unsafe"
)

const (
	validBytes  = 32 // at once
	validBefore = 3  // bytes that are looked at before those
)

// isValid is utf8.ValidString.
func isValid(s string) bool {
	if !hasAVX2 || len(s) < validBefore+validBytes {
		return utf8.ValidString(s)
	}
	start := 0
	for start < validBefore {
		r, size := utf8.DecodeRuneInString(s[start:])
		if r == utf8.RuneError && size == 1 {
			return false
		}
		start += size
	}
	n := (len(s) - start) &^ (validBytes - 1)
	if n > 0 && !validAVX2(unsafe.StringData(s[start:]), n) {
		return false
	}
	// The last character may reach beyond what has been looked at.
	last := start + n
	for n > 0 && last > start {
		if last--; utf8.RuneStart(s[last]) {
			break
		}
	}
	return utf8.ValidString(s[last:])
}

// validAVX2 tells whether text, of n bytes, a multiple of validBytes, could be part of valid text, of which a whole character is before it.
//
//go:noescape
func validAVX2(text *byte, n int) bool
