package tokenizer

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// wideClasses are the classes of the bytes of characters beyond ASCII in a window, a bit for each byte. Their order is that of the bits of a
// [wideClass], from the highest.
type wideClasses struct {
	unclear, lower, upper, cjk, sign, mark, letter uint64
}

// wideClass is a [class] in a byte, for all that windows ask for.
type wideClass uint8

const (
	wideLetter wideClass = 1 << iota
	wideMark
	wideSign
	wideCJK
	wideUpper
	wideLower
	wideUnclear // numbers and white space

	wideBits = 7
)

func (c class) widened() (w wideClass) {
	for _, bit := range [...]struct {
		class class
		wide  wideClass
	}{{letter, wideLetter}, {mark, wideMark}, {sign, wideSign}, {cjk, wideCJK}, {upper, wideUpper}, {lower, wideLower}, {number | space, wideUnclear}} {
		if c&bit.class != 0 {
			w |= bit.wide
		}
	}
	return w
}

// wideTable has the classes of characters of two and three bytes. The first two bytes lead to a block, and the third one to the class in it.
// How long the character is makes no difference: all the block is the same for one of two bytes. So does none of its steps depend on a branch.
type wideTable struct {
	block  [1 << 12]uint16 // by the lower halves of the first two bytes
	blocks [][64]wideClass
}

// wideCharacters is the table; call it to get it.
var wideCharacters = sync.OnceValue(func() *wideTable {
	classes := characters()
	t := new(wideTable)
	known := make(map[[64]wideClass]uint16)
	for first := 0xC0; first < 0xF0; first++ {
		for second := range 64 {
			var block [64]wideClass
			for third := range 64 {
				r := rune(first&0x1F<<6 | second)
				if first >= 0xE0 {
					r = rune(first&0x0F<<12 | second<<6 | third)
				}
				block[third] = classes.of(r).widened()
			}
			at, ok := known[block]
			if !ok {
				at = uint16(len(t.blocks))
				known[block] = at
				t.blocks = append(t.blocks, block)
			}
			t.block[first&0x3F<<6|second] = at
		}
	}
	return t
})

// widen looks up the classes of the characters beyond ASCII in the window at i. Numbers and white space among them are unclear, and so is a
// character that the window ends in.
func (w *window) widen(text string, i int) (c wideClasses) {
	const beyond = utf8.UTFMax - 1 // bytes of a character that begins in the window
	var rest [windowSize + beyond]byte
	b := &rest
	if i+len(rest) <= len(text) {
		b = (*[windowSize + beyond]byte)(unsafe.Pointer(unsafe.StringData(text[i : i+len(rest)])))
	} else {
		copy(rest[:], text[i:])
	}
	table := wideCharacters()
	var kinds [windowSize + beyond]wideClass
	leads := w.wide & w.leads
	for ; leads != 0; leads &= leads - 1 {
		at := bits.TrailingZeros64(leads)
		first, second, third := b[at], b[at+1], b[at+2]
		kind := table.blocks[table.block[int(first&0x3F)<<6|int(second&0x3F)]][third&0x3F]
		if first >= 0xF0 {
			r, _ := utf8.DecodeRune(b[at : at+utf8.UTFMax])
			kind = characters().of(r).widened()
		}
		// What this writes behind the character is written over by the next one, or not looked at.
		binary.LittleEndian.PutUint32((*[4]byte)(unsafe.Pointer(&kinds[at]))[:], uint32(kind)*0x01010101)
	}
	c.gather((*[windowSize]wideClass)(kinds[:]))
	within := w.wide
	if last := windowSize - 1 - bits.LeadingZeros64(w.wide&w.leads|1); last+characterSize(b[last]) > windowSize {
		within &= 1<<last - 1
		w.unclear |= ^uint64(0) << last
	}
	c.letter &= within
	c.mark &= within
	c.sign &= within
	c.cjk &= within
	c.upper &= within
	c.lower &= within
	w.inner |= within &^ w.leads
	w.unclear |= c.unclear & within
	return c
}

// characterSize is the length of a character with the first byte.
func characterSize(first byte) int {
	return 1 + int(first>>7&(first>>6)) + int((uint(first)+0x20)>>8) + int((uint(first)+0x10)>>8)
}

// gatherGeneric tells by the class of each byte which bytes are of a class.
func (c *wideClasses) gatherGeneric(kinds *[windowSize]wideClass) {
	var planes [wideBits]uint64
	for i := 0; i < windowSize; i += 8 {
		x := binary.LittleEndian.Uint64((*[8]byte)(unsafe.Pointer(&kinds[i]))[:])
		for plane := range planes {
			x <<= 1 // no class has the highest bit
			planes[plane] |= gather(x) << i
		}
	}
	*c = wideClasses{planes[0], planes[1], planes[2], planes[3], planes[4], planes[5], planes[6]}
}
