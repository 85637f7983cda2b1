package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is a set of properties of a character, as split patterns name them.
type class uint16

const (
	letter  class = 1 << iota // \p{L}
	number                    // \p{N}
	space                     // \s, line ends included
	newline                   // \r or \n
	upper                     // what may be in a word's first part: \p{Lu} \p{Lt} \p{Lm} \p{Lo} \p{M}
	lower                     // what may be in a word's second part: \p{Ll} \p{Lm} \p{Lo} \p{M}
	sign                      // \p{P} or \p{S}
	mark                      // \p{M}
	cjk                       // [一-龥぀-ゟ゠-ヿ]
)

// The classes of one block of 256 characters. Most of the 4352 blocks are equal to another one.
type classBlock [256]class

type classTable struct {
	block  [(unicode.MaxRune + 1) / 256]uint8
	blocks []*classBlock
}

// characters is the table of all classes; call [classes] to get it.
var characters = sync.OnceValue(buildClasses)

// asciiClass is the part of the table that nearly all lookups need.
var asciiClass = func() (table [256]class) {
	for r := range rune(utf8.RuneSelf) {
		table[r] = slowClass(r)
	}
	return table
}()

func buildClasses() *classTable {
	full := make([]class, unicode.MaxRune+1)
	set := func(table *unicode.RangeTable, c class) {
		for _, r := range table.R16 {
			for x := rune(r.Lo); x <= rune(r.Hi); x += rune(r.Stride) {
				full[x] |= c
			}
		}
		for _, r := range table.R32 {
			for x := rune(r.Lo); x <= rune(r.Hi); x += rune(r.Stride) {
				full[x] |= c
			}
		}
	}
	for _, category := range categories {
		set(category.table, category.class)
	}
	for _, r := range laterCharacters {
		for x := r.low; x <= r.high; x++ {
			full[x] |= r.class
		}
	}
	for _, r := range [][2]rune{{0x3040, 0x30FF}, {0x4E00, 0x9FA5}} {
		for x := r[0]; x <= r[1]; x++ {
			full[x] |= cjk
		}
	}
	full['\r'] |= newline
	full['\n'] |= newline

	t := new(classTable)
	known := make(map[classBlock]uint8)
	for i := range t.block {
		b := classBlock(full[i*256 : i*256+256])
		at, ok := known[b]
		if !ok {
			at = uint8(len(t.blocks))
			t.blocks = append(t.blocks, &b)
			known[b] = at
		}
		t.block[i] = at
	}
	return t
}

var categories = []struct {
	table *unicode.RangeTable
	class class
}{
	{unicode.Lu, letter | upper}, {unicode.Lt, letter | upper}, {unicode.Ll, letter | lower},
	{unicode.Lm, letter | upper | lower}, {unicode.Lo, letter | upper | lower}, {unicode.M, mark | upper | lower},
	{unicode.N, number}, {unicode.P, sign}, {unicode.S, sign}, {unicode.White_Space, space},
}

func slowClass(r rune) (c class) {
	for _, category := range categories {
		if unicode.Is(category.table, r) {
			c |= category.class
		}
	}
	if r == '\r' || r == '\n' {
		c |= newline
	}
	return c
}

func (t *classTable) of(r rune) class {
	if uint32(r) > unicode.MaxRune {
		return 0
	}
	return t.blocks[t.block[uint32(r)>>8]][uint8(r)]
}

// runeAt decodes the character at i of valid UTF-8; size 0 at the end of the text.
func runeAt(text string, i int) (r rune, size int) {
	if i >= len(text) {
		return 0, 0
	}
	if c := text[i]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeRuneInString(text[i:])
}

// at returns the class and the length of the character at i; length 0 at the end of the text.
func (t *classTable) at(text string, i int) (class, int) {
	if i >= len(text) {
		return 0, 0
	}
	c := text[i]
	if c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	return t.wide(text, i)
}

// wide is at for characters beyond ASCII.
func (t *classTable) wide(text string, i int) (class, int) {
	c := text[i]
	if c < 0xE0 && i+1 < len(text) {
		r := uint32(c&0x1F)<<6 | uint32(text[i+1]&0x3F)
		return t.blocks[t.block[r>>8]][uint8(r)], 2
	}
	if c < 0xF0 && i+2 < len(text) {
		r := uint32(c&0x0F)<<12 | uint32(text[i+1]&0x3F)<<6 | uint32(text[i+2]&0x3F)
		return t.blocks[t.block[r>>8]][uint8(r)], 3
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	return t.of(r), size
}
