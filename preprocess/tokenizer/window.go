package tokenizer

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// Most text is ASCII, and most of a scanner's time would go into finding out, character by character, what comes next, which no
// processor can foresee. So scanners look at windows of 64 bytes: each class of characters becomes a word with a bit for every byte,
// and the places where pieces begin are computed from these words, all at once. That a piece begins at the window's first byte is
// known; what cannot be told within the window, or is rare, is left to the scanner that goes character by character.

// windowSize is the length of a window in bytes.
const windowSize = 64

// window holds the classes of the bytes of a window, a bit each, that of the first byte lowest.
type window struct {
	letter  uint64 // A to Z, a to z; with [window.widen] those beyond ASCII, too
	upper   uint64 // A to Z
	digit   uint64
	space   uint64 // the space itself
	blank   uint64 // white space that ends no line; spaces, too
	newline uint64 // \r and \n
	quote   uint64 // the apostrophe
	control uint64 // control characters that are no white space
	wide    uint64 // bytes beyond ASCII
	leads   uint64 // those of them that begin characters, and some of ASCII

	apart   uint64 // bytes of characters that make words of their own
	inner   uint64 // all bytes of characters but their first
	unclear uint64 // bytes whose pieces are not for this window to tell
}

// read reads the window at i. What is beyond the text's end is of the class control.
func (w *window) read(text string, i int) {
	if i+windowSize <= len(text) {
		w.classify((*[windowSize]byte)(unsafe.Pointer(unsafe.StringData(text[i : i+windowSize]))))
	} else {
		var rest [windowSize]byte
		copy(rest[:], text[i:])
		w.classify(&rest)
	}
	w.apart, w.inner, w.unclear = 0, 0, w.control
}

// classifyGeneric is classify without instructions of a particular processor: eight bytes at a time.
func (w *window) classifyGeneric(b *[windowSize]byte) {
	*w = window{}
	for i := 0; i < windowSize; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		low := x &^ topBits
		ascii := ^x & topBits
		lowered := low | 0x20*everyByte
		letter := between(lowered, 'a', 'z') & ascii
		digit := between(low, '0', '9') & ascii
		space := between(low, ' ', ' ') & ascii
		control := between(low, 0, 0x1F)&ascii | between(low, 0x7F, 0x7F)&ascii
		ends := between(low, '\n', '\n')&ascii | between(low, '\r', '\r')&ascii
		white := between(low, '\t', '\r') & ascii
		quote := between(low, '\'', '\'') & ascii
		w.letter |= gather(letter) << i
		w.upper |= gather(letter&^(low<<2)) << i
		w.digit |= gather(digit) << i
		w.space |= gather(space) << i
		w.blank |= gather(space|white&^ends) << i
		w.newline |= gather(ends) << i
		w.quote |= gather(quote) << i
		w.control |= gather(control&^white) << i
		w.wide |= gather(x) << i
		w.leads |= gather(x<<1) << i
	}
}

// leadsGeneric is leads without instructions of a particular processor.
func leadsGeneric(b *[windowSize]byte) (leads uint64) {
	for i := 0; i < windowSize; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		leads |= gather(x&(x<<1)) << i
	}
	return leads
}

// placesOf returns which bytes of the window at i are c, which is not zero.
func placesOf(text string, i int, c byte) uint64 {
	if i+windowSize <= len(text) {
		return equal((*[windowSize]byte)(unsafe.Pointer(unsafe.StringData(text[i:i+windowSize]))), c)
	}
	var rest [windowSize]byte
	copy(rest[:], text[i:])
	return equal(&rest, c)
}

// equalGeneric is equal without instructions of a particular processor.
func equalGeneric(b *[windowSize]byte, c byte) (places uint64) {
	for i := 0; i < windowSize; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		places |= gather(between(x&^topBits, c, c)&^x) << i
	}
	return places
}

// between has the top bit set in every byte of x that is within low to high. No byte is above 0x7F.
func between(x uint64, low, high byte) uint64 {
	return (x + everyByte*uint64(0x80-low)) &^ (x + everyByte*uint64(0x7F-high)) & topBits
}

// gather packs the top bits of the eight bytes.
func gather(x uint64) uint64 { return x & topBits * 0x0002040810204081 >> 56 }

// behind returns the places right behind those runs of set bits in x in each of which a bit of in is set.
func behind(x, in uint64) uint64 { return (x + in) &^ x }

// firsts returns the first bits of runs of set bits.
func firsts(x uint64) uint64 { return x &^ (x << 1) }

// trusted returns a mask of the places of the window that depend on nothing beyond it, nor on what is unclear: they are before the first
// such place, and before blanks that lead up to it, which belong to different pieces depending on what comes.
func (w *window) trusted() uint64 {
	known := bits.TrailingZeros64(w.unclear)
	blanks := bits.LeadingZeros64(^(w.blank << (64 - known)))
	if blanks >= known {
		return 0
	}
	return 1<<(known-blanks) - 1
}

// starts computes where pieces begin in a window, but for contractions, in the way that is common to the patterns of [cl100k], [o200k]
// and [deepseek]:
//
//   - Letters, digits, signs and white space make runs.
//   - A blank before letters, and a sign on its own, belongs to them; a space before signs belongs to these.
//   - Line ends belong to the signs before them. Else white space up to the last line end is a piece, and white space behind it another,
//     less its last character if something follows that is not in kept.
//
// joined are the line ends that belong to signs.
func (w *window) starts(kept uint64) (starts, joined uint64) {
	sign := w.signs()
	signs := firsts(sign)
	spaced := signs & (w.space << 1)
	starts = firsts(w.letter)&^(w.blank<<1)&^w.prefixed(sign) | firsts(w.digit) | signs&^spaced

	joined = w.newline &^ (w.newline + behind(sign, signs)&w.newline)
	white := w.blank | w.newline
	indents := w.blank & (w.newline << 1)
	starts |= firsts(white&^joined) | indents | w.blank&^(white>>1)&^(kept>>1)
	if behind(w.blank, indents)&w.newline != 0 {
		w.unclear |= indents // white space between line ends belongs to the piece that ends with the last of them
	}
	return starts, joined
}

// signs are the bytes that are of no other class.
func (w *window) signs() uint64 {
	return ^(w.letter | w.digit | w.blank | w.newline | w.apart | w.unclear)
}

// prefixed returns the places right behind signs of one character that have no space before them.
func (w *window) prefixed(sign uint64) uint64 {
	signs := firsts(sign)
	return behind(sign, signs) &^ behind(sign, signs&(w.space<<1)) &^ behind(sign, sign&^signs&^w.inner)
}

// numbers returns the places at which numbers of at most so many digits begin, one or three.
func (w *window) numbers(digits int) (starts uint64) {
	if digits == 1 {
		return w.digit
	}
	three := w.digit & (w.digit << 1) & (w.digit << 2)
	for next := firsts(w.digit) << 3 & w.digit & (three << 1); next != 0; next = next << 3 & w.digit & (three << 1) {
		starts |= next
	}
	return starts
}

// quickCutter does what [windowed] does without looking at one window after the other, as far as it can.
type quickCutter interface {
	// cut writes the ends of the pieces of text from i on, and returns how far it came and how many they are. It changes what is in the capacity of
	// ends behind its length.
	cut(text string, i int, ends []int32) (next, n int)
	// knowsWide tells whether it can cut characters beyond ASCII.
	knowsWide() bool
}

// windowed scans by windows, and one piece at a time with another scanner where that does not work. starts returns the places of a
// window at which pieces begin and that are certain. What quick cuts is not looked at; it may be nil.
func windowed(starts func(w *window, text string, at int) uint64, quick quickCutter, slow scanner) scanner {
	return func(text string, i int, ends []int32) int {
		at := 0
		var w window
		for at < len(ends) && i < len(text) {
			if quick != nil && (w.wide == 0 || quick.knowsWide()) {
				next, n := quick.cut(text, i, ends[at:])
				if at += n; at == len(ends) {
					break
				}
				i = next
			}
			w.read(text, i)
			places := starts(&w, text, i) & w.trusted() &^ 1
			if places == 0 {
				slow(text, i, ends[at:at+1])
				i = int(ends[at])
				at++
				continue
			}
			room := ends[at:]
			n := listPlaces(room, int32(i), places)
			at += n
			if at == len(ends) {
				break
			}
			i += bits.Len64(places) - 1 // without waiting for what has been written
		}
		return at
	}
}

// listPlacesGeneric is listPlaces without instructions of a particular processor.
func listPlacesGeneric(room []int32, base int32, places uint64) int {
	n := 0
	for ; places != 0 && n < len(room); places &= places - 1 {
		room[n] = base + int32(bits.TrailingZeros64(places))
		n++
	}
	return n
}

// cl100kRules are those of [cl100kWindow].
func cl100kRules(digits int) *asciiRules {
	return &asciiRules{threes: threes(digits), quotes: always, unled: always}
}

// cl100kWindow is for [cl100k].
func cl100kWindow(digits int, inWord class) func(w *window, text string, at int) uint64 {
	marks := uint64(0) // which of them are in words: all or none
	if inWord&mark != 0 {
		marks = ^marks
	}
	return func(w *window, text string, at int) uint64 {
		if w.wide != 0 {
			wide := w.widen(text, at)
			w.letter |= wide.letter | wide.mark&marks
		}
		starts, _ := w.starts(0)
		starts |= w.numbers(digits)
		for quotes := w.quote & starts & (w.letter >> 1); quotes != 0; quotes &= quotes - 1 {
			place := bits.TrailingZeros64(quotes)
			if size := contraction(text, at+place, true); size > 0 {
				starts |= 1 << (place + size)
			}
		}
		return starts
	}
}

// o200kRules are those of [o200kWindow].
func o200kRules(digits int, contractions bool) *asciiRules {
	rules := &asciiRules{threes: threes(digits), capitals: always, slashes: always}
	if contractions {
		rules.quotes, rules.open = always, 1<<(windowSize-1)
	}
	return rules
}

// o200kWindow is for [o200k]. Words end where a capital follows a small letter, too, and have contractions as their ends; line ends behind
// signs may be followed by slashes.
func o200kWindow(digits int, contractions bool) func(w *window, text string, at int) uint64 {
	return func(w *window, text string, at int) uint64 {
		both := uint64(0)
		if w.wide != 0 {
			wide := w.widen(text, at)
			w.letter |= wide.letter | wide.mark
			w.upper |= wide.upper &^ wide.lower
			both = wide.upper & wide.lower
			// Behind a letter without case a capital may go on or begin anew; a mark can be what is before a word.
			w.unclear |= w.upper&(both<<1) | firsts(w.letter)&wide.mark
		}
		starts, joined := w.starts(0)
		starts |= w.numbers(digits) | w.upper&((w.letter&^w.upper)<<1)
		for ends := (joined << 1) & w.signs() &^ joined; ends != 0; ends &= ends - 1 {
			if place := bits.TrailingZeros64(ends); text[at+place] == '/' {
				w.unclear |= 1 << place
			}
		}
		if !contractions {
			return starts
		}
		w.unclear |= w.quote & ((w.wide|w.unclear)>>1 | 1<<(windowSize-1)) // ſ counts as s
		end := -1                                                          // of the last contraction, at which a word begins
		for quotes := w.quote & (w.letter << 1) & (w.letter >> 1); quotes != 0; quotes &= quotes - 1 {
			place := bits.TrailingZeros64(quotes)
			if size := contraction(text, at+place, true); size > 0 && place != end {
				end = place + size
				starts = starts&^((1<<size-1)<<place) | 1<<end
			}
		}
		return starts
	}
}

// deepseekRules are those of [deepseekWindow].
func deepseekRules() *asciiRules { return &asciiRules{threes: always, kept: always} }

// deepseekWindow is for [deepseek]. White space is a piece as a whole before digits and characters of the second pattern, which are pieces
// of their own. A sign belongs to the letters behind it only if all of these are ASCII.
func deepseekWindow() func(w *window, text string, at int) uint64 {
	return func(w *window, text string, at int) uint64 {
		if w.wide == 0 {
			starts, _ := w.starts(w.digit)
			return starts | w.numbers(3)
		}
		wide := w.widen(text, at)
		words := (wide.letter | wide.mark) &^ wide.cjk
		w.unclear |= w.wide&^(words|wide.sign|wide.cjk) | wide.cjk&^wide.letter
		w.apart = wide.cjk
		ascii := w.letter
		w.letter |= words
		prefixed := w.prefixed(w.signs())
		starts, _ := w.starts(w.digit | w.apart)
		starts |= prefixed&(words|wide.sign<<1&w.letter) | behind(ascii, prefixed&ascii&^(wide.sign<<1))&words
		return starts | w.numbers(3) | firsts(w.apart) | w.apart<<1&^w.apart
	}
}
