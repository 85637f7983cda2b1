package kvindex

import (
	"math/bits"
	"math/rand/v2"
	"unsafe"

	"signalbox/internal/prefetch"
)

// names maps 64-bit names, mostly an engine's block hashes, to numbers from 1 on. Only the goroutine that holds the shard uses it.
//
// It is an open-addressing hash table without tombstones. A bucket is a cache line, so that most operations cost one miss: five
// entries, and a note of the entries that belong to the bucket, or to one before, but lie further on because it was full.
type names struct {
	buckets []nameBucket
	count   int
}

// nameBucket is one cache line. A vacant entry has the number 0; numbers have no highest bit.
type nameBucket struct {
	name    [nameBucketSize]uint64
	number  [nameBucketSize]uint32
	further further
}

// further notes the entries that a search of this bucket must not miss in those behind it. The low bits count them. The others are a
// filter: each entry has set one of them. They are cleared when there are no entries left. A search ends where its bit is not set.
type further uint32

const (
	furtherCountBits = 10
	furtherCountMask = 1<<furtherCountBits - 1
)

// filterBit is the bit of an entry with this hash.
func filterBit(hash uint64) further {
	return 1 << (furtherCountBits + hash&0xffffffff*(32-furtherCountBits)>>32)
}

// add notes an entry; a count that is full stays so.
func (f *further) add(bit further) {
	if *f |= bit; *f&furtherCountMask != furtherCountMask {
		*f++
	}
}

// remove takes the note of an entry back.
func (f *further) remove() {
	if *f&furtherCountMask == furtherCountMask {
		return
	}
	if *f--; *f&furtherCountMask == 0 {
		*f = 0
	}
}

// used has a bit for each entry that is not vacant. There are no branches in it, nor in those below: where among the five a name is
// cannot be predicted.
func (b *nameBucket) used() uint32 {
	const carry = 1<<31 - 1
	return (b.number[0]+carry)>>31 | (b.number[1]+carry)>>31<<1 | (b.number[2]+carry)>>31<<2 | (b.number[3]+carry)>>31<<3 |
		(b.number[4]+carry)>>31<<4
}

// with has a bit for each entry with the name.
func (b *nameBucket) with(name uint64) uint32 {
	other := differs(b.name[0], name) | differs(b.name[1], name)<<1 | differs(b.name[2], name)<<2 | differs(b.name[3], name)<<3 |
		differs(b.name[4], name)<<4
	return uint32(other) ^ allEntries
}

// differs is 0 for equal names and 1 for others.
func differs(a, b uint64) uint64 {
	x := a ^ b
	return (x | -x) >> 63
}

const (
	nameBucketSize = 5
	allEntries     = 1<<nameBucketSize - 1
	// A full table grows by a quarter, and so is between 0.56 and 0.7 full.
	fullPercent = 70
	// A table that is less full than this shrinks to what growing would make of it.
	sparsePercent = 30
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

// warm begins to bring the name's bucket into the processor's cache, so that of many names one need not wait for the other.
func (t *names) warm(name uint64) {
	if len(t.buckets) > 0 {
		prefetch.One(unsafe.Pointer(&t.buckets[within(scramble(name), len(t.buckets))]))
	}
}

// locate returns the bucket that the name belongs to, and the one and the entry where it is; there is -1 if it is not in the table.
func (t *names) locate(name uint64) (home, there, entry int) {
	if len(t.buckets) == 0 {
		return -1, -1, 0
	}
	hash := scramble(name)
	bit := filterBit(hash)
	home = within(hash, len(t.buckets))
	at := home
	for range t.buckets {
		b := &t.buckets[at]
		if hit := b.with(name) & b.used(); hit != 0 {
			return home, at, bits.TrailingZeros32(hit)
		}
		if b.further&bit == 0 {
			break
		}
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
	return home, -1, 0
}

// find returns the number of a name.
func (t *names) find(name uint64) (number uint32, ok bool) {
	if _, at, i := t.locate(name); at >= 0 {
		return t.buckets[at].number[i], true
	}
	return 0, false
}

// reserve makes room for n more names, so that [names.enter] finds it.
func (t *names) reserve(n int) {
	if (t.count+n)*100 > len(t.buckets)*nameBucketSize*fullPercent {
		t.resize(max(len(t.buckets)*5/4, (t.count+n)*100/fullPercent/nameBucketSize) + 1)
	}
}

// enter adds a name, for which there is room, unless it is there, and returns the place of its number: 0 where it is new.
func (t *names) enter(name uint64) *uint32 {
	hash := scramble(name)
	home := &t.buckets[within(hash, len(t.buckets))]
	used := home.used()
	if hit := home.with(name) & used; hit != 0 {
		return &home.number[bits.TrailingZeros32(hit)]
	}
	if home.further&filterBit(hash) != 0 {
		if _, at, i := t.locate(name); at >= 0 {
			return &t.buckets[at].number[i]
		}
	}
	t.count++
	if used == allEntries {
		return t.place(name)
	}
	vacant := bits.TrailingZeros32(^used)
	home.name[vacant] = name
	return &home.number[vacant]
}

// insert adds a name that is not there.
func (t *names) insert(name uint64, number uint32) {
	t.reserve(1)
	t.count++
	*t.place(name) = number
}

// place puts a name into the first vacancy from its own bucket on, and returns the place of its number.
func (t *names) place(name uint64) *uint32 {
	hash := scramble(name)
	bit := filterBit(hash)
	at := within(hash, len(t.buckets))
	for {
		b := &t.buckets[at]
		if used := b.used(); used != allEntries {
			vacant := bits.TrailingZeros32(^used)
			b.name[vacant] = name
			return &b.number[vacant]
		}
		b.further.add(bit)
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
}

// remove drops a name and returns its number.
func (t *names) remove(name uint64) (number uint32, ok bool) {
	home, there, i := t.locate(name)
	if there < 0 {
		return 0, false
	}
	number = t.buckets[there].number[i]
	t.buckets[there].number[i] = 0
	for at := home; at != there; {
		t.buckets[at].further.remove()
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
	t.count--
	switch {
	case t.count == 0:
		*t = names{}
	case t.count*100 < len(t.buckets)*nameBucketSize*sparsePercent && len(t.buckets) > 8:
		t.resize(t.count*100/fullPercent/nameBucketSize*5/4 + 1)
	}
	return number, true
}

func (t *names) resize(buckets int) {
	old := *t
	t.buckets = make([]nameBucket, buckets)
	for name, number := range old.all {
		*t.place(name) = number
	}
}

// all yields all names, in no particular order. The table must not change meanwhile.
func (t *names) all(yield func(name uint64, number uint32) bool) {
	for at := range t.buckets {
		b := &t.buckets[at]
		for i := range nameBucketSize {
			if b.number[i] != 0 && !yield(b.name[i], b.number[i]) {
				return
			}
		}
	}
}

// renumber replaces every number.
func (t *names) renumber(moved []uint32) {
	for at := range t.buckets {
		b := &t.buckets[at]
		for i := range nameBucketSize {
			b.number[i] = moved[b.number[i]]
		}
	}
}

func (t *names) bytes() int { return len(t.buckets) * int(unsafe.Sizeof(nameBucket{})) }
