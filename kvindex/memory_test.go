package kvindex

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// fleet is workers whose caches turn over: conversations go on, and what was not used for longest is evicted, from its end.
type fleet struct {
	index    *Index
	random   *rand.Rand
	capacity int
	ranks    []*cache
	talks    [][]uint64
}

type cache struct {
	rank Rank
	held map[uint64]int // by the engine's hash: when it was last used
	age  int
	line []uint64 // engine's hashes by last use; those used again since are stale
	when []int
}

func newFleet(index *Index, workers, capacity int) *fleet {
	f := &fleet{index: index, random: rand.New(rand.NewPCG(1, 2)), capacity: capacity}
	for i := range workers {
		f.ranks = append(f.ranks, &cache{rank: Rank{WorkerID: uint64(i + 1)}, held: make(map[uint64]int)})
	}
	return f
}

// prompt goes on with a conversation, or begins one.
func (f *fleet) prompt() []uint64 {
	at := len(f.talks)
	if at > 0 && f.random.IntN(3) > 0 {
		at = f.random.IntN(len(f.talks))
	}
	if at == len(f.talks) {
		if f.talks = append(f.talks, []uint64{1, 2, 3}); len(f.talks) > 200 {
			f.talks = slices.Delete(f.talks, 0, 1)
			at--
		}
	}
	for range 1 + f.random.IntN(12) {
		f.talks[at] = append(f.talks[at], f.random.Uint64())
	}
	return f.talks[at]
}

// serve lets a worker compute a prompt.
func (f *fleet) serve(t testing.TB) {
	c := f.ranks[f.random.IntN(len(f.ranks))]
	blocks := chainOf(c.rank, f.prompt())
	if len(blocks) > f.capacity {
		blocks = blocks[:f.capacity]
	}
	mustApply(t, f.index, Event{Rank: c.rank, Op: Stored, Blocks: blocks})
	for i := len(blocks) - 1; i >= 0; i-- {
		c.age++
		c.held[blocks[i].Hash] = c.age
		c.line, c.when = append(c.line, blocks[i].Hash), append(c.when, c.age)
	}
	var gone []uint64
	at := 0
	for ; len(c.held) > f.capacity; at++ {
		if c.held[c.line[at]] == c.when[at] {
			gone = append(gone, c.line[at])
			delete(c.held, c.line[at])
		}
	}
	c.line, c.when = slices.Delete(c.line, 0, at), slices.Delete(c.when, 0, at)
	if len(gone) > 0 {
		mustApply(t, f.index, Event{Rank: c.rank, Op: Removed, Hashes: gone})
	}
}

func (f *fleet) live() (n int) {
	for _, c := range f.ranks {
		n += len(c.held)
	}
	return n
}

// An index whose contents turn over again and again stays as large as it was, and is small again once all have left.
func TestMemoryFollowsLiveBlocks(t *testing.T) {
	index, err := New(Options{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	empty := index.Stats().Bytes
	f := newFleet(index, 6, 1500)
	for f.live() < 6*1500 {
		f.serve(t)
	}
	for range 1000 {
		f.serve(t)
	}
	full := index.Stats()
	if full.Blocks[Device] != f.live() {
		t.Fatalf("%d blocks in the index, the caches hold %d", full.Blocks[Device], f.live())
	}
	if per := float64(full.Bytes) / float64(full.Blocks[Device]); per > 60 {
		t.Errorf("%.1f bytes a block", per)
	}
	for range 8000 {
		f.serve(t)
	}
	if later := index.Stats(); float64(later.Bytes) > 1.1*float64(full.Bytes) {
		t.Errorf("%d bytes after the caches turned over, %d before", later.Bytes, full.Bytes)
	}
	// All but one leave: what is left moves together, and is still right.
	for _, c := range f.ranks[1:] {
		index.RemoveWorker(c.rank.WorkerID)
	}
	f.ranks = f.ranks[:1]
	alone := index.Stats()
	if alone.Blocks[Device] != f.live() || float64(alone.Bytes) > 0.5*float64(full.Bytes) {
		t.Errorf("one of six workers left: %+v, before %+v", alone, full)
	}
	for _, talk := range f.talks {
		blocks := chainOf(f.ranks[0].rank, talk)
		want := uint32(0)
		for int(want) < len(blocks) && f.ranks[0].held[blocks[want].Hash] != 0 {
			want++
		}
		var matches Matches
		index.Find(&matches, Query{Locals: talk})
		if got := matches.Of(f.ranks[0].rank).Total(); got != want {
			t.Fatalf("%d blocks found of a prompt of %d, %d are held", got, len(talk), want)
		}
	}
	for range 200 {
		f.serve(t) // and goes on to be
	}
	index.RemoveWorker(f.ranks[0].rank.WorkerID)
	if end := index.Stats(); end.Bytes > empty+4096 || end.Total() != 0 || end.Nodes != 0 {
		t.Errorf("%d bytes when all had left, %d at the start", end.Bytes, empty)
	}
}

// What Stats calls bytes is what the heap has for it.
func TestBytesAreTrue(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	index, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for worker := range uint64(4) {
		rank := Rank{WorkerID: worker}
		for prompt := range uint64(500) {
			locals := make([]uint64, 40)
			for i := range locals {
				locals[i] = scramble(prompt/2<<20 + uint64(i)<<4 + prompt%2*uint64(i/20))
			}
			blocks := chainOf(rank, locals)
			mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: blocks})
			mustApply(t, index, Event{Rank: rank, Op: Stored, Tier: Disk, Blocks: blocks[:10]})
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap, told := float64(after.HeapAlloc)-float64(before.HeapAlloc), float64(index.Stats().Bytes)
	if told < 0.85*heap || told > 1.15*heap {
		t.Errorf("%.0f bytes told, %.0f on the heap", told, heap)
	}
	runtime.KeepAlive(index)
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, ranks := range []int{10, 100} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			index, err := New(Options{Shards: 2})
			if err != nil {
				t.Fatal(err)
			}
			prompt := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}
			for i := range ranks {
				rank := Rank{WorkerID: uint64(i)}
				mustApply(t, index, Event{Rank: rank, Op: Stored, Blocks: chainOf(rank, prompt[:1+i%9])})
				mustApply(t, index, Event{Rank: rank, Tier: HostPinned, Op: Stored, Blocks: chainOf(rank, prompt)})
			}
			var matches Matches
			index.Find(&matches, Query{Locals: prompt})
			if n := testing.AllocsPerRun(100, func() { index.Find(&matches, Query{Locals: prompt}) }); n != 0 {
				t.Errorf("a look-up allocates %v times", n)
			}
			rank := Rank{WorkerID: 1}
			blocks := chainOf(rank, []uint64{50, 51, 52, 53})
			hashes := namesOf(blocks)
			if n := testing.AllocsPerRun(100, func() {
				stored := index.Apply(Event{Rank: rank, Op: Stored, Blocks: blocks})
				removed := index.Apply(Event{Rank: rank, Op: Removed, Hashes: hashes})
				if stored != nil || removed != nil {
					t.Error(stored, removed)
				}
			}); n != 0 {
				t.Errorf("events allocate %v times", n)
			}
		})
	}
}
