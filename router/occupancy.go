package router

import "sync"

// Occupancy counts the requests that this process has in flight at each worker of an endpoint. Choosing and counting are one
// step, so that two choices at the same time cannot both see the older count.
type Occupancy struct {
	mutex      sync.Mutex
	slots      map[uint64]int32
	counts     []int32
	vacant     []int32
	membership uint64
	bySnapshot []int32 // slot of every worker of the snapshot with that membership
}

// Choose calls pick with the count of every worker of the snapshot, by index, and counts the index that pick returns, unless
// it is negative or count is false. pick must neither keep the slice nor call back.
func (o *Occupancy) Choose(snapshot *Snapshot, count bool, pick func(load Loads) int) int {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.align(snapshot)
	index := pick(Loads{counts: o.counts, slots: o.bySnapshot})
	if index >= 0 && count {
		o.counts[o.bySnapshot[index]]++
	}
	return index
}

// Loads are the counts of a snapshot's workers.
type Loads struct{ counts, slots []int32 }

// At returns the requests in flight at Workers[index].
func (l Loads) At(index int32) int { return int(l.counts[l.slots[index]]) }

// Release takes back one count of the worker. A worker that left keeps its counter until its last request ends, in case it
// returns.
func (o *Occupancy) Release(id uint64) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if slot, known := o.slots[id]; known && o.counts[slot] > 0 {
		o.counts[slot]--
	}
}

// Count returns the requests in flight at the worker.
func (o *Occupancy) Count(id uint64) int {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if slot, known := o.slots[id]; known {
		return int(o.counts[slot])
	}
	return 0
}

// align maps the snapshot's workers to counters, after a change of membership, and drops the counters of workers that left and
// have nothing in flight. The caller holds the mutex.
func (o *Occupancy) align(snapshot *Snapshot) {
	if o.membership == snapshot.Membership && len(o.bySnapshot) == len(snapshot.Workers) {
		return
	}
	if o.slots == nil {
		o.slots = make(map[uint64]int32)
	}
	for id, slot := range o.slots {
		if o.counts[slot] == 0 && snapshot.Find(id) < 0 {
			delete(o.slots, id)
			o.vacant = append(o.vacant, slot)
		}
	}
	o.bySnapshot = o.bySnapshot[:0]
	for i := range snapshot.Workers {
		id := snapshot.Workers[i].ID
		slot, known := o.slots[id]
		if !known {
			if last := len(o.vacant) - 1; last >= 0 {
				slot, o.vacant = o.vacant[last], o.vacant[:last]
			} else {
				slot = int32(len(o.counts))
				o.counts = append(o.counts, 0)
			}
			o.slots[id] = slot
		}
		o.bySnapshot = append(o.bySnapshot, slot)
	}
	o.membership = snapshot.Membership
}
