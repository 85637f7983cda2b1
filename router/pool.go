package router

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/inference"
)

// DefaultInhibited is how long a worker that was marked down is left alone while discovery says nothing new.
const DefaultInhibited = 5 * time.Second

// PoolOptions describe a pool.
type PoolOptions struct {
	// Endpoint is the endpoint's name "namespace/component/endpoint", for messages.
	Endpoint string
	Clock    Clock
	// Inhibited is the longest time for which a worker stays marked down; negative turns marking down off, 0 means
	// [DefaultInhibited].
	Inhibited time.Duration
}

// Pool is the workers of one endpoint: which are discovered, which of those can be reached as far as we know, and which have
// room. Reading it never waits. It is safe for concurrent use.
type Pool struct {
	endpoint  string
	clock     Clock
	inhibited time.Duration
	occupancy Occupancy

	current atomic.Pointer[Snapshot]

	mutex    sync.Mutex
	epoch    time.Duration // when routable was last set to discovered
	due      time.Duration // when that happens next while workers are down
	heard    time.Duration // when a worker last said that it is overloaded
	changed  chan struct{} // closed when the discovered workers change
	watchers []func(*Snapshot)
}

// Snapshot is an immutable view of a pool. The slices must not be changed.
type Snapshot struct {
	// Version differs between any two snapshots of a pool.
	Version uint64
	// Membership changes only when the discovered workers do.
	Membership uint64
	// Workers are the discovered ones, by ascending id.
	Workers []Worker

	states   []WorkerState // parallel to Workers
	routable []int32       // indexes of Workers
	free     []int32
	down     int
	refusing int // workers that said they are overloaded
}

// WorkerState is what is known against a worker.
type WorkerState uint8

// Free tells that nothing is.
func (s WorkerState) Free() bool { return s == 0 }

// Down tells that the worker failed and was set aside.
func (s WorkerState) Down() bool { return s&stateDown != 0 }

// Overloaded tells that the worker takes no more for now: it said so, or its load is beyond a threshold.
func (s WorkerState) Overloaded() bool { return s&(stateOverloaded|stateBusy) != 0 }

const (
	stateDown WorkerState = 1 << iota
	stateOverloaded
	stateBusy
)

// Find returns the index of the worker in Workers, or -1.
func (s *Snapshot) Find(id uint64) int {
	index, found := slices.BinarySearchFunc(s.Workers, id, func(worker Worker, id uint64) int { return cmp.Compare(worker.ID, id) })
	if !found {
		return -1
	}
	return index
}

// State returns what is known against Workers[index].
func (s *Snapshot) State(index int) WorkerState { return s.states[index] }

// Routable returns the indexes of the workers that are not down.
func (s *Snapshot) Routable() []int32 { return s.routable }

// Free returns the indexes of the routable workers that are not overloaded.
func (s *Snapshot) Free() []int32 { return s.free }

// NewPool returns an empty pool.
func NewPool(options PoolOptions) *Pool {
	if options.Inhibited == 0 {
		options.Inhibited = DefaultInhibited
	}
	if options.Clock == nil {
		options.Clock = SystemClock()
	}
	p := &Pool{endpoint: options.Endpoint, clock: options.Clock, inhibited: options.Inhibited, changed: make(chan struct{})}
	p.epoch = p.clock.Now()
	p.current.Store(&Snapshot{})
	return p
}

// Endpoint returns the name that the pool was made with.
func (p *Pool) Endpoint() string { return p.endpoint }

// Clock returns the pool's clock.
func (p *Pool) Clock() Clock { return p.clock }

// Occupancy returns the counters of requests in flight, shared by all routers of the pool.
func (p *Pool) Occupancy() *Occupancy { return &p.occupancy }

// SetWorkers replaces the discovered workers. All of them become routable, whatever was held against them; overloads stay.
// The pool keeps the slice's contents, not the slice.
func (p *Pool) SetWorkers(workers []Worker) {
	sorted := slices.Clone(workers)
	slices.SortStableFunc(sorted, func(a, b Worker) int { return cmp.Compare(a.ID, b.ID) })
	sorted = slices.CompactFunc(sorted, func(a, b Worker) bool { return a.ID == b.ID })

	p.mutex.Lock()
	old := p.current.Load()
	states := make([]WorkerState, len(sorted))
	for i := range sorted {
		if before := old.Find(sorted[i].ID); before >= 0 {
			states[i] = old.states[before] & (stateOverloaded | stateBusy)
		}
	}
	p.epoch = p.clock.Now()
	p.publish(&Snapshot{Version: old.Version + 1, Membership: old.Membership + 1, Workers: sorted, states: states})
	close(p.changed)
	p.changed = make(chan struct{})
	watchers := p.watchers
	p.mutex.Unlock()

	for _, watcher := range watchers {
		watcher(p.Snapshot())
	}
}

// publish completes a snapshot's index lists and makes it current. The caller holds the mutex.
func (p *Pool) publish(next *Snapshot) {
	next.routable = make([]int32, 0, len(next.Workers))
	next.free = make([]int32, 0, len(next.Workers))
	for i, state := range next.states {
		if state&stateOverloaded != 0 {
			next.refusing++
		}
		if state.Down() {
			next.down++
			continue
		}
		next.routable = append(next.routable, int32(i))
		if !state.Overloaded() {
			next.free = append(next.free, int32(i))
		}
	}
	p.current.Store(next)
}

// Watch calls changed after every change of the discovered workers, from the goroutine that made it.
func (p *Pool) Watch(changed func(*Snapshot)) {
	p.mutex.Lock()
	p.watchers = append(slices.Clip(p.watchers), changed)
	p.mutex.Unlock()
}

// Snapshot returns the current view. Workers whose time aside is over are back in it.
func (p *Pool) Snapshot() *Snapshot {
	snapshot := p.current.Load()
	if snapshot.down == 0 && snapshot.refusing == 0 {
		return snapshot
	}
	return p.restore()
}

func (p *Pool) restore() *Snapshot {
	now := p.clock.Now()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	snapshot := p.current.Load()
	var over WorkerState
	if snapshot.down > 0 && now >= p.due {
		p.epoch = now
		over |= stateDown
	}
	if snapshot.refusing > 0 && now-p.heard >= p.refusalTime() {
		over |= stateOverloaded
	}
	if over == 0 {
		return snapshot
	}
	return p.restate(func(_ int, state WorkerState) WorkerState { return state &^ over })
}

// refusalTime is how long a worker's word that it is overloaded counts when nothing more is heard of it.
func (p *Pool) refusalTime() time.Duration {
	if p.inhibited < 0 {
		return DefaultInhibited
	}
	return p.inhibited
}

// restate publishes a snapshot with changed states, if any changed. The caller holds the mutex.
func (p *Pool) restate(change func(index int, state WorkerState) WorkerState) *Snapshot {
	old := p.current.Load()
	states := make([]WorkerState, len(old.states))
	for i, state := range old.states {
		states[i] = change(i, state)
	}
	if slices.Equal(states, old.states) {
		return old
	}
	next := &Snapshot{Version: old.Version + 1, Membership: old.Membership, Workers: old.Workers, states: states}
	p.publish(next)
	return next
}

// MarkDown sets a worker aside until discovery changes or the inhibited time has passed, whichever is first. All workers that
// are down come back together.
func (p *Pool) MarkDown(id uint64) {
	if p.inhibited < 0 {
		return
	}
	now := p.clock.Now()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.current.Load().down == 0 {
		// The pool counts whole periods since discovery last changed, and lets everybody back in at the end of each.
		periods := (now-p.epoch)/p.inhibited + 1
		p.due = p.epoch + periods*p.inhibited
	}
	p.mark(id, stateDown)
}

// MarkOverloaded passes over a worker that said that it is overloaded, until [Pool.Healthy] or [Pool.SetOverloaded] says otherwise, or
// for as long as a worker stays marked down.
func (p *Pool) MarkOverloaded(id uint64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.heard = p.clock.Now()
	p.mark(id, stateOverloaded)
}

// Healthy takes back that a worker said that it is overloaded: it has told its load since.
func (p *Pool) Healthy(id uint64) {
	if p.current.Load().refusing == 0 {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	index := p.current.Load().Find(id)
	p.restate(func(i int, state WorkerState) WorkerState {
		if i == index {
			return state &^ stateOverloaded
		}
		return state
	})
}

// SetBusy replaces the set of workers whose load is beyond a threshold.
func (p *Pool) SetBusy(ids []uint64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	workers := p.current.Load().Workers
	p.restate(func(i int, state WorkerState) WorkerState {
		if slices.Contains(ids, workers[i].ID) {
			return state | stateBusy
		}
		return state &^ stateBusy
	})
}

func (p *Pool) mark(id uint64, mark WorkerState) {
	index := p.current.Load().Find(id)
	if index < 0 {
		return
	}
	p.restate(func(i int, state WorkerState) WorkerState {
		if i == index {
			return state | mark
		}
		return state
	})
}

// SetOverloaded replaces the set of workers that said that they are overloaded.
func (p *Pool) SetOverloaded(ids []uint64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	workers := p.current.Load().Workers
	p.restate(func(i int, state WorkerState) WorkerState {
		if slices.Contains(ids, workers[i].ID) {
			return state | stateOverloaded
		}
		return state &^ stateOverloaded
	})
}

// Judge draws the conclusions from how a request ended at a worker: one that cannot be reached is marked down, one that
// says it is overloaded is passed over. Application errors, cancellations and a worker's refusals speak against nobody.
func (p *Pool) Judge(id uint64, outcome error) {
	if outcome == nil {
		return
	}
	switch kind := inference.KindOf(outcome); {
	case kind == inference.WorkerOverloaded:
		p.MarkOverloaded(id)
	case kind.MarksDown():
		p.MarkDown(id)
	}
}

// StartupPatience is how long [Pool.WaitForWorkers] waits for the next change when it waits for two workers or more.
const StartupPatience = 120 * time.Second

// WaitForWorkers returns once the pool has n workers. For n ≥ 2 it gives up when nothing changes for [StartupPatience]; for one
// it waits as long as the context lasts.
func (p *Pool) WaitForWorkers(ctx context.Context, n int) error {
	for {
		p.mutex.Lock()
		have, changed := len(p.current.Load().Workers), p.changed
		p.mutex.Unlock()
		if have >= n {
			return nil
		}
		var impatient <-chan struct{}
		stop := func() {}
		if n >= 2 {
			impatient, stop = p.clock.After(StartupPatience)
		}
		select {
		case <-changed:
			stop()
		case <-impatient:
			return fmt.Errorf("timed out waiting for %d initial workers for endpoint %s", n, p.endpoint)
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
	}
}
