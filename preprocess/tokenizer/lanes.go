package tokenizer

import (
	"math/bits"
	"slices"
	"unsafe"

	"signalbox/internal/prefetch"
)

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
	wanted         [lanePlaces]wantedPair // those beside the symbol that was merged last, or those that it begins with
	wants          uint32                 // how many they are, at least one
	wide           bool                   // more than the narrow places are in use
	end            uint8                  // the place behind the last symbol
	word           int                    // what the lane's user knows it by
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
	l.wanted[0], l.wants = wantedPair{}, 1 // which nothing comes of
	l.end = uint8(n+1) % lanePlaces
	l.symbols[0], l.symbols[l.end] = m.nobody, m.nobody
}

// beginBytes puts a piece of at most laneSymbols bytes into the lane. All of them are symbols, with an id of one less than what bytes holds.
func (l *lane) beginBytes(m *merges, piece string, bytes *[256]uint32) {
	l.clear(m, len(piece))
	if len(piece) > 0 {
		l.joinFirst(m, piece, bytes)
	}
}

// joinFirstGeneric is joinFirst without instructions of a particular processor.
func (l *lane) joinFirstGeneric(m *merges, piece string, bytes *[256]uint32) {
	wants := uint32(0)
	for sure := l.beginPairs(m, piece, bytes); sure != 0; sure &= sure - 1 {
		l.join(m, uint32(bits.TrailingZeros64(sure)), wants)
		wants += 2
	}
	l.wants = max(wants, 1)
}

// beginPairs puts bytes into the lane and what pairs of them become, and returns a bit for each place of a pair that is merged whatever else is.
func (l *lane) beginPairs(m *merges, piece string, bytes *[256]uint32) (sure uint64) {
	pairs := m.bytes[:1<<16]
	l.symbols[1] = bytes[piece[0]] - 1
	last := bytePair{rank: none, before: none}
	limit := uint32(none) // the rank below which the last pair is merged, for all that comes before it
	for i := 1; i < len(piece); i++ {
		l.symbols[(i+1)%lanePlaces] = bytes[piece[i]] - 1
		pair := m.bytePairs[pairs[int(piece[i])<<8|int(piece[i-1])]]
		l.pairs[i%lanePlaces], l.ids[i%lanePlaces] = pair.rank<<placeBits|uint32(i), pair.id
		if last.rank < min(limit, pair.behind) {
			sure |= 1 << ((i - 1) % lanePlaces)
		}
		limit, last = last.before, pair
	}
	if last.rank < limit {
		sure |= 1 << ((len(piece) - 1) % lanePlaces)
	}
	return sure
}

// begin puts at most laneSymbols symbols into the lane.
func (l *lane) begin(m *merges, symbols []uint32) {
	l.clear(m, len(symbols))
	last := m.nobody
	for i, symbol := range symbols {
		l.symbols[(i+1)%lanePlaces] = symbol
		l.want(m, uint32(i), last, symbol, uint32(i))
		prefetch.One(unsafe.Pointer(&m.buckets[l.wanted[i%lanePlaces].bucket]))
		last = symbol
	}
	l.wants = max(uint32(len(symbols)), 1)
}

// run merges the word and appends its ids.
func (l *lane) run(m *merges, dst []uint32) []uint32 {
	for m.step(unsafe.Slice(l, 1), []uint8{0}) == 0 {
	}
	return l.out(dst)
}

// out appends the symbols that are left.
func (l *lane) out(dst []uint32) []uint32 {
	dst = slices.Grow(dst, lanePlaces)
	room := dst[len(dst) : len(dst)+lanePlaces]
	n := 0
	for at := l.next[0]; at != l.end; at = l.next[at%lanePlaces] {
		room[n%lanePlaces] = l.symbols[at%lanePlaces]
		n++
	}
	return dst[:len(dst)+n]
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
	for i := range l.wants {
		w := &l.wanted[i%lanePlaces]
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
	l.join(m, at, 0)
	l.wants = 2
	return true
}

// join merges the pair at a place and begins to look up those that its token makes with its neighbours, the first of which is to be in so
// many's place among the wanted ones.
func (l *lane) join(m *merges, at, wants uint32) {
	right := l.next[at%lanePlaces] % lanePlaces
	after := l.next[right] % lanePlaces
	before := l.previous[at%lanePlaces] % lanePlaces
	token := l.ids[at%lanePlaces]
	l.symbols[at%lanePlaces] = token
	l.next[at%lanePlaces], l.previous[after] = after, uint8(at)
	l.pairs[right] = noPair
	l.want(m, wants, l.symbols[before], token, uint32(before))
	l.want(m, wants+1, token, l.symbols[after], at)
}

func lowest(pairs *[narrow]uint32) uint32 {
	best := ^uint32(0)
	for i := 0; i < narrow; i += 8 {
		p := (*[8]uint32)(pairs[i:])
		best = min(best, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7])
	}
	return best
}

// want says where to look a pair up, as one of the wanted ones.
func (l *lane) want(m *merges, i, left, right, place uint32) {
	bucket, tag := m.place(left, right)
	l.wanted[i%lanePlaces] = wantedPair{bucket, tag, place}
}
