package load

import (
	"math"
	"math/bits"
	"time"
)

// prefill is a request's place among the prompts that a rank has yet to compute. tokens 0 means that it has none.
type prefill struct {
	tokens       uint64
	expected     time.Duration
	modelled     bool
	older, newer int32 // requests
}

// prefills are the prompts that a rank computes, in order of arrival.
type prefills struct {
	oldest, newest int32 // requests
	tokens         uint64
	count          int32
	unmodelled     int32
	anchor         time.Duration // since when the oldest is being computed
}

func (t *Tracker) startPrefill(at int32, booking Booking, now time.Duration) {
	r := &t.requests[at]
	queue := &t.ranks[r.rank].prefill
	r.prefill = prefill{tokens: booking.PrefillTokens, expected: booking.Expected, modelled: booking.Modelled, older: queue.newest, newer: none}
	if queue.newest != none {
		t.requests[queue.newest].prefill.newer = at
	} else {
		queue.oldest, queue.anchor = at, now
	}
	queue.newest = at
	queue.tokens += booking.PrefillTokens
	queue.count++
	if !booking.Modelled {
		queue.unmodelled++
	}
}

func (t *Tracker) endPrefill(at int32, now time.Duration) {
	r := &t.requests[at]
	ended := r.prefill
	if ended.tokens == 0 {
		return
	}
	r.prefill = prefill{}
	queue := &t.ranks[r.rank].prefill
	queue.tokens -= ended.tokens
	queue.count--
	if !ended.modelled {
		queue.unmodelled--
	}
	if ended.newer != none {
		t.requests[ended.newer].prefill.older = ended.older
	} else {
		queue.newest = ended.older
	}
	if ended.older != none {
		t.requests[ended.older].prefill.newer = ended.newer
		if ended.modelled {
			// What was computed of it meanwhile was computed instead of the oldest.
			queue.anchor = min(queue.anchor+ended.expected, now)
		}
		return
	}
	queue.oldest, queue.anchor = ended.newer, now
}

// activeTokens returns the prompt tokens that the rank has yet to compute at now.
func (t *Tracker) activeTokens(queue *prefills, now time.Duration) uint64 {
	if queue.count == 0 {
		return 0
	}
	oldest := &t.requests[queue.oldest].prefill
	elapsed := max(0, now-queue.anchor)
	if queue.unmodelled > 0 {
		left := oldest.tokens
		if oldest.modelled {
			left = remaining(oldest, elapsed)
		}
		return queue.tokens - oldest.tokens + left
	}
	done := progress(oldest, elapsed)
	if done >= queue.tokens {
		return 0
	}
	return queue.tokens - done
}

// remaining returns what is left of a single prefill, rounded up.
func remaining(p *prefill, elapsed time.Duration) uint64 {
	if elapsed >= p.expected {
		return 0
	}
	share := min(1, max(0, 1-elapsed.Seconds()/p.expected.Seconds()))
	return uint64(math.Ceil(float64(p.tokens) * share))
}

// progress returns how many tokens were computed at the oldest prefill's pace, rounded down; it may exceed its own tokens.
func progress(p *prefill, elapsed time.Duration) uint64 {
	if p.expected <= 0 {
		return p.tokens
	}
	high, low := bits.Mul64(p.tokens, uint64(elapsed))
	if high >= uint64(p.expected) {
		return math.MaxUint64
	}
	done, _ := bits.Div64(high, low, uint64(p.expected))
	return done
}
