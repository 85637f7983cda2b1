package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPiecesAreFoundAlike holds what the processor's own instructions find of pieces among recent words and whole ones against what is found
// without them.
func TestPiecesAreFoundAlike(t *testing.T) {
	for _, name := range []string{"qwen3", "gemma3"} {
		piecesAreFoundAlike(t, load(t, name).words)
	}
}

func piecesAreFoundAlike(t *testing.T, w *wordEncoder) {
	parts := append([]string{" the", "the", "ing", " internationalization", " word", "\n\n", "   ", "abcdefghijkl", "abcdefghijklm", "==", "x"}, awkward...)
	fast, plain := new(recentWords), new(recentWords)
	rapid.Check(t, func(t *rapid.T) {
		s := valid(strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 60).Draw(t, "parts"), ""))
		w.encodeWith(fast, nil, s, nil) // puts some of the pieces among the recent words
		*plain = *fast
		quick, slow := &fast.batches[0], &plain.batches[0]
		w.cut(quick, s, 0, nil)
		w.cut(slow, s, 0, nil)

		fast.find(quick, s)
		slow.missed, slow.several = pieceBits{}, pieceBits{}
		plain.findGeneric(slow, s, 0)
		if n := quick.n; !slices.Equal(quick.keys[:n], slow.keys[:n]) || !slices.Equal(quick.hashes[:n], slow.hashes[:n]) {
			t.Fatalf("%q: keys or hashes differ", s)
		}
		if quick.missed != slow.missed || quick.several != slow.several || !slices.Equal(quick.ids[:quick.n], slow.ids[:quick.n]) {
			t.Fatalf("%q: missed %x, several %x, want %x, %x; or ids differ", s, quick.missed, quick.several, slow.missed, slow.several)
		}
		quick.byLength()
		slow.byLengthGeneric()
		for kind, size := range slow.sizes {
			if !slices.Equal(quick.of(kind), slow.of(kind)) || int(size) != len(quick.of(kind)) {
				t.Fatalf("%q: of the kind %d are %v, want %v", s, kind, quick.of(kind), slow.of(kind))
			}
		}
		w.askLong(quick, s)
		w.askLongGeneric(slow, s, 0)
		for _, i := range quick.of(longPieces) {
			if quick.longs[i] != slow.longs[i] || quick.hashes[i] != slow.hashes[i] {
				t.Fatalf("%q: the long key of piece %d is %x, want %x; or hashes differ", s, i, quick.longs[i], slow.longs[i])
			}
		}
		w.whole.findWhole(fast, quick)
		slow.sizes[shortPieces] = w.whole.findWholeGeneric(plain, slow)
		if !slices.Equal(quick.of(shortPieces), slow.of(shortPieces)) || !slices.Equal(quick.ids[:quick.n], slow.ids[:quick.n]) || fast.slots != plain.slots {
			t.Fatalf("%q: of %x not whole are %v, want %v; or ids or recent words differ", s, quick.missed, quick.of(shortPieces), slow.of(shortPieces))
		}
		if rapid.IntRange(0, 4).Draw(t, "forget") == 0 {
			clear(fast.slots[:])
		}
	})
}

// TestEncodeOnlyAppends would fail if ids came to lie behind those that are returned, where a caller may keep something else.
func TestEncodeOnlyAppends(t *testing.T) {
	const kept = 1<<32 - 1
	for _, name := range []string{"qwen3", "gemma3"} {
		tk := load(t, name)
		for _, words := range []int{1, 17, 40, 100, 1025, 2000} {
			s := strings.Repeat("unfamiliarities of the world\n", words)
			want := tk.Encode(nil, s, false)
			room := slices.Repeat([]uint32{kept}, len(want)+len(s)+idRoom)
			got := tk.Encode(room[:0], s, false)
			if !slices.Equal(got, want) || &got[0] != &room[0] {
				t.Fatalf("%s, %d lines: other ids, or not in their place", name, words)
			}
			if behind := slices.IndexFunc(room[len(want):], func(id uint32) bool { return id != kept }); behind >= 0 {
				t.Errorf("%s, %d lines: the id %d beyond the last was written to", name, words, behind)
			}
		}
	}
}

// TestLongTokensAreFound asks for all tokens of a model that are too long for the table of short ones, and for words that are nearly such.
func TestLongTokensAreFound(t *testing.T) {
	for _, name := range []string{"qwen3", "gemma3"} {
		w := load(t, name).words
		find := func(word string) (uint32, bool) {
			key := makeLongKey(word, 0, len(word))
			return w.long.find(key.hash(), func(id uint32) bool { return string(w.bpe.vocab.token(id)) == w.marked(word) })
		}
		n := 0
		w.bpe.eachWhole(w.mark, shortWord+1, cachedWord, func(id uint32, token []byte) {
			n++
			if got, ok := find(string(token)); !ok || got != id {
				t.Errorf("%s: %q is %d, %v, want %d", name, token, got, ok, id)
			}
			token = slices.Clone(token)
			token[n%len(token)] ^= 1
			want, isToken := w.bpe.vocab.id(w.marked(string(token)))
			isToken = isToken && w.bpe.isWhole(want)
			if got, ok := find(string(token)); ok != isToken || ok && got != want {
				t.Errorf("%s: %q is %d, %v, want %d, %v", name, token, got, ok, want, isToken)
			}
		})
		if n < 1000 {
			t.Errorf("%s: %d long tokens", name, n)
		}
	}
}

// TestIdsAreWrittenAlike holds what the processor's own instructions write of pieces against what is written without them.
func TestIdsAreWrittenAlike(t *testing.T) {
	r := new(recentWords)
	rapid.Check(t, func(t *rapid.T) {
		r.count, r.spill = 0, r.spill[:0]
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, recentIDs+2), 1, windowPieces).Draw(t, "ids of each") {
			id := rapid.Uint32Range(0, maxID).Draw(t, "id")
			if n > 1 {
				start := len(r.spill)
				r.spill = append(append(r.spill, 0), slices.Repeat([]uint32{id}, n)...)
				id = r.spillFrom(start)
			}
			r.ids[r.count] = id
			r.count++
		}
		r.spill = append(r.spill, make([]uint32, recentIDs)...)
		from := rapid.IntRange(0, r.count-1).Draw(t, "from")
		fast, plain := make([]uint32, r.count+len(r.spill)+idRoom), make([]uint32, r.count+len(r.spill)+idRoom)
		next, written := r.writeFew(from, fast)
		wantNext, want := r.writeFewGeneric(from, plain)
		if next != wantNext || !slices.Equal(fast[:written], plain[:want]) {
			t.Fatalf("from %d of %v: %v up to %d, want %v up to %d", from, r.ids[:r.count], fast[:written], next, plain[:want], wantNext)
		}
	})
}
