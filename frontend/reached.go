package frontend

import "sync"

// reached counts the sets that a worker is a member of: one that serves a model and its adapters is in several. Only when it has left
// the last of them is it gone.
type reached struct {
	mu   sync.Mutex
	sets map[uint64]int // by worker
}

// enter notes that a set has the worker.
func (r *reached) enter(workerID uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sets == nil {
		r.sets = make(map[uint64]int)
	}
	r.sets[workerID]++
}

// leave notes that a set no longer has the worker, and tells whether none has.
func (r *reached) leave(workerID uint64) (gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sets[workerID]--; r.sets[workerID] > 0 {
		return false
	}
	delete(r.sets, workerID)
	return true
}

// forget lets go of a worker that a set had.
func (f *Frontend) forget(workerID uint64) {
	if f.reached.leave(workerID) {
		f.options.Transport.Gone(workerID)
		f.stages.Forget(workerID)
	}
}
