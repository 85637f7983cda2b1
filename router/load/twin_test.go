package load_test

import (
	"fmt"
	"hash/maphash"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/inference"
	"signalbox/router/load"
)

// twin does what a Tracker does, slowly: it keeps whole prompts and recomputes everything from them.
type twin struct {
	requests map[string]*twinRequest
	weights  map[string]float64 // by rank and prefix
}

type twinRequest struct {
	rank       inference.Rank
	prefixes   []string
	prefill    uint64
	outputs    int
	outputEach float64
}

func (w *twin) users(rank inference.Rank, prefix string) int {
	users := 0
	for _, r := range w.requests {
		for _, p := range r.prefixes {
			if r.rank == rank && p == prefix {
				users++
			}
		}
	}
	return users
}

func at(rank inference.Rank, prefix string) string { return fmt.Sprint(rank, prefix) }

func (w *twin) project(rank inference.Rank, query []string) load.Projection {
	var p load.Projection
	held := map[string]bool{}
	sum := 0.0
	for _, r := range w.requests {
		if r.rank != rank {
			continue
		}
		p.ActiveRequests++
		p.ActivePrefillTokens += r.prefill
		sum += float64(r.outputs) * r.outputEach
		for _, prefix := range r.prefixes {
			if !held[prefix] {
				held[prefix] = true
				sum += w.weights[at(rank, prefix)]
			}
		}
	}
	p.ActiveDecodeBlocks = uint64(math.Round(sum))
	depth := 0
	for depth < len(query) && held[query[depth]] {
		depth++
	}
	p.AdditionalActiveBlocks = uint64(len(query) - depth)
	return p
}

func (w *twin) free(id string) {
	r := w.requests[id]
	delete(w.requests, id)
	for _, prefix := range r.prefixes {
		if w.users(r.rank, prefix) == 0 {
			delete(w.weights, at(r.rank, prefix))
		}
	}
}

var seed = maphash.MakeSeed()

// prompt draws blocks from a tiny alphabet, so that prefixes meet; its hashes identify prefixes as real ones do.
func prompt(t *rapid.T) (prefixes []string, hashes []uint64) {
	prefix := ""
	for _, block := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 9).Draw(t, "prompt") {
		prefix += fmt.Sprint(block)
		prefixes = append(prefixes, prefix)
		hashes = append(hashes, maphash.String(seed, prefix))
	}
	return prefixes, hashes
}

// A tracker that drifts from the truth sends every following request to the wrong rank.
func TestTrackerEqualsItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tracker load.Tracker
		var view load.View
		w := &twin{requests: map[string]*twinRequest{}, weights: map[string]float64{}}
		ranks := []inference.Rank{{WorkerID: 1}, {WorkerID: 1, DPRank: 1}, {WorkerID: 2}, {WorkerID: 3}, {WorkerID: 4}}
		for step := range rapid.IntRange(1, 80).Draw(t, "steps") {
			id := fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "id"))
			handle, _ := tracker.Lookup(id)
			known := w.requests[id]
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1:
				prefixes, hashes := prompt(t)
				booking := load.Booking{ID: id, Rank: rapid.SampledFrom(ranks).Draw(t, "rank"), Hashes: hashes, PrefillTokens: uint64(rapid.IntRange(0, 50).Draw(t, "prefill"))}
				var err error
				if rapid.Bool().Draw(t, "projected") {
					tracker.Project(&view, hashes, 0)
					_, err = tracker.AddProjected(booking, &view, 0)
				} else {
					_, err = tracker.Add(booking, 0)
				}
				if (err != nil) != (known != nil) {
					t.Fatalf("adding %s: %v, but in flight: %v", id, err, known != nil)
				}
				if err == nil {
					w.requests[id] = &twinRequest{rank: booking.Rank, prefixes: prefixes, prefill: booking.PrefillTokens, outputEach: 1}
					for _, prefix := range prefixes {
						if w.users(booking.Rank, prefix) == 1 {
							w.weights[at(booking.Rank, prefix)] = 1
						}
					}
				}
			case 2:
				if err := tracker.PrefillComplete(handle, 0); (err != nil) != (known == nil) {
					t.Fatalf("first token of %s: %v", id, err)
				}
				if known != nil {
					known.prefill = 0
				}
			case 3:
				// Sixteenths add up without rounding, so that both sides agree to the bit.
				fraction := float64(rapid.IntRange(0, 15).Draw(t, "fraction")) / 16
				if err := tracker.OutputBlock(handle, fraction); (err != nil) != (known == nil) {
					t.Fatalf("output of %s: %v", id, err)
				}
				if known != nil {
					known.outputs++
					known.outputEach = fraction
					for i := len(known.prefixes) - 1; i >= 0 && w.users(known.rank, known.prefixes[i]) == 1; i-- {
						w.weights[at(known.rank, known.prefixes[i])] = fraction
					}
				}
			case 4:
				if freed := tracker.Free(handle, 0); freed != (known != nil) {
					t.Fatalf("freeing %s: %v", id, freed)
				}
				if known != nil {
					w.free(id)
				}
			case 5:
				if step%7 == 0 {
					rank := rapid.SampledFrom(ranks).Draw(t, "rank")
					tracker.Remove(rank, 0)
					for id, r := range w.requests {
						if r.rank == rank {
							w.free(id)
						}
					}
				}
			}
			prefixes, hashes := prompt(t)
			tracker.Project(&view, hashes, 0)
			for _, rank := range ranks {
				row, known := tracker.Row(rank)
				if !known {
					row = -1
				}
				if got, want := view.At(row), w.project(rank, prefixes); got != want {
					t.Fatalf("rank %+v is %+v, want %+v", rank, got, want)
				}
			}
		}
		for id := range w.requests {
			handle, _ := tracker.Lookup(id)
			tracker.Free(handle, 0)
		}
		if records, identities := tracker.Blocks(); records != 0 || identities != 0 || tracker.Live() != 0 {
			t.Fatalf("with nothing in flight %d records, %d identities and %d requests are left", records, identities, tracker.Live())
		}
	})
}

// Long prompts over many ranks make the walk leap; it must land where a walk step by step does.
func TestWalkLeapsCorrectly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tracker load.Tracker
		var hashes []uint64
		for i := range 400 {
			hashes = append(hashes, maphash.String(seed, fmt.Sprint("long", i)))
		}
		depths := rapid.SliceOfN(rapid.IntRange(0, len(hashes)), 1, 40).Draw(t, "depths")
		for i, depth := range depths {
			if _, err := tracker.Add(load.Booking{ID: fmt.Sprint(i), Rank: inference.Rank{WorkerID: uint64(i)}, Hashes: hashes[:depth]}, 0); err != nil {
				t.Fatal(err)
			}
		}
		var view load.View
		query := hashes[:rapid.IntRange(0, len(hashes)).Draw(t, "query")]
		tracker.Project(&view, query, 0)
		for i, depth := range depths {
			row, _ := tracker.Row(inference.Rank{WorkerID: uint64(i)})
			if got, want := view.At(row).AdditionalActiveBlocks, uint64(len(query)-min(depth, len(query))); got != want {
				t.Fatalf("rank %d with %d of %d blocks would add %d, want %d", i, depth, len(query), got, want)
			}
		}
	})
}

// A request that streams is never forgotten, however long it takes; one whose end was lost is, within two periods.
func TestSweepDropsOnlyTheIdle(t *testing.T) {
	var tracker load.Tracker
	busy, _ := tracker.Add(load.Booking{ID: "busy", Hashes: []uint64{1}}, 0)
	idle, _ := tracker.Add(load.Booking{ID: "idle", Hashes: []uint64{2}, PrefillTokens: 5}, 0)
	const period = 300 * time.Second
	dropped := 0
	for i := range 20 {
		tracker.Touch(busy)
		dropped += tracker.Sweep(time.Duration(i) * period)
		if _, known := tracker.RankOf(idle); known != (i == 0) {
			t.Errorf("after sweep %d the idle request is there: %v", i+1, known)
		}
	}
	if _, known := tracker.RankOf(busy); !known || dropped != 1 {
		t.Errorf("the busy request is there: %v, %d were dropped", known, dropped)
	}
	if tracker.Free(idle, 0) {
		t.Error("an expired request was freed once more")
	}
}

func TestHandlesOfThePastAreHarmless(t *testing.T) {
	var tracker load.Tracker
	old, _ := tracker.Add(load.Booking{ID: "a", Hashes: []uint64{1}, PrefillTokens: 3}, 0)
	tracker.Free(old, 0)
	if _, err := tracker.Add(load.Booking{ID: "a", Hashes: []uint64{1}, PrefillTokens: 3}, 0); err != nil {
		t.Fatal(err)
	}
	// A migrated request keeps its id; the failed attempt's late end must not free its successor.
	if tracker.Free(old, 0) || tracker.PrefillComplete(old, 0) == nil || tracker.OutputBlock(old, -1) == nil {
		t.Error("a handle of a request that has gone still acts")
	}
	if tracker.Live() != 1 {
		t.Error("the successor is gone")
	}
}

func benchmarkTracker(b *testing.B, ranks, active, blocks, sharedBlocks int) {
	var tracker load.Tracker
	var view load.View
	prompts := make([][]uint64, active+1)
	for i := range prompts {
		for j := range blocks {
			key := fmt.Sprint("unique", i, j)
			if j < sharedBlocks {
				key = fmt.Sprint("shared", j)
			}
			prompts[i] = append(prompts[i], maphash.String(seed, key))
		}
	}
	names := make([]string, active+1)
	handles := make([]load.Handle, active+1)
	for i := range active {
		names[i] = fmt.Sprint(i)
		handles[i], _ = tracker.Add(load.Booking{ID: names[i], Rank: inference.Rank{WorkerID: uint64(i % ranks)}, Hashes: prompts[i], PrefillTokens: 100}, 0)
	}
	names[active] = "last"
	b.ReportAllocs()
	b.ResetTimer()
	last := active
	var sum uint64
	for i := range b.N {
		tracker.Project(&view, prompts[last], 0)
		for row := range int32(ranks) {
			sum += view.At(row).ActiveDecodeBlocks
		}
		handles[last], _ = tracker.AddProjected(load.Booking{ID: names[last], Rank: inference.Rank{WorkerID: uint64(last % ranks)}, Hashes: prompts[last], PrefillTokens: 100}, &view, 0)
		next := (i * 7919) % active
		if next == last {
			next = (next + 1) % active
		}
		tracker.Free(handles[next], 0)
		last = next
	}
	_ = sum
}

func BenchmarkTracker(b *testing.B) {
	for _, ranks := range []int{8, 64, 1000} {
		b.Run(fmt.Sprintf("ranks=%d/unique", ranks), func(b *testing.B) { benchmarkTracker(b, ranks, 10000, 32, 0) })
		b.Run(fmt.Sprintf("ranks=%d/shared", ranks), func(b *testing.B) { benchmarkTracker(b, ranks, 10000, 32, 16) })
	}
}
