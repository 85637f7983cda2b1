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
	parts := append([]string{" the", "the", "ing", " internationalization", " word", "\n\n", "   ", "abcdefghijkl", "abcdefghijklm", "==", "x"}, awkward...)
	for _, name := range []string{"qwen3", "gemma3"} {
		w := load(t, name).words
		fast, plain := new(recentWords), new(recentWords)
		rapid.Check(t, func(t *rapid.T) {
			s := valid(strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 60).Draw(t, "parts"), ""))
			fast.bounds[0] = 0
			n := w.scan(s, 0, fast.bounds[1:])
			w.batch(nil, s, fast, n) // puts some of them among the recent words
			*plain = *fast

			missed, several := fast.find(s, n)
			misses, splits := plain.findGeneric(s, 0, n, 0, 0)
			if !slices.Equal(missed, plain.missed[:misses]) || !slices.Equal(several, plain.several[:splits]) {
				t.Fatalf("%q: missed %v, several %v, want %v, %v", s, missed, several, plain.missed[:misses], plain.several[:splits])
			}
			if fast.keys != plain.keys || fast.hashes != plain.hashes || fast.ids != plain.ids {
				t.Fatalf("%q: keys, hashes or ids differ", s)
			}
			short, _, _ := fast.byLength(missed)
			plain.byLength(plain.missed[:misses])
			others := w.whole.findWhole(fast, uint64(len(short)))
			want := w.whole.findWholeGeneric(plain, uint64(len(short)))
			if !slices.Equal(fast.kinds[0][:others], plain.kinds[0][:want]) || fast.ids != plain.ids || fast.slots != plain.slots {
				t.Fatalf("%q: of %v not whole are %v, want %v; or ids or recent words differ", s, missed, fast.kinds[0][:others], plain.kinds[0][:want])
			}
			if rapid.IntRange(0, 4).Draw(t, "forget") == 0 {
				clear(fast.slots[:])
			}
		})
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
			want, isToken := w.longWhole(w.marked(string(token)))
			if got, ok := find(string(token)); ok != isToken || ok && got != want {
				t.Errorf("%s: %q is %d, %v, want %d, %v", name, token, got, ok, want, isToken)
			}
		})
		if n < 1000 {
			t.Errorf("%s: %d long tokens", name, n)
		}
	}
}
