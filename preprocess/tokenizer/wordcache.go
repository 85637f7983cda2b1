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
	return &c.short[hash*hashLow>>(64-shortBits)]
}

func (c *wordCache) longAt(hash uint64) *longSlot {
	return &c.long[hash*hashLow>>(64-longBits)]
}

// longKey is the text of a word, filled up with zeros, and its length.
type longKey struct {
	text [cachedWord / 8]uint64
	size int
}

func makeLongKey(s string, at, n int) (key longKey) {
	key.size = n
	if at+cachedWord <= len(s) {
		masks := &longMasks[n]
		for i := range key.text {
			key.text[i] = eight(s, at+8*i) & masks[i]
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

// longMasks are the masks of the text of a word by its length.
var longMasks = func() (masks [cachedWord + 1][cachedWord / 8]uint64) {
	for n := range masks {
		for i := range masks[n] {
			masks[n][i] = firstBytes(n - 8*i)
		}
	}
	return masks
}()

// product is a hash that all processors make quickly.
func (key *longKey) product() uint64 {
	a, b := bits.Mul64(key.text[0]^0x9E3779B97F4A7C15, key.text[1]^0xD1B54A32D192ED03^uint64(key.size))
	d, e := bits.Mul64(key.text[2]^0x8CB92BA72F3D8DD7, key.text[3]^0xA0761D6478BD642F)
	return a ^ b ^ d ^ e
}

const (
	countBits   = 4
	versionBits = 64 - keyBits - countBits
)

// get writes the ids of the word and returns how many they are, if it is there.
func (set *shortSet) get(dst *[shortIDs]uint32, key wordKey) (count int, ok bool) {
	// Which of the two it is, if any, is found out without a branch.
	first, second := set[0].high.Load(), set[1].high.Load()
	differs, differs2 := set[0].differs(first, key), set[1].differs(second, key)
	which := (differs | -differs) >> 63
	slot, high := &set[which], first^(first^second)&-which
	if differs^(differs^differs2)&-which != 0 {
		return 0, false
	}
	for i := range slot.ids {
		unpackIDs((*[3]uint32)(dst[3*i:]), slot.ids[i].Load())
	}
	return int(high >> keyBits & (1<<countBits - 1)), slot.high.Load() == high
}

// differs is zero if the slot holds the word and nobody writes to it, given what was in its high.
func (slot *shortSlot) differs(high uint64, key wordKey) uint64 {
	return slot.low.Load() ^ key.low | (high^key.high)<<(64-keyBits) | high>>(64-versionBits)&1
}

// put stores the word in a free place, else in one that depends on how often both have changed. The ids have room for shortIDs.
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
	all := (*[shortIDs]uint32)(ids[:shortIDs])
	slot.write(key.low, packIDs([3]uint32(all[:3])), packIDs([3]uint32(all[3:])), (version+2)<<(64-versionBits)|uint64(len(ids))<<keyBits|key.high)
}

// get writes the ids of the word and returns how many they are, if it is there.
func (c *longSlot) get(dst *[longIDs]uint32, key *longKey) (count int, ok bool) {
	state := c.state.Load()
	differs := state>>32&1 | (state^uint64(key.size))&0xFF
	for i := range key.text {
		differs |= c.word[i].Load() ^ key.text[i]
	}
	if differs != 0 {
		return 0, false
	}
	for i := range c.ids {
		unpackIDs((*[3]uint32)(dst[3*i:]), c.ids[i].Load())
	}
	return int(state >> 8 & 0xFF), c.state.Load() == state
}

// put stores the word, if it is not too long in tokens. The ids have room for longIDs.
func (c *longSlot) put(key *longKey, ids []uint32) {
	if len(ids) > longIDs {
		return
	}
	state := c.state.Load()
	version := state >> 32
	if version&1 != 0 || !c.state.CompareAndSwap(state, (version+1)<<32) {
		return
	}
	all := (*[longIDs]uint32)(ids[:longIDs])
	packed := [longIDs / 3]uint64{packIDs([3]uint32(all[:3])), packIDs([3]uint32(all[3:6])), packIDs([3]uint32(all[6:]))}
	c.write(&key.text, &packed, (version+2)<<32|uint64(len(ids))<<8|uint64(key.size))
}

// packIDs makes three ids one word. What is in place of ids that are not there does not change those before.
func packIDs(ids [3]uint32) uint64 {
	return uint64(ids[0]) | uint64(ids[1])<<idBits | uint64(ids[2])<<(2*idBits)
}

// unpackIDs writes the ids of a word.
func unpackIDs(dst *[3]uint32, packed uint64) {
	dst[0], dst[1], dst[2] = uint32(packed)&maxID, uint32(packed>>idBits)&maxID, uint32(packed>>(2*idBits))&maxID
}
