package tokenizer

import (
	"fmt"
	"sync"
	"unicode/utf8"
)

// bpe merges characters, or bytes, by rank.
type bpe struct {
	vocab  *vocabulary
	merges *merges
	// raw means that tokens are kept as the bytes that they stand for, not in the byte-level alphabet, and that merging begins
	// with bytes, not characters.
	raw bool
	// bytes holds id+1 by byte: of one-byte tokens if raw, else of the tokens <0x00> to <0xFF>.
	bytes [256]uint32
	// single holds id+1 by byte: of bytes if raw, else of ASCII characters. A space is the mark that stands for it, where there is one.
	single       [256]uint32
	wide         []uint32 // id+1 by character below its length, in models that write marks for spaces
	allSymbols   bool     // raw, and all bytes are tokens
	fallback     bool
	ignoreMerges bool
	fuseUnknown  bool
	unknown      uint32
	hasUnknown   bool
	prefix       string // of all characters of a piece but the first
	suffix       string // of the last one
	origins      *origins
	greedy       *greedy        // nil where only merging is possible
	making       sync.WaitGroup // of greedy

	scratch sync.Pool // *bpeScratch
}

type bpeScratch struct {
	mergeScratch
	symbols []uint32
	starts  []int32 // by symbol: where it begins in the piece
	buf     []byte
}

func (b *bpe) borrow() *bpeScratch {
	if s, ok := b.scratch.Get().(*bpeScratch); ok {
		return s
	}
	return new(bpeScratch)
}

// giveBack returns working memory. Very large pieces do not make it stay large.
func (b *bpe) giveBack(s *bpeScratch) {
	const keep = 1 << 16
	if cap(s.symbols) <= keep {
		b.scratch.Put(s)
	}
}

// finish prepares what depends on the whole vocabulary.
func (b *bpe) finish() {
	for c := range 256 {
		name := string([]byte{byte(c)})
		if !b.raw {
			name = fmt.Sprintf("<0x%02X>", c)
		}
		if id, ok := b.vocab.id(name); ok {
			b.bytes[c] = id + 1
		}
	}
	b.merges.seal(len(b.vocab.spans))
	if !b.raw {
		return
	}
	b.single = b.bytes
	b.merges.joinBytes(&b.single, func(id uint32) (first, last int) {
		token := b.vocab.token(id)
		if len(token) == 0 {
			return -1, -1
		}
		return int(token[0]), int(token[len(token)-1])
	})
	b.allSymbols = true
	for _, id := range b.bytes {
		b.allSymbols = b.allSymbols && id > 0
	}
	b.prepareGreedy()
}

// prepareGreedy finds out what encoding without merging needs. Part of it goes on beside the caller; nothing may be encoded until
// making has ended.
func (b *bpe) prepareGreedy() {
	b.origins = newOrigins(b.merges, b.merges.pairs, len(b.vocab.spans), b.isSymbol)
	b.making.Go(func() { b.greedy = newGreedy(b) })
}

// isSymbol tells whether merging may begin with the token.
func (b *bpe) isSymbol(id uint32) bool {
	token := b.vocab.token(id)
	if b.raw {
		return len(token) == 1
	}
	return len(token) > 0 && utf8.RuneCount(token) == 1
}

// begin appends the symbols that merging starts with to s.symbols.
func (b *bpe) begin(s *bpeScratch, piece string, starts bool) {
	if b.raw {
		for i := range len(piece) {
			if id := b.bytes[piece[i]]; id > 0 {
				s.symbols = append(s.symbols, id-1)
				if starts {
					s.starts = append(s.starts, int32(i))
				}
			}
		}
		return
	}
	unknownAt := -1 // where unknown characters that are not written yet begin
	add := func(id uint32, at int) {
		s.symbols = append(s.symbols, id)
		if starts {
			s.starts = append(s.starts, int32(at))
		}
	}
	for i := 0; i < len(piece); {
		r, size := runeAt(piece, i)
		name := piece[i : i+size]
		if b.prefix != "" && i > 0 || b.suffix != "" && i+size == len(piece) {
			s.buf = s.buf[:0]
			if i > 0 {
				s.buf = append(s.buf, b.prefix...)
			}
			s.buf = append(s.buf, name...)
			if i+size == len(piece) {
				s.buf = append(s.buf, b.suffix...)
			}
			name = string(s.buf)
		}
		id, known := b.symbol(name, r)
		switch {
		case known:
			if unknownAt >= 0 {
				add(b.unknown, unknownAt)
				unknownAt = -1
			}
			add(id, i)
		case b.fallback && b.allBytes(name):
			for j := range len(name) {
				add(b.bytes[name[j]]-1, min(i+j, i+size-1))
			}
		case b.hasUnknown:
			if unknownAt >= 0 && !b.fuseUnknown {
				add(b.unknown, unknownAt)
				unknownAt = -1
			}
			if unknownAt < 0 {
				unknownAt = i
			}
		}
		i += size
	}
	if unknownAt >= 0 {
		add(b.unknown, unknownAt)
	}
}

// symbol returns the id of a character, which the vocabulary has by that name.
func (b *bpe) symbol(name string, r rune) (id uint32, known bool) {
	if b.wide == nil || r == utf8.RuneError { // which may stand for a byte that is no character
		return b.vocab.id(name)
	}
	id = b.character(r)
	return id - 1, id > 0
}

func (b *bpe) allBytes(s string) bool {
	for i := range len(s) {
		if b.bytes[s[i]] == 0 {
			return false
		}
	}
	return true
}

// encode appends the ids of a piece.
func (b *bpe) encode(dst []uint32, piece string) []uint32 {
	if b.ignoreMerges {
		if id, ok := b.vocab.id(piece); ok {
			return append(dst, id)
		}
	}
	return b.mergeAll(dst, piece)
}

// fill puts a piece into a lane; false if not all of its bytes are symbols, or there are too many.
func (b *bpe) fill(g *lanes, i uint8, piece string) bool {
	fits := b.allSymbols && len(piece) <= laneSymbols
	if fits {
		g.beginBytes(b.merges, i, piece, &b.single)
	}
	return fits
}

// mergeAll appends what merging makes of a piece, whether it is merged or not.
func (b *bpe) mergeAll(dst []uint32, piece string) []uint32 {
	s := b.borrow()
	defer b.giveBack(s)
	if b.fill(&s.lanes, 0, piece) {
		return s.lanes.run(b.merges, 0, dst)
	}
	s.symbols = s.symbols[:0]
	b.begin(s, piece, false)
	if len(s.symbols) > laneSymbols {
		if merged, ok := b.merges.applyRuns(s.symbols, &s.mergeScratch); ok {
			return append(dst, merged...)
		}
		if b.greedy != nil {
			if out, ok := b.greedy.encode(dst, piece); ok {
				return out
			}
		}
	}
	return append(dst, b.merges.apply(s.symbols, &s.mergeScratch)...)
}

// tokenize is encode for the general way through, which also knows offsets.
func (b *bpe) tokenize(out *result, piece text) {
	if !out.track {
		out.ids = b.encode(out.ids, piece.s)
		return
	}
	if b.ignoreMerges {
		if id, ok := b.vocab.id(piece.s); ok {
			out.add(id, piece, 0, len(piece.s))
			return
		}
	}
	s := b.borrow()
	defer b.giveBack(s)
	s.symbols, s.starts = s.symbols[:0], s.starts[:0]
	b.begin(s, piece.s, true)
	n := len(s.symbols)
	if n == 0 {
		return
	}
	ids := b.merges.applyHeap(s.symbols, &s.mergeScratch)
	for i, k := 0, 0; i < n; k++ {
		next, end := int(s.next[i]), len(piece.s)
		if next < n {
			end = int(s.starts[next])
		}
		out.add(ids[k], piece, int(s.starts[i]), end)
		i = next
	}
}
