package kv_test

import (
	"testing"
	"time"

	"signalbox/kvhash"
	"signalbox/router"
	"signalbox/router/kv"
)

// listener notes what an observer is told.
type listener struct {
	decided                 []kv.Steps
	firstTokens, handOvers  int
	longestSinceArrival     time.Duration
	reused, ended, produced int
}

func (l *listener) Decided(_ *router.Placement, steps *kv.Steps) {
	l.decided = append(l.decided, *steps)
}
func (l *listener) FirstToken(sinceArrival time.Duration) {
	l.firstTokens++
	l.longestSinceArrival = max(l.longestSinceArrival, sinceArrival)
}
func (l *listener) Transferred(latency time.Duration) {
	if latency < 0 {
		panic("a hand-over that took less than no time")
	}
	l.handOvers++
}
func (l *listener) Reused(tokens int)         { l.reused += tokens }
func (l *listener) OutputBlock(time.Duration) {}
func (l *listener) Ended(tokens int) {
	l.ended++
	l.produced += tokens
}

// Of a disaggregated request the prefill's pool hears of its first token and the decode's pool of the hand-over, too; the part of the
// prompt that was cached is that of the prefill on both.
func TestObserversHearOfBothLegs(t *testing.T) {
	var prefilled, decoded listener
	held := &shelf{}
	tokens := words(1, 5*blockSize)
	held.put(2, 0, locals(t, kvhash.Scope{BlockSize: blockSize}, tokens)[:3])
	prefill := newBench(t, numbered(2), func(o *kv.Options) { o.PrefillPool, o.Observer, o.Index = true, &prefilled, held })
	decode := newBench(t, numbered(2), func(o *kv.Options) { o.Observer = &decoded })

	arrived := time.Now().Add(-time.Hour)
	first := prefill.place(prefill.request(tokens), router.Attempt{Phase: router.Prefill, Received: arrived})
	untold := decode.place(decode.request(tokens), router.Attempt{Phase: router.Decode, Received: arrived, Prefill: first})
	untold.Progress(1) // the decode worker is faster than the news that the prefill ended
	untold.End(nil)
	first.Progress(1)
	first.Reused(12)
	first.End(nil)
	second := decode.place(decode.request(tokens), router.Attempt{Phase: router.Decode, Received: arrived, Prefill: first})
	second.Progress(2)
	second.Progress(3)
	second.End(nil)
	alone := decode.place(decode.request(tokens), router.Attempt{})
	alone.Progress(1)
	alone.End(nil)

	if prefilled.firstTokens != 1 || prefilled.handOvers != 0 || prefilled.reused != 12 || prefilled.produced != 1 {
		t.Errorf("the prefill's observer heard %+v", prefilled)
	}
	if decoded.firstTokens != 2 || decoded.handOvers != 2 || decoded.longestSinceArrival < time.Hour || decoded.ended != 3 || decoded.produced != 7 {
		t.Errorf("the decode's observer heard %+v", decoded)
	}
	if steps := prefilled.decided[0]; steps.HitRate != 0.6 || steps.SelectedCached != 12 || steps.BestCached != 12 {
		t.Errorf("the prefill's placement: %+v, want 3 of 5 blocks cached", steps)
	}
	if steps := decoded.decided[1]; steps.HitRate != 0.6 || steps.SelectedCached != 0 || steps.BestCached != 0 {
		t.Errorf("the decode's placement: %+v, want the prefill's part and nothing of its own", steps)
	}
	if steps := decoded.decided[2]; steps.HitRate != 0 {
		t.Errorf("a placement without prefill: %+v", steps)
	}
	if classes := decode.AppendClasses(nil); len(classes) != 1 || classes[0].Received != 3 {
		t.Errorf("classes %+v, want one that received 3", classes)
	}
}

// What the best rank has and what the chosen one has are different when the request is pinned elsewhere; the best is among the
// eligible ones only.
func TestObserversHearWhatWasGivenUp(t *testing.T) {
	var heard listener
	held := &shelf{}
	tokens := words(1, 5*blockSize+1)
	hashes := locals(t, kvhash.Scope{BlockSize: blockSize}, tokens)
	held.put(1, 0, hashes[:1])
	held.put(2, 0, hashes[:4])
	b := newBench(t, numbered(3), func(o *kv.Options) { o.Observer, o.Index = &heard, held })
	b.place(b.request(tokens), router.Attempt{Prefer: &router.Pin{WorkerID: 1}}).End(nil)
	b.place(b.request(tokens), router.Attempt{Tried: []uint64{2, 3}}).End(nil)
	if steps := heard.decided[0]; steps.SelectedCached != 4 || steps.BestCached != 16 {
		t.Errorf("%+v, want 4 of 16 cached tokens", steps)
	}
	if steps := heard.decided[1]; steps.SelectedCached != 4 || steps.BestCached != 4 {
		t.Errorf("%+v, want all of the 4 that are left", steps)
	}
}
