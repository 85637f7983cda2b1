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

// askShortGeneric is askShort without instructions of a particular processor.
func (w *wordEncoder) askShortGeneric(b *batch) {
	for _, i := range b.of(shortPieces) {
		prefetch.Both(unsafe.Pointer(w.whole.line(b.hashes[i])), unsafe.Pointer(w.cache.shortAt(b.hashes[i])))
	}
}

// askLongGeneric is askLong, from a piece of that kind on, without instructions of a particular processor.
func (w *wordEncoder) askLongGeneric(b *batch, s string, from int) {
	for _, i := range b.of(longPieces)[from:] {
		key := makeLongKey(s, int(b.bounds[i]), int(b.bounds[int(i)+1]-b.bounds[i]))
		hash := key.hash()
		b.longs[i], b.hashes[i] = key, hash
		prefetch.Both(unsafe.Pointer(w.cache.longAt(hash)), unsafe.Pointer(w.long.line(hash)))
	}
}

// findShort finds short words in the cache and makes them recent.
func (w *wordEncoder) findShort(r *recentWords, b *batch) {
	pieces := b.of(shortPieces)
	at := len(r.spill)
	spill := slices.Grow(r.spill, len(pieces)*(1+recentIDs))
	spill = spill[:cap(spill)]
	for _, i := range pieces {
		key, hash := b.keys[i], b.hashes[i]
		if id, ok := w.whole.findBehind(key, hash); ok {
			b.ids[i] = id
			r.put(hash, key, id)
			continue
		}
		ids := (*[1 + shortIDs]uint32)(spill[at:])
		count, ok := w.cache.shortAt(hash).get((*[shortIDs]uint32)(ids[1:]), key)
		if !ok {
			r.addFresh(b, i)
			continue
		}
		ids[0] = uint32(count)
		b.ids[i] = spilled | uint32(at)
		r.put(hash, key, severalIDs>>keyBits|uint32(count))
		pack := [recentIDs]uint32(ids[1:]) // copied at once: it might be the same memory, for all the compiler knows
		*r.pack(hash) = pack
		at += 1 + count
	}
	r.spill = spill[:at]
}

// findLong finds longer words in the cache and among the tokens.
func (w *wordEncoder) findLong(r *recentWords, b *batch, s string) {
	pieces := b.of(longPieces)
	at := len(r.spill)
	spill := slices.Grow(r.spill, len(pieces)*(1+longIDs))
	spill = spill[:cap(spill)]
	for _, i := range pieces {
		ids := (*[1 + longIDs]uint32)(spill[at:])
		count, ok := w.cache.longAt(b.hashes[i]).get((*[longIDs]uint32)(ids[1:]), &b.longs[i])
		if !ok {
			piece := s[b.bounds[i]:b.bounds[int(i)+1]]
			id, ok := w.long.find(b.hashes[i], func(id uint32) bool { return string(w.bpe.vocab.token(id)) == w.marked(piece) })
			if !ok {
				r.addFresh(b, i)
				continue
			}
			ids[1], count = id, 1
			w.cache.longAt(b.hashes[i]).put(&b.longs[i], ids[1:2])
		}
		ids[0] = uint32(count)
		b.ids[i] = spilled | uint32(at)
		at += 1 + count
	}
	r.spill = spill[:at]
}

// longPiece is a piece that is too long for the cache of words. Runs of white space and rules of dashes come again and again, and take the
// longest to encode.
type longPiece struct {
	text string
	ids  []uint32
}

// findLonger finds pieces that are longer than words.
func (w *wordEncoder) findLonger(r *recentWords, b *batch, s string) {
	for _, i := range b.of(longerPieces) {
		if !w.knowsLonger(r, b, i, s) {
			r.addFresh(b, i)
		}
	}
}

// knowsLonger finds a piece that is too long for the cache among those that are remembered, or encodes it if it is too long for that, too. It
// returns false if it has done neither.
func (w *wordEncoder) knowsLonger(r *recentWords, b *batch, i uint8, s string) bool {
	piece := s[b.bounds[i]:b.bounds[int(i)+1]]
	start := len(r.spill)
	if len(piece) > longestRemembered {
		r.spill = w.encodeLong(append(r.spill, 0), piece)
		b.ids[i] = r.spillFrom(start)
		return true
	}
	b.hashes[i] = maphash.String(w.bpe.vocab.seed, piece)
	known := w.run(b.hashes[i]).Load()
	if known == nil || known.text != piece {
		return false
	}
	r.spill = append(append(r.spill, 0), known.ids...)
	b.ids[i] = r.spillFrom(start)
	return true
}

// remember stores the ids of a word that was merged for all goroutines. They have room for longIDs.
func (w *wordEncoder) remember(r *recentWords, word *freshWord, piece string, ids []uint32) {
	switch size := len(piece); {
	case size <= shortWord:
		w.cache.shortAt(word.hash).put(word.key, ids)
		r.keep(word.hash, word.key, ids)
	case size <= cachedWord:
		key := makeLongKey(piece, 0, size)
		w.cache.longAt(word.hash).put(&key, ids)
	default:
		w.run(word.hash).Store(&longPiece{strings.Clone(piece), slices.Clone(ids)})
	}
}
