package tokenizer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestWindowsAreClassifiedAlike holds what the processor's own instructions make of a window against what is computed without them, and that
// against the table of classes.
func TestWindowsAreClassifiedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := [windowSize]byte(rapid.SliceOfN(rapid.Byte(), windowSize, windowSize).Draw(t, "bytes"))
		var fast, plain window
		fast.classify(&b)
		plain.classifyGeneric(&b)
		if fast != plain {
			t.Fatalf("%q: %x, want %x", b, fast, plain)
		}
		for i, c := range b {
			is := func(bits uint64) bool { return bits>>i&1 != 0 }
			known := class(0)
			if c < 0x80 {
				known = asciiClass[c]
			}
			white := known&space != 0
			if is(plain.letter) != (known&letter != 0) || is(plain.upper) != (known&upper != 0) || is(plain.digit) != (known&number != 0) ||
				is(plain.space) != (c == ' ') || is(plain.blank) != (white && known&newline == 0) || is(plain.newline) != (known&newline != 0) ||
				is(plain.quote) != (c == '\'') || is(plain.control) != (c == 0x7F || c < ' ' && !white) || is(plain.wide) != (c >= 0x80) {
				t.Fatalf("%q is %+v at %d", c, plain, i)
			}
		}
	})
}

// TestNeighboursAreCutAlikeByWindows holds the scanner that looks at windows against the one that goes character by character, for
// neighbours as they might be.
func TestNeighboursAreCutAlikeByWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := new(neighbours)
		for _, pair := range rapid.SliceOfN(rapid.IntRange(0, (writtenMark+1)*(writtenMark+1)-1), 0, 2000).Draw(t, "pairs") {
			n[pair/(writtenMark+1)][pair%(writtenMark+1)] = true
		}
		text := tricky.Draw(t, "text") + rapid.SampledFrom([]string{"", spaceMark, "a" + spaceMark + " b"}).Draw(t, "end")
		if got, want := scanned(n.scanner()).find(text), scanned(n.scanSlowly()).find(text); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}
