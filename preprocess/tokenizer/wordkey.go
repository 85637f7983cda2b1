package tokenizer

import (
	"encoding/binary"
	"math/bits"
)

// makeWordKey makes the key of a word of n bytes. Those that are longer than shortWord get a key of their first bytes and a length of shortWord+1,
// which no table has.
func makeWordKey(s string, at, n int) (key wordKey) {
	n = min(n, shortWord+1)
	if at+16 <= len(s) {
		parts := &keyParts[n]
		return wordKey{eight(s, at) & parts.low, eight(s, at+8)&parts.high | parts.size}
	}
	var b [16]byte
	copy(b[:shortWord], s[at:at+n])
	return wordKey{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:]) | uint64(n)<<32}
}

// shortWord is the length in bytes of words that, with their length and a token id, fill two machine words.
const shortWord = 12

// wordKey is the text of a word of up to shortWord bytes: eight bytes, then four, and above them its length.
type wordKey struct{ low, high uint64 }

// keyBits is how many bits of a key's high are in use; tables have an id above them.
const keyBits = 36

// differs is zero if what is in a table is the word.
func (entry *wordKey) differs(key wordKey) uint64 {
	return entry.low ^ key.low | (entry.high^key.high)<<(64-keyBits)
}

// keyParts are the masks of the text of a word by its length, and the length as it is in a key.
var keyParts = func() (parts [16]struct{ low, high, size, _ uint64 }) {
	for n := range shortWord + 2 {
		parts[n].low, parts[n].high = firstBytes(n), firstBytes(min(n, shortWord)-8)
		parts[n].size = uint64(n) << 32
	}
	return parts
}()

// firstBytes has all bits set of the first n bytes of eight.
func firstBytes(n int) uint64 { return 1<<(8*max(n, 0)) - 1 }

// product is a hash that all processors make quickly.
func (k wordKey) product() uint64 {
	high, low := bits.Mul64(k.low^hashLow, k.high^hashHigh)
	return high ^ low
}

const (
	hashLow  = 0x9E3779B97F4A7C15
	hashHigh = 0xD1B54A32D192ED03
)
