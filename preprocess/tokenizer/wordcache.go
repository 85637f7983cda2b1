package tokenizer

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// Bounds of the cache: words of up to cachedWord bytes. Both of its tables have two megabytes.
const (
	cachedWord = 32
	shortIDs   = 6
	longIDs    = 9
	shortBits  = 15
	longBits   = 15
)

// wordCache remembers what words are encoded to that are not one token: short ones, of up to shortWord bytes and shortIDs tokens, in one
// table and all others of up to cachedWord bytes and longIDs tokens in another, so that each costs one cache line. A word replaces what was
// in its place. Readers and writers never wait: a reader that meets a writer takes it as a miss, a writer that meets another one leaves the
// place to it.
type wordCache struct {
	short []shortSet
	long  []longSlot
}

// shortSet holds two words in a cache line.
type shortSet [2]shortSlot

// shortSlot holds one word: its key, how many ids it has and a version, odd while a writer is at work, above the key, and the ids.
type shortSlot struct {
	low, high atomic.Uint64
	ids       [shortIDs / 3]atomic.Uint64 // three to a word
}

// longSlot holds one word.
type longSlot struct {
	// state is a version in the upper half, odd while a writer is at work, then the number of ids and the length of the word.
	state atomic.Uint64
	word  [cachedWord / 8]atomic.Uint64
	ids   [longIDs / 3]atomic.Uint64 // three to a word
}

func newWordCache() *wordCache {
	return &wordCache{short: make([]shortSet, 1<<shortBits), long: make([]longSlot, 1<<longBits)}
}

// shortAt and longAt return the places of words with a hash.
func (c *wordCache) shortAt(hash uint64) *shortSet {
	return &c.short[hash*0x9E3779B97F4A7C15>>(64-shortBits)]
}

func (c *wordCache) longAt(hash uint64) *longSlot {
	return &c.long[hash*0x9E3779B97F4A7C15>>(64-longBits)]
}

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
				key.text[i] = eight(s, at+8*i) & firstBytes(have)
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

func (key *longKey) hash() uint64 {
	a, b := bits.Mul64(key.text[0]^0x9E3779B97F4A7C15, key.text[1]^0xD1B54A32D192ED03^uint64(key.size))
	d, e := bits.Mul64(key.text[2]^0x8CB92BA72F3D8DD7, key.text[3]^0xA0761D6478BD642F)
	return a ^ b ^ d ^ e
}

const (
	countBits   = 4
	versionBits = 64 - keyBits - countBits
)

// get appends the ids of the word if it is there.
func (set *shortSet) get(dst []uint32, key wordKey) ([]uint32, bool) {
	for i := range set {
		slot := &set[i]
		high := slot.high.Load()
		if slot.low.Load() != key.low || (high^key.high)<<(64-keyBits) != 0 || high>>(64-versionBits)&1 != 0 {
			continue
		}
		start := len(dst)
		dst = unpackIDs(dst, slot.ids[:], int(high>>keyBits&(1<<countBits-1)))
		if slot.high.Load() == high {
			return dst, true
		}
		dst = dst[:start]
	}
	return dst, false
}

// put stores the word in a free place, else in one that depends on how often both have changed.
func (set *shortSet) put(key wordKey, ids []uint32) {
	if len(ids) > shortIDs {
		return
	}
	first, second := set[0].high.Load(), set[1].high.Load()
	slot, high := &set[0], first
	if first != 0 && (second == 0 || (first+second)>>(64-versionBits+1)&1 != 0) {
		slot, high = &set[1], second
	}
	version := high >> (64 - versionBits)
	if version&1 != 0 || !slot.high.CompareAndSwap(high, (version+1)<<(64-versionBits)) {
		return
	}
	slot.low.Store(key.low)
	packIDs(slot.ids[:], ids)
	slot.high.Store((version+2)<<(64-versionBits) | uint64(len(ids))<<keyBits | key.high)
}

// get appends the ids of the word if it is there.
func (c *longSlot) get(dst []uint32, key *longKey) ([]uint32, bool) {
	state := c.state.Load()
	if state>>32&1 != 0 || int(state&0xFF) != key.size {
		return dst, false
	}
	for i := range key.text {
		if c.word[i].Load() != key.text[i] {
			return dst, false
		}
	}
	start := len(dst)
	dst = unpackIDs(dst, c.ids[:], int(state>>8&0xFF))
	if c.state.Load() != state {
		return dst[:start], false
	}
	return dst, true
}

// put stores the word, if it is not too long in tokens.
func (c *longSlot) put(key *longKey, ids []uint32) {
	if len(ids) > longIDs {
		return
	}
	state := c.state.Load()
	version := state >> 32
	if version&1 != 0 || !c.state.CompareAndSwap(state, (version+1)<<32) {
		return
	}
	for i := range key.text {
		c.word[i].Store(key.text[i])
	}
	packIDs(c.ids[:], ids)
	c.state.Store((version+2)<<32 | uint64(len(ids))<<8 | uint64(key.size))
}

// packIDs writes ids, three to a word; of one that is not filled the rest is zero.
func packIDs(words []atomic.Uint64, ids []uint32) {
	for i := range words {
		var packed uint64
		for j := range 3 {
			if at := 3*i + j; at < len(ids) {
				packed |= uint64(ids[at]) << (j * idBits)
			}
		}
		words[i].Store(packed)
	}
}

// unpackIDs appends count ids.
func unpackIDs(dst []uint32, words []atomic.Uint64, count int) []uint32 {
	start := len(dst)
	for i := 0; 3*i < count && i < len(words); i++ {
		packed := words[i].Load()
		dst = append(dst, uint32(packed)&maxID, uint32(packed>>idBits)&maxID, uint32(packed>>(2*idBits))&maxID)
	}
	return dst[:min(start+count, len(dst))]
}
