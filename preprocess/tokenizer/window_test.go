package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

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
		if c := b[0] & 0x7F; equal(&b, c) != equalGeneric(&b, c) {
			t.Fatalf("%q: %q is at %x, want %x", b, c, equal(&b, c), equalGeneric(&b, c))
		}
		if found := leads(&b); found != leadsGeneric(&b) || found != plain.wide&plain.leads {
			t.Fatalf("%q: characters begin at %x, want %x", b, found, plain.wide&plain.leads)
		}
		for i, c := range b {
			if at := equalGeneric(&b, b[0]&0x7F); at>>i&1 != 0 != (c == b[0]&0x7F) {
				t.Fatalf("%q: %q is at %x", b, b[0]&0x7F, at)
			}
			is := func(bits uint64) bool { return bits>>i&1 != 0 }
			known := class(0)
			if c < 0x80 {
				known = asciiClass[c]
			}
			white := known&space != 0
			if is(plain.letter) != (known&letter != 0) || is(plain.upper) != (known&upper != 0) || is(plain.digit) != (known&number != 0) ||
				is(plain.space) != (c == ' ') || is(plain.blank) != (white && known&newline == 0) || is(plain.newline) != (known&newline != 0) ||
				is(plain.quote) != (c == '\'') || is(plain.leads) != (c&0x40 != 0) || is(plain.control) != (c == 0x7F || c < ' ' && !white) || is(plain.wide) != (c >= 0x80) {
				t.Fatalf("%q is %+v at %d", c, plain, i)
			}
		}
	})
}

// TestWideCharactersInWindows holds the classes of characters beyond ASCII in a window, by all ways to get them, against the table of classes.
func TestWideCharactersInWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(tricky, rapid.String()).Draw(t, "text") + rapid.StringN(0, 70, -1).Draw(t, "rest")
		var w window
		w.read(text, 0)
		got := w.widen(text, 0)
		var want wideClasses
		inner := uint64(0)
		for i, r := range text {
			if i >= windowSize {
				break
			}
			size := utf8.RuneLen(r)
			if r < utf8.RuneSelf {
				continue
			}
			if i+size > windowSize {
				want.unclear |= ^uint64(0) << i
				break
			}
			own, kind := (uint64(1)<<size-1)<<i, characters().of(r)
			inner |= own & (own << 1)
			for _, plane := range []struct {
				bits *uint64
				kind class
			}{{&want.unclear, number | space}, {&want.lower, lower}, {&want.upper, upper}, {&want.cjk, cjk}, {&want.sign, sign}, {&want.mark, mark},
				{&want.letter, letter}} {
				if kind&plane.kind != 0 {
					*plane.bits |= own
				}
			}
		}
		if w.unclear != want.unclear|w.control {
			t.Fatalf("%q: unclear is %x, want %x", text, w.unclear, want.unclear|w.control)
		}
		if got.unclear, want.unclear = 0, 0; got != want || w.inner != inner {
			t.Fatalf("%q: %x, want %x, inner %x, want %x", text, got, want, w.inner, inner)
		}
	})
}

// TestClassesAreGatheredAlike holds the processor's own instructions for that against what is computed without them.
func TestClassesAreGatheredAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := [windowSize]wideClass(rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 1<<wideBits-1), func(i int) wideClass { return wideClass(i) }), windowSize, windowSize).Draw(t, "kinds"))
		var fast, plain wideClasses
		fast.gather(&kinds)
		plain.gatherGeneric(&kinds)
		if fast != plain {
			t.Fatalf("%x: %x, want %x", kinds, fast, plain)
		}
	})
}

// TestNeighboursAreCutAlikeByWindows holds the scanner that looks at windows against the one that goes character by character, for
// neighbours as they might be.
func TestNeighboursAreCutAlikeByWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide := rapid.SampledFrom([]uint64{0, 0x5555555555555555, ^uint64(0)}).Draw(t, "wide")
		n := &neighbours{wide: slices.Repeat([]uint64{wide}, 1<<wideBitmapBits/64)}
		for _, pair := range rapid.SliceOfN(rapid.IntRange(0, (writtenMark+1)*(writtenMark+1)-1), 0, 2000).Draw(t, "pairs") {
			n.next[pair/(writtenMark+1)][pair%(writtenMark+1)] = 1
		}
		for _, c := range rapid.SliceOfNDistinct(rapid.SampledFrom([]byte("\n\t .1")), 0, 3, rapid.ID).Draw(t, "runs") {
			n.runs = append(n.runs, characterRun{c, rapid.IntRange(1, 70).Draw(t, "longest")})
		}
		text := strings.Repeat(rapid.SampledFrom([]string{"", "\n", "\t", "a"}).Draw(t, "run"), rapid.IntRange(0, 150).Draw(t, "long"))
		text += rapid.SampledFrom([]string{"", spaceMark}).Draw(t, "behind it")
		for range rapid.IntRange(1, 3).Draw(t, "texts") {
			text += tricky.Draw(t, "text")
		}
		text += rapid.SampledFrom([]string{"", spaceMark, "a" + spaceMark + " b"}).Draw(t, "end")
		if got, want := scanned(n.scanner()).find(text), scanned(n.scanSlowly()).find(text); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}

// TestPlacesAreListedAlike holds the processor's own instructions for that against what is computed without them.
func TestPlacesAreListedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.Uint64Min(1).Draw(t, "places") & rapid.SampledFrom([]uint64{^uint64(0), 0x1111111111111111, 1<<40 - 1}).Draw(t, "among")
		base := rapid.Int32Range(0, 1<<30).Draw(t, "base")
		size := rapid.IntRange(1, windowSize).Draw(t, "size")
		fast, plain := make([]int32, size, rapid.IntRange(size, 2*windowSize).Draw(t, "capacity")), make([]int32, size)
		n, want := listPlaces(fast, base, places), listPlacesGeneric(plain, base, places)
		if n != want || !slices.Equal(fast[:n], plain[:n]) {
			t.Fatalf("%x from %d on: %v, want %v", places, base, fast[:n], plain[:want])
		}
	})
}
