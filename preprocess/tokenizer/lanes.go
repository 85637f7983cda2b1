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
	// laneSize is the size in bytes of a lane.
	laneSize = 1 << laneBits
	laneBits = 10
)

// lanes are words that are merged at once.
type lanes struct {
	all    [laneCount]lane
	wanted wantedPairs
}

// lane is a word that is being merged. Its symbols are at the places from 1 on, between two that stand for none. Merged symbols stay where
// they are, and those that count are linked.
type lane struct {
	pairs          [lanePlaces]uint32 // by place: of the pair that begins there, rank<<placeBits | place
	ids            [lanePlaces]uint32 // what these pairs become
	symbols        [lanePlaces]uint32
	next, previous [lanePlaces]uint8
	word           uint32 // what the user of the lane knows it by
	first          uint32 // which place of all the first one is
	wide           bool   // more than the narrow places are in use
	end            uint8  // the place behind the last symbol
	_              [laneSize - 3*4*lanePlaces - 2*lanePlaces - 10]byte
}

// The places of all lanes are counted on from lane to lane, for which a lane has to have its size.
var _ = [1]struct{}{}[unsafe.Sizeof(lane{})-laneSize]

// wantedPairs are those that are to be looked up: what was merged last makes them with what is beside it. Pairs that [merges.filter] has not are
// none of them.
type wantedPairs struct {
	tags  [laneCount * lanePlaces]uint64
	where [laneCount * lanePlaces]wantedPlace
	count uint64
}

// wantedPlace is where a pair is among the merges, and among the places of all lanes.
type wantedPlace struct{ bucket, place uint32 }

// unmerged is a lane in which nothing is merged and there are no pairs.
var unmerged = func() (l lane) {
	for i := range lanePlaces {
		l.next[i], l.previous[i] = uint8(i+1)%lanePlaces, uint8(i-1)%lanePlaces
		l.pairs[i] = noPair
	}
	return l
}()

// clear makes a lane ready for n symbols, which are to be put into their places.
func (g *lanes) clear(m *merges, i uint8, n int) *lane {
	l := &g.all[i]
	l.wide = n+2 > narrow
	l.unlink()
	l.first = uint32(i) * (laneSize / 4)
	l.end = uint8(n+1) % lanePlaces
	l.symbols[0], l.symbols[l.end] = m.nobody, m.nobody
	return l
}

// unlinkGeneric is unlink without instructions of a particular processor.
func (l *lane) unlinkGeneric() {
	l.pairs, l.next, l.previous = unmerged.pairs, unmerged.next, unmerged.previous
}

// beginBytes puts a piece of at most laneSymbols bytes into a lane. All of them are symbols, with an id of one less than what bytes holds.
func (g *lanes) beginBytes(m *merges, i uint8, piece string, bytes *[256]uint32) {
	if l := g.clear(m, i, len(piece)); len(piece) > 0 {
		l.joinFirst(m, &g.wanted, piece, bytes)
	}
}

// joinFirstGeneric is joinFirst without instructions of a particular processor.
func (l *lane) joinFirstGeneric(m *merges, wanted *wantedPairs, piece string, bytes *[256]uint32) {
	for sure := l.beginPairs(m, piece, bytes); sure != 0; {
		at := uint32(bits.TrailingZeros64(sure))
		sure &= sure - 1
		before, token, after := l.join(at)
		wanted.add(m, l.symbols[before], token, l.first+before)
		if sure>>(at+2)&1 == 0 { // else what begins there is merged, too, and its pair with this one wanted then
			wanted.add(m, token, l.symbols[after], l.first+at)
		}
	}
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

// begin puts at most laneSymbols symbols into a lane.
func (g *lanes) begin(m *merges, i uint8, symbols []uint32) {
	l := g.clear(m, i, len(symbols))
	if len(symbols) > 0 {
		l.put(m, &g.wanted, symbols)
	}
}

// putGeneric is put without instructions of a particular processor.
func (l *lane) putGeneric(m *merges, wanted *wantedPairs, symbols []uint32) {
	last := m.nobody
	for i, symbol := range symbols {
		l.symbols[(i+1)%lanePlaces] = symbol
		wanted.add(m, last, symbol, l.first+uint32(i))
		last = symbol
	}
}

// run merges the word of a lane and appends its ids.
func (g *lanes) run(m *merges, i uint8, dst []uint32) []uint32 {
	for m.step(g, []uint8{i}) == 0 {
	}
	return g.all[i].out(dst)
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
func (m *merges) stepGeneric(g *lanes, order []uint8) (done uint64) {
	g.settle(m)
	for at, i := range order {
		if !g.all[i].merge(m, &g.wanted) {
			done |= 1 << at
		}
	}
	return done
}

// settle looks the wanted pairs up.
func (g *lanes) settle(m *merges) {
	for i := range g.wanted.count {
		w := g.wanted.where[i]
		rank, id := m.find(uint64(w.bucket), g.wanted.tags[i])
		l, at := &g.all[w.place/(laneSize/4)], w.place%lanePlaces
		l.pairs[at], l.ids[at] = rank<<placeBits|at, id
	}
	g.wanted.count = 0
}

// merge merges the pair of lowest rank, the leftmost of equals, and wants those that its token makes with its neighbours. It returns false if no
// pair is left.
func (l *lane) merge(m *merges, wanted *wantedPairs) bool {
	best := lowest((*[narrow]uint32)(l.pairs[:]))
	if l.wide {
		best = min(best, lowest((*[narrow]uint32)(l.pairs[narrow:])))
	}
	if best >= noPair {
		return false
	}
	at := best % lanePlaces
	before, token, after := l.join(at)
	wanted.add(m, l.symbols[before], token, l.first+before)
	wanted.add(m, token, l.symbols[after], l.first+at)
	return true
}

// join merges the pair at a place, and returns what it becomes and the places before and behind it.
func (l *lane) join(at uint32) (before, token, after uint32) {
	right := l.next[at%lanePlaces] % lanePlaces
	next := l.next[right] % lanePlaces
	before = uint32(l.previous[at%lanePlaces] % lanePlaces)
	token = l.ids[at%lanePlaces]
	l.symbols[at%lanePlaces] = token
	l.next[at%lanePlaces], l.previous[next] = next, uint8(at)
	l.pairs[before], l.pairs[at%lanePlaces], l.pairs[right] = noPair, noPair, noPair
	return before, token, uint32(next)
}

func lowest(pairs *[narrow]uint32) uint32 {
	best := ^uint32(0)
	for i := 0; i < narrow; i += 8 {
		p := (*[8]uint32)(pairs[i:])
		best = min(best, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7])
	}
	return best
}

// add wants a pair, for a place among those of all lanes, and asks for where it is, unless it is none of the merges for sure. That depends on no
// branch, which nothing could foresee.
func (w *wantedPairs) add(m *merges, left, right, place uint32) {
	bucket, tag := m.place(left, right)
	w.tags[w.count%uint64(len(w.tags))], w.where[w.count%uint64(len(w.tags))] = tag, wantedPlace{uint32(bucket), place}
	maybe := uint64(m.filter[bucket] >> (right % 32) & 1)
	w.count += maybe
	prefetch.One(unsafe.Pointer(&m.buckets[bucket&-maybe]))
}
