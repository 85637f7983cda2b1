package load_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"signalbox/inference"
	"signalbox/router/load"
)

// Blocks that are only counted weigh what blocks with identities of their own do, at every step.
func TestExclusiveBlocksEqualUniqueOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var counted, named load.Tracker
		unique := uint64(1)
		hashes := func(n int) (list []uint64) {
			for range n {
				unique += 0x9e3779b97f4a7c15
				list = append(list, unique)
			}
			return list
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id"))
			a, _ := counted.Lookup(id)
			b, _ := named.Lookup(id)
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				blocks := rapid.IntRange(0, 6).Draw(t, "blocks")
				rank := inference.Rank{WorkerID: uint64(rapid.IntRange(0, 1).Draw(t, "worker"))}
				_, errA := counted.Add(load.Booking{ID: id, Rank: rank, Exclusive: blocks}, 0)
				_, errB := named.Add(load.Booking{ID: id, Rank: rank, Hashes: hashes(blocks)}, 0)
				if (errA == nil) != (errB == nil) {
					t.Fatalf("%v and %v", errA, errB)
				}
			case 1:
				// Quarters add up without rounding.
				fraction := float64(rapid.IntRange(-4, 4).Draw(t, "fraction")) / 4
				_, _ = counted.OutputBlock(a, fraction), named.OutputBlock(b, fraction)
			case 2:
				if counted.Free(a, 0) != named.Free(b, 0) {
					t.Fatal("one was there, the other not")
				}
			case 3:
				rank := inference.Rank{WorkerID: 1}
				counted.Remove(rank, 0)
				named.Remove(rank, 0)
			}
			query := rapid.IntRange(0, 5).Draw(t, "query")
			var viewA, viewB load.View
			counted.ProjectExclusive(&viewA, query, 0)
			named.Project(&viewB, hashes(query), 0)
			for worker := range uint64(2) {
				rank := inference.Rank{WorkerID: worker}
				rowA, knownA := counted.Row(rank)
				rowB, knownB := named.Row(rank)
				if knownA != knownB || viewA.At(rowA) != viewB.At(rowB) {
					t.Fatalf("worker %d: counted %+v, named %+v", worker, viewA.At(rowA), viewB.At(rowB))
				}
			}
		}
	})
}
