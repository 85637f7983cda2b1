package tokenizer

import "unsafe"

// askShort asks for what the short pieces may be in.
func (w *wordEncoder) askShort(b *batch) {
	if hasBMI2 {
		askShortBMI2(b, &w.whole.lines[0], uint64(w.whole.shift), &w.cache.short[0])
		return
	}
	w.askShortGeneric(b)
}

//go:noescape
func askShortBMI2(b *batch, lines *wholeLine, shift uint64, sets *shortSet)

// askLong asks for what the long pieces may be in.
func (w *wordEncoder) askLong(b *batch, s string) {
	n := 0
	if pieces := b.of(longPieces); hasVAES {
		for n = len(pieces); n > 0 && int(b.bounds[pieces[n-1]])+cachedWord > len(s); {
			n--
		}
		askLongAVX512(b, unsafe.StringData(s), n, &w.long.lines[0], uint64(w.long.shift), &w.cache.long[0])
	}
	w.askLongGeneric(b, s, n)
}

// askLongAVX512 is askLongGeneric for the first n long pieces, of which cachedWord bytes can be read.
//
//go:noescape
func askLongAVX512(b *batch, text *byte, n int, lines *longLine, shift uint64, slots *longSlot)

//go:noescape
func hashLongVAES(text *[cachedWord / 8]uint64) uint64
