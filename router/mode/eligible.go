package mode

import (
	"slices"

	"signalbox/inference"
	"signalbox/router"
)

// eligible narrows the free workers to those that the request may go to. A request without conditions gets the snapshot's own
// list, without a copy.
func eligible(snapshot *router.Snapshot, request *inference.Request, attempt router.Attempt) ([]int32, error) {
	routing := &request.Routing
	candidates := snapshot.Free()
	if routing.AllowedWorkerIDs != nil || len(routing.RequiredTaints) > 0 {
		meets := func(index int32) bool {
			worker := &snapshot.Workers[index]
			return (routing.AllowedWorkerIDs == nil || slices.Contains(routing.AllowedWorkerIDs, worker.ID)) &&
				worker.HasAllTaints(routing.RequiredTaints)
		}
		candidates = keep(candidates, meets)
		if len(candidates) == 0 {
			if slices.ContainsFunc(snapshot.Routable(), meets) {
				return nil, router.AllEligibleOverloaded()
			}
			return nil, router.NoEndpoints()
		}
	}
	if len(attempt.Tried) > 0 {
		untried := keep(candidates, func(index int32) bool { return !slices.Contains(attempt.Tried, snapshot.Workers[index].ID) })
		if len(untried) == 0 {
			return nil, router.NoneUntried(attempt.LastError)
		}
		candidates = untried
	}
	if len(routing.PreferredTaints) > 0 {
		candidates = preferred(snapshot, candidates, router.AppendPreferred(nil, routing.PreferredTaints))
	}
	return candidates, nil
}

// preferred returns the candidates with the greatest weight of preferred taints. Modes that know no cost cannot weigh a
// preference against anything, so that it decides as long as a free worker satisfies it.
func preferred(snapshot *router.Snapshot, candidates []int32, weights []router.WeightedTaint) []int32 {
	var best []int32
	greatest := 0.0
	for _, index := range candidates {
		sum := snapshot.Workers[index].TaintWeight(weights)
		switch {
		case best == nil || sum > greatest:
			best, greatest = append(best[:0], index), sum
		case sum == greatest:
			best = append(best, index)
		}
	}
	return best
}

// keep returns the candidates that pass, in order, in a slice of its own.
func keep(candidates []int32, pass func(int32) bool) []int32 {
	kept := make([]int32, 0, len(candidates))
	for _, candidate := range candidates {
		if pass(candidate) {
			kept = append(kept, candidate)
		}
	}
	return kept
}
