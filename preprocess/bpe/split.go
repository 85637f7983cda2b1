package bpe

import (
	"unicode"
	"unicode/utf8"
)

type class uint8

const (
	other class = iota
	letter
	number
	space
	newline
)

func classOf(r rune) class {
	if r < utf8.RuneSelf {
		return ascii[r]
	}
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.Is(unicode.White_Space, r):
		return space
	}
	return other
}

var ascii = func() (table [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		switch {
		case r == '\r' || r == '\n':
			table[r] = newline
		case unicode.IsLetter(r):
			table[r] = letter
		case unicode.IsDigit(r):
			table[r] = number
		case r == ' ' || r >= '\t' && r <= '\f':
			table[r] = space
		}
	}
	return table
}()

func runeAt(text string, i int) (rune, int, class) {
	if i >= len(text) {
		return 0, 0, other
	}
	if c := text[i]; c < utf8.RuneSelf {
		return rune(c), 1, ascii[c]
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	return r, size, classOf(r)
}

// nextPiece returns the length of the first piece of text under the split pattern of current byte-level vocabularies:
// contractions, words with one leading character, numbers of up to digits, punctuation with its line ends, white space.
func nextPiece(text string, digits int) int {
	r, size, kind := runeAt(text, 0)
	if r == '\'' {
		if n := contraction(text); n > 0 {
			return n
		}
	}
	second, secondSize, secondKind := runeAt(text, size)
	_ = second
	switch {
	case kind == letter:
		return while(text, size, letter)
	case kind != newline && kind != number && secondSize > 0 && secondKind == letter:
		return while(text, size+secondSize, letter)
	case kind == number:
		n := size
		for count := 1; count < digits; count++ {
			_, next, nextKind := runeAt(text, n)
			if next == 0 || nextKind != number {
				break
			}
			n += next
		}
		return n
	case kind == other:
		return lineEnds(text, while(text, size, other))
	case r == ' ' && secondSize > 0 && secondKind == other:
		return lineEnds(text, while(text, size+secondSize, other))
	}
	return whiteSpace(text)
}

func while(text string, n int, kind class) int {
	for {
		for n < len(text) && text[n] < utf8.RuneSelf {
			if ascii[text[n]] != kind {
				return n
			}
			n++
		}
		_, size, next := runeAt(text, n)
		if size == 0 || next != kind {
			return n
		}
		n += size
	}
}

func lineEnds(text string, n int) int { return while(text, n, newline) }

// whiteSpace takes a run of white space: up to its last line end, else all but the last character when a word follows.
func whiteSpace(text string) int {
	n, last, lastLine := 0, 0, 0
	for {
		_, size, kind := runeAt(text, n)
		if size == 0 || kind != space && kind != newline {
			break
		}
		last = n
		n += size
		if kind == newline {
			lastLine = n
		}
	}
	switch {
	case lastLine > 0:
		return lastLine
	case n == len(text) || last == 0:
		return n
	}
	return last
}

// contraction returns the length of an English contraction at the start; 0 for none.
func contraction(text string) int {
	if len(text) < 2 {
		return 0
	}
	second := text[1] | 0x20
	switch second {
	case 's', 't', 'm', 'd':
		if text[1] < utf8.RuneSelf {
			return 2
		}
	}
	if len(text) >= 3 {
		if text[1] == 0xC5 && text[2] == 0xBF { // ſ folds to s
			return 3
		}
		third := text[2] | 0x20
		if second == 'r' && third == 'e' || second == 'v' && third == 'e' || second == 'l' && third == 'l' {
			return 3
		}
	}
	return 0
}
