package kvindex

import (
	"math/bits"
	"math/rand/v2"
	"unsafe"
)

// names maps 64-bit names, mostly an engine's block hashes, to 32-bit numbers. Only the goroutine that holds the shard uses it.
//
// It is an open-addressing hash table without tombstones. Entries lie in groups of fifteen; a group's sixteen control bytes are
// one tag per entry, and a count of the entries that belong to the group but lie further on because it was full. A search ends
// where that count is 0. Control bytes of a rank's table stay in the processor's cache, so that an operation costs one miss.
type names struct {
	control []uint64 // two words a group, tags from the lowest byte on, the count in the highest
	entries []entry
	count   int
}

// entry is 12 bytes: a name in halves, for its alignment, and its number.
type entry struct {
	low, high uint32
	value     uint32
}

const (
	groupSize = 15
	// A full table grows by a third, and so is between 0.64 and 0.85 full.
	maxLoadPercent = 85
	// A table that is less full than this shrinks to what growing would make of it.
	minLoadPercent = 30

	eachByte  = 0x0101010101010101
	highBits  = 0x8080808080808080
	lowSeven  = 0x0080808080808080 // high bits of all bytes but the count
	fullCount = 255                // a count that stays
)

// hashSeed keeps anyone who chooses names from choosing collisions.
var hashSeed = rand.Uint64()

// scramble makes all bits of the result depend on all bits of the name.
func scramble(name uint64) uint64 {
	high, low := bits.Mul64(name^hashSeed, 0x9e3779b97f4a7c15)
	return high ^ low
}

// within maps a hash to 0 … n-1.
func within(hash uint64, n int) int {
	high, _ := bits.Mul64(hash, uint64(n))
	return int(high)
}

func (t *names) groups() int { return len(t.control) / 2 }

// tagOf is never 0, which means that an entry is vacant.
func tagOf(hash uint64) uint64 { return hash&0x7f | 0x80 }

// locate returns the index of the name's entry, or -1.
func (t *names) locate(name uint64) int {
	groups := t.groups()
	if groups == 0 {
		return -1
	}
	hash := scramble(name)
	pattern := tagOf(hash) * eachByte
	for group, tried := within(hash, groups), 0; tried < groups; tried++ {
		first, second := t.control[2*group], t.control[2*group+1]
		x := first ^ pattern
		for hit := (x - eachByte) &^ x & highBits; hit != 0; hit &= hit - 1 {
			at := group*groupSize + bits.TrailingZeros64(hit)>>3
			if e := &t.entries[at]; e.low == uint32(name) && e.high == uint32(name>>32) {
				return at
			}
		}
		x = second ^ pattern
		for hit := (x - eachByte) &^ x & lowSeven; hit != 0; hit &= hit - 1 {
			at := group*groupSize + 8 + bits.TrailingZeros64(hit)>>3
			if e := &t.entries[at]; e.low == uint32(name) && e.high == uint32(name>>32) {
				return at
			}
		}
		if second>>56 == 0 {
			return -1
		}
		if group++; group == groups {
			group = 0
		}
	}
	return -1
}

// find returns the number of a name.
func (t *names) find(name uint64) (value uint32, ok bool) {
	if at := t.locate(name); at >= 0 {
		return t.entries[at].value, true
	}
	return 0, false
}

// insert adds a name that is not there.
func (t *names) insert(name uint64, value uint32) {
	if t.count*100 >= len(t.entries)*maxLoadPercent {
		t.resize(t.groups() + t.groups()/3 + 1)
	}
	t.count++
	t.place(scramble(name), entry{uint32(name), uint32(name >> 32), value})
}

// place puts an entry into the first vacancy from its own group on; there is one.
func (t *names) place(hash uint64, e entry) {
	groups := t.groups()
	tag := tagOf(hash)
	group := within(hash, groups)
	for {
		word := 2 * group
		vacant := ^t.control[word] & highBits
		at := group * groupSize
		if vacant == 0 {
			word++
			at += 8
			vacant = ^t.control[word] & lowSeven
		}
		if vacant != 0 {
			shift := bits.TrailingZeros64(vacant) &^ 7
			t.control[word] |= tag << shift
			t.entries[at+shift>>3] = e
			return
		}
		if t.control[word]>>56 != fullCount {
			t.control[word] += 1 << 56
		}
		if group++; group == groups {
			group = 0
		}
	}
}

// remove drops a name and returns its number.
func (t *names) remove(name uint64) (value uint32, ok bool) {
	at := t.locate(name)
	if at < 0 {
		return 0, false
	}
	value = t.entries[at].value
	there, slot := at/groupSize, at%groupSize
	if slot < 8 {
		t.control[2*there] &^= 0xff << (8 * slot)
	} else {
		t.control[2*there+1] &^= 0xff << (8 * (slot - 8))
	}
	groups := t.groups()
	for group := within(scramble(name), groups); group != there; {
		if count := t.control[2*group+1] >> 56; count != fullCount {
			t.control[2*group+1] -= 1 << 56
		}
		if group++; group == groups {
			group = 0
		}
	}
	t.count--
	if t.count*100 < len(t.entries)*minLoadPercent && t.groups() > 4 {
		t.resize(t.count*100/maxLoadPercent/groupSize*4/3 + 1)
	}
	return value, true
}

func (t *names) resize(groups int) {
	old := *t
	t.control = make([]uint64, 2*groups)
	t.entries = make([]entry, groups*groupSize)
	for name, value := range old.all {
		t.place(scramble(name), entry{uint32(name), uint32(name >> 32), value})
	}
}

// all yields all names, in no particular order. The table must not change meanwhile, except through [names.renumber].
func (t *names) all(yield func(name uint64, value uint32) bool) {
	for at := range t.entries {
		if t.used(at) {
			e := t.entries[at]
			if !yield(uint64(e.high)<<32|uint64(e.low), e.value) {
				return
			}
		}
	}
}

func (t *names) used(at int) bool {
	group, slot := at/groupSize, at%groupSize
	return t.control[2*group+slot/8]>>(8*(slot%8))&0x80 != 0
}

// renumber replaces every number.
func (t *names) renumber(by func(value uint32) uint32) {
	for at := range t.entries {
		if t.used(at) {
			t.entries[at].value = by(t.entries[at].value)
		}
	}
}

func (t *names) bytes() int { return len(t.control)*8 + len(t.entries)*int(unsafe.Sizeof(entry{})) }
