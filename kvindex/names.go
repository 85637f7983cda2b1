package kvindex

import (
	"math/bits"
	"math/rand/v2"
	"unsafe"
)

// names maps 64-bit names, mostly an engine's block hashes, to numbers from 1 on. Only the goroutine that holds the shard uses it.
//
// It is an open-addressing hash table without tombstones. A bucket is a cache line, so that most operations cost one miss: five
// entries, and a count of the entries that belong to the bucket but lie further on because it was full. A search ends where that
// count is 0.
type names struct {
	buckets []nameBucket
	count   int
}

// nameBucket holds names in halves, for their alignment. A vacant entry has the number 0.
type nameBucket struct {
	low, high, number [nameBucketSize]uint32
	further           uint32
}

const (
	nameBucketSize = 5
	// A full table grows by a quarter, and so is between 0.68 and 0.85 full.
	fullPercent = 85
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

// home returns the bucket that a name belongs to. The table is not empty.
func (t *names) home(name uint64) int { return within(scramble(name), len(t.buckets)) }

// warm brings the name's bucket into the processor's cache. The result is of no interest; whoever sums up the results of many
// names keeps the processor from waiting for one after the other.
func (t *names) warm(name uint64) uint32 {
	if len(t.buckets) == 0 {
		return 0
	}
	return t.buckets[t.home(name)].further
}

// locate returns where the name is; -1 if it is not there.
func (t *names) locate(name uint64) (bucket, entry int) {
	if len(t.buckets) == 0 {
		return -1, 0
	}
	low, high := uint32(name), uint32(name>>32)
	at := t.home(name)
	for range t.buckets {
		b := &t.buckets[at]
		for i := range nameBucketSize {
			if b.low[i] == low && b.high[i] == high && b.number[i] != 0 {
				return at, i
			}
		}
		if b.further == 0 {
			break
		}
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
	return -1, 0
}

// find returns the number of a name.
func (t *names) find(name uint64) (number uint32, ok bool) {
	if at, i := t.locate(name); at >= 0 {
		return t.buckets[at].number[i], true
	}
	return 0, false
}

// insert adds a name that is not there.
func (t *names) insert(name uint64, number uint32) {
	if t.count*100 >= len(t.buckets)*nameBucketSize*fullPercent {
		t.resize(len(t.buckets) + len(t.buckets)/4 + 1)
	}
	t.count++
	t.place(name, number)
}

// place puts a name into the first vacancy from its own bucket on; there is one.
func (t *names) place(name uint64, number uint32) {
	at := t.home(name)
	for {
		b := &t.buckets[at]
		for i := range nameBucketSize {
			if b.number[i] == 0 {
				b.low[i], b.high[i], b.number[i] = uint32(name), uint32(name>>32), number
				return
			}
		}
		b.further++
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
}

// remove drops a name and returns its number.
func (t *names) remove(name uint64) (number uint32, ok bool) {
	there, i := t.locate(name)
	if there < 0 {
		return 0, false
	}
	number = t.buckets[there].number[i]
	t.buckets[there].number[i] = 0
	for at := t.home(name); at != there; {
		t.buckets[at].further--
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
		t.place(name, number)
	}
}

// all yields all names, in no particular order. The table must not change meanwhile.
func (t *names) all(yield func(name uint64, number uint32) bool) {
	for at := range t.buckets {
		b := &t.buckets[at]
		for i := range nameBucketSize {
			if b.number[i] != 0 && !yield(uint64(b.high[i])<<32|uint64(b.low[i]), b.number[i]) {
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
