package queue

import (
	"math"
	"time"

	"signalbox/inference"
)

// Order is how requests of one class are put in line.
type Order uint8

const (
	// FCFS serves by arrival; a second of priority stands for a second of waiting. It keeps the longest waits short.
	FCFS Order = iota
	// WSPT serves short work first, weighted by priority. It keeps the average wait short.
	WSPT
	// LCFS serves the newest first. Configuration refuses it.
	LCFS
)

// String returns the order's name in configuration.
func (o Order) String() string {
	switch o {
	case WSPT:
		return "wspt"
	case LCFS:
		return "lcfs"
	}
	return "fcfs"
}

// Lane is where a request of a class waits. The zero Lane is the one that all share.
type Lane struct {
	rank  inference.Rank
	exact bool
}

// Exact returns the lane of requests that only this rank may serve.
func Exact(rank inference.Rank) Lane { return Lane{rank: rank, exact: true} }

// Rank returns the rank of an exact lane.
func (l Lane) Rank() (rank inference.Rank, exact bool) { return l.rank, l.exact }

// Item is one request in line. What it says about the request stays as it was on arrival, whatever happens to caches meanwhile.
type Item struct {
	// Class indexes the queue's classes.
	Class int
	Lane  Lane
	// RawTokens is the prompt's length, CachedTokens the part of it that the best worker has cached.
	RawTokens, CachedTokens uint64
	// Arrival is when the request came, as time since the router's start.
	Arrival time.Duration
	// Jump is the request's priority: seconds of head start under [FCFS], weight under [WSPT]. Negative counts as 0.
	Jump float64
	// Strict is the tier; a higher one always goes first.
	Strict uint32
	// Value is the caller's own.
	Value any

	score    float64
	sequence uint64
	place    int // in its lane's heap
	queued   bool
}

// Cost is what a class pays for the request: its uncached tokens, at least 1.
func (i *Item) Cost() uint64 { return max(1, i.RawTokens-min(i.CachedTokens, i.RawTokens)) }

// Queued tells whether the request is in line.
func (i *Item) Queued() bool { return i.queued }

// rate computes the score by which the item is put in line; larger goes first.
func (i *Item) rate(order Order) {
	jump := i.Jump
	if !(jump > 0) { // also what is not a number
		jump = 0
	}
	arrival := max(0, i.Arrival.Seconds())
	switch order {
	case WSPT:
		i.score = (1 + jump) / float64(i.Cost())
	case LCFS:
		i.score = jump + arrival
	default:
		i.score = jump - arrival
	}
	if math.IsInf(i.score, 0) {
		i.score = math.MaxFloat64
	}
}

// before tells whether i goes before other.
func (i *Item) before(other *Item) bool {
	switch {
	case i.Strict != other.Strict:
		return i.Strict > other.Strict
	case i.score != other.score:
		return i.score > other.score
	}
	return i.sequence < other.sequence
}

// lane is a heap of items; the first is at 0.
type lane struct {
	name  Lane
	items []*Item
}

func (l *lane) push(item *Item) {
	item.place = len(l.items)
	l.items = append(l.items, item)
	l.up(item.place)
}

func (l *lane) remove(place int) {
	last := len(l.items) - 1
	moved := l.items[last]
	l.items[last] = nil
	l.items = l.items[:last]
	if place == last {
		return
	}
	l.items[place], moved.place = moved, place
	l.down(place)
	l.up(moved.place)
}

func (l *lane) up(place int) {
	for place > 0 {
		parent := (place - 1) / 2
		if !l.items[place].before(l.items[parent]) {
			return
		}
		l.swap(place, parent)
		place = parent
	}
}

func (l *lane) down(place int) {
	for {
		first := place
		for child := 2*place + 1; child <= 2*place+2 && child < len(l.items); child++ {
			if l.items[child].before(l.items[first]) {
				first = child
			}
		}
		if first == place {
			return
		}
		l.swap(place, first)
		place = first
	}
}

func (l *lane) swap(a, b int) {
	l.items[a], l.items[b] = l.items[b], l.items[a]
	l.items[a].place, l.items[b].place = a, b
}
