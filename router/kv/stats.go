package kv

import (
	"slices"

	"signalbox/inference"
	"signalbox/router/load"
)

// Stats are a router's numbers at one moment.
type Stats struct {
	// ActiveRequests are booked and not ended; Expired were forgotten because their end was lost.
	ActiveRequests int
	Expired        uint64
	// Unpredicted counts the requests whose prefill could not be estimated: they count in full until their first token.
	Unpredicted uint64
	// BlockRecords are the blocks that active requests hold, counted per rank; BlockIdentities the different ones among them.
	BlockRecords, BlockIdentities int
}

// Stats returns the router's numbers.
func (r *Router) Stats() Stats {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	records, identities := r.tracker.Blocks()
	return Stats{ActiveRequests: r.tracker.Live(), Expired: r.expired, Unpredicted: r.unpredicted, BlockRecords: records, BlockIdentities: identities}
}

// RankLoad is what one rank is doing.
type RankLoad struct {
	Rank inference.Rank
	load.Projection
}

// AppendLoads appends the load of every rank, in no particular order.
func (r *Router) AppendLoads(list []RankLoad) []RankLoad {
	now := r.clock.Now()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var view load.View
	r.tracker.Project(&view, nil, now)
	r.tracker.Ranks(func(row int32, rank inference.Rank) bool {
		list = append(list, RankLoad{Rank: rank, Projection: view.At(row)})
		return true
	})
	return list
}

// allowed tells whether a worker is in a set of which nil is everybody.
func allowed(set []uint64, workerID uint64) bool { return set == nil || slices.Contains(set, workerID) }
