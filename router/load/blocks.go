package load

import "math/bits"

// none is the index that refers to nothing.
const none = int32(-1)

// record is one block held on one rank. The records of a rank form a tree by parent: a path from a record to the root is the
// prompt that ends there.
type record struct {
	weight float64 // share of a whole block; 1 unless decayed
	entry  int32
	parent int32
	rank   int32
	refs   int32 // requests whose prompt runs through the record
	place  int32 // where it stands among the entry's members
}

// member is a rank that holds a block, with its record.
type member struct{ rank, record int32 }

// entry is one block identity with the ranks that hold it. A single member, the usual case, needs no list.
type entry struct {
	hash   uint64
	count  int32
	single [1]member
	list   int32 // start in lists.slots when count > 1
	class  int8  // the list has room for 1<<class members
}

// blocks is the table of all blocks that active requests hold.
type blocks struct {
	records       []record
	vacantRecords []int32
	entries       []entry
	vacantEntries []int32
	lists         lists

	// table finds entries by hash: open addressing with linear probing.
	table []place
	used  int
}

// place is one place of the table; the zero place is empty. The mark tells nearly all other hashes apart, and where the search
// began, without a look at the entry.
type place struct {
	mark  uint32
	entry int32 // index + 1
}

// markOf returns a hash's mark: its best mixed bits.
func markOf(hash uint64) uint32 { return uint32((hash * 0x9e3779b97f4a7c15) >> 32) }

// home returns the place in the table where the search for a mark starts.
func (b *blocks) home(mark uint32) int {
	return int(mark >> (32 - bits.Len(uint(len(b.table)-1))))
}

// find returns the entry of a hash, or none.
func (b *blocks) find(hash uint64) int32 {
	if b.used == 0 {
		return none
	}
	mask, mark := len(b.table)-1, markOf(hash)
	for at := b.home(mark); ; at = (at + 1) & mask {
		there := b.table[at]
		if there.entry == 0 {
			return none
		}
		if there.mark == mark && b.entries[there.entry-1].hash == hash {
			return there.entry - 1
		}
	}
}

// claim returns the entry of a hash, making it if need be.
func (b *blocks) claim(hash uint64) int32 {
	if found := b.find(hash); found != none {
		return found
	}
	if (b.used+1)*3 > len(b.table)*2 {
		b.grow()
	}
	index := take(&b.entries, &b.vacantEntries)
	b.entries[index] = entry{hash: hash}
	b.insert(place{mark: markOf(hash), entry: index + 1})
	b.used++
	return index
}

func (b *blocks) insert(new place) {
	mask := len(b.table) - 1
	at := b.home(new.mark)
	for b.table[at].entry != 0 {
		at = (at + 1) & mask
	}
	b.table[at] = new
}

func (b *blocks) grow() {
	old := b.table
	b.table = make([]place, max(64, 2*len(old)))
	for _, there := range old {
		if there.entry != 0 {
			b.insert(there)
		}
	}
}

// drop removes an entry without members. Later entries of the same run move up, so that no gravestones slow the searches down.
func (b *blocks) drop(index int32) {
	mask := len(b.table) - 1
	at := b.home(markOf(b.entries[index].hash))
	for b.table[at].entry != index+1 {
		at = (at + 1) & mask
	}
	for next := (at + 1) & mask; b.table[next].entry != 0; next = (next + 1) & mask {
		if (next-b.home(b.table[next].mark))&mask >= (next-at)&mask {
			b.table[at] = b.table[next]
			at = next
		}
	}
	b.table[at] = place{}
	b.used--
	b.vacantEntries = append(b.vacantEntries, index)
}

// hold makes a record for a block on a rank, below parent.
func (b *blocks) hold(hash uint64, rank, parent int32) int32 {
	at := b.claim(hash)
	index := take(&b.records, &b.vacantRecords)
	b.records[index] = record{weight: 1, entry: at, parent: parent, rank: rank}
	b.join(at, index)
	return index
}

// release removes a record that nobody uses.
func (b *blocks) release(index int32) {
	at := b.records[index].entry
	b.leave(at, b.records[index].place)
	b.vacantRecords = append(b.vacantRecords, index)
	if b.entries[at].count == 0 {
		b.drop(at)
	}
}

// members returns the ranks that hold the block. The slice is valid until the next change.
func (b *blocks) members(at int32) []member {
	e := &b.entries[at]
	if e.count > 1 {
		return b.lists.slots[e.list : e.list+e.count]
	}
	return e.single[:e.count]
}

func (b *blocks) join(at, index int32) {
	e := &b.entries[at]
	joined := member{rank: b.records[index].rank, record: index}
	b.records[index].place = e.count
	switch {
	case e.count == 0:
		e.single[0] = joined
	case e.count == 1:
		e.class = 1
		e.list = b.lists.take(e.class)
		b.lists.slots[e.list] = e.single[0]
		b.lists.slots[e.list+1] = joined
	default:
		if e.count == 1<<e.class {
			wider := b.lists.take(e.class + 1)
			copy(b.lists.slots[wider:], b.lists.slots[e.list:e.list+e.count])
			b.lists.put(e.class, e.list)
			e.class, e.list = e.class+1, wider
		}
		b.lists.slots[e.list+e.count] = joined
	}
	e.count++
}

func (b *blocks) leave(at, place int32) {
	e := &b.entries[at]
	e.count--
	switch {
	case e.count == 0:
		return
	case e.count == 1:
		e.single[0] = b.lists.slots[e.list+1-place]
		b.records[e.single[0].record].place = 0
		b.lists.put(e.class, e.list)
	default:
		last := b.lists.slots[e.list+e.count]
		b.lists.slots[e.list+place] = last
		b.records[last.record].place = place
		if e.class > 1 && e.count <= 1<<(e.class-2) {
			narrower := b.lists.take(e.class - 1)
			copy(b.lists.slots[narrower:], b.lists.slots[e.list:e.list+e.count])
			b.lists.put(e.class, e.list)
			e.class, e.list = e.class-1, narrower
		}
	}
}

// lists hands out runs of 1<<class members from one slab.
type lists struct {
	slots  []member
	vacant [32][]int32
}

func (l *lists) take(class int8) int32 {
	if vacant := &l.vacant[class]; len(*vacant) > 0 {
		last := len(*vacant) - 1
		start := (*vacant)[last]
		*vacant = (*vacant)[:last]
		return start
	}
	start := int32(len(l.slots))
	l.slots = append(l.slots, make([]member, 1<<class)...)
	return start
}

func (l *lists) put(class int8, start int32) { l.vacant[class] = append(l.vacant[class], start) }

// take returns a vacant index of a slab, or a new one.
func take[T any](slab *[]T, vacant *[]int32) int32 {
	if last := len(*vacant) - 1; last >= 0 {
		index := (*vacant)[last]
		*vacant = (*vacant)[:last]
		return index
	}
	var zero T
	*slab = append(*slab, zero)
	return int32(len(*slab) - 1)
}
