package kvindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// contents are a node's fields as they lie in memory.
type contents struct {
	sequence, set uint64
	child, parent uint32
}

func readNodes(nodes []node) (list []contents) {
	for i := range nodes {
		n := &nodes[i]
		list = append(list, contents{n.sequence.Load(), n.set.Load(), n.child.Load(), n.parent})
	}
	return list
}

// Nodes that are written and emptied in one go are what they become one by one, and those around them stay as they are.
func TestNodesInOneGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.IntRange(1, 70).Draw(t, "nodes")
		at := rapid.IntRange(0, 3).Draw(t, "from")
		got, want := make([]node, at+n+2), make([]node, at+n+2)
		for i := range got {
			sequence, set, child, parent := random.Uint64(), random.Uint64(), random.Uint32(), random.Uint32()
			for _, nodes := range [][]node{got, want} {
				nodes[i].sequence.Store(sequence)
				nodes[i].set.Store(set)
				nodes[i].child.Store(child)
				nodes[i].parent = parent
			}
		}
		if rapid.Bool().Draw(t, "empty") {
			emptyNodes(&got[at+n-1], n)
			emptyNodesGeneric(&want[at+n-1], n)
			for i := at; i < at+n; i++ {
				if want[i].set.Load() != 0 || want[i].child.Load() != 0 {
					t.Fatalf("node %d is %v after emptying", i, readNodes(want[i:i+1]))
				}
			}
		} else {
			sequences := make([]uint64, n)
			for i := range sequences {
				sequences[i] = random.Uint64()
			}
			length := uint32(n + rapid.IntRange(0, 5).Draw(t, "more"))
			first := uint64(random.Uint32())<<32 | uint64(random.Uint32())
			second := (previousParent|uint64(random.IntN(100)))<<32 | uint64(nextChild|length)
			set := random.Uint64()
			writeNodes(&got[at], &sequences[0], n, set, first, second)
			writeNodesGeneric(&want[at], &sequences[0], n, set, first, second)
			for i := range n {
				links := contents{sequences[i], set, uint32(first), uint32(first >> 32)}
				if i > 0 {
					links.child, links.parent = uint32(second)-uint32(i-1), uint32(second>>32)+uint32(i-1)
				}
				if i == n-1 {
					links.child = 0
				}
				if one := readNodes(want[at+i : at+i+1])[0]; one != links {
					t.Fatalf("node %d is %v, expected %v", i, one, links)
				}
			}
		}
		if got, want := readNodes(got), readNodes(want); !slices.Equal(got, want) {
			t.Fatalf("%d nodes from %d on are\n%v, expected\n%v", n, at, got, want)
		}
	})
}

// Long prompts that come, branch, are shared and go in pieces of any length, over the borders of pages, are what a plain map has of them. Two
// indexes get the same events, one of them block by block, so that nothing is made or given up in one go there.
func TestRunsAreAPlainMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, _ := New(Options{})
		single, _ := New(Options{})
		plain := newModel(Options{})
		ranks := []Rank{{WorkerID: 1}, {WorkerID: 2}}
		if rapid.Bool().Draw(t, "many ranks") {
			for worker := range uint64(70) {
				for _, x := range []*Index{whole, single} {
					_ = x.Apply(Event{Rank: Rank{WorkerID: worker + 100}, Op: Stored})
				}
				_ = plain.apply(Event{Rank: Rank{WorkerID: worker + 100}, Op: Stored})
			}
		}
		// A filler moves what follows towards the border of a page.
		filler := Rank{WorkerID: 9}
		fill := make([]uint64, rapid.SampledFrom([]int{1, 500, 900, 1000, 1015, 1022}).Draw(t, "filler"))
		for i := range fill {
			fill[i] = uint64(1<<40 + i)
		}
		texts := make([][]uint64, 3)
		for i := range texts {
			texts[i] = make([]uint64, 150)
			for at := range texts[i] {
				texts[i][at] = uint64(at)
				if at >= []int{0, 1, 40}[i] {
					texts[i][at] = uint64(1000*i + 7000 + at)
				}
			}
		}
		apply := func(event Event) {
			got, want := whole.Apply(event), plain.apply(event)
			if (got == nil) != (want == nil) {
				t.Fatalf("%v, expected %v", got, want)
			}
			if event.Op == Removed {
				for _, hash := range event.Hashes {
					_ = single.Apply(Event{Rank: event.Rank, Op: Removed, Hashes: []uint64{hash}})
				}
				return
			}
			if want != nil {
				return // block by block, some would be taken
			}
			for i, block := range event.Blocks {
				one := Event{Rank: event.Rank, Op: Stored, HasParent: event.HasParent, Parent: event.Parent, Blocks: []Block{block}}
				if i > 0 {
					one.HasParent, one.Parent = true, event.Blocks[i-1].Hash
				}
				if got := single.Apply(one); got != nil {
					t.Fatal(got)
				}
			}
		}
		apply(Event{Rank: filler, Op: Stored, Blocks: chainOf(filler, fill)})
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			rank := rapid.SampledFrom(ranks).Draw(t, "rank")
			blocks := chainOf(rank, rapid.SampledFrom(texts).Draw(t, "text"))
			from := rapid.IntRange(0, 149).Draw(t, "from")
			if rapid.Bool().Draw(t, "near the start") {
				from /= 50
			}
			to := min(150, from+rapid.SampledFrom([]int{1, 2, 3, 30, 64, 150}).Draw(t, "count"))
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1:
				event := Event{Rank: rank, Op: Stored, Blocks: slices.Clone(blocks[from:to])}
				if from > 0 {
					event.HasParent, event.Parent = true, blocks[from-1].Hash
				}
				if rapid.IntRange(0, 4).Draw(t, "twice") == 0 && to-from > 5 {
					event.Blocks[4].Hash = event.Blocks[2].Hash
				}
				apply(event)
			case 2, 3:
				apply(Event{Rank: rank, Op: Stored, Blocks: blocks[:to]})
			default:
				hashes := namesOf(blocks[from:to])
				if rapid.Bool().Draw(t, "backwards") {
					slices.Reverse(hashes)
				}
				apply(Event{Rank: rank, Op: Removed, Hashes: hashes})
			}
			for _, text := range texts {
				want := plain.find(Query{Locals: text})
				for name, x := range map[string]*Index{"whole events": whole, "block by block": single} {
					if got := find(x, Query{Locals: text}); !slices.Equal(got, want) {
						t.Fatalf("%s: found %v, expected %v", name, got, want)
					}
				}
			}
			inspect(t, whole)
			if got, want := whole.Stats(), single.Stats(); got.Nodes != want.Nodes || got.Blocks != want.Blocks || got.Blocks != plain.blocks() {
				t.Fatalf("%+v, block by block %+v, expected %v", got, want, plain.blocks())
			}
		}
	})
}
