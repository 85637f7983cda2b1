// Package busy decides which workers of a pool are too busy to be given more, by thresholds that operators set.
//
// Two loads are looked at, and kept apart: what a worker reports of itself, and what the router has booked on it. A worker's rank is
// busy while either is beyond a threshold, so that a sample of one kind never hides what the other tells; and the worker is busy
// while all its ranks are. The first samples that are within the thresholds clear it again.
package busy

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/inference"
	"signalbox/router"
)

// Thresholds are the limits beyond which a rank is busy; nil means unset. All comparisons are strict, and any one is enough.
type Thresholds struct {
	// DecodeBlocks is a fraction of the rank's KV blocks, 0 to 1.
	DecodeBlocks *float64
	// PrefillTokens is a number of tokens.
	PrefillTokens *uint64
	// PrefillFraction is a fraction of the tokens that the rank computes per step.
	PrefillFraction *float64
}

// Any tells whether some threshold is set.
func (t Thresholds) Any() bool {
	return t.DecodeBlocks != nil || t.PrefillTokens != nil || t.PrefillFraction != nil
}

// unpublishedBatch stands for the tokens per step of workers that do not publish them.
const unpublishedBatch = 10_000_000

// exceeded tells whether a rank's load is beyond a threshold.
func (t Thresholds) exceeded(w *router.Worker, blocks, tokens uint64) bool {
	if t.DecodeBlocks != nil && w.TotalKVBlocks > 0 && float64(blocks) > *t.DecodeBlocks*float64(w.TotalKVBlocks) {
		return true
	}
	if t.PrefillTokens != nil && tokens > *t.PrefillTokens {
		return true
	}
	if t.PrefillFraction != nil {
		batch := w.MaxNumBatchedTokens
		if batch == 0 {
			batch = unpublishedBatch
		}
		limit := math.Trunc(*t.PrefillFraction * float64(batch))
		return float64(tokens) > limit
	}
	return false
}

// Booked is what a router has booked on one rank.
type Booked struct {
	Rank inference.Rank
	// DecodeBlocks are the blocks of requests on their way, PrefillTokens what of their prompts is still to be computed.
	DecodeBlocks, PrefillTokens uint64
}

// Monitor keeps a pool's busy workers passed over. All methods may be called from several goroutines.
type Monitor struct {
	pool   *router.Pool
	active atomic.Bool // some threshold is set

	mu         sync.Mutex
	thresholds Thresholds
	reported   map[inference.Rank]uint64 // used blocks, as the worker counts them
	source     func([]Booked) []Booked
	booked     []Booked // memory of the last look
	byRank     map[inference.Rank]Booked
	busy       []uint64 // workers, as the pool was told
}

// New returns a monitor without thresholds.
func New(pool *router.Pool) *Monitor {
	return &Monitor{pool: pool, reported: make(map[inference.Rank]uint64), byRank: make(map[inference.Rank]Booked)}
}

// BookedBy names who knows what is booked: source appends all ranks that have anything.
func (m *Monitor) BookedBy(source func([]Booked) []Booked) {
	m.mu.Lock()
	m.source = source
	m.mu.Unlock()
}

// Set replaces the thresholds.
func (m *Monitor) Set(thresholds Thresholds) {
	m.mu.Lock()
	m.thresholds = thresholds
	m.active.Store(thresholds.Any())
	m.look()
	m.mu.Unlock()
}

// Active tells whether some threshold is set.
func (m *Monitor) Active() bool { return m.active.Load() }

// Report takes a worker's own count of the blocks in use. Workers that the pool does not know are not heard.
func (m *Monitor) Report(rank inference.Rank, usedBlocks uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	snapshot := m.pool.Snapshot()
	index := snapshot.Find(rank.WorkerID)
	if index < 0 || !snapshot.Workers[index].Owns(rank.DPRank) {
		return
	}
	m.reported[rank] = usedBlocks
	m.look()
	if !slices.Contains(m.busy, rank.WorkerID) {
		m.pool.Healthy(rank.WorkerID)
	}
}

// Refresh looks at what is booked now. It costs nothing while no threshold is set.
func (m *Monitor) Refresh() {
	if !m.active.Load() {
		return
	}
	m.mu.Lock()
	m.look()
	m.mu.Unlock()
}

// Run refreshes now and then, for those who wait while nobody comes. It ends with ctx.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.Refresh()
		case <-ctx.Done():
			return
		}
	}
}

const lookAgain = 100 * time.Millisecond

// AllBusy tells whether there are workers and every one of them is passed over.
func (m *Monitor) AllBusy() bool {
	m.Refresh()
	snapshot := m.pool.Snapshot()
	return len(snapshot.Routable()) > 0 && len(snapshot.Free()) == 0
}

// look finds the busy workers and tells the pool when they are others than before. The caller holds mu.
func (m *Monitor) look() {
	snapshot := m.pool.Snapshot()
	for rank := range m.reported {
		if snapshot.Find(rank.WorkerID) < 0 {
			delete(m.reported, rank)
		}
	}
	var busy []uint64
	if m.thresholds.Any() {
		clear(m.byRank)
		m.booked = m.booked[:0]
		if m.source != nil {
			m.booked = m.source(m.booked)
		}
		for _, b := range m.booked {
			m.byRank[b.Rank] = b
		}
		for i := range snapshot.Workers {
			if m.isBusy(&snapshot.Workers[i]) {
				busy = append(busy, snapshot.Workers[i].ID)
			}
		}
	}
	if !slices.Equal(busy, m.busy) {
		m.busy = busy
		m.pool.SetBusy(busy)
	}
}

// isBusy tells whether all ranks of the worker are.
func (m *Monitor) isBusy(w *router.Worker) bool {
	from, to, known := w.Ranks()
	if !known {
		return false
	}
	for number := from; number < to; number++ {
		rank := inference.Rank{WorkerID: w.ID, DPRank: number}
		booked := m.byRank[rank]
		if !m.thresholds.exceeded(w, max(booked.DecodeBlocks, m.reported[rank]), booked.PrefillTokens) {
			return false
		}
	}
	return true
}
