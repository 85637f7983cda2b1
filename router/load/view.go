package load

import "time"

// Projection is the load of one rank, and what one more request would add to it.
type Projection struct {
	ActivePrefillTokens    uint64
	ActiveDecodeBlocks     uint64
	AdditionalActiveBlocks uint64
	ActiveRequests         uint64
}

// View is a projection of all ranks for one prompt. Its memory is reused from one projection to the next. The zero View is ready.
type View struct {
	tracker *Tracker
	now     time.Duration
	total   int // blocks of the prompt
	epoch   uint32
	marks   []mark // by row
}

// mark is how far a rank's active prefix reaches into the prompt; older epochs mean not at all.
type mark struct {
	epoch   uint32
	depth   int32
	deepest int32
}

// Project looks at every rank at now for a prompt with the given sequence hashes.
func (t *Tracker) Project(view *View, hashes []uint64, now time.Duration) {
	view.tracker, view.now, view.total = t, now, len(hashes)
	if len(view.marks) < len(t.ranks) {
		view.marks = append(view.marks, make([]mark, len(t.ranks)-len(view.marks))...)
	}
	if view.epoch++; view.epoch == 0 {
		clear(view.marks)
		view.epoch = 1
	}
	t.blocks.walk(hashes, func(members []member, depth int) {
		for _, m := range members {
			view.marks[m.rank] = mark{epoch: view.epoch, depth: int32(depth), deepest: m.record}
		}
	})
}

// ProjectExclusive looks at every rank at now for a prompt of which no block is shared with any other request.
func (t *Tracker) ProjectExclusive(view *View, count int, now time.Duration) {
	t.Project(view, nil, now)
	view.total = count
}

// At returns the projection of a row. Rows that do not exist yet are idle.
func (v *View) At(row int32) Projection {
	if row < 0 || int(row) >= len(v.tracker.ranks) || !v.tracker.ranks[row].used {
		return Projection{AdditionalActiveBlocks: uint64(v.total)}
	}
	rank := &v.tracker.ranks[row]
	_, depth := v.shared(row)
	return Projection{
		ActivePrefillTokens:    v.tracker.activeTokens(&rank.prefill, v.now),
		ActiveDecodeBlocks:     rank.weight.blocks(),
		AdditionalActiveBlocks: uint64(v.total - depth),
		ActiveRequests:         uint64(rank.count),
	}
}

// shared returns the last record of the prompt's active prefix on a rank, and the prefix' length.
func (v *View) shared(row int32) (deepest int32, depth int) {
	if int(row) < len(v.marks) && v.marks[row].epoch == v.epoch {
		return v.marks[row].deepest, int(v.marks[row].depth)
	}
	return none, 0
}

// PrefillTokens returns the prompt tokens that a row has yet to compute at now; 0 for a row that does not exist.
func (t *Tracker) PrefillTokens(row int32, now time.Duration) uint64 {
	if row < 0 || int(row) >= len(t.ranks) || !t.ranks[row].used {
		return 0
	}
	return t.activeTokens(&t.ranks[row].prefill, now)
}

// walk visits, from short to long, the sets of ranks that hold ever longer prefixes of the prompt: each rank's last visit has
// the length of its own. Equal sequence hashes mean equal prefixes, so the sets are nested, and sets of equal size are equal:
// the walk leaps over them by bisection instead of looking at every block.
func (b *blocks) walk(hashes []uint64, visit func(members []member, depth int)) {
	for depth := 0; depth < len(hashes); {
		at := b.find(hashes[depth])
		if at == none {
			return
		}
		count := b.entries[at].count
		// The set of hashes[depth] reaches at least to low; the first block with another set is beyond, at most at high.
		low, high := depth, len(hashes)
		for step := 1; low+step < high; step *= 2 {
			if next := b.find(hashes[low+step]); next != none && b.entries[next].count == count {
				low, at = low+step, next
				continue
			}
			high = low + step
		}
		for high-low > 1 {
			middle := int(uint(low+high) / 2)
			if next := b.find(hashes[middle]); next != none && b.entries[next].count == count {
				low, at = middle, next
			} else {
				high = middle
			}
		}
		visit(b.members(at), low+1)
		depth = low + 1
	}
}

// deepest returns the last record of the prompt's active prefix on one rank, and the prefix' length.
func (b *blocks) deepest(hashes []uint64, rank int32) (last int32, depth int) {
	last = none
	b.walk(hashes, func(members []member, reached int) {
		for _, m := range members {
			if m.rank == rank {
				last, depth = m.record, reached
				return
			}
		}
	})
	return last, depth
}
