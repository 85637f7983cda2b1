package tokenizer

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// Bounds of the cache: words of up to cachedWord bytes and cachedIDs tokens, cacheSlots of them, one cache line each: four megabytes.
const (
	cachedWord = 32
	cachedIDs  = 9
	cacheBits  = 16
	cacheSlots = 1 << cacheBits
)

// wordCache remembers what words are encoded to. A word has two places; where both are taken the word that comes last gets one.
// Readers and writers never wait: a reader that meets a writer takes it as a miss, a writer that meets another one leaves the place to
// it.
type wordCache struct {
	slots []cacheSlot
}

// cacheSlot holds one word.
type cacheSlot struct {
	// state is a version in the upper half, odd while a writer is at work, then the length of the word and the number of ids.
	state atomic.Uint64
	word  [cachedWord / 8]atomic.Uint64
	ids   [cachedIDs / 3]atomic.Uint64 // three to a word
}

func newWordCache() *wordCache { return &wordCache{slots: make([]cacheSlot, cacheSlots)} }

// longKey is the text of a word, filled up with zeros, and its length.
type longKey struct {
	text [cachedWord / 8]uint64
	size int
}

func makeLongKey(s string, at, n int) (key longKey) {
	key.size = n
	if at+cachedWord <= len(s) {
		for i := range key.text {
			if have := n - 8*i; have > 0 {
				key.text[i] = eight(s, at+8*i) & keyMasks[min(have, 8)].low
			}
		}
		return key
	}
	var b [cachedWord]byte
	copy(b[:], s[at:at+n])
	for i := range key.text {
		key.text[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return key
}

// cacheWays are the places of a word.
type cacheWays [2]cacheSlot

// at returns the places of the word with the hash.
func (c *wordCache) at(hash uint64) *cacheWays {
	at := (hash * 0x9E3779B97F4A7C15) >> (64 - cacheBits) &^ 1
	return (*cacheWays)(c.slots[at : at+2])
}

// hash is that of a word longer than recentWord; shorter ones have the hash of their wordKey.
func (key *longKey) hash() uint64 {
	a, b := bits.Mul64(key.text[0]^0x9E3779B97F4A7C15, key.text[1]^0xD1B54A32D192ED03^uint64(key.size))
	h := a ^ b
	if key.size > 16 {
		d, e := bits.Mul64(key.text[2]^0x8CB92BA72F3D8DD7, key.text[3]^0xA0761D6478BD642F)
		h ^= d ^ e
	}
	return h
}

// get appends the ids of the word if it is there.
func (w *cacheWays) get(dst []uint32, key *longKey) ([]uint32, bool) {
	for i := range w {
		if found, ok := w[i].get(dst, key); ok {
			return found, true
		}
	}
	return dst, false
}

func (c *cacheSlot) get(dst []uint32, key *longKey) ([]uint32, bool) {
	state := c.state.Load()
	if c.word[0].Load() != key.text[0] || state>>32&1 != 0 || int(state&0xFF) != key.size {
		return dst, false
	}
	for i := 1; 8*i < key.size; i++ {
		if c.word[i].Load() != key.text[i] {
			return dst, false
		}
	}
	count := int(state >> 8 & 0xFF)
	start := len(dst)
	for i := 0; i < count; i += 3 {
		packed := c.ids[i/3].Load()
		dst = append(dst, uint32(packed)&maxID, uint32(packed>>idBits)&maxID, uint32(packed>>(2*idBits))&maxID)
	}
	if c.state.Load() != state {
		return dst[:start], false
	}
	return dst[:start+count], true
}

// put stores the word, if it is not too long in tokens: in a free place, else in one that depends on how often both have changed.
func (w *cacheWays) put(key *longKey, ids []uint32) {
	if len(ids) > cachedIDs {
		return
	}
	first, second := w[0].state.Load(), w[1].state.Load()
	if at := &w[0]; first == 0 || second != 0 && (first+second)>>33&1 == 0 {
		at.put(first, key, ids)
	} else {
		w[1].put(second, key, ids)
	}
}

func (c *cacheSlot) put(state uint64, key *longKey, ids []uint32) {
	version := state >> 32
	if version&1 != 0 || !c.state.CompareAndSwap(state, (version+1)<<32) {
		return
	}
	for i := range key.text {
		c.word[i].Store(key.text[i])
	}
	for i := range c.ids {
		var packed uint64
		for j := range 3 {
			if at := 3*i + j; at < len(ids) {
				packed |= uint64(ids[at]) << (j * idBits)
			}
		}
		c.ids[i].Store(packed)
	}
	c.state.Store((version+2)<<32 | uint64(len(ids))<<8 | uint64(key.size))
}
