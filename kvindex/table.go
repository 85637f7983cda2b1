package kvindex

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// table finds nodes by sequence hash. One goroutine at a time changes it; any number search it meanwhile.
//
// It is an open-addressing hash table without tombstones. A bucket is a cache line: seven entries, each with half of a hash and the
// number of a node, and a count of the entries that belong to the bucket but lie further on. An entry never moves; a table that has
// become too small is replaced by another.
type table struct {
	buckets []tableBucket
	count   int
}

type tableBucket [tableBucketSize + 1]atomic.Uint64

const (
	tableBucketSize = 7
	// A full table grows by a third, and so is between 0.6 and 0.8 full.
	tableFullPercent = 80
)

// candidates yields the numbers of nodes that may be the block's, until yield returns false. The hash is that of its sequence hash.
func (t *table) candidates(hash uint64, yield func(id uint32) bool) {
	if len(t.buckets) == 0 {
		return
	}
	at := within(hash, len(t.buckets))
	for range t.buckets {
		b := &t.buckets[at]
		for i := range tableBucketSize {
			if e := b[i].Load(); uint32(e>>32) == uint32(hash) && e != 0 && !yield(uint32(e)) {
				return
			}
		}
		if b[tableBucketSize].Load() == 0 {
			return
		}
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
}

// home returns the bucket that a hash belongs to. The table is not empty.
func (t *table) home(hash uint64) *tableBucket { return &t.buckets[within(hash, len(t.buckets))] }

// likely returns the number of the first node that may be the block's, or 0.
func (t *table) likely(home *tableBucket, hash uint64) (found uint32) {
	half := hash & 0xffffffff
	with := same(home[0].Load(), half) | same(home[1].Load(), half)<<1 | same(home[2].Load(), half)<<2 | same(home[3].Load(), half)<<3 |
		same(home[4].Load(), half)<<4 | same(home[5].Load(), half)<<5 | same(home[6].Load(), half)<<6
	for ; with != 0; with &= with - 1 {
		if e := home[bits.TrailingZeros64(with)&7].Load(); e != 0 {
			return uint32(e)
		}
	}
	if home[tableBucketSize].Load() != 0 {
		t.candidates(hash, func(id uint32) bool {
			found = id
			return false
		})
	}
	return found
}

// same is 1 for an entry with half of a hash, and 0 for others.
func same(e, half uint64) uint64 { return (e>>32 ^ half - 1) >> 63 }

func (t *table) full() bool {
	return t.count*100 >= len(t.buckets)*tableBucketSize*tableFullPercent
}

// insert adds a node. The table is not full.
func (t *table) insert(hash uint64, id uint32) {
	e := hash<<32 | uint64(id)
	at := within(hash, len(t.buckets))
	t.count++
	for {
		b := &t.buckets[at]
		for i := range tableBucketSize {
			if b[i].Load() == 0 {
				b[i].Store(e)
				return
			}
		}
		b[tableBucketSize].Store(b[tableBucketSize].Load() + 1)
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
}

// remove drops a node that is there.
func (t *table) remove(hash uint64, id uint32) {
	e := hash<<32 | uint64(id)
	at := within(hash, len(t.buckets))
	t.count--
	for {
		b := &t.buckets[at]
		for i := range tableBucketSize {
			if b[i].Load() == e {
				b[i].Store(0)
				return
			}
		}
		b[tableBucketSize].Store(b[tableBucketSize].Load() - 1)
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
}

// all yields all nodes.
func (t *table) all(yield func(id uint32) bool) {
	for at := range t.buckets {
		for i := range tableBucketSize {
			if e := t.buckets[at][i].Load(); e != 0 && !yield(uint32(e)) {
				return
			}
		}
	}
}

func (t *table) bytes() int { return len(t.buckets) * int(unsafe.Sizeof(tableBucket{})) }
