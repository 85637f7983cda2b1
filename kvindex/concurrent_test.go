package kvindex

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// chainOf returns blocks as an engine with its own names would store them.
func chainOf(rank Rank, locals []uint64) []Block {
	sequence := chainHasher.AppendSequence(nil, locals)
	blocks := make([]Block, len(locals))
	for i := range blocks {
		blocks[i] = Block{Hash: scramble(sequence[i]*31 + rank.WorkerID<<8 + uint64(rank.DPRank)), Local: locals[i]}
	}
	return blocks
}

func namesOf(blocks []Block) []uint64 {
	hashes := make([]uint64, len(blocks))
	for i := range blocks {
		hashes[i] = blocks[i].Hash
	}
	return hashes
}

func mustApply(t testing.TB, index *Index, event Event) {
	t.Helper()
	if err := index.Apply(event); err != nil {
		t.Error(err)
	}
}

// While others store, branch off, remove, join and leave along the same prompt, so that nodes, tables and sets of ranks come, move
// and go, look-ups always see all of what a rank holds the whole time, and never more than anyone could hold.
func TestLookupsDuringChanges(t *testing.T) {
	for name, others := range map[string]int{"few ranks": 6, "many ranks": 90} {
		t.Run(name, func(t *testing.T) {
			index, err := New(Options{Shards: 2})
			if err != nil {
				t.Fatal(err)
			}
			const length = 40
			prompt := make([]uint64, length)
			for i := range prompt {
				prompt[i] = uint64(1000 + i)
			}
			// These two hold on; one of them only in part, and goes on in a lower tier.
			steady, partly := Rank{WorkerID: 1}, Rank{WorkerID: 2, DPRank: 3}
			mustApply(t, index, Event{Rank: steady, Op: Stored, Blocks: chainOf(steady, prompt)})
			blocks := chainOf(partly, prompt)
			mustApply(t, index, Event{Rank: partly, Op: Stored, Blocks: blocks[:17]})
			mustApply(t, index, Event{Rank: partly, Tier: HostPinned, Op: Stored, HasParent: true, Parent: blocks[16].Hash, Blocks: blocks[17:29]})

			var group sync.WaitGroup
			var writers atomic.Int32
			const rounds = 60
			for writer := range 3 {
				writers.Add(1)
				group.Go(func() {
					defer writers.Add(-1)
					random := rand.New(rand.NewPCG(uint64(writer), 1))
					for range rounds {
						rank := Rank{WorkerID: uint64(10 + 3*random.IntN(others/3) + writer)}
						churn(t, index, random, rank, prompt)
					}
				})
			}
			for range 2 {
				group.Go(func() {
					var matches Matches
					for writers.Load() > 0 {
						index.Find(&matches, Query{Locals: prompt})
						if got := matches.Of(steady).Blocks; got != [Tiers]uint32{length} {
							t.Errorf("the steady rank holds %v", got)
							return
						}
						if got := matches.Of(partly).Blocks; got != [Tiers]uint32{17, 12} {
							t.Errorf("the other steady rank holds %v", got)
							return
						}
						seen := make(map[Rank]bool)
						for _, match := range matches.Ranks {
							if seen[match.Rank] || match.Total() > length || match.Total() == 0 {
								t.Errorf("%+v is impossible or listed twice", match)
								return
							}
							seen[match.Rank] = true
						}
					}
				})
			}
			group.Wait()
			for worker := range uint64(10 + others + 3) {
				if worker >= 10 {
					index.RemoveWorker(worker)
				}
			}
			if stats := index.Stats(); stats.Total() != length+29 || stats.Nodes > length+17 {
				t.Errorf("after the others have left: %+v", stats)
			}
		})
	}
}

// churn is one visit of a rank: it stores part of the prompt and a branch off it, perhaps loses a block in the middle, and goes.
func churn(t *testing.T, index *Index, random *rand.Rand, rank Rank, prompt []uint64) {
	at := 1 + random.IntN(len(prompt))
	own := slices.Clone(prompt[:at])
	for range random.IntN(200) {
		own = append(own, random.Uint64())
	}
	blocks := chainOf(rank, own)
	mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: blocks})
	if random.IntN(4) == 0 {
		mustApply(t, index, Event{Rank: rank, Tier: Tier(1 + random.IntN(3)), Op: Stored, Blocks: blocks})
	}
	hashes := namesOf(blocks)
	switch random.IntN(4) {
	case 0:
		slices.Reverse(hashes)
		mustApply(t, index, Event{Rank: rank, Op: Removed, Hashes: hashes})
	case 1:
		middle := random.IntN(len(hashes))
		mustApply(t, index, Event{Rank: rank, Op: Removed, Hashes: hashes[middle : middle+1]})
		var matches Matches
		index.Find(&matches, Query{Locals: own, DeviceOnly: true})
		if got := matches.Of(rank).Total(); got != uint32(middle) {
			t.Errorf("rank %v lost block %d and holds %d", rank, middle, got)
		}
		mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: blocks[:middle+1]})
		index.Find(&matches, Query{Locals: own, DeviceOnly: true})
		if got := matches.Of(rank).Total(); got != uint32(len(own)) {
			t.Errorf("rank %v got block %d back and holds %d of %d", rank, middle, got, len(own))
		}
	case 2:
		index.RemoveWorker(rank.WorkerID)
		return
	}
	mustApply(t, index, Event{Rank: rank, Op: Cleared})
}

// A worker that leaves while its events still arrive is in one shard or in none, never in two.
func TestLeavingDuringEvents(t *testing.T) {
	index, err := New(Options{Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	rank := Rank{WorkerID: 7}
	blocks := chainOf(rank, []uint64{1, 2, 3})
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for range 500 {
				mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: blocks})
			}
		})
		group.Go(func() {
			for range 500 {
				index.RemoveWorker(rank.WorkerID)
			}
		})
	}
	group.Wait()
	mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: blocks})
	if got := find(index, Query{Locals: []uint64{1, 2, 3}}); !slices.Equal(got, []Match{{rank, [Tiers]uint32{3}}}) {
		t.Errorf("found %v", got)
	}
	index.RemoveWorker(rank.WorkerID)
	if stats := index.Stats(); stats.Total() != 0 || stats.Nodes != 0 || stats.Workers != 0 {
		t.Errorf("after it has left: %+v", stats)
	}
}
