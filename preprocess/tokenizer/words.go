package tokenizer

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// wordEncoder is the fast way for texts that a known scanner cuts and byte-level BPE encodes. Each encoding goroutine borrows a small
// table of the words that it met last, which stays in the nearest memory; behind it are a table of all words that are one token and
// a cache of other words, which all share; only what none of them has is encoded.
type wordEncoder struct {
	scan  scanner
	near  *neighbours // that the scanner goes by; nil if it goes by a pattern
	bpe   *bpe
	whole *wholeWords
	long  *longWholes
	// longest are the whole tokens that are longer than those in long.
	longest map[string]uint32
	cache   *wordCache
	// mark is what the model writes for a space; "" if it leaves spaces.
	mark    string
	prepend bool // a space comes in front of all text
	runs    [1 << 12]atomic.Pointer[longPiece]
	recent  sync.Pool // *recentWords
}

// run returns the place of pieces with a hash that are longer than words are.
func (w *wordEncoder) run(hash uint64) *atomic.Pointer[longPiece] {
	return &w.runs[hash%uint64(len(w.runs))]
}

func newWordEncoder(scan scanner, b *bpe, mark string) *wordEncoder {
	return &wordEncoder{scan: scan, bpe: b, mark: mark, whole: newWholeWords(b, mark), long: newLongWholes(b, mark), longest: newLongestWholes(b, mark), cache: newWordCache()}
}

// encode appends the ids of text. Cuts are the beginnings and ends, in turn, of parts of it that are pieces whatever the scanner says; what the
// scanner says of the others must not depend on them.
func (w *wordEncoder) encode(dst []uint32, s string, cuts []int32) []uint32 {
	recent, ok := w.recent.Get().(*recentWords)
	if !ok {
		recent = new(recentWords)
	}
	if w.prepend {
		s = " " + s
	}
	dst = w.encodeWith(recent, dst, s, cuts)
	recent.shrink()
	w.recent.Put(recent)
	return dst
}

// encodeWith is encode, given a table of recent words.
//
// Pieces go through it in batches, step by step: what a step reads for one piece does not wait for what it reads for another, so that the
// processor does many at once, where it would wait for each if the pieces were done one by one. Nor do the steps that all pieces take
// depend on branches, which nothing could foresee. And what a step will have to read is asked for one step before, with a step of the
// batch before or behind it in between, in which it may take its time to come.
func (w *wordEncoder) encodeWith(r *recentWords, dst []uint32, s string, cuts []int32) []uint32 {
	dst = slices.Grow(dst, len(s)/4+16)
	this, next := &r.batches[0], &r.batches[1]
	cuts = w.cut(this, s, 0, cuts)
	w.look(r, this, s)
	for this.n > 0 {
		cuts = w.cut(next, s, int(this.bounds[this.n]), cuts)
		w.settle(r, this, s)
		if windowPieces-r.count < batchPieces || next.n == 0 {
			w.merge(r, s)
			dst = append(dst, r.write()...)
		}
		w.look(r, next, s)
		this, next = next, this
	}
	return dst
}

// encodeWhole appends the ids of a piece.
func (w *wordEncoder) encodeWhole(dst []uint32, piece string) []uint32 {
	return w.encode(dst, piece, []int32{0, int32(len(piece))})
}

// cut begins the batch with the pieces of s from at on, and returns the cuts that are left.
func (w *wordEncoder) cut(b *batch, s string, at int, cuts []int32) []int32 {
	b.n = 0
	b.bounds[0] = int32(at)
	for at < len(s) && b.n < batchPieces {
		if n := w.scan(s, at, b.bounds[b.n+1:batchPieces+1]); len(cuts) == 0 || b.bounds[b.n+n] <= cuts[0] {
			b.n += n
		} else {
			cuts = b.insert(n, cuts)
		}
		at = int(b.bounds[b.n])
	}
	return cuts
}

// look finds out which pieces are recent words, and asks for where the others may be.
func (w *wordEncoder) look(r *recentWords, b *batch, s string) {
	r.find(b, s)
	r.unpack(b)
	b.byLength()
	w.askShort(b)
	w.askLong(b, s)
}

// settle finds the pieces that are no recent words in the other tables. Those that are not there are added to r.fresh, to be merged.
func (w *wordEncoder) settle(r *recentWords, b *batch, s string) {
	w.whole.findWhole(r, b)
	w.findLong(r, b, s)
	w.findLonger(r, b, s)
	w.findShort(r, b)
	copy(r.ids[r.count:], b.ids[:b.n])
	r.count += b.n
}

// recentWords holds words that one goroutine met last, so that they stay in the processor's own memory, and what is known of the pieces
// that are being encoded.
type recentWords struct {
	slots [1 << recentBits]wordKey           // words by their hash: their keys, and above them the id
	packs [1 << recentBits][recentIDs]uint32 // the ids of words that have several

	batches  [2]batch
	ids      [windowPieces + idRoom]uint32 // of each piece, or where in spill its ids are
	count    int                           // of pieces in ids
	fresh    []freshWord
	repeats  []repeat // of those that are to be merged
	repeated int      // how many ids they have
	lanes    lanes
	spill    []uint32 // for pieces that have not just one id: how many, and the ids
	written  []uint32 // working memory of write
}

const (
	recentBits = 14
	recentIDs  = shortIDs
	wordSize   = 16 // of a wordKey in bytes
	// slotDistances are the bits of a hash that are how far a word is from the first slot, in bytes.
	slotDistances = (1<<recentBits - 1) * wordSize
	// windowPieces is how many pieces wait until what is fresh of them has been merged: enough to fill all lanes.
	windowPieces = 8 * batchPieces
	// idRoom is how many more ids than there are may be read and written.
	idRoom = 128
	// severalIDs in the high half of a recent word marks one that has several ids; how many is in place of the id.
	severalIDs = 1 << 63
	// spilled marks a place in recentWords.spill.
	spilled = 1 << 31
)

// recentPlace returns where words with a hash are: bits that already are a distance in bytes.
func recentPlace(hash uint64) uint64 { return hash & slotDistances / wordSize }

func (r *recentWords) slot(hash uint64) *wordKey { return &r.slots[recentPlace(hash)] }

func (r *recentWords) pack(hash uint64) *[recentIDs]uint32 { return &r.packs[recentPlace(hash)] }

// put stores a word with its id or a mark of several, in the place of what had the same hash.
func (r *recentWords) put(hash uint64, key wordKey, id uint32) {
	*r.slot(hash) = wordKey{key.low, key.high | uint64(id)<<keyBits}
}

// keep makes a short piece a recent word of several ids, which have room for recentIDs.
func (r *recentWords) keep(hash uint64, key wordKey, ids []uint32) {
	if len(ids) <= recentIDs {
		r.put(hash, key, severalIDs>>keyBits|uint32(len(ids)))
		*r.pack(hash) = [recentIDs]uint32(ids[:recentIDs])
	}
}

// shrink gives back the memory that a very long piece took.
func (r *recentWords) shrink() {
	const keep = 1 << 16
	if cap(r.spill) > keep {
		r.spill, r.written = nil, nil
	}
}

// unpack adds the ids of pieces that are recent words and have several to the spill.
func (r *recentWords) unpack(b *batch) {
	at := len(r.spill)
	spill := slices.Grow(r.spill, (1+recentIDs)*b.several.count()+recentIDs)
	spill = spill[:cap(spill)]
	for part, several := range b.several {
		for ; several != 0; several &= several - 1 {
			i := 64*part + bits.TrailingZeros64(several)
			count := b.ids[i] & (severalIDs>>keyBits - 1)
			b.ids[i] = spilled | uint32(at)
			ids, pack := spill[at:at+1+recentIDs], *r.pack(b.hashes[i]) // copied at once: it might be the same memory, for all the compiler knows
			ids[0] = count
			*(*[recentIDs]uint32)(ids[1:]) = pack
			at += 1 + int(count)
		}
	}
	r.spill = spill[:at]
}

// spillFrom ends a list of ids that began in the spill at start, and returns what stands for it.
func (r *recentWords) spillFrom(start int) uint32 {
	r.spill[start] = uint32(len(r.spill) - start - 1)
	return spilled | uint32(start)
}

// writeFewGeneric is writeFew without instructions of a particular processor.
func (r *recentWords) writeFewGeneric(i int, room []uint32) (next, written int) {
	n := 0
	for ; i < r.count; i++ {
		id := r.ids[i]
		if id < spilled {
			room[n] = id
			n++
			continue
		}
		ids := r.spill[id&^spilled:]
		if ids[0] > recentIDs {
			break
		}
		*(*[recentIDs]uint32)(room[n:]) = [recentIDs]uint32(ids[1:])
		n += int(ids[0])
	}
	return i, n
}

// write returns the ids of all pieces, until it is called again, and forgets the pieces. It does not append to what a caller has, since it also
// writes behind the ids.
func (r *recentWords) write() []uint32 {
	// Of most pieces with several ids as many are copied as recent words have, so that it does not depend on how many they are.
	r.spill = append(r.spill, make([]uint32, recentIDs)...)
	spill := r.spill
	r.written = slices.Grow(r.written[:0], r.count+r.repeated+len(spill)+idRoom)
	room := r.written[:cap(r.written)]
	n := 0 // how many ids are written
	for i := 0; i < r.count; {
		var written int
		i, written = r.writeFew(i, room[n:])
		n += written
		if i < r.count {
			ids := spill[r.ids[i]&^spilled:]
			n += copy(room[n:], ids[1:1+ids[0]])
			i++
		}
	}
	r.count, r.repeated, r.spill = 0, 0, spill[:0]
	return room[:n]
}
