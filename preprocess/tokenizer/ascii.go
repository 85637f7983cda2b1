package tokenizer

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
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

// plainCasedWord returns the end of a word of ASCII letters that begins at i and is small but for its first letter, and has no
// contraction; 0 where the word may be another one.
func plainCasedWord(text string, i int) int {
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

// kind is a coarse class of an ASCII character, for choosing what to do by the first two characters of a piece.
type kind = uint8

const (
	kindSlow kind = iota // an apostrophe, which may begin a contraction, or a character beyond ASCII
	kindLetter
	kindDigit
	kindSpace   // the space itself
	kindOther   // other white space
	kindNewline // \r or \n
	kindSign    // all the rest
	kinds
)

var kindOf = func() (table [256]kind) {
	for c := range utf8.RuneSelf {
		switch {
		case isASCIILetter(byte(c)):
			table[c] = kindLetter
		case c >= '0' && c <= '9':
			table[c] = kindDigit
		case c == ' ':
			table[c] = kindSpace
		case c == '\r' || c == '\n':
			table[c] = kindNewline
		case c >= '\t' && c <= '\f':
			table[c] = kindOther
		case c != '\'':
			table[c] = kindSign
		}
	}
	return table
}()

// shape is what a piece that begins with two given ASCII characters is.
type shape uint8

const (
	shapeSlow       shape = iota // to be found out by the general way
	shapeWord                    // letters
	shapePrefixWord              // any character, then letters
	shapeSpaceWord               // a space, then letters
	shapeSignWord                // a sign, then letters
	shapeDigits                  // digits
	shapeSpaceDigit              // a space that may belong to digits
	shapeOne                     // the first character alone
	shapeSigns                   // signs
	shapeSpaceSigns              // a space, then signs
)

// shapes is indexed by the kinds of the two characters.
var shapes = func() (table [kinds * kinds]shape) {
	set := func(first, second kind, s shape) { table[first*kinds+second] = s }
	for second := range kinds {
		set(kindLetter, second, shapeWord)
		set(kindDigit, second, shapeDigits)
		if second != kindSlow {
			set(kindSign, second, shapeSigns)
		}
	}
	set(kindSpace, kindLetter, shapeSpaceWord)
	set(kindOther, kindLetter, shapePrefixWord)
	set(kindSign, kindLetter, shapeSignWord)
	set(kindSpace, kindSign, shapeSpaceSigns)
	set(kindSpace, kindDigit, shapeSpaceDigit)
	for _, second := range []kind{kindLetter, kindDigit, kindSign} {
		set(kindNewline, second, shapeOne)
	}
	set(kindOther, kindDigit, shapeOne)
	set(kindOther, kindSign, shapeOne)
	return table
}()

// shapeAt returns the shape of the piece at i.
func shapeAt(text string, i int) shape {
	if i+1 >= len(text) {
		return shapeSlow
	}
	return shapes[kindOf[text[i]]*kinds+kindOf[text[i+1]]]
}

// signRun returns the end of the ASCII signs at i; 0 if there is an apostrophe or a character beyond ASCII behind them.
func signRun(text string, i int) int {
	for i < len(text) {
		k := kindOf[text[i]]
		if k != kindSign {
			if k == kindSlow {
				return 0
			}
			break
		}
		i++
	}
	return i
}

// lineEnds returns the end of the \r and \n at i.
func lineEnds(text string, i int) int {
	for i < len(text) && (text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}
