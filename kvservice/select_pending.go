package kvservice

import (
	"cmp"
	"container/list"
	"sync"
	"time"

	"signalbox/inference"
)

// PendingLimits bound the selections that were made and may yet be reserved. Zero members are at their defaults.
type PendingLimits struct {
	// TTL is how long a selection may be reserved; 120 s.
	TTL time.Duration
	// Entries is how many there may be, Bytes about how much memory they may take; 4096 and 256 MiB. The oldest make room.
	Entries int
	Bytes   int
}

func (l PendingLimits) orDefault() PendingLimits {
	return PendingLimits{cmp.Or(l.TTL, 120*time.Second), cmp.Or(l.Entries, 4096), cmp.Or(l.Bytes, 256<<20)}
}

// pendingSelection is a choice that can be booked as it was made.
type pendingSelection struct {
	pool          pool
	id            string
	rank          inference.Rank
	hashes        []uint64
	prefillTokens uint64 // 0 when prompt work is not tracked
	expected      *uint32
	adapter       string
	session       string
	made          time.Duration
}

func (p *pendingSelection) bytes() int {
	return 8*len(p.hashes) + len(p.id) + len(p.pool.model) + len(p.pool.group) + len(p.adapter) + len(p.session)
}

type pendingKey struct {
	pool pool
	id   string
}

// pendingSelections are the selections that may yet be reserved, oldest first.
type pendingSelections struct {
	limits PendingLimits

	mutex sync.Mutex
	byKey map[pendingKey]*list.Element // of *pendingSelection
	order list.List
	bytes int
}

func newPendingSelections(limits PendingLimits) *pendingSelections {
	return &pendingSelections{limits: limits, byKey: make(map[pendingKey]*list.Element)}
}

// add keeps a selection, in place of an older one with its id.
func (p *pendingSelections) add(selection *pendingSelection) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.sweepLocked(selection.made)
	key := pendingKey{selection.pool, selection.id}
	p.drop(p.byKey[key])
	p.byKey[key] = p.order.PushBack(selection)
	p.bytes += selection.bytes()
	for p.order.Len() > p.limits.Entries || p.bytes > p.limits.Bytes {
		p.drop(p.order.Front())
	}
}

// get returns the selection with the id; nil when there is none any more.
func (p *pendingSelections) get(name pool, id string, now time.Duration) *pendingSelection {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.sweepLocked(now)
	if at := p.byKey[pendingKey{name, id}]; at != nil {
		return at.Value.(*pendingSelection)
	}
	return nil
}

// remove drops a selection, unless a newer one has taken its place. With nil it drops whichever is there.
func (p *pendingSelections) remove(name pool, id string, only *pendingSelection) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if at := p.byKey[pendingKey{name, id}]; at != nil && (only == nil || at.Value == only) {
		p.drop(at)
	}
}

// sweep drops selections whose time is over.
func (p *pendingSelections) sweep(now time.Duration) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.sweepLocked(now)
}

func (p *pendingSelections) sweepLocked(now time.Duration) {
	for at := p.order.Front(); at != nil && now-at.Value.(*pendingSelection).made > p.limits.TTL; at = p.order.Front() {
		p.drop(at)
	}
}

func (p *pendingSelections) drop(at *list.Element) {
	if at == nil {
		return
	}
	selection := p.order.Remove(at).(*pendingSelection)
	delete(p.byKey, pendingKey{selection.pool, selection.id})
	p.bytes -= selection.bytes()
}
