package tokenizer

import "unsafe"

// Merging a word is a chain of steps each of which depends on the one before, and most of them wait for memory that is far. Words do not
// depend on one another, so that several are merged at once, each in a lane of its own, which take steps in turn: while one waits, the
// processor is at work on others. For that a step is without branches: one that is not foreseen would undo what was begun meanwhile.

const (
	laneCount   = 8
	lanePlaces  = 64
	laneSymbols = lanePlaces - 2 // of a word that fits into a lane
	placeBits   = 6
	// narrow is how many places most words need; of these words the other places are not looked at.
	narrow = lanePlaces / 2
	noPair = none << placeBits // and all above it
)

// lane is a word that is being merged. Its symbols are at the places from 1 on, between two that stand for none. Merged symbols stay where
// they are, and those that count are linked.
type lane struct {
	pairs          [lanePlaces]uint32 // by place: of the pair that begins there, rank<<placeBits | place
	ids            [lanePlaces]uint32 // what these pairs become
	symbols        [lanePlaces]uint32
	next, previous [lanePlaces]uint8
	wanted         [2]wantedPair // beside the symbol that was merged last
	wide           bool          // more than the narrow places are in use
	end            uint8         // the place behind the last symbol
	word           int           // what the lane's user knows it by
}

// wantedPair is a pair that is to be looked up: its place among the merges, and that in the lane.
type wantedPair struct {
	bucket, tag uint64
	place       uint32
}

// unmerged is a lane in which nothing is merged and there are no pairs.
var unmerged = func() (l lane) {
	for i := range lanePlaces {
		l.next[i], l.previous[i] = uint8(i+1)%lanePlaces, uint8(i-1)%lanePlaces
		l.pairs[i] = noPair
	}
	return l
}()

// clear makes the lane ready for n symbols, which are to be put into their places.
func (l *lane) clear(m *merges, n int) {
	if l.wide = n+2 > narrow; l.wide {
		l.pairs, l.next, l.previous = unmerged.pairs, unmerged.next, unmerged.previous
	} else {
		*(*[narrow]uint32)(l.pairs[:]) = *(*[narrow]uint32)(unmerged.pairs[:])
		*(*[narrow]uint8)(l.next[:]) = *(*[narrow]uint8)(unmerged.next[:])
		*(*[narrow]uint8)(l.previous[:]) = *(*[narrow]uint8)(unmerged.previous[:])
	}
	l.wanted = unmerged.wanted // which nothing comes of
	l.end = uint8(n+1) % lanePlaces
	l.symbols[0], l.symbols[l.end] = m.nobody, m.nobody
}

// beginBytes puts a piece of at most laneSymbols bytes into the lane. All of them are symbols, with an id of one less than what bytes holds.
func (l *lane) beginBytes(m *merges, piece string, bytes *[256]uint32) {
	l.clear(m, len(piece))
	pairs := m.bytes[:1<<16]
	last := byte(0)
	for i := range len(piece) {
		c := piece[i]
		l.symbols[(i+1)%lanePlaces] = bytes[c] - 1
		pair := m.bytePairs[pairs[int(last)<<8|int(c)]]
		l.pairs[i%lanePlaces], l.ids[i%lanePlaces] = pair.rank<<placeBits|uint32(i), pair.id
		last = c
	}
	l.pairs[0] = noPair
}

// begin puts at most laneSymbols symbols into the lane.
func (l *lane) begin(m *merges, symbols []uint32) {
	l.clear(m, len(symbols))
	last := m.nobody
	for i, symbol := range symbols {
		l.symbols[(i+1)%lanePlaces] = symbol
		rank, id := m.rank(last, symbol)
		l.pairs[i%lanePlaces], l.ids[i%lanePlaces] = rank<<placeBits|uint32(i), id
		last = symbol
	}
}

// run merges the word and appends its ids.
func (l *lane) run(m *merges, dst []uint32) []uint32 {
	for m.step(unsafe.Slice(l, 1), []uint8{0}) == 0 {
	}
	return l.out(dst)
}

// out appends the symbols that are left.
func (l *lane) out(dst []uint32) []uint32 {
	for at := uint8(1); at != l.end; at = l.next[at%lanePlaces] {
		dst = append(dst, l.symbols[at%lanePlaces])
	}
	return dst
}

// stepGeneric is [merges.step] without instructions of a particular processor.
func (m *merges) stepGeneric(lanes []lane, order []uint8) (done uint64) {
	for _, i := range order {
		lanes[i].settle(m)
	}
	for at, i := range order {
		if !lanes[i].merge(m) {
			done |= 1 << at
		}
	}
	return done
}

// settle notes what came of the pairs that are looked up.
func (l *lane) settle(m *merges) {
	for i := range l.wanted {
		w := &l.wanted[i]
		rank, id := m.find(w.bucket, w.tag)
		l.pairs[w.place%lanePlaces], l.ids[w.place%lanePlaces] = rank<<placeBits|w.place, id
	}
}

// merge merges the pair of lowest rank, the leftmost of equals, and begins to look up the pairs that its token makes with its neighbours. It
// returns false if no pair is left.
func (l *lane) merge(m *merges) bool {
	best := lowest((*[narrow]uint32)(l.pairs[:]))
	if l.wide {
		best = min(best, lowest((*[narrow]uint32)(l.pairs[narrow:])))
	}
	if best >= noPair {
		return false
	}
	at := best % lanePlaces
	right := l.next[at] % lanePlaces
	after := l.next[right] % lanePlaces
	before := l.previous[at] % lanePlaces
	token := l.ids[at]
	l.symbols[at] = token
	l.next[at], l.previous[after] = after, uint8(at)
	l.pairs[right] = noPair
	l.wanted[0] = m.want(l.symbols[before], token, uint32(before))
	l.wanted[1] = m.want(token, l.symbols[after], at)
	return true
}

func lowest(pairs *[narrow]uint32) uint32 {
	best := ^uint32(0)
	for i := 0; i < narrow; i += 8 {
		p := (*[8]uint32)(pairs[i:])
		best = min(best, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7])
	}
	return best
}

// want says where to look a pair up.
func (m *merges) want(left, right, place uint32) wantedPair {
	bucket, tag := m.place(left, right)
	return wantedPair{bucket, tag, place}
}
