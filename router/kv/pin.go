package kv

import (
	"slices"

	"signalbox/inference"
	"signalbox/router"
)

// checkPin tells why a rank that was named cannot be taken, and completes a pin without rank. Overload is not looked at.
func checkPin(snapshot *router.Snapshot, conditions *router.Conditions, pin *router.Pin) error {
	index := snapshot.Find(pin.WorkerID)
	if index < 0 {
		return inference.Errorf(inference.InvalidArgument, "worker %d is not known", pin.WorkerID)
	}
	worker := &snapshot.Workers[index]
	start, end, known := worker.Ranks()
	if !pin.HasRank {
		if !known || end-start != 1 {
			return inference.Errorf(inference.Unroutable, "Pinned worker %d requires an explicit dp_rank because it has multiple or unknown DP ranks", pin.WorkerID)
		}
		pin.Rank, pin.HasRank = start, true
	}
	refuse := func(format string, args ...any) error {
		return inference.Errorf(inference.Unroutable, "Pinned worker %d dp_rank %d is not eligible: "+format, append([]any{pin.WorkerID, pin.Rank}, args...)...)
	}
	switch {
	case conditions.Allowed != nil && !slices.Contains(conditions.Allowed, pin.WorkerID):
		return refuse("worker %d is not in allowed worker set", pin.WorkerID)
	case snapshot.State(index).Down():
		return refuse("worker %d is unavailable", pin.WorkerID)
	case !known:
		return refuse("worker %d is not routable", pin.WorkerID)
	case !worker.Owns(pin.Rank):
		return refuse("worker %d dp_rank %d is outside [%d, %d)", pin.WorkerID, pin.Rank, start, end)
	case !worker.HasAllTaints(conditions.Required):
		return refuse("worker %d does not satisfy routing constraints", pin.WorkerID)
	}
	return nil
}
