package kvindex

import "unsafe"

// predictions is a slab of predicted blocks, without pointers. Numbers start with 1.
type predictions struct {
	entries []prediction
	vacant  uint32 // linked through next
	live    int
	ranks   []*predictedRank
}

// prediction is one block of one rank.
type prediction struct {
	sequence       uint64
	due            int64 // in ticks, when it is forgotten; in ranks without a capacity
	rank           int32
	next, previous uint32
	references     uint32 // by leases; in ranks with a capacity
}

// queue is a list of predictions, the one to go first at its front.
type queue struct{ front, back uint32 }

// join gives a rank its number.
func (p *predictions) join(r *predictedRank) {
	for i, other := range p.ranks {
		if other == nil {
			r.id = int32(i)
			p.ranks[i] = r
			return
		}
	}
	r.id = int32(len(p.ranks))
	p.ranks = append(p.ranks, r)
}

// part takes it back.
func (p *predictions) part(r *predictedRank) { p.ranks[r.id] = nil }

// add makes an entry that is in no queue.
func (p *predictions) add(r *predictedRank, sequence uint64) uint32 {
	at := p.vacant
	if at != 0 {
		p.vacant = p.entries[at].next
	} else {
		if len(p.entries) == 0 {
			p.entries = append(p.entries, prediction{})
		}
		at = uint32(len(p.entries))
		p.entries = append(p.entries, prediction{})
	}
	p.entries[at] = prediction{sequence: sequence, rank: r.id}
	r.entries.insert(sequence, at)
	p.live++
	return at
}

// free gives up an entry that is in no queue.
func (p *predictions) free(at uint32) {
	p.entries[at] = prediction{next: p.vacant}
	p.vacant = at
	if p.live--; p.live == 0 {
		p.entries, p.vacant = nil, 0
	}
}

func (p *predictions) link(q *queue, at uint32) {
	e := &p.entries[at]
	e.previous, e.next = q.back, 0
	if q.back == 0 {
		q.front = at
	} else {
		p.entries[q.back].next = at
	}
	q.back = at
}

func (p *predictions) unlink(q *queue, at uint32) {
	e := &p.entries[at]
	if e.previous == 0 {
		q.front = e.next
	} else {
		p.entries[e.previous].next = e.next
	}
	if e.next == 0 {
		q.back = e.previous
	} else {
		p.entries[e.next].previous = e.previous
	}
	e.next, e.previous = 0, 0
}

func (p *predictions) bytes() int {
	return cap(p.entries)*int(unsafe.Sizeof(prediction{})) + cap(p.ranks)*8
}
