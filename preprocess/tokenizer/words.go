package tokenizer

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// wordEncoder is the fast way for texts that a known scanner cuts and byte-level BPE encodes. Most words are one token, which a table
// of all such tokens tells; the others come out of a cache, or are merged.
type wordEncoder struct {
	scan  scanner
	bpe   *bpe
	whole *wholeWords
	cache *wordCache
}

func newWordEncoder(scan scanner, b *bpe) *wordEncoder {
	return &wordEncoder{scan: scan, bpe: b, whole: newWholeWords(b), cache: newWordCache()}
}

func (w *wordEncoder) encode(dst []uint32, s string) []uint32 {
	dst = slices.Grow(dst, len(s)/4+16)
	var ends [128]int32
	for at := 0; at < len(s); {
		n := w.scan(s, at, ends[:])
		for _, end := range ends[:n] {
			size := int(end) - at
			if size <= shortWord {
				key := shortKey(s, at, size)
				if id, ok := w.whole.find(key); ok {
					dst = append(dst, id)
					at = int(end)
					continue
				}
			}
			dst = w.rare(dst, s, at, int(end))
			at = int(end)
		}
	}
	return dst
}

// rare encodes a piece that is not a short word of one token.
func (w *wordEncoder) rare(dst []uint32, s string, at, end int) []uint32 {
	piece := s[at:end]
	if len(piece) > cachedWord {
		if id, ok := w.bpe.vocab.id(piece); ok && w.bpe.isWhole(id) {
			return append(dst, id)
		}
		return w.bpe.mergeAll(dst, piece)
	}
	key := makeLongKey(s, at, len(piece))
	ways := w.cache.ways(&key)
	if found, ok := ways.get(dst, &key); ok {
		return found
	}
	start := len(dst)
	if id, ok := w.bpe.vocab.id(piece); ok && w.bpe.isWhole(id) {
		dst = append(dst, id)
	} else {
		dst = w.bpe.mergeAll(dst, piece)
	}
	ways.put(&key, dst[start:])
	return dst
}

// shortWord is the length in bytes of words that, with their length and a token id, fill two machine words.
const shortWord = 12

// wordKey is the text of a short word: eight bytes, then four, and above them its length.
type wordKey struct{ low, high uint64 }

// keyBits is how many bits of wordKey.high are in use; the id is above them.
const keyBits = 36

var keyMasks = func() (masks [16]wordKey) {
	for n := range masks {
		masks[n] = wordKey{1<<(8*min(n, 8)) - 1, 1<<(8*max(n-8, 0)) - 1}
		if n >= 8 {
			masks[n].low = ^uint64(0)
		}
	}
	return masks
}()

// shortKey makes the key of the n bytes at at.
func shortKey(s string, at, n int) wordKey {
	if at+16 <= len(s) {
		mask := &keyMasks[n&15]
		return wordKey{eight(s, at) & mask.low, eight(s, at+8)&mask.high | uint64(n)<<32}
	}
	var b [16]byte
	copy(b[:], s[at:at+n])
	return wordKey{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:]) | uint64(n)<<32}
}

func (k wordKey) hash() uint64 {
	high, low := bits.Mul64(k.low^0x9E3779B97F4A7C15, k.high^0xD1B54A32D192ED03)
	return high ^ low
}

// wholeWords is a table of all tokens up to shortWord bytes that their own text is encoded to. It never changes once it is made. Four
// entries fill a cache line.
type wholeWords struct {
	slots []wordKey // with the id above the key's bits; a key of zeros is free
	shift uint
}

func newWholeWords(b *bpe) *wholeWords {
	n := 0
	each := func(do func(id uint32, token []byte)) {
		for id := range uint32(len(b.vocab.spans)) {
			if token := b.vocab.token(id); len(token) > 0 && len(token) <= shortWord && b.isWhole(id) {
				do(id, token)
			}
		}
	}
	each(func(uint32, []byte) { n++ })
	size := tableSize(n)
	w := &wholeWords{slots: make([]wordKey, size), shift: uint(64 - bits.Len(uint(size-1)))}
	each(func(id uint32, token []byte) {
		if known, ok := b.vocab.idOf(token); !ok || known != id {
			return // another id has the text
		}
		key := shortKey(string(token), 0, len(token))
		i := key.hash() >> w.shift
		for w.slots[i] != (wordKey{}) {
			i = (i + 1) & uint64(size-1)
		}
		key.high |= uint64(id) << keyBits
		w.slots[i] = key
	})
	return w
}

func (w *wholeWords) find(key wordKey) (uint32, bool) {
	mask := uint64(len(w.slots) - 1)
	for i := key.hash() >> w.shift; ; i++ {
		slot := &w.slots[i&mask]
		if slot.low == key.low && (slot.high^key.high)<<(64-keyBits) == 0 {
			return uint32(slot.high >> keyBits), true
		}
		if slot.high == 0 {
			return 0, false
		}
	}
}
