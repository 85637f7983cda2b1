package tokenizer

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"signalbox/internal/prefetch"
)

// wordEncoder is the fast way for texts that a known scanner cuts and byte-level BPE encodes. Each encoding goroutine borrows a small
// table of the words that it met last, which stays in the nearest memory; behind it are a table of all words that are one token and
// a cache of other words, which all share; only what none of them has is encoded.
type wordEncoder struct {
	scan  scanner
	bpe   *bpe
	whole *wholeWords
	long  *longWholes
	cache *wordCache
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
	return &wordEncoder{scan: scan, bpe: b, mark: mark, whole: newWholeWords(b, mark), long: newLongWholes(b, mark), cache: newWordCache()}
}

// encode appends the ids of text. Cuts are the beginnings and ends, in turn, of parts of it that are pieces whatever the scanner says.
func (w *wordEncoder) encode(dst []uint32, s string, cuts []int32) []uint32 {
	recent, ok := w.recent.Get().(*recentWords)
	if !ok {
		recent = new(recentWords)
	}
	if w.prepend {
		s = " " + s
	}
	dst = slices.Grow(dst, len(s)/4+16)
	recent.bounds[0] = 0
	for at := 0; at < len(s); {
		n := 0
		for at < len(s) && n < batchPieces {
			end := len(s)
			if len(cuts) > 0 {
				end = int(cuts[0])
			}
			if at == end {
				n++
				recent.bounds[n] = cuts[1]
				cuts = cuts[2:]
			} else {
				n += w.scan(s[:end], at, recent.bounds[n+1:])
			}
			at = int(recent.bounds[n])
		}
		dst = w.batch(dst, s, recent, n)
		recent.bounds[0] = recent.bounds[n]
	}
	w.recent.Put(recent)
	return dst
}

// encodeWhole appends the ids of a piece.
func (w *wordEncoder) encodeWhole(dst []uint32, piece string) []uint32 {
	return w.encode(dst, piece, []int32{0, int32(len(piece))})
}

// batch encodes the n pieces that lie between recent.bounds. It goes through all of them step by step: what a step reads for one piece
// does not wait for what it reads for another, so that the processor does many at once, where it would wait for each if the pieces were
// done one by one. Nor do the steps that all pieces take depend on branches, which nothing could foresee.
func (w *wordEncoder) batch(dst []uint32, s string, recent *recentWords, n int) []uint32 {
	missed, several := recent.find(s, n)
	recent.repeated = 0
	recent.unpack(several)
	short, long, longer := recent.byLength(missed)
	w.askLong(s, recent, long)
	short = short[:w.whole.findWhole(recent, uint64(len(short)))]
	w.askShort(recent, short)
	fresh := w.findLong(s, recent, long, missed[:0])
	fresh = w.findLonger(s, recent, longer, fresh)
	if fresh = w.findShort(recent, short, fresh); len(fresh) > 0 {
		w.merge(s, recent, recent.unlike(fresh))
		recent.repeat()
	}
	return recent.write(dst, n)
}

// write appends the ids of n pieces.
func (r *recentWords) write(dst []uint32, n int) []uint32 {
	// Of most pieces with several ids as many are copied as recent words have, so that it does not depend on how many they are.
	r.spill = append(r.spill, make([]uint32, recentIDs)...)
	spill := r.spill
	dst = slices.Grow(dst, n+r.repeated+len(spill))
	out := unsafe.Pointer(unsafe.SliceData(dst[len(dst):cap(dst)]))
	start := out
	for _, id := range r.ids[:n] {
		if id < spilled {
			*(*uint32)(out) = id
			out = unsafe.Add(out, 4)
			continue
		}
		ids := spill[id&^spilled:]
		count := int(ids[0])
		if count <= recentIDs {
			*(*[recentIDs]uint32)(out) = [recentIDs]uint32(ids[1:])
		} else {
			copy(unsafe.Slice((*uint32)(out), count), ids[1:])
		}
		out = unsafe.Add(out, 4*count)
	}
	return dst[:len(dst)+int(uintptr(out)-uintptr(start))/4]
}

// find writes the ids of those of n pieces that are recent words of one id, and returns which pieces are not among the recent words, and
// which are and have several ids.
func (r *recentWords) find(s string, n int) (missed, several []uint8) {
	found, misses, splits := r.findFast(s, n)
	misses, splits = r.findGeneric(s, found, n, misses, splits)
	return r.missed[:misses], r.several[:splits]
}

// findGeneric does that for the pieces from one on, where so many have been missed and have several ids before.
func (r *recentWords) findGeneric(s string, from, n int, misses, splits uint64) (uint64, uint64) {
	at := int(r.bounds[from])
	for i := from; i < n; i++ {
		end := int(r.bounds[i+1])
		key := longPieceKey
		if size := end - at; size <= shortWord {
			key = makeWordKey(s, at, size)
		}
		at = end
		hash := key.hash()
		slot := &r.slots[hash>>(64-recentBits)]
		r.keys[i], r.hashes[i], r.ids[i] = key, hash, uint32(slot.high>>keyBits)
		r.missed[misses%batchPieces], r.several[splits%batchPieces] = uint8(i), uint8(i)
		difference := slot.differs(key)
		miss := (difference | -difference) >> 63 // 0 or 1, without a branch
		misses += miss
		splits += slot.high >> 63 &^ miss
	}
	return misses, splits
}

// unpack begins the spill with the ids of pieces that are recent words and have several.
func (r *recentWords) unpack(pieces []uint8) {
	spill := slices.Grow(r.spill[:0], (1+recentIDs)*len(pieces)+recentIDs)
	at := 0
	for _, i := range pieces {
		count := r.ids[i] & (severalIDs>>keyBits - 1)
		r.ids[i] = spilled | uint32(at)
		ids := spill[at : at+1+recentIDs]
		ids[0] = count
		*(*[recentIDs]uint32)(ids[1:]) = r.packs[r.hashes[i]>>(64-recentBits)]
		at += 1 + int(count)
	}
	r.spill = spill[:at]
}

// spilled notes that the ids of a piece are in the spill, from start on.
func (r *recentWords) spilled(i, start int) {
	r.ids[i] = spilled | uint32(start)
	r.spill[start] = uint32(len(r.spill) - start - 1)
}

// keep makes a short piece a recent word of several ids.
func (r *recentWords) keep(i int, ids []uint32) {
	if len(ids) <= recentIDs {
		r.put(r.hashes[i], r.keys[i], severalIDs>>keyBits|uint32(len(ids)))
		copy(r.packs[r.hashes[i]>>(64-recentBits)][:], ids)
	}
}

// recentWords holds words that one goroutine met last, so that they stay in the processor's own memory, and what is known of the pieces
// that are being encoded.
type recentWords struct {
	slots [1 << recentBits]wordKey           // words by their hash: their keys, and above them the id
	packs [1 << recentBits][recentIDs]uint32 // the ids of words that have several

	bounds   [batchPieces + 1]int32 // where the first piece begins, and where each ends
	keys     [batchPieces]wordKey
	hashes   [batchPieces]uint64
	ids      [batchPieces]uint32   // of each piece, or where in spill its ids are
	longs    [batchPieces]longKey  // of those that are too long for a key
	missed   [batchPieces]uint8    // which pieces are not recent
	kinds    [3][batchPieces]uint8 // of the missed ones: which are short, long and longer
	several  [batchPieces]uint8    // which pieces are recent and have several ids
	repeats  []repeat              // of those that are to be merged
	repeated int                   // how many ids they have
	lanes    [laneCount]lane
	spill    []uint32 // for pieces that have not just one id: how many, and the ids
}

const (
	recentBits  = 14
	recentIDs   = shortIDs
	batchPieces = 256
	// severalIDs in the high half of a recent word marks one that has several ids; how many is in place of the id.
	severalIDs = 1 << 63
	// spilled marks a place in recentWords.spill.
	spilled = 1 << 31
)

// longPieceKey stands for all pieces that are too long for a key. No slot has it.
var longPieceKey = wordKey{high: 1<<keyBits - 1}

// differs is zero if the slot holds the word.
func (slot *wordKey) differs(key wordKey) uint64 {
	return slot.low ^ key.low | (slot.high^key.high)<<(64-keyBits)
}

// put stores a word with its id or a mark of several, in the place of what had the same hash.
func (r *recentWords) put(hash uint64, key wordKey, id uint32) {
	r.slots[hash>>(64-recentBits)] = wordKey{key.low, key.high | uint64(id)<<keyBits}
}

// makeWordKey makes the key of a word of up to shortWord bytes.
func makeWordKey(s string, at, n int) (key wordKey) {
	if at+16 <= len(s) {
		parts := &keyParts[n]
		return wordKey{eight(s, at) & parts.low, eight(s, at+8)&parts.high | parts.size}
	}
	var b [16]byte
	copy(b[:], s[at:at+n])
	return wordKey{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:]) | uint64(n)<<32}
}

// shortWord is the length in bytes of words that, with their length and a token id, fill two machine words.
const shortWord = 12

// wordKey is the text of a word of up to shortWord bytes: eight bytes, then four, and above them its length.
type wordKey struct{ low, high uint64 }

// keyBits is how many bits of a key's high are in use; tables have an id above them.
const keyBits = 36

// keyParts are the masks of the text of a word by its length, and the length as it is in a key; the last one is for longer words.
var keyParts = func() (parts [16]struct{ low, high, size, _ uint64 }) {
	for n := range shortWord + 1 {
		parts[n].low, parts[n].high = firstBytes(n), firstBytes(n-8)
		parts[n].size = uint64(n) << 32
	}
	parts[shortWord+1].size = longPieceKey.high
	return parts
}()

// firstBytes has all bits set of the first n bytes of eight.
func firstBytes(n int) uint64 { return 1<<(8*max(n, 0)) - 1 }

func (k wordKey) hash() uint64 {
	high, low := bits.Mul64(k.low^hashLow, k.high^hashHigh)
	return high ^ low
}

const (
	hashLow  = 0x9E3779B97F4A7C15
	hashHigh = 0xD1B54A32D192ED03
)

// wholeWords is a table of all tokens up to shortWord bytes that their own text is encoded to. It never changes once it is made. A token is
// in the line of its hash or, if that is full, in the next one that is not.
type wholeWords struct {
	lines []wholeLine
	shift uint
}

// wholeLine fills a cache line with words, and their ids above the bits of their keys. Keys of zeros are free, and behind the others.
type wholeLine [4]wordKey

// eachWhole calls do for each token of so many bytes that its own text is encoded to. Marks for spaces become spaces again.
func (b *bpe) eachWhole(mark string, shortest, longest int, do func(id uint32, token []byte)) {
	for id := range uint32(len(b.vocab.spans)) {
		if !b.vocab.owns(id) || !b.isWhole(id) {
			continue // another id has the text, or it is encoded to others
		}
		token := b.vocab.token(id)
		if mark != "" && len(token) >= shortest {
			token = bytes.ReplaceAll(token, []byte(mark), []byte(" "))
		}
		if len(token) >= shortest && len(token) <= longest {
			do(id, token)
		}
	}
}

// newWholeWords makes the table.
func newWholeWords(b *bpe, mark string) *wholeWords {
	n := 0
	b.eachWhole(mark, 1, shortWord, func(uint32, []byte) { n++ })
	size := tableSize(n) / len(wholeLine{})
	w := &wholeWords{lines: make([]wholeLine, size), shift: uint(64 - bits.Len(uint(size-1)))}
	b.eachWhole(mark, 1, shortWord, func(id uint32, token []byte) {
		key := makeWordKey(string(token), 0, len(token))
		entry := wordKey{key.low, key.high | uint64(id)<<keyBits}
		for i := key.hash() >> w.shift; !w.lines[i].put(entry); {
			i = (i + 1) & uint64(size-1)
		}
	})
	return w
}

// line returns where words of a hash are.
func (w *wholeWords) line(hash uint64) *wholeLine { return &w.lines[hash>>w.shift] }

// put stores a word, unless the line is full.
func (l *wholeLine) put(entry wordKey) bool {
	for i := range l {
		if l[i] == (wordKey{}) {
			l[i] = entry
			return true
		}
	}
	return false
}

// findWholeGeneric is [wholeWords.findWhole] without instructions of a particular processor.
func (w *wholeWords) findWholeGeneric(r *recentWords, n uint64) (others uint64) {
	short := r.kinds[0][:n]
	for _, i := range short {
		prefetch.One(unsafe.Pointer(w.line(r.hashes[i])))
	}
	for _, i := range short {
		word := w.line(r.hashes[i]).find(r.keys[i])
		r.ids[i] = uint32(word.high >> keyBits)
		if word.high != 0 {
			r.slots[r.hashes[i]>>(64-recentBits)] = word
			continue
		}
		short[others] = i
		others++
	}
	return others
}

// find returns the entry of a word, or zeros.
func (l *wholeLine) find(key wordKey) (word wordKey) {
	for i := range l {
		if l[i].differs(key) == 0 {
			word.high = l[i].high
		}
	}
	word.low = key.low
	return word
}

// findBehind finds a word that is not in the line of its hash.
func (w *wholeWords) findBehind(key wordKey, hash uint64) (uint32, bool) {
	for i := hash >> w.shift; w.lines[i][len(wholeLine{})-1] != (wordKey{}); {
		i = (i + 1) & uint64(len(w.lines)-1)
		if word := w.lines[i].find(key); word.high != 0 {
			return uint32(word.high >> keyBits), true
		}
	}
	return 0, false
}
