package tokenizer

import (
	"math/bits"
	"strings"
	"unicode/utf8"
)

// Models like Gemma and Llama 2 merge whole texts, in which a mark stands for each space, without splitting them before. Still merging
// hardly ever goes across words: no token has a mark behind a letter, say. A place between two characters that are not neighbours in
// any token is one that no merge can reach across, so that a text may be cut there and its parts be encoded one by one.

// What those models write for a space.
const (
	spaceMark = "▁"
	markRune  = '▁'
)

// neighbours tells which characters are next to each other in some token. A space stands for a mark that comes from a space; a mark that
// was written is one of its own kind, and all other characters beyond ASCII are one kind. Those that are have a 1.
type neighbours struct {
	next [writtenMark + 1][writtenMark + 1]uint8
	// wide has a bit for pairs of characters beyond ASCII that are next to each other, by a hash of them.
	wide []uint64
	runs []characterRun // that are pieces as a whole, whatever is beside them

	known *kindPairs
	table *nearTable // nil if there is none
}

// characterRun is a character of ASCII of which runs of up to so many are added tokens.
type characterRun struct {
	c       byte
	longest int
}

// cutsRun tells whether the token is a run that the scanner cuts.
func (n *neighbours) cutsRun(token string) bool { return n.longestRun(token[0]) > 0 }

// longestRun returns how many of a character are a piece at most where it is one whose runs are pieces, else 0.
func (n *neighbours) longestRun(c byte) int {
	for _, run := range n.runs {
		if run.c == c {
			return run.longest
		}
	}
	return 0
}

// cutRuns cuts a window where runs begin and end. Within are the places inside them.
func (n *neighbours) cutRuns(w *window, text string, at int) (starts, within uint64) {
	for _, run := range n.runs {
		same := placesOf(text, at, run.c)
		starts |= same&^(same<<1) | same<<1&^same
		within |= same & (same << 1)
		if bits.OnesCount64(same) > run.longest {
			w.unclear |= same
		}
	}
	return starts, within
}

const (
	wideCharacter = utf8.RuneSelf + iota
	writtenMark
)

const wideBitmapBits = 20

// widePlace returns where the bit for two characters beyond ASCII is.
func widePlace(left, right rune) (word int, bit uint64) {
	hash := (uint64(left)<<32 | uint64(right)) * hashLow >> (64 - wideBitmapBits)
	return int(hash / 64), 1 << (hash % 64)
}

func newNeighbours(b *bpe) *neighbours {
	n := &neighbours{wide: make([]uint64, 1<<wideBitmapBits/64)}
	seen := make([]bool, len(b.vocab.spans))
	for _, id := range b.merges.into {
		if seen[id] {
			continue
		}
		seen[id] = true
		token := b.vocab.token(id)
		var last []int
		before := rune(0)
		for i := 0; i < len(token); {
			r, size := utf8.DecodeRune(token[i:])
			this := []int{min(int(r), wideCharacter)}
			if string(token[i:i+size]) == spaceMark {
				this = []int{' ', writtenMark}
			}
			for _, left := range last {
				for _, right := range this {
					n.next[left][right] = 1
				}
			}
			if before >= utf8.RuneSelf && r >= utf8.RuneSelf {
				word, bit := widePlace(before, r)
				n.wide[word] |= bit
			}
			last, before = this, r
			i += size
		}
	}
	return n
}

// cuts tells whether no token reaches across the place i, which is within the text.
func (n *neighbours) cuts(text string, i int) bool {
	left, right := int(text[i-1]), int(text[i])
	if left >= utf8.RuneSelf {
		left = wideCharacter
		if strings.HasSuffix(text[:i], spaceMark) {
			left = writtenMark
		}
	}
	if right >= utf8.RuneSelf {
		right = wideCharacter
		if strings.HasPrefix(text[i:], spaceMark) {
			right = writtenMark
		}
	}
	return n.next[left][right] == 0
}

// cutsWide tells whether no token reaches across the place i between two characters beyond ASCII, neither of which is a mark.
func (n *neighbours) cutsWide(text string, i int) bool {
	if text[i-1] < utf8.RuneSelf || text[i] < utf8.RuneSelf || !utf8.RuneStart(text[i]) {
		return false
	}
	left, _ := utf8.DecodeLastRuneInString(text[:i])
	right, _ := utf8.DecodeRuneInString(text[i:])
	word, bit := widePlace(left, right)
	return left != markRune && right != markRune && n.wide[word]&bit == 0
}

// scanner cuts where no token reaches across, mostly in front of spaces. Between characters beyond ASCII it only looks for that in pieces that are
// longer than a window.
func (n *neighbours) scanner() scanner {
	n.prepare()
	return windowed(n.window, n, n.scanSlowly())
}

// prepare makes ready to cut, by what is in next and runs.
func (n *neighbours) prepare() {
	n.known = n.kinds()
	n.table = newNearTable(n, n.known)
}

func (n *neighbours) knowsWide() bool { return true }

// kinds of characters of which most pairs are cut, or are not, whichever of their kind they are.
const (
	letterKind = iota
	digitKind
	spaceKind
	newlineKind
	kindCount
)

// kindPairs tells, by the kinds of the left and the right character, whether all of them are cut, and whether none is: all bits, or none.
type kindPairs struct{ all, none [kindCount][kindCount]uint64 }

func (n *neighbours) kinds() *kindPairs {
	members := [kindCount][]int{spaceKind: {' '}, newlineKind: {'\n', '\r'}}
	for c := range utf8.RuneSelf {
		switch {
		case isASCIILetter(byte(c)):
			members[letterKind] = append(members[letterKind], c)
		case '0' <= c && c <= '9':
			members[digitKind] = append(members[digitKind], c)
		}
	}
	known := new(kindPairs)
	for left := range members {
		for right := range members {
			cut, pairs := 0, len(members[left])*len(members[right])
			for _, l := range members[left] {
				for _, r := range members[right] {
					if n.next[l][r] == 0 {
						cut++
					}
				}
			}
			if cut == pairs {
				known.all[left][right] = ^uint64(0)
			}
			if cut == 0 {
				known.none[left][right] = ^uint64(0)
			}
		}
	}
	return known
}

// window is the part of scanner for [windowed].
func (n *neighbours) window(w *window, text string, at int) (starts uint64) {
	w.unclear = 0
	end := uint64(0)
	if rest := len(text) - at; rest < windowSize {
		end = 1 << rest // where a piece ends
		w.unclear = -end << 1
	}
	w.blank = 0 // whether blanks are cut does not depend on what comes
	starts, within := n.cutRuns(w, text, at)
	starts |= end
	within |= w.letter&(w.letter<<1) | w.wide&(w.wide<<1) | -end | 1
	kinds := [kindCount]uint64{letterKind: w.letter, digitKind: w.digit, spaceKind: w.space, newlineKind: w.newline}
	for left := range kinds {
		all, none := &n.known.all[left], &n.known.none[left]
		behind := kinds[left] << 1 &^ within
		starts |= behind & (kinds[0]&all[0] | kinds[1]&all[1] | kinds[2]&all[2] | kinds[3]&all[3])
		within |= behind & (kinds[0]&none[0] | kinds[1]&none[1] | kinds[2]&none[2] | kinds[3]&none[3])
	}
	for places := ^(within | starts); places != 0; places &= places - 1 {
		place := bits.TrailingZeros64(places)
		left, right := text[at+place-1], text[at+place]
		if (left | right) < utf8.RuneSelf {
			starts |= uint64(1^n.next[left][right]) << place // without a branch that nothing could foresee
		} else if n.cuts(text, at+place) {
			starts |= 1 << place
		}
	}
	return starts
}

// scanSlowly is scanner without windows.
func (n *neighbours) scanSlowly() scanner {
	return func(text string, i int, ends []int32) int {
		for at := range ends {
			if i >= len(text) {
				return at
			}
			start := i
			if longest := n.longestRun(text[i]); longest > 0 {
				for i++; i < len(text) && i-start < longest && text[i] == text[start]; {
					i++
				}
				ends[at] = int32(i)
				continue
			}
			wideCut := func() bool { return i-start >= windowSize && n.cutsWide(text, i) }
			for {
				c := text[i]
				i++
				switch {
				case isASCIILetter(c):
					i = letterRun(text, i)
				case c >= utf8.RuneSelf:
					for i < len(text) && text[i] >= utf8.RuneSelf && !wideCut() {
						i++
					}
				}
				if i == len(text) || n.cuts(text, i) || wideCut() || n.longestRun(text[i]) > 0 {
					break
				}
			}
			ends[at] = int32(i)
		}
		return len(ends)
	}
}

// metaWords returns the fast way for a model that merges whole texts with marks for spaces; nil if the file is not like that.
func (f *file) metaWords(b *bpe) *wordEncoder {
	prepend, ok := f.marksSpaces()
	if !ok || b.raw || b.ignoreMerges || !b.fallback || b.prefix != "" || b.suffix != "" {
		return nil
	}
	isByte := make(map[uint32]bool, 256)
	for _, id := range b.bytes {
		if id == 0 {
			return nil
		}
		isByte[id-1] = true
	}
	for rank, p := range b.merges.pairs {
		if isByte[p.left] || isByte[p.right] || isByte[b.merges.into[rank]] {
			return nil
		}
	}
	n := newNeighbours(b)
	for c := 'a'; c <= 'z'; c++ {
		if n.next[c][' '] == 1 {
			return nil // words would hardly be cut
		}
	}
	b.prepareGreedy()
	b.joinCharacters()
	w := newWordEncoder(n.scanner(), b, spaceMark)
	w.near = n
	w.prepend = prepend
	return w
}

// marksSpaces tells whether the normalizer writes marks for spaces and nothing else, whether it puts a mark in front of the text, and
// whether nothing is split.
func (f *file) marksSpaces() (prepend, ok bool) {
	steps := []node{}
	if f.normalizer != nil {
		steps = append(steps, *f.normalizer)
		if f.normalizer.Type == "Sequence" {
			steps = f.normalizer.Normalizers
		}
	}
	if len(steps) == 2 && steps[0].Type == "Prepend" && steps[0].Prepend == spaceMark {
		prepend, steps = true, steps[1:]
	}
	if len(steps) != 1 {
		return false, false
	}
	s, p := steps[0], f.preTokenizer
	if s.Type != "Replace" || s.Pattern.String == nil || *s.Pattern.String != " " || s.Content != spaceMark {
		return false, false
	}
	if p != nil && (p.Type != "Split" || p.Pattern.String == nil || *p.Pattern.String != " ") {
		return false, false
	}
	return prepend, true
}

// joinCharacters makes ready to put words into lanes.
func (b *bpe) joinCharacters() {
	b.wide = make([]uint32, 1<<16)
	for id := range uint32(len(b.vocab.spans)) {
		if token := b.vocab.token(id); len(token) > 0 && len(token) <= utf8.UTFMax && b.vocab.owns(id) {
			if r, size := utf8.DecodeRune(token); size == len(token) && int(r) < len(b.wide) {
				b.wide[r] = id + 1
			}
		}
	}
	copy(b.single[:utf8.RuneSelf], b.wide)
	b.single[' '] = b.character(markRune)
	b.merges.joinBytes(&b.single, func(id uint32) (first, last int) {
		token := b.vocab.token(id)
		r, _ := utf8.DecodeRune(token)
		s, _ := utf8.DecodeLastRune(token)
		return b.byteOf(r), b.byteOf(s)
	})
}

// byteOf returns the byte that is written as a character; negative if there is none.
func (b *bpe) byteOf(r rune) int {
	if r == markRune {
		return ' '
	}
	if r < utf8.RuneSelf && r != ' ' && b.single[r] > 0 {
		return int(r)
	}
	return -1
}

// character returns the id+1 of a character; 0 if the vocabulary has it not.
func (b *bpe) character(r rune) uint32 {
	if int(r) < len(b.wide) {
		return b.wide[r]
	}
	id, known := b.vocab.id(string(r))
	if !known {
		return 0
	}
	return id + 1
}

// fillMarked puts a piece into a lane, with marks for spaces. Characters that the vocabulary has not are bytes, which are never merged. It
// returns false if the piece has too many symbols.
func (b *bpe) fillMarked(g *lanes, lane uint8, piece string) bool {
	plain := len(piece) <= laneSymbols
	for i := 0; i < len(piece) && plain; i++ {
		plain = b.single[piece[i]] > 0
	}
	if plain {
		g.beginBytes(b.merges, lane, piece, &b.single)
		return true
	}
	var symbols [laneSymbols]uint32
	n := 0
	for i := 0; i < len(piece); {
		if n+utf8.UTFMax > laneSymbols {
			return false
		}
		size, id := 1, uint32(0)
		switch c := piece[i]; {
		case c < utf8.RuneSelf:
			id = b.single[c]
		case c < 0xE0 && i+1 < len(piece):
			size, id = 2, b.wide[rune(c&0x1F)<<6|rune(piece[i+1]&0x3F)]
		case c < 0xF0 && i+2 < len(piece):
			size, id = 3, b.wide[rune(c&0xF)<<12|rune(piece[i+1]&0x3F)<<6|rune(piece[i+2]&0x3F)]
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(piece[i:])
			id = b.character(r)
		}
		if id > 0 {
			symbols[n] = id - 1
			n++
		} else {
			for j := range size {
				symbols[n+j] = b.bytes[piece[i+j]] - 1
			}
			n += size
		}
		i += size
	}
	g.begin(b.merges, lane, symbols[:n])
	return true
}

// encodeMarked appends the ids of text in which marks stand for spaces. Characters that the vocabulary has not are bytes.
func (b *bpe) encodeMarked(dst []uint32, text string) []uint32 {
	start := 0
	for i, r := range text {
		size := utf8.RuneLen(r)
		if b.character(r) > 0 {
			continue
		}
		dst = b.encodeKnown(dst, text[start:i])
		for j := range size {
			dst = append(dst, b.bytes[text[i+j]]-1)
		}
		start = i + size
	}
	return b.encodeKnown(dst, text[start:])
}

func (b *bpe) encodeKnown(dst []uint32, text string) []uint32 {
	if text == "" {
		return dst
	}
	return b.mergeAll(dst, text)
}
