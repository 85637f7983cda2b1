package kvindex_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/kvhash"
	"signalbox/kvindex"
)

// chainOf makes the identities of a prompt of one-token blocks.
func chainOf(t interface{ Fatal(...any) }, tokens ...uint32) (locals, sequence []uint64) {
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	locals = hasher.AppendBlocks(nil, tokens)
	return locals, hasher.AppendSequence(nil, locals)
}

// held returns how many leading blocks of the prompt the rank is thought to hold.
func held(index *kvindex.Index, rank kvindex.Rank, locals, sequence []uint64) int {
	var matches kvindex.Matches
	index.Find(&matches, kvindex.Query{Locals: locals, Sequence: sequence})
	for _, match := range matches.Ranks {
		if match.Rank == rank {
			return int(match.Blocks[kvindex.Device])
		}
	}
	return 0
}

func TestLRUKeepsWhatIsUsedAndDropsTheOldest(t *testing.T) {
	l, err := kvindex.NewLRU(kvindex.Options{Shards: 1}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	rank := kvindex.Rank{WorkerID: 1}
	l.SetCapacity(rank, 4)
	firstLocals, first := chainOf(t, 1, 2, 3)
	secondLocals, second := chainOf(t, 5, 6, 7)
	hold := l.Hold(rank, firstLocals, first, 0)
	l.Record(rank, secondLocals, second, 0) // six blocks, three of them in use: two of the unused go
	if got := held(l.Index(), rank, firstLocals, first); got != 3 {
		t.Errorf("%d blocks of a running request are held, want all 3", got)
	}
	if got := held(l.Index(), rank, secondLocals, second); got != 1 {
		t.Errorf("%d blocks of the ended request are held, want the first one", got)
	}
	hold.Release()
	longLocals, long := chainOf(t, 1, 2, 3, 4)
	more := l.Hold(rank, firstLocals, first, 0)
	more.Extend(longLocals[3:], long[3:]) // a block of output follows the prompt
	if got := held(l.Index(), rank, longLocals, long); got != 4 {
		t.Errorf("%d blocks of prompt and output are held, want 4", got)
	}
	if got := held(l.Index(), rank, secondLocals, second); got != 0 {
		t.Errorf("%d blocks of the oldest prompt are held beyond the capacity", got)
	}
	l.RemoveWorker(1)
	more.Release()
	if stats := l.Index().Stats(); stats.Total() != 0 {
		t.Errorf("%d blocks are left of a worker that is gone", stats.Total())
	}
}

func TestLRUOfUnknownCapacityPredictsForATime(t *testing.T) {
	l, err := kvindex.NewLRU(kvindex.Options{Shards: 1}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	rank := kvindex.Rank{WorkerID: 1}
	locals, sequence := chainOf(t, 1, 2, 3)
	l.Record(rank, locals, sequence, 0)
	if got := held(l.Index(), rank, locals, sequence); got != 3 {
		t.Errorf("%d blocks are held, want 3", got)
	}
	l.SetCapacity(rank, 10)
	if got := held(l.Index(), rank, locals, sequence); got != 0 {
		t.Errorf("%d blocks are held by a rank that starts anew", got)
	}
}

// TestLRUNeverExceedsItsCapacityWithUnusedBlocks holds the model against its rule under random load.
func TestLRUNeverExceedsItsCapacityWithUnusedBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, err := kvindex.NewLRU(kvindex.Options{Shards: 1}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		rank := kvindex.Rank{WorkerID: 1}
		capacity := rapid.IntRange(1, 20).Draw(t, "capacity")
		l.SetCapacity(rank, capacity)
		type running struct {
			hold             *kvindex.Hold
			locals, sequence []uint64
		}
		var requests []running
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(requests) > 0 && rapid.Bool().Draw(t, "end") {
				i := rapid.IntRange(0, len(requests)-1).Draw(t, "which")
				requests[i].hold.Release()
				requests = append(requests[:i], requests[i+1:]...)
			} else {
				locals, sequence := chainOf(t, rapid.SliceOfN(rapid.Uint32Range(0, 2), 1, 8).Draw(t, "prompt")...)
				requests = append(requests, running{l.Hold(rank, locals, sequence, 0), locals, sequence})
			}
			used := make(map[uint64]bool)
			for _, r := range requests {
				for _, name := range r.sequence {
					used[name] = true
				}
				if got := held(l.Index(), rank, r.locals, r.sequence); got != len(r.sequence) {
					t.Fatalf("%d of %d blocks of a running request are held", got, len(r.sequence))
				}
			}
			if blocks := l.Index().Stats().Total(); blocks > max(capacity, len(used)) {
				t.Fatalf("%d blocks are held, %d of them in use, at a capacity of %d", blocks, len(used), capacity)
			}
		}
	})
}
