package kv

import (
	"signalbox/inference"
	"signalbox/router/cost"
)

// Held is what one rank holds of a prompt.
type Held struct {
	Rank    inference.Rank
	Overlap cost.Overlap
}

// Index knows which ranks hold how much of a prompt. It is safe for concurrent use, and look-ups do not wait for changes.
type Index interface {
	// Find appends a row for every rank that holds at least one block of the prompt with the given local block hashes, in any
	// order. A rank appears once.
	Find(rows []Held, locals []uint64) []Held
	// RemoveWorker forgets what the worker holds on all its ranks.
	RemoveWorker(workerID uint64)
}

// Recorder is an index that learns from routing decisions what workers will hold.
type Recorder interface {
	Index
	// Record tells that the rank is about to compute the prompt. It must not keep the slices.
	Record(rank inference.Rank, locals, sequence []uint64)
}
