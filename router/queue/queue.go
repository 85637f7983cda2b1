package queue

import (
	"math/bits"

	"signalbox/inference"
	"signalbox/router"
)

// Class is one line of requests with its share of the service.
type Class struct {
	Name  string
	Order Order
	// Quantum is what the class may spend per round, in uncached tokens; at least 1. Classes that always have somebody waiting are
	// served in proportion to their quanta.
	Quantum uint64
	Limits  Limits
}

// Limits bound what may wait in a class, for each worker that is discovered; nil is no limit.
type Limits struct {
	Requests     *uint64
	RawTokens    *uint64
	CachedTokens *uint64
}

// Stats are what waits in a class.
type Stats struct {
	Requests, RawTokens, CachedTokens uint64
	// Deficit is the credit that the class has left, in uncached tokens.
	Deficit uint64
}

// MaxItems bounds how many requests may wait in all classes of one queue together, whatever the classes' own limits allow.
const MaxItems = 1 << 16

// Queue is the waiting requests of one pool.
type Queue struct {
	classes  []class
	workers  uint64
	length   int
	sequence uint64
	cursor   int // the class whose turn it is
	carry    int // the class that may go on spending; -1 for none
}

type class struct {
	Class
	stats  Stats
	shared lane
	exact  []*lane
	byRank map[inference.Rank]*lane
	// candidate is the item that the class would send next; valid during one Pop.
	candidate *Item
}

// New returns a queue of the classes, for no workers yet.
func New(classes []Class) *Queue {
	q := &Queue{carry: -1, classes: make([]class, len(classes))}
	for i := range classes {
		q.classes[i].Class = classes[i]
		q.classes[i].Quantum = max(1, classes[i].Quantum)
	}
	return q
}

// SetWorkers tells how many workers are discovered; limits scale with them. Nobody who waits is sent away when there are fewer.
func (q *Queue) SetWorkers(count int) { q.workers = uint64(max(0, count)) }

// Len returns how many requests wait.
func (q *Queue) Len() int { return q.length }

// Classes returns the number of classes.
func (q *Queue) Classes() int { return len(q.classes) }

// Name returns a class's name.
func (q *Queue) Name(class int) string { return q.classes[class].Name }

// Waiting returns how many requests wait in a class.
func (q *Queue) Waiting(class int) uint64 { return q.classes[class].stats.Requests }

// Stats returns what waits in a class.
func (q *Queue) Stats(class int) Stats { return q.classes[class].stats }

// Add puts a request in line. A class that is full refuses it with a *[router.QueueLimitError] and changes nothing. Usage is looked
// at before the request is added, so that the one that crosses a limit still gets in.
func (q *Queue) Add(item *Item) error {
	c := &q.classes[item.Class]
	for _, limit := range []struct {
		kind      router.LimitKind
		perWorker *uint64
		current   uint64
	}{
		{router.LimitRequests, c.Limits.Requests, c.stats.Requests},
		{router.LimitRawISLTokens, c.Limits.RawTokens, c.stats.RawTokens},
		{router.LimitCachedTokens, c.Limits.CachedTokens, c.stats.CachedTokens},
	} {
		if limit.perWorker == nil {
			continue
		}
		if total := multiply(*limit.perWorker, q.workers); limit.current >= total {
			return &router.QueueLimitError{PolicyClass: c.Name, LimitKind: limit.kind, Current: limit.current, Limit: total}
		}
	}
	if q.length >= MaxItems {
		return &router.QueueLimitError{PolicyClass: c.Name, LimitKind: router.LimitRequests, Current: uint64(q.length), Limit: MaxItems}
	}
	q.sequence++
	item.sequence, item.queued = q.sequence, true
	item.rate(c.Order)
	c.lane(item.Lane).push(item)
	c.stats.Requests++
	c.stats.RawTokens += item.RawTokens
	c.stats.CachedTokens += min(item.CachedTokens, item.RawTokens)
	q.length++
	return nil
}

// lane returns the lane of that name, making it if need be.
func (c *class) lane(name Lane) *lane {
	if !name.exact {
		return &c.shared
	}
	if there := c.byRank[name.rank]; there != nil {
		return there
	}
	if c.byRank == nil {
		c.byRank = make(map[inference.Rank]*lane)
	}
	added := &lane{name: name}
	c.byRank[name.rank] = added
	c.exact = append(c.exact, added)
	return added
}

// Remove takes a request out of line, wherever it stands; first tells whether it was at the head of its lane, so that another one may
// be able to go now. A request that is not in line is left alone.
func (q *Queue) Remove(item *Item) (first bool) {
	if !item.queued {
		return false
	}
	first = item.place == 0
	q.take(item)
	return first
}

// take removes an item that is in line and settles its class's counters.
func (q *Queue) take(item *Item) {
	c := &q.classes[item.Class]
	there := c.lane(item.Lane)
	there.remove(item.place)
	item.queued = false
	if there.name.exact && len(there.items) == 0 {
		delete(c.byRank, there.name.rank)
		for i, other := range c.exact {
			if other == there {
				last := len(c.exact) - 1
				c.exact[i] = c.exact[last]
				c.exact[last] = nil
				c.exact = c.exact[:last]
				break
			}
		}
	}
	c.stats.Requests--
	c.stats.RawTokens -= item.RawTokens
	c.stats.CachedTokens -= min(item.CachedTokens, item.RawTokens)
	if c.stats.Requests == 0 {
		c.stats.Deficit = 0
	}
	q.length--
}

// Clear takes everybody out of line and calls each.
func (q *Queue) Clear(each func(*Item)) {
	for i := range q.classes {
		c := &q.classes[i]
		for len(c.exact) > 0 {
			item := c.exact[0].items[0]
			q.take(item)
			each(item)
		}
		for len(c.shared.items) > 0 {
			item := c.shared.items[len(c.shared.items)-1]
			q.take(item)
			each(item)
		}
	}
	q.carry = -1
}

// Pop takes the next request out of line, or returns nil when none can go. blocked tells that a lane's first request cannot go now;
// it is asked at most once per lane.
func (q *Queue) Pop(blocked func(*Item) bool) *Item {
	if q.length == 0 {
		return nil
	}
	any := false
	for i := range q.classes {
		c := &q.classes[i]
		c.nominate(blocked)
		any = any || c.candidate != nil
	}
	if !any {
		// Nothing has changed: whoever was spending goes on when there is room again. Otherwise shares would shrink to turns where
		// requests go one at a time.
		return nil
	}
	carry := q.carry
	q.carry = -1
	if carry >= 0 {
		if c := &q.classes[carry]; c.affords() {
			return q.serve(carry)
		}
	}
	for turn := range q.classes {
		at := (q.cursor + turn) % len(q.classes)
		c := &q.classes[at]
		if c.candidate == nil {
			continue // blocked: it keeps its credit and earns none
		}
		if c.affords() {
			return q.serve(at)
		}
		c.earn(1)
		if c.affords() {
			return q.serve(at)
		}
	}
	return q.serveInBulk()
}

// serveInBulk passes at once the rounds that it takes until a class can afford its request.
func (q *Queue) serveInBulk() *Item {
	rounds := ^uint64(0)
	for i := range q.classes {
		if c := &q.classes[i]; c.candidate != nil {
			missing := c.candidate.Cost() - c.stats.Deficit
			rounds = min(rounds, (missing-1)/c.Quantum+1)
		}
	}
	for i := range q.classes {
		if c := &q.classes[i]; c.candidate != nil {
			c.earn(rounds)
		}
	}
	for turn := range q.classes {
		at := (q.cursor + turn) % len(q.classes)
		if q.classes[at].affords() {
			return q.serve(at)
		}
	}
	return nil // cannot be: the rounds were enough for one of them
}

// nominate finds the best of the lanes' first requests that can go.
func (c *class) nominate(blocked func(*Item) bool) {
	c.candidate = nil
	if c.stats.Requests == 0 {
		return
	}
	if len(c.shared.items) > 0 {
		if first := c.shared.items[0]; !blocked(first) {
			c.candidate = first
		}
	}
	for _, there := range c.exact {
		if first := there.items[0]; (c.candidate == nil || first.before(c.candidate)) && !blocked(first) {
			c.candidate = first
		}
	}
}

func (c *class) affords() bool { return c.candidate != nil && c.candidate.Cost() <= c.stats.Deficit }

func (c *class) earn(rounds uint64) {
	sum, carry := bits.Add64(c.stats.Deficit, multiply(rounds, c.Quantum), 0)
	if carry != 0 {
		sum = ^uint64(0)
	}
	c.stats.Deficit = sum
}

// serve takes a class's candidate, which it can afford.
func (q *Queue) serve(at int) *Item {
	c := &q.classes[at]
	item := c.candidate
	c.candidate = nil
	q.cursor = (at + 1) % len(q.classes)
	c.stats.Deficit -= item.Cost()
	q.take(item)
	if c.stats.Deficit > 0 {
		q.carry = at
	}
	return item
}

// multiply saturates.
func multiply(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high != 0 {
		return ^uint64(0)
	}
	return low
}
