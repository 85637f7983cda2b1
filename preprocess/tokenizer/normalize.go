package tokenizer

import (
	"math/bits"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/text/unicode/norm"
)

// normalizer changes text before it is split.
type normalizer func(text) text

func sequence(steps []normalizer) normalizer {
	switch len(steps) {
	case 0:
		return nil
	case 1:
		return steps[0]
	}
	return func(in text) text {
		for _, step := range steps {
			in = step(in)
		}
		return in
	}
}

// unicodeForm is NFC, NFD, NFKC or NFKD. The reference library's compatibility forms are those of Unicode 12; later characters stay
// as they are.
func unicodeForm(form norm.Form) normalizer {
	compatibility := form == norm.NFKC || form == norm.NFKD
	one := func(w *rewriter, start, end int) {
		if !w.in.track {
			w.out = form.AppendString(w.out, w.in.s[start:end])
			return
		}
		var it norm.Iter
		it.InitString(form, w.in.s[start:end])
		for !it.Done() {
			from := start + it.Pos()
			segment := it.Next()
			w.put(string(segment), from, start+it.Pos())
		}
	}
	return func(in text) text {
		if form == norm.NFC && quickNFC(in.s) || form != norm.NFC && form.IsNormalString(in.s) {
			return in
		}
		if !in.track && !compatibility {
			in.s = form.String(in.s)
			return in
		}
		w := rewrite(in)
		start := 0
		if compatibility {
			for i, r := range in.s {
				if r > 0x80 && laterCompatibility(r) {
					one(w, start, i)
					start = i + utf8.RuneLen(r)
					w.keep(i, start)
				}
			}
		}
		one(w, start, len(in.s))
		return w.done()
	}
}

// laterCompatibility tells whether r got its compatibility decomposition after Unicode 12.
func laterCompatibility(r rune) bool {
	switch {
	case r == 0x32FF, 0xA7F2 <= r && r <= 0xA7F4, r == 0xAB69, r == 0x1F16C, 0x10780 <= r && r <= 0x107BF, 0x1E030 <= r && r <= 0x1E06D,
		0x1FBF0 <= r && r <= 0x1FBF9:
		return true
	}
	return false
}

// mapped applies a function to each character. It returns the replacement and whether there is one.
func mapped(replace func(r rune) (string, bool)) normalizer {
	return func(in text) text {
		var w *rewriter
		kept := 0
		for i, r := range in.s {
			to, changed := replace(r)
			if !changed {
				continue
			}
			if w == nil {
				w = rewrite(in)
			}
			end := i + utf8.RuneLen(r)
			w.keep(kept, i)
			w.put(to, i, end)
			kept = end
		}
		if w == nil {
			return in
		}
		w.keep(kept, len(in.s))
		return w.done()
	}
}

func toLower(r rune) (string, bool) {
	if r == 'İ' {
		return "i̇", true
	}
	if lower := unicode.ToLower(r); lower != r {
		return string(lower), true
	}
	return "", false
}

func dropNonspacingMarks(r rune) (string, bool) { return "", r >= 0x80 && unicode.Is(unicode.Mn, r) }

func dropMarks(r rune) (string, bool) { return "", r >= 0x80 && unicode.Is(unicode.M, r) }

// nmt is the character clean-up of machine translation models.
func nmt(r rune) (string, bool) {
	switch {
	case 1 <= r && r <= 8, r == 0xB, 0xE <= r && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		return "", true
	case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, 0x200B <= r && r <= 0x200F, r == 0x2028, r == 0x2029, r == 0x2581,
		r == 0xFEFF, r == 0xFFFD:
		return " ", true
	}
	return "", false
}

// cleanBERT drops control characters and makes white space spaces.
func cleanBERT(r rune) (string, bool) {
	switch {
	case r == 0, r == 0xFFFD:
		return "", true
	case r == '\t', r == '\n', r == '\r':
		return " ", true
	case r == ' ':
		return "", false
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
		return "", true
	case unicode.Is(unicode.White_Space, r):
		return " ", true
	}
	return "", false
}

func spaceChinese(r rune) (string, bool) {
	switch {
	case 0x4E00 <= r && r <= 0x9FFF, 0x3400 <= r && r <= 0x4DBF, 0x20000 <= r && r <= 0x2A6DF, 0x2A700 <= r && r <= 0x2B73F,
		0x2B740 <= r && r <= 0x2B81F, 0x2B920 <= r && r <= 0x2CEAF, 0xF900 <= r && r <= 0xFAFF, 0x2F800 <= r && r <= 0x2FA1F:
		return " " + string(r) + " ", true
	}
	return "", false
}

// replaced replaces all matches of a pattern.
func replaced(p pattern, content string) normalizer {
	return func(in text) text {
		matches := p.find(in.s)
		if len(matches) == 0 {
			return in
		}
		w := rewrite(in)
		kept := 0
		for _, m := range matches {
			w.keep(kept, m.start)
			w.put(content, m.start, m.end)
			kept = m.end
		}
		w.keep(kept, len(in.s))
		return w.done()
	}
}

// prepended puts a prefix in front of text that is not empty.
func prepended(prefix string) normalizer {
	return func(in text) text {
		if in.s == "" {
			return in
		}
		return in.prepend(prefix)
	}
}

func (t text) prepend(prefix string) text {
	w := rewrite(t)
	_, first := runeAt(t.s, 0)
	w.put(prefix, 0, first)
	w.keep(0, len(t.s))
	return w.done()
}

// stripped takes white space from the ends.
func stripped(left, right bool) normalizer {
	return func(in text) text {
		start, end := 0, len(in.s)
		if left {
			start = end - len(strings.TrimLeftFunc(in.s, unicode.IsSpace))
		}
		if right {
			end = start + len(strings.TrimRightFunc(in.s[start:], unicode.IsSpace))
		}
		return in.slice(start, end)
	}
}

// byteAlphabet writes each byte as a character of the byte-level alphabet.
func byteAlphabet(in text) text {
	w := rewrite(in)
	for i := range len(in.s) {
		w.rune(alphabet[in.s[i]], i, i+1)
	}
	return w.done()
}

// alphabet gives each byte a visible character; fromAlphabet is its inverse, with -1 for characters that are none of these.
var alphabet, fromAlphabet = func() (to [256]rune, from [324]int16) {
	for r := range from {
		from[r] = -1
	}
	n := rune(0)
	for b := range rune(256) {
		r := b
		if b < 33 || b > 126 && b < 161 || b == 173 {
			r = 256 + n
			n++
		}
		to[b], from[r] = r, int16(b)
	}
	return to, from
}()

// unalphabet appends the bytes that the characters of token stand for; ok is false if one is not in the alphabet. The result is never
// longer than the token, so that dst may be token[:0].
func unalphabet(dst, token []byte) (out []byte, ok bool) {
	for i := 0; i < len(token); {
		if c := token[i]; c > ' ' && c < 127 {
			dst = append(dst, c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(token[i:])
		i += size
		if r >= rune(len(fromAlphabet)) || fromAlphabet[r] < 0 {
			return dst, false
		}
		dst = append(dst, byte(fromAlphabet[r]))
	}
	return dst, true
}

// composition tells what NFC might do to a character.
type composition uint8

const (
	stays      composition = iota // it stays as it is, and so does what is before it
	composed                      // so, but it stands for several characters, in which marks behind it may find a place
	ordered                       // a mark that nothing composes with: it may change places with other marks, but not with a character that stays
	joining                       // a mark that composes with some of the characters that stay
	composable                    // it may change or change what is before it
)

// compositions holds that of all characters up to U+FFFF; later ones have an entry for 64 or more that begin with the same two bytes.
type compositions struct {
	basic [1 << 16]composition
	later [256][64]composition
	pairs [pairSlots]uint64 // of a character and a mark that compose, by hash; 0 is free
	// moving has, by the lower halves of a character's first two bytes, a bit for each third byte with which it is neither of those that stay
	// nor composed. All are equal where there is no third byte, or a fourth one.
	moving [1 << 12]uint64
}

const (
	pairBits       = 12
	pairSlots      = 1 << pairBits // there are about 900
	pairHashFactor = 0x9E3779B97F4A7C15
)

// pair returns the place of two characters, and what has to be there if they compose; else it is free.
func (c *compositions) pair(first, mark rune) (place *uint64, pair uint64) {
	pair = uint64(first)<<32 | uint64(mark)
	i := pair * pairHashFactor >> (64 - pairBits)
	for c.pairs[i] != 0 && c.pairs[i] != pair {
		i = (i + 1) % pairSlots
	}
	return &c.pairs[i], pair
}

// compose tells whether two characters compose, of which the second is joining.
func (c *compositions) compose(first, mark rune) bool {
	place, pair := c.pair(first, mark)
	return *place == pair
}

// composedRanges hold all characters that NFC might do anything to; the others are mostly Chinese and Korean.
var composedRanges = [][2]rune{{0x80, 0x33FF}, {0xA000, 0xABFF}, {0xD7A4, 0xD7FF}, {0xF900, 0x11FFF}, {0x16000, 0x16FFF}, {0x1B000, 0x1EFFF},
	{0x2F800, 0x2FA1F}}

// firstJamo and lastJamo are the parts of Korean syllables.
const (
	firstJamo = 0x1100
	lastJamo  = 0x11FF
)

var allCompositions = sync.OnceValue(func() *compositions {
	table := new(compositions)
	var buf [utf8.UTFMax]byte
	set := func(r rune, c composition) {
		if r < 1<<16 {
			table.basic[r] = max(table.basic[r], c)
			return
		}
		utf8.EncodeRune(buf[:], r)
		entry := &table.later[buf[0]][buf[1]&0x3F]
		*entry = max(*entry, c)
	}
	for _, span := range composedRanges {
		for r := span[0]; r <= span[1]; r++ {
			s := buf[:utf8.EncodeRune(buf[:], r)]
			p := norm.NFC.Properties(s)
			parts := p.Decomposition()
			switch {
			case parts != nil && !norm.NFC.IsNormal(s):
				set(r, composable)
			case !p.BoundaryBefore() && p.CCC() == 0 && r >= firstJamo && r <= lastJamo:
				set(r, composable) // by arithmetic
			case !p.BoundaryBefore() && p.CCC() == 0:
				set(r, joining)
			case !p.BoundaryBefore():
				set(r, ordered)
			case parts != nil:
				set(r, composed)
			}
			if parts == nil {
				continue
			}
			of := []rune(string(parts))
			for _, part := range of[1:] {
				set(part, joining)
			}
			if last := len(of) - 1; last > 0 && norm.NFC.IsNormal(s) {
				if first := []rune(norm.NFC.String(string(of[:last]))); len(first) == 1 {
					place, pair := table.pair(first[0], of[last])
					*place = pair
				}
			}
		}
	}
	table.findMoving()
	return table
})

func (c *compositions) findMoving() {
	for r := utf8.RuneSelf; r < len(c.basic); r++ {
		switch {
		case c.basic[r] <= composed:
		case r < 0x800:
			c.moving[r&0x7FF] = ^uint64(0) // the first byte is 0xC0 and above, and all bits of the character are in order
		default:
			c.moving[0x20<<6|r>>6] |= 1 << (r & 0x3F)
		}
	}
	for first := 0xF0; first < len(c.later); first++ {
		for second, kind := range c.later[first] {
			if kind > composed {
				c.moving[first&0x3F<<6|second] = ^uint64(0)
			}
		}
	}
}

// skip returns where in s, from i on, the first 64 bytes begin in which a character might move, or that are not all there.
func (c *compositions) skip(s string, i int) int {
	for i+windowSize+2 <= len(s) {
		b := (*[windowSize + 2]byte)(unsafe.Pointer(unsafe.StringData(s[i : i+windowSize+2])))
		moving := uint64(0)
		for leads := leads((*[windowSize]byte)(b[:])); leads != 0; leads &= leads - 1 {
			at := bits.TrailingZeros64(leads)
			moving |= c.moving[int(b[at]&0x3F)<<6|int(b[at+1]&0x3F)] >> (b[at+2] & 0x3F)
		}
		if moving&1 != 0 {
			break
		}
		i += windowSize
	}
	return i
}

func (c *compositions) at(s string, i int) (composition, int) {
	first := s[i]
	switch {
	case first < utf8.RuneSelf:
		return stays, 1
	case first < 0xE0 && i+1 < len(s):
		return c.basic[int(first&0x1F)<<6|int(s[i+1]&0x3F)], 2
	case first < 0xF0 && i+2 < len(s):
		return c.basic[int(first&0x0F)<<12|int(s[i+1]&0x3F)<<6|int(s[i+2]&0x3F)], 3
	case i+3 < len(s):
		return c.later[first][s[i+1]&0x3F], 4
	}
	return composable, len(s) - i
}

// quickNFC tells whether valid text is in normal form C. Characters that stay as they are cut it into stretches which can be looked at
// one by one, and nearly all stretches are one such character, or one and a mark.
func quickNFC(s string) bool {
	table := allCompositions()
	for i, start, end := 0, 0, 0; i < len(s); {
		if i >= end {
			if next := table.skip(s, i); next > i {
				for i = next; i < len(s) && !utf8.RuneStart(s[i]); {
					i++ // what is there belongs to a character that has been seen
				}
				for start = i - 1; !utf8.RuneStart(s[start]); {
					start--
				}
			}
			end = i + windowSize
		}
		for i+8 <= len(s) && eight(s, i)&topBits == 0 {
			i += 8
			start = i - 1
		}
		if i == len(s) {
			break
		}
		c, size := table.at(s, i)
		if c <= composed {
			start = i
			i += size
			continue
		}
		behind, marks := i+size, 1
		for behind < len(s) {
			next, size := table.at(s, behind)
			if next <= composed {
				break
			}
			c = max(c, next)
			behind += size
			marks++
		}
		before, _ := table.at(s, start)
		switch {
		case c == composable || marks > 1 || start == i || c == joining && before == composed:
			if !norm.NFC.IsNormalString(s[start:behind]) {
				return false
			}
		case c == joining:
			first, _ := utf8.DecodeRuneInString(s[start:])
			if mark, _ := utf8.DecodeRuneInString(s[i:]); table.compose(first, mark) {
				return false
			}
		}
		start, i = behind, behind // which stays, or is the end
	}
	return true
}
