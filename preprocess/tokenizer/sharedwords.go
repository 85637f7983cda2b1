package tokenizer

import (
	"hash/maphash"
	"slices"
	"strings"
	"unsafe"

	"signalbox/internal/prefetch"
)

// longestRemembered is the length in bytes of pieces that are remembered. Longer ones are encoded at once.
const longestRemembered = 256

// What is neither recent nor a whole word is looked for in what all goroutines share. As with recent words, steps are for all pieces of a kind,
// and all that may have to be read is asked for before any of it is needed.

// askLong prepares for findLong.
func (w *wordEncoder) askLong(s string, r *recentWords, pieces []uint8) {
	for _, i := range pieces {
		key := makeLongKey(s, int(r.bounds[i]), int(r.bounds[int(i)+1]-r.bounds[i]))
		hash := key.hash()
		r.longs[i], r.hashes[i] = key, hash
		prefetch.Both(unsafe.Pointer(w.cache.longAt(hash)), unsafe.Pointer(w.long.line(hash)))
	}
}

// askShort prepares for findShort.
func (w *wordEncoder) askShort(r *recentWords, pieces []uint8) {
	for _, i := range pieces {
		prefetch.One(unsafe.Pointer(w.cache.shortAt(r.hashes[i])))
	}
}

// byLength tells which pieces are short enough for a [wordKey], which for a [longKey], and which are longer.
func (r *recentWords) byLength(pieces []uint8) (short, long, longer []uint8) {
	var shorts, longs, longers uint32
	for _, i := range pieces {
		size := uint32(r.bounds[int(i)+1] - r.bounds[i])
		isShort, isLonger := (size-shortWord-1)>>31, (cachedWord-size)>>31 // 1 or 0: no branch that nothing could foresee
		r.kinds[0][shorts%batchPieces], r.kinds[1][longs%batchPieces], r.kinds[2][longers%batchPieces] = i, i, i
		shorts += isShort
		longers += isLonger
		longs += 1 - isShort - isLonger
	}
	return r.kinds[0][:shorts], r.kinds[1][:longs], r.kinds[2][:longers]
}

// findShort finds short words in the cache and makes them recent. It appends the others to fresh.
func (w *wordEncoder) findShort(r *recentWords, pieces, fresh []uint8) []uint8 {
	at := len(r.spill)
	spill := slices.Grow(r.spill, len(pieces)*(1+recentIDs))
	spill = spill[:cap(spill)]
	for _, i := range pieces {
		key, hash := r.keys[i], r.hashes[i]
		if id, ok := w.whole.findBehind(key, hash); ok {
			r.ids[i] = id
			r.put(hash, key, id)
			continue
		}
		ids := (*[1 + shortIDs]uint32)(spill[at:])
		count, ok := w.cache.shortAt(hash).get((*[shortIDs]uint32)(ids[1:]), key)
		if !ok {
			fresh = append(fresh, i)
			continue
		}
		ids[0] = uint32(count)
		r.ids[i] = spilled | uint32(at)
		r.put(hash, key, severalIDs>>keyBits|uint32(count))
		r.packs[hash>>(64-recentBits)] = [recentIDs]uint32(ids[1:])
		at += 1 + count
	}
	r.spill = spill[:at]
	return fresh
}

// findLong finds longer words in the cache and among the tokens. It appends those that are not there to fresh.
func (w *wordEncoder) findLong(s string, r *recentWords, pieces, fresh []uint8) []uint8 {
	at := len(r.spill)
	spill := slices.Grow(r.spill, len(pieces)*(1+longIDs))
	spill = spill[:cap(spill)]
	for _, i := range pieces {
		ids := (*[1 + longIDs]uint32)(spill[at:])
		count, ok := w.cache.longAt(r.hashes[i]).get((*[longIDs]uint32)(ids[1:]), &r.longs[i])
		if !ok {
			piece := s[r.bounds[i]:r.bounds[int(i)+1]]
			id, ok := w.long.find(r.hashes[i], func(id uint32) bool { return string(w.bpe.vocab.token(id)) == w.marked(piece) })
			if !ok {
				fresh = append(fresh, i)
				continue
			}
			ids[1], count = id, 1
			w.cache.longAt(r.hashes[i]).put(&r.longs[i], ids[1:2])
		}
		ids[0] = uint32(count)
		r.ids[i] = spilled | uint32(at)
		at += 1 + count
	}
	r.spill = spill[:at]
	return fresh
}

// longPiece is a piece that is too long for the cache of words. Runs of white space and rules of dashes come again and again, and take the
// longest to encode.
type longPiece struct {
	text string
	ids  []uint32
}

// findLonger appends those of the pieces that are longer than words to fresh that have to be merged.
func (w *wordEncoder) findLonger(s string, r *recentWords, pieces, fresh []uint8) []uint8 {
	for _, i := range pieces {
		if !w.knowsLonger(s, r, int(i)) {
			fresh = append(fresh, i)
		}
	}
	return fresh
}

// knowsLonger finds a piece that is too long for the cache among those that are remembered, or encodes it if it is too long for that, too. It
// returns false if it has done neither.
func (w *wordEncoder) knowsLonger(s string, r *recentWords, i int) bool {
	piece := s[r.bounds[i]:r.bounds[i+1]]
	start := len(r.spill)
	if len(piece) > longestRemembered {
		r.spill = w.encodeLong(append(r.spill, 0), piece)
		r.spilled(i, start)
		return true
	}
	r.hashes[i] = maphash.String(w.bpe.vocab.seed, piece)
	known := w.run(r.hashes[i]).Load()
	if known == nil || known.text != piece {
		return false
	}
	r.spill = append(append(r.spill, 0), known.ids...)
	r.spilled(i, start)
	return true
}

// remember notes the ids of a word that was merged, which are in the spill from start on, and stores them for all goroutines.
func (w *wordEncoder) remember(s string, r *recentWords, i, start int) {
	r.spilled(i, start)
	ids := r.spill[start+1:]
	switch size := r.bounds[i+1] - r.bounds[i]; {
	case size <= shortWord:
		w.cache.shortAt(r.hashes[i]).put(r.keys[i], ids)
		r.keep(i, ids)
	case size <= cachedWord:
		w.cache.longAt(r.hashes[i]).put(&r.longs[i], ids)
	default:
		w.run(r.hashes[i]).Store(&longPiece{strings.Clone(s[r.bounds[i]:r.bounds[i+1]]), slices.Clone(ids)})
	}
}
