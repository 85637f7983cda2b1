package kv

import (
	"time"

	"signalbox/kvindex"
)

// Index knows which ranks hold how much of a prompt; *[kvindex.Index] is one. It is safe for concurrent use, and look-ups do not
// wait for changes. It may know ranks that have left or are not there yet.
type Index interface {
	// Find replaces the content of matches by what every rank holds of the prompt. A rank appears at most once.
	Find(matches *kvindex.Matches, query kvindex.Query)
}

// Holder is a recorder that also follows requests to their end, and what they generate on the way; *[kvindex.LRU] is one.
type Holder interface {
	Recorder
	// Hold is Record for a request whose end the hold is told. nil means that nothing more is to be told.
	Hold(rank kvindex.Rank, locals, sequence []uint64, now time.Duration) *kvindex.Hold
}

// Recorder learns from placements what workers will hold; *[kvindex.Predicted] is one.
type Recorder interface {
	// Record tells that the rank is about to compute the prompt, at a reading of the pool's clock. It must not keep the slices.
	Record(rank kvindex.Rank, locals, sequence []uint64, now time.Duration)
}
