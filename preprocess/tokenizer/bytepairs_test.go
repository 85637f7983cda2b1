package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPairsAreMergedAtOnce holds words of bytes, of which some pairs are merged before all others, against merging by a heap: with merges in the order
// in which they were learnt, and with such as converted files have, in which a part may be made by a later merge.
func TestPairsAreMergedAtOnce(t *testing.T) {
	atOnce := 0
	rapid.Check(t, func(t *rapid.T) {
		const symbols = "abcd_" // the last one is no byte of words
		texts := strings.Split(symbols, "")
		ids := make(map[string]uint32)
		for id, text := range texts {
			ids[text] = uint32(id)
		}
		token := func(text string) uint32 {
			if _, ok := ids[text]; !ok {
				ids[text] = uint32(len(texts))
				texts = append(texts, text)
			}
			return ids[text]
		}
		m := newMerges(0)
		made := len(texts) // how many tokens may be parts of the next merge
		inOrder := rapid.Bool().Draw(t, "in order")
		for range rapid.IntRange(0, 60).Draw(t, "merges") {
			part := rapid.IntRange(0, made-1)
			left, right := texts[part.Draw(t, "left")], texts[part.Draw(t, "right")]
			if len(left)+len(right) > 8 {
				continue
			}
			m.add(ids[left], ids[right], token(left+right))
			if cut := rapid.IntRange(0, len(left+right)).Draw(t, "cut"); !inOrder && cut > 0 && cut < len(left+right) {
				whole := left + right
				m.add(token(whole[:cut]), token(whole[cut:]), token(whole))
			}
			made = len(texts)
		}
		m.seal(len(texts))
		var bytes [256]uint32
		for id := range len(symbols) - 1 {
			bytes[symbols[id]] = uint32(id) + 1
		}
		m.joinBytes(&bytes, func(id uint32) (first, last int) {
			end := func(c byte) int {
				if bytes[c] == 0 {
					return -1
				}
				return int(c)
			}
			return end(texts[id][0]), end(texts[id][len(texts[id])-1])
		})

		var fast, plain lanes
		var scratch mergeScratch
		for _, word := range rapid.SliceOfN(rapid.StringMatching(`[abcd]{1,62}`), 1, 20).Draw(t, "words") {
			var begin []uint32
			for i := range len(word) {
				begin = append(begin, ids[word[i:i+1]])
			}
			want := m.applyHeap(begin, &scratch)
			fast.beginBytes(m, 0, word, &bytes)
			if got := fast.run(m, 0, nil); !slices.Equal(got, want) {
				t.Fatalf("%q: %v, want %v", word, got, want)
			}
			l := plain.clear(m, 0, len(word))
			l.joinFirstGeneric(m, &plain.wanted, word, &bytes)
			atOnce += len(word) - len(l.out(nil))
			for m.stepGeneric(&plain, []uint8{0}) == 0 {
			}
			if got := l.out(nil); !slices.Equal(got, want) {
				t.Fatalf("%q without instructions of this processor: %v, want %v", word, got, want)
			}
		}
	})
	if atOnce == 0 {
		t.Fatal("no pair was merged at once")
	}
}
