package tokenizer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// someMerges draws merges of a few symbols, as a vocabulary might have them: what a pair becomes is a token of its own or one that others
// become, too.
func someMerges(t *rapid.T, symbols, most int) *merges {
	n := rapid.IntRange(0, most).Draw(t, "merges")
	m := newMerges(n)
	next := uint32(symbols)
	for range n {
		token := rapid.Uint32Range(0, next-1)
		m.add(token.Draw(t, "left"), token.Draw(t, "right"), next)
		if rapid.IntRange(0, 9).Draw(t, "another token") > 0 {
			next++
		}
	}
	m.seal(int(next))
	return m
}

// TestLanesMerge holds a lane against merging by a heap, with the instructions that this processor has and without them.
func TestLanesMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		symbols := rapid.IntRange(1, 5).Draw(t, "symbols")
		m := someMerges(t, symbols, 60)
		var fast, plain lanes
		var scratch mergeScratch
		for _, word := range rapid.SliceOfN(rapid.SliceOfN(rapid.Uint32Range(0, uint32(symbols)-1), 0, laneSymbols), 1, 20).Draw(t, "words") {
			want := m.applyHeap(slices.Clone(word), &scratch)
			fast.begin(m, 0, word)
			if got := fast.run(m, 0, nil); !slices.Equal(got, want) {
				t.Fatalf("%v: %v, want %v", word, got, want)
			}
			if l := plain.clear(m, 0, len(word)); len(word) > 0 {
				l.putGeneric(m, &plain.wanted, word)
			}
			for m.stepGeneric(&plain, []uint8{0}) == 0 {
			}
			if got := plain.all[0].out(nil); !slices.Equal(got, want) {
				t.Fatalf("%v without instructions of this processor: %v, want %v", word, got, want)
			}
		}
	})
}

// TestRunsMerge holds merging by runs against merging by a heap, also with merges that are not in the order in which they can have been learnt.
func TestRunsMerge(t *testing.T) {
	done := 0
	rapid.Check(t, func(t *rapid.T) {
		symbols := rapid.IntRange(1, 4).Draw(t, "symbols")
		m := someMerges(t, symbols, 60)
		if rapid.Bool().Draw(t, "in any order") {
			order := newMerges(len(m.pairs))
			for _, i := range rapid.Permutation(upTo(len(m.pairs))).Draw(t, "order") {
				order.add(m.pairs[i].left, m.pairs[i].right, m.into[i])
			}
			order.seal(int(slices.Max(append(m.into, uint32(symbols)))) + 1)
			m = order
		}
		var word []uint32
		for range rapid.IntRange(1, 8).Draw(t, "runs") {
			symbol := rapid.Uint32Range(0, uint32(symbols)-1).Draw(t, "symbol")
			word = append(word, slices.Repeat([]uint32{symbol}, rapid.IntRange(1, 90).Draw(t, "count"))...)
		}
		var scratch mergeScratch
		want := m.applyHeap(slices.Clone(word), &scratch)
		got, ok := m.applyRuns(slices.Clone(word), &scratch)
		if !ok {
			return
		}
		if done++; !slices.Equal(got, want) {
			t.Fatalf("%v: %v, want %v", word, got, want)
		}
	})
	if done == 0 {
		t.Fatal("nothing was merged by runs")
	}
}

// upTo returns 0 to n-1.
func upTo(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

// TestFindsPairs asks for pairs that are merged, and for their neighbours, most of which are not. That there are many of one token next to
// each other fills buckets.
func TestFindsPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := make(map[pair]uint32)
		m := newMerges(0)
		for range rapid.IntRange(0, 8).Draw(t, "runs") {
			left, right := rapid.Uint32Range(0, maxID-1).Draw(t, "left"), rapid.Uint32Range(0, maxID-6001).Draw(t, "right")
			step := rapid.Uint32Range(1, 6).Draw(t, "step")
			for i := range rapid.Uint32Range(0, 1000).Draw(t, "pairs") {
				p := pair{left, right + i*step}
				ranks[p] = uint32(len(m.into))
				m.add(p.left, p.right, i)
			}
		}
		m.seal(maxID)
		var g lanes
		for p := range ranks {
			for _, p := range []pair{p, {p.left, p.right + 1}, {p.right, p.left}, {p.left + 1, p.right}} {
				rank, merged := ranks[p]
				if !merged {
					rank = none
				}
				if got, id := m.rank(p.left, p.right); got != rank || merged && id != m.into[rank] {
					t.Fatalf("rank of %v is %d, want %d; it becomes %d", p, got, rank, id)
				}
				l := g.clear(m, 3, 20)
				g.wanted.add(m, p.left, p.right, l.first+7)
				done := m.step(&g, []uint8{3})
				if merged == (done != 0) || merged && l.symbols[7] != m.into[rank] {
					t.Fatalf("in a lane %v becomes %d, want %d; done: %b", p, l.symbols[7], m.into[rank], done)
				}
				g.wanted.count = 0
			}
		}
	})
}
