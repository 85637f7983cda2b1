package router

import "signalbox/inference"

// unsetRank is how clients spell "no rank" where a number is required.
const unsetRank = 1<<32 - 1

// Pinned returns the rank that the client asked for in a phase. pinned tells whether a worker was named; a rank without a
// worker comes back with pinned false and HasRank true.
func Pinned(routing *inference.Routing, phase Phase) (pin Pin, pinned bool) {
	worker, rank := routing.DecodeWorkerID, routing.DPRank
	if phase == Prefill {
		worker = routing.PrefillWorkerID
		if routing.PrefillDPRank != nil && *routing.PrefillDPRank != unsetRank {
			rank = routing.PrefillDPRank
		}
	}
	if worker == nil {
		worker = routing.BackendInstanceID
	}
	if rank != nil && *rank != unsetRank {
		pin.Rank, pin.HasRank = *rank, true
	}
	if worker == nil {
		return pin, false
	}
	pin.WorkerID = *worker
	return pin, true
}
