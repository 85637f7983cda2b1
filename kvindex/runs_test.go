package kvindex

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestVacanciesAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v vacancies
		var vacant []bool
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch want := rapid.IntRange(1, 200).Draw(t, "want"); {
			case v.count == 0 || rapid.IntRange(0, 9).Draw(t, "grow") == 0:
				v.grow(128)
				for len(vacant) < len(v.words)*64 {
					vacant = append(vacant, len(vacant) > 0)
				}
			case rapid.Bool().Draw(t, "give"):
				for id := rapid.IntRange(1, len(vacant)-1).Draw(t, "from"); id < len(vacant) && want > 0; id++ {
					if want--; !vacant[id] {
						v.give(uint32(id))
						vacant[id] = true
					}
				}
			default:
				first, length := v.pick(want)
				if length < 1 || length > want {
					t.Fatalf("%d nodes picked, wanted were %d", length, want)
				}
				for id := int(first); id < int(first)+length; id++ {
					if !vacant[id] {
						t.Fatalf("node %d of %d from %d on is not vacant", id, length, first)
					}
					vacant[id] = false
				}
				v.take(first, length)
			}
			count := 0
			for id, is := range vacant {
				if v.has(uint32(id)) != is {
					t.Fatalf("node %d is vacant: %t, expected %t", id, !is, is)
				}
				if is {
					count++
				}
			}
			if v.count != count || v.has(uint32(len(vacant))) {
				t.Fatalf("%d are vacant, expected %d", v.count, count)
			}
			from := rapid.IntRange(0, len(vacant)).Draw(t, "extent from")
			first := from
			for first < len(vacant) && !vacant[first] {
				first++
			}
			end := first
			for end < len(vacant) && vacant[end] {
				end++
			}
			if first == end {
				first, end = 0, 0
			}
			if got, length := v.extent(uint32(from), len(vacant)); int(got) != first || length != end-first {
				t.Fatalf("from %d on, %d vacant from %d on, expected %d from %d on", from, length, got, end-first, first)
			}
		}
	})
}

// Conversations of hundreds of blocks that branch anywhere, stored by several ranks in pieces and evicted from their ends, so that runs
// break, grow again and are others', and shortcuts lead to what has gone: look-ups, the first and the second time, say what is.
func TestLongPromptsAreFoundAsTheyAre(t *testing.T) {
	for _, ranks := range []int{1, 5, 70} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			const seeds = 5
			for seed := range uint64(seeds) {
				longPrompts(t, rand.New(rand.NewPCG(seed, uint64(ranks))), ranks)
			}
		})
	}
}

func longPrompts(t *testing.T, random *rand.Rand, ranks int) {
	index, err := New(Options{Shards: 1 + random.IntN(2)})
	if err != nil {
		t.Fatal(err)
	}
	held := make([]map[uint64]bool, ranks) // by sequence hash
	for i := range held {
		held[i] = make(map[uint64]bool)
	}
	name := func(rank int, sequence uint64) uint64 { return sequence ^ uint64(rank)<<48 }
	talks := [][]uint64{{1, 2, 3}}
	for range 100 {
		// A conversation goes on, or branches off another.
		talk := slices.Clone(talks[random.IntN(len(talks))])
		if random.IntN(3) == 0 {
			talk = talk[:1+random.IntN(len(talk))]
		}
		for range 1 + random.IntN(90) {
			talk = append(talk, random.Uint64())
		}
		talks = append(talks, talk)
		rank := random.IntN(ranks)
		event := Event{Rank: Rank{WorkerID: uint64(rank)}, Op: Stored}
		for i, sequence := range chainHasher.AppendSequence(nil, talk) {
			event.Blocks = append(event.Blocks, Block{Hash: name(rank, sequence), Local: talk[i]})
			held[rank][sequence] = true
		}
		mustApply(t, index, event)
		// Others lose some from an end on, or a few in the middle.
		for range 2 {
			rank, sequence := random.IntN(ranks), chainHasher.AppendSequence(nil, talks[random.IntN(len(talks))])
			from := random.IntN(len(sequence))
			end := len(sequence)
			if random.IntN(5) == 0 {
				end = min(from+3, end)
			}
			event := Event{Rank: Rank{WorkerID: uint64(rank)}, Op: Removed}
			for i := end - 1; i >= from; i-- {
				if held[rank][sequence[i]] {
					event.Hashes = append(event.Hashes, name(rank, sequence[i]))
					delete(held[rank], sequence[i])
				}
			}
			if len(event.Hashes) > 0 {
				mustApply(t, index, event)
			}
		}
		for range 3 {
			asked := slices.Clone(talks[random.IntN(len(talks))])
			if random.IntN(2) == 0 {
				asked[random.IntN(len(asked))]++
			}
			sequence := chainHasher.AppendSequence(nil, asked)
			var want []Match
			for rank := range held {
				n := 0
				for n < len(sequence) && held[rank][sequence[n]] {
					n++
				}
				if n > 0 {
					want = append(want, Match{Rank: Rank{WorkerID: uint64(rank)}, Blocks: [Tiers]uint32{uint32(n)}})
				}
			}
			for range 2 {
				if got := find(index, Query{Locals: asked}); !slices.Equal(got, want) {
					t.Fatalf("a prompt of %d blocks is found as %v, expected %v", len(asked), got, want)
				}
			}
		}
	}
}

// A search follows a conversation of many turns, whose pieces lie anywhere, once; then it knows a shorter way.
func TestLookupsTakeFewRounds(t *testing.T) {
	index, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	rank := Rank{WorkerID: 1}
	talk, other := []uint64{1, 2, 3, 4, 5, 6, 7, 8}, uint64(1000)
	const turns = 40
	for turn := range uint64(turns) {
		blocks := chainOf(rank, talk)
		mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: blocks})
		// What lies behind it is another's.
		mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: chainOf(rank, []uint64{other, other + 1, other + 2})})
		other += 10
		for i := range uint64(6) {
			talk = append(talk, 100_000+turn*10+i)
		}
	}
	var matches Matches
	index.Find(&matches, Query{Locals: talk})
	if first := matches.rounds; first < turns {
		t.Errorf("%d rounds for %d turns that lie anywhere: the test is wrong", first, turns)
	}
	index.Find(&matches, Query{Locals: talk})
	if again, got := matches.rounds, matches.Of(rank).Total(); again > 8 || int(got) != len(talk)-6 {
		t.Errorf("%d rounds the second time, %d of %d blocks found", again, got, len(talk)-6)
	}
}

// What is stored where there is little room side by side is found at once.
func TestPiecesOfWhatIsStoredAreNotFollowed(t *testing.T) {
	index, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	rank := Rank{WorkerID: 1}
	short := func(i int) []Block {
		return chainOf(rank, []uint64{uint64(1000 * i), 1, 2, 3, 4, 5, 6, 7})
	}
	const prompts = 1000
	for i := range prompts {
		mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: short(i)})
	}
	for i := 0; i < prompts; i += 2 {
		mustApply(t, index, Event{Rank: rank, Op: Removed, Hashes: namesOf(short(i))})
	}
	long := make([]uint64, 400)
	for i := range long {
		long[i] = uint64(5_000_000 + i)
	}
	mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: chainOf(rank, long)})
	if pieces := len(index.shards[0].device.pieces); pieces < 10 {
		t.Fatalf("%d pieces: the test is wrong", pieces)
	}
	for _, held := range []int{400, 390, 250, 60} {
		var matches Matches
		long[min(held, 399)] += uint64(400-held) / 10 // the prompt is another from there on
		index.Find(&matches, Query{Locals: long})
		if got := matches.Of(rank).Total(); int(got) != held || matches.rounds > 30 {
			t.Errorf("%d blocks found in %d rounds, %d are held", got, matches.rounds, held)
		}
	}
}
