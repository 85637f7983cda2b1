package tokenizer

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// Most words are a space and ASCII letters. These functions find their ends eight bytes at a time.

const (
	everyByte = 0x0101010101010101
	topBits   = 0x80 * everyByte
)

// eight returns the eight bytes at i, of which there have to be that many.
func eight(text string, i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Pointer(unsafe.StringData(text[i : i+8])))[:])
}

// outside has the top bit set in every byte of x that is not within low to high. Bytes beyond ASCII are outside.
func outside(x uint64, low, high byte) uint64 {
	y := x &^ topBits
	atLeast := y + everyByte*uint64(0x80-low)
	above := y + everyByte*uint64(0x7F-high)
	return (^(atLeast &^ above) | x) & topBits
}

// letterRun returns the end of the ASCII letters at i.
func letterRun(text string, i int) int {
	for i+8 <= len(text) {
		if stop := outside(eight(text, i)|0x20*everyByte, 'a', 'z'); stop != 0 {
			return i + bits.TrailingZeros64(stop)/8
		}
		i += 8
	}
	for i < len(text) && isASCIILetter(text[i]) {
		i++
	}
	return i
}

// smallRun returns the end of the small ASCII letters at i.
func smallRun(text string, i int) int {
	for i+8 <= len(text) {
		if stop := outside(eight(text, i), 'a', 'z'); stop != 0 {
			return i + bits.TrailingZeros64(stop)/8
		}
		i += 8
	}
	for i < len(text) && text[i] >= 'a' && text[i] <= 'z' {
		i++
	}
	return i
}

func isASCIILetter(c byte) bool { return (c|0x20)-'a' < 26 }

// plainWord returns the end of ASCII letters, after one space or none, that begin at i; 0 if there are none.
func plainWord(text string, i int) int {
	if text[i] == ' ' {
		i++
	}
	if i >= len(text) || !isASCIILetter(text[i]) {
		return 0
	}
	return letterRun(text, i+1)
}

// plainCasedWord returns the end of a word of ASCII letters that is small but for its first letter and has no contraction, after one
// space or none; 0 where the word may be another one.
func plainCasedWord(text string, i int) int {
	if text[i] == ' ' {
		i++
	}
	if i >= len(text) || !isASCIILetter(text[i]) {
		return 0
	}
	end := smallRun(text, i+1)
	if end == len(text) {
		return end
	}
	next := text[end]
	if next >= 0x80 || next == '\'' || end == i+1 && text[i] <= 'Z' && isASCIILetter(next) {
		return 0
	}
	return end
}
