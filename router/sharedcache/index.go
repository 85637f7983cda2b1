package sharedcache

import "sync"

// maxObjects is how many objects an index holds; beyond, it starts over.
const maxObjects = 1_000_000

// index is the objects that are there, by page. It holds no pointers per page.
type index struct {
	mutex sync.RWMutex
	// parts is how many objects make a page, words how many of bits a page has.
	parts, words int
	slots        map[Page]int32
	held         []int32  // by slot: objects that are there
	bits         []uint64 // by slot, words each
	free         []int32
	objects      int
}

// reset empties the index and makes it one of pages with that many parts.
func (x *index) reset(parts int) {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	x.parts, x.words = parts, (parts+63)/64
	x.empty()
}

// clear forgets everything.
func (x *index) clear() {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	x.empty()
}

func (x *index) empty() {
	x.slots, x.objects = make(map[Page]int32), 0
	x.held, x.bits, x.free = nil, nil, nil
}

// stored adds an object. The caller holds the mutex.
func (x *index) stored(page Page, part int) {
	slot, known := x.slots[page]
	if !known {
		if last := len(x.free) - 1; last >= 0 {
			slot, x.free = x.free[last], x.free[:last]
		} else {
			slot = int32(len(x.held))
			x.held = append(x.held, 0)
			x.bits = append(x.bits, make([]uint64, x.words)...)
		}
		x.slots[page] = slot
	}
	word, bit := &x.bits[int(slot)*x.words+part/64], uint64(1)<<(part%64)
	if *word&bit == 0 {
		*word |= bit
		x.held[slot]++
		x.objects++
	}
}

// removed deletes an object; one that is not there is none. The caller holds the mutex.
func (x *index) removed(page Page, part int) {
	slot, known := x.slots[page]
	if !known {
		return
	}
	word, bit := &x.bits[int(slot)*x.words+part/64], uint64(1)<<(part%64)
	if *word&bit == 0 {
		return
	}
	*word &^= bit
	x.held[slot]--
	x.objects--
	if x.held[slot] == 0 {
		delete(x.slots, page)
		x.free = append(x.free, slot)
	}
}

// complete tells whether all objects of a page are there. The caller holds the mutex for reading at least.
func (x *index) complete(page Page) bool {
	slot, known := x.slots[page]
	return known && int(x.held[slot]) == x.parts
}
