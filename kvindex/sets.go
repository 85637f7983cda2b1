package kvindex

import (
	"math/bits"
	"sync/atomic"
)

// A set of ranks is one word, so that a look-up reads it in one piece. Ranks are numbered within their shard from 0. The two
// highest bits tell the form:
//
//	00  a bit for each of the ranks 0 … 61; nothing else in a shard of up to 62 ranks
//	01  up to three ranks of any number, 20 bits each, and in bits 60 and 61 how many
//	10  the number of a wide set, which has a bit for each rank of the shard
type set uint64

const (
	narrowRanks = 62
	maxRanks    = 1 << 20

	formMask   set = 3 << 62
	formNarrow set = 0
	formList   set = 1 << 62
	formWide   set = 2 << 62
)

func (s set) form() set    { return s & formMask }
func (s set) wide() int    { return int(s &^ formMask) }
func (s set) listed() int  { return int(s >> 60 & 3) }
func (s set) at(i int) int { return int(s >> (20 * i) & (maxRanks - 1)) }
func listOf(ids []int) set {
	s := formList | set(len(ids))<<60
	for i, id := range ids {
		s |= set(id) << (20 * i)
	}
	return s
}

// wides are the wide sets of one space. Readers get at them through a view, which is replaced when they grow.
type wides struct {
	stride int // words a set
	words  []atomic.Uint64
}

// of returns the words of a wide set, or nil if these wides are too old to have it.
func (w *wides) of(s set) []atomic.Uint64 {
	first := s.wide() * w.stride
	if first+w.stride > len(w.words) {
		return nil
	}
	return w.words[first : first+w.stride]
}

// has reports whether the rank is in the set.
func (w *wides) has(s set, rank int) bool {
	switch s.form() {
	case formNarrow:
		return rank < narrowRanks && s>>rank&1 != 0
	case formList:
		for i := range s.listed() {
			if s.at(i) == rank {
				return true
			}
		}
		return false
	default:
		words := w.of(s)
		return rank/64 < len(words) && words[rank/64].Load()>>(rank%64)&1 != 0
	}
}

// copyTo writes the set as bits, one per rank, and reports whether it could.
func (w *wides) copyTo(bitmap []uint64, s set) bool {
	clear(bitmap)
	switch s.form() {
	case formNarrow:
		bitmap[0] = uint64(s)
	case formList:
		for i := range s.listed() {
			id := s.at(i)
			if id/64 >= len(bitmap) {
				return false
			}
			bitmap[id/64] |= 1 << (id % 64)
		}
	default:
		words := w.of(s)
		if words == nil || len(words) > len(bitmap) {
			return false
		}
		for i := range words {
			bitmap[i] = words[i].Load()
		}
	}
	return true
}

// setWriter changes sets; only the goroutine that holds the shard uses it.
type setWriter struct {
	*wides
	vacant []uint32 // wide sets
}

// with returns the set and the rank. A wide set changes in place.
func (w *setWriter) with(s set, rank int) set {
	if s.form() == formNarrow && rank < narrowRanks {
		return s | 1<<rank
	}
	if s.form() == formWide {
		w.widen(rank)
		word := &w.of(s)[rank/64]
		word.Store(word.Load() | 1<<(rank%64))
		return s
	}
	if w.has(s, rank) {
		return s
	}
	var buffer [narrowRanks + 1]int
	ids := append(w.ids(buffer[:0], s), rank)
	if len(ids) <= 3 {
		return listOf(ids)
	}
	for _, id := range ids {
		w.widen(id)
	}
	s = w.allocate()
	words := w.of(s)
	for _, id := range ids {
		words[id/64].Store(words[id/64].Load() | 1<<(id%64))
	}
	return s
}

// without returns the set less the rank. A wide set changes in place, unless it becomes small.
func (w *setWriter) without(s set, rank int) set {
	switch s.form() {
	case formNarrow:
		if rank < narrowRanks {
			s &^= 1 << rank
		}
		return s
	case formList:
		var buffer [3]int
		ids := buffer[:0]
		for i := range s.listed() {
			if id := s.at(i); id != rank {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			return 0
		}
		return listOf(ids)
	}
	words := w.of(s)
	if rank/64 < len(words) {
		words[rank/64].Store(words[rank/64].Load() &^ (1 << (rank % 64)))
	}
	members := 0
	for i := range words {
		members += bits.OnesCount64(words[i].Load())
	}
	if members > 3 {
		return s
	}
	var buffer [3]int
	ids := w.ids(buffer[:0], s)
	w.release(s)
	if len(ids) == 0 {
		return 0
	}
	return listOf(ids)
}

// release gives up what a set occupies.
func (w *setWriter) release(s set) {
	if s.form() == formWide {
		w.vacant = append(w.vacant, uint32(s.wide()))
	}
}

// ids appends the set's ranks.
func (w *setWriter) ids(ids []int, s set) []int {
	switch s.form() {
	case formNarrow:
		for rest := uint64(s); rest != 0; rest &= rest - 1 {
			ids = append(ids, bits.TrailingZeros64(rest))
		}
	case formList:
		for i := range s.listed() {
			ids = append(ids, s.at(i))
		}
	default:
		words := w.of(s)
		for i := range words {
			for rest := words[i].Load(); rest != 0; rest &= rest - 1 {
				ids = append(ids, i*64+bits.TrailingZeros64(rest))
			}
		}
	}
	return ids
}

// allocate returns an empty wide set.
func (w *setWriter) allocate() set {
	if len(w.vacant) == 0 {
		had := len(w.words) / w.stride
		w.replace(w.stride, had+had/2+16)
		for i := len(w.words)/w.stride - 1; i >= had; i-- {
			w.vacant = append(w.vacant, uint32(i))
		}
	}
	last := len(w.vacant) - 1
	s := formWide | set(w.vacant[last])
	w.vacant = w.vacant[:last]
	words := w.of(s)
	for i := range words {
		words[i].Store(0)
	}
	return s
}

// widen makes room for the rank in all wide sets.
func (w *setWriter) widen(rank int) {
	if w.stride == 0 {
		w.wides = &wides{stride: 2}
	}
	if rank/64 >= w.stride {
		w.replace(max(2*w.stride, rank/64+1), len(w.words)/w.stride)
	}
}

// replace moves all wide sets; look-ups that are under way keep the old ones and start anew.
func (w *setWriter) replace(stride, sets int) {
	old := w.wides
	w.wides = &wides{stride: stride, words: make([]atomic.Uint64, stride*sets)}
	for i := range min(sets, len(old.words)/old.stride) {
		for word := range old.stride {
			w.words[i*stride+word].Store(old.words[i*old.stride+word].Load())
		}
	}
}

// copyAll leaves the present wide sets as they are to look-ups that are under way.
func (w *setWriter) copyAll() {
	if w.stride > 0 {
		w.replace(w.stride, len(w.words)/w.stride)
	}
}

func (w *setWriter) bytes() int { return len(w.words)*8 + cap(w.vacant)*4 }
