package kvindex

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A rank is predicted to hold the blocks of prompts that it got less than the time to live ago, and no others.
func TestPredictionsAgeOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		ttl := time.Duration(rapid.SampledFrom([]int{0, 1, 100, 101, 250, 1000}).Draw(t, "ttl ms")) * time.Millisecond
		predicted, err := NewTTL(Options{Shards: 2}, ttl)
		if err != nil {
			t.Fatal(err)
		}
		now := 7 * time.Hour
		ends := make(map[Rank]map[uint64]time.Duration) // by sequence hash, rounded up
		t.Repeat(map[string]func(*rapid.T){
			"record": func(t *rapid.T) {
				rank, prompt := w.rank(t), w.prompt(t)
				sequence := chainHasher.AppendSequence(nil, prompt)
				predicted.Record(rank, prompt, sequence, now)
				if ends[rank] == nil {
					ends[rank] = make(map[uint64]time.Duration)
				}
				for _, hash := range sequence {
					ends[rank][hash] = (now + ttl + tick - 1) / tick * tick
				}
			},
			"wait": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond
			},
			"leave": func(t *rapid.T) {
				rank := w.rank(t)
				predicted.RemoveRank(rank)
				delete(ends, rank)
			},
			"leave all": func(t *rapid.T) {
				worker := w.rank(t).WorkerID
				predicted.RemoveWorker(worker)
				for rank := range ends {
					if rank.WorkerID == worker {
						delete(ends, rank)
					}
				}
			},
			"": func(t *rapid.T) {
				predicted.Expire(now)
				query := Query{Locals: w.prompt(t)}
				want := []Match{}
				for rank, blocks := range ends {
					match := Match{Rank: rank}
					for _, hash := range chainHasher.AppendSequence(nil, query.Locals) {
						if end, ok := blocks[hash]; !ok || end <= now || ttl == 0 {
							break
						}
						match.Blocks[Device]++
					}
					if match.Total() > 0 {
						want = append(want, match)
					}
				}
				if got := find(predicted.Index(), query); !slices.Equal(got, sortMatches(want)) {
					t.Fatalf("at %v, %v finds %v, expected %v", now, query.Locals, got, want)
				}
			},
		})
		predicted.Expire(now + ttl + tick)
		if stats := predicted.Stats(); stats.Total() != 0 || predicted.live != 0 {
			t.Fatalf("after all have aged: %+v, %d entries", stats, predicted.live)
		}
	})
}

func TestPredictionsAtTheLimit(t *testing.T) {
	predicted, err := NewTTL(Options{MaxBlocks: 3}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	rank := Rank{WorkerID: 1}
	record := func(prompt ...uint64) {
		predicted.Record(rank, prompt, chainHasher.AppendSequence(nil, prompt), 0)
	}
	held := func(prompt ...uint64) uint32 {
		var matches Matches
		predicted.Index().Find(&matches, Query{Locals: prompt})
		return matches.Of(rank).Total()
	}
	record(1, 2)
	record(3)
	record(4) // the end of the oldest prompt makes room
	if held(1, 2) != 1 || held(3) != 1 || held(4) != 1 {
		t.Errorf("held are %d, %d and %d blocks", held(1, 2), held(3), held(4))
	}
	record(5, 6, 7, 8) // more than there is room for
	if held(5, 6, 7, 8) != 3 || held(1, 2) != 0 || predicted.Stats().Refused != 1 {
		t.Errorf("held are %d and %d blocks, refused %d", held(5, 6, 7, 8), held(1, 2), predicted.Stats().Refused)
	}
}

func TestNewTTLRefusesNonsense(t *testing.T) {
	if _, err := NewTTL(Options{}, -1); err == nil {
		t.Error("a negative time to live passes")
	}
	if _, err := NewTTL(Options{MaxBlocks: -1}, 1); err == nil {
		t.Error("a negative limit passes")
	}
	if _, err := NewLRU(Options{Shards: -1}, 1); err == nil {
		t.Error("a negative number of shards passes")
	}
}

// lruModel is a cache of known size in the plainest way: blocks in the order in which they came out of use.
type lruModel struct {
	capacity int
	users    map[uint64]int
	idle     []uint64
}

func (m *lruModel) use(sequence []uint64) {
	for _, hash := range sequence {
		m.users[hash]++
		m.idle = slices.DeleteFunc(m.idle, func(other uint64) bool { return other == hash })
	}
	m.evict()
}

func (m *lruModel) leave(sequence []uint64) {
	for _, hash := range slices.Backward(sequence) {
		if m.users[hash]--; m.users[hash] == 0 {
			m.idle = append(m.idle, hash)
		}
	}
	m.evict()
}

func (m *lruModel) evict() {
	for len(m.users) > m.capacity && len(m.idle) > 0 {
		delete(m.users, m.idle[0])
		m.idle = m.idle[1:]
	}
}

// A rank of known capacity holds what a cache of that size would.
func TestLRUIsACache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := world{ranks: []Rank{{WorkerID: 1}, {WorkerID: 1, DPRank: 1}, {WorkerID: 2}}}
		lru, err := NewLRU(Options{}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		type flight struct {
			hold     *Hold
			rank     Rank
			prompt   []uint64
			sequence []uint64
			model    *lruModel
		}
		models := make(map[Rank]*lruModel)
		var flights []flight
		setCapacity := func(rank Rank, capacity int) {
			lru.SetCapacity(rank, capacity)
			switch m := models[rank]; {
			case capacity == 0:
				delete(models, rank)
			case m == nil:
				models[rank] = &lruModel{capacity: capacity, users: make(map[uint64]int)}
			default:
				m.capacity = capacity
				m.evict()
			}
		}
		for _, rank := range w.ranks {
			setCapacity(rank, rapid.IntRange(1, 8).Draw(t, "capacity"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(t *rapid.T) {
				f := flight{rank: w.rank(t), prompt: w.prompt(t)}
				f.sequence = chainHasher.AppendSequence(nil, f.prompt)
				f.hold = lru.Hold(f.rank, f.prompt, f.sequence, 0)
				if f.model = models[f.rank]; f.model == nil {
					if f.hold != nil {
						t.Fatal("a hold on a rank of unknown capacity")
					}
					return
				}
				f.model.use(f.sequence)
				flights = append(flights, f)
			},
			"record": func(t *rapid.T) {
				rank, prompt := w.rank(t), w.prompt(t)
				sequence := chainHasher.AppendSequence(nil, prompt)
				lru.Record(rank, prompt, sequence, 0)
				if m := models[rank]; m != nil {
					m.use(sequence)
					m.leave(sequence)
				}
			},
			"extend": func(t *rapid.T) {
				if len(flights) == 0 {
					t.Skip("nothing in flight")
				}
				f := &flights[rapid.IntRange(0, len(flights)-1).Draw(t, "flight")]
				more := w.prompt(t)
				whole := append(slices.Clone(f.prompt), more...)
				sequence := chainHasher.AppendSequence(nil, whole)[len(f.prompt):]
				f.hold.Extend(more, sequence)
				if models[f.rank] == f.model {
					f.model.use(sequence)
				}
				f.prompt, f.sequence = whole, append(f.sequence, sequence...)
			},
			"release": func(t *rapid.T) {
				if len(flights) == 0 {
					t.Skip("nothing in flight")
				}
				at := rapid.IntRange(0, len(flights)-1).Draw(t, "flight")
				f := flights[at]
				flights = slices.Delete(flights, at, at+1)
				f.hold.Release()
				f.hold.Release()
				if models[f.rank] == f.model {
					f.model.leave(f.sequence)
				}
			},
			"capacity": func(t *rapid.T) { setCapacity(w.rank(t), rapid.IntRange(0, 8).Draw(t, "capacity")) },
			"leave": func(t *rapid.T) {
				worker := w.rank(t).WorkerID
				lru.RemoveWorker(worker)
				for rank := range models {
					if rank.WorkerID == worker {
						delete(models, rank)
					}
				}
			},
			"": func(t *rapid.T) {
				query := Query{Locals: w.prompt(t)}
				for rank, m := range models {
					want := uint32(0)
					for _, hash := range chainHasher.AppendSequence(nil, query.Locals) {
						if _, held := m.users[hash]; !held {
							break
						}
						want++
					}
					var matches Matches
					lru.Index().Find(&matches, query)
					if got := matches.Of(rank).Total(); got != want {
						t.Fatalf("rank %v holds %d of %v, expected %d", rank, got, query.Locals, want)
					}
				}
			},
		})
		for _, f := range flights {
			f.hold.Release()
		}
		lru.Expire(time.Hour)
		for rank, m := range models {
			if held := lru.predicted.byName[rank].entries.count; held > m.capacity {
				t.Fatalf("rank %v holds %d blocks with nothing in flight and a capacity of %d", rank, held, m.capacity)
			}
		}
		for _, rank := range w.ranks {
			lru.RemoveWorker(rank.WorkerID)
		}
		if stats := lru.Stats(); stats.Total() != 0 || lru.predicted.live != 0 {
			t.Fatalf("after all have left: %+v, %d entries", stats, lru.predicted.live)
		}
	})
}

func TestMaxDevice(t *testing.T) {
	a, b, c := Rank{WorkerID: 1}, Rank{WorkerID: 2}, Rank{WorkerID: 3}
	primary := Matches{Ranks: []Match{{a, [Tiers]uint32{2, 5}}, {b, [Tiers]uint32{7}}}}
	primary.MaxDevice(&Matches{Ranks: []Match{{b, [Tiers]uint32{6}}, {c, [Tiers]uint32{1, 9}}, {a, [Tiers]uint32{3}}}})
	want := []Match{{a, [Tiers]uint32{3, 5}}, {b, [Tiers]uint32{7}}, {c, [Tiers]uint32{1}}}
	if got := sortMatches(primary.Ranks); !slices.Equal(got, want) {
		t.Errorf("got %v, expected %v", got, want)
	}
}
