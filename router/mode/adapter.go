package mode

import (
	"slices"

	"signalbox/inference"
	"signalbox/router"
)

// chooseForAdapter places a request for a LoRA adapter on one of the workers that may serve it.
func (r *Router) chooseForAdapter(snapshot *router.Snapshot, request *inference.Request, attempt router.Attempt, ids []uint64) (choice, error) {
	adapter := request.Routing.LoRAName
	inside := func(index int32) bool { return slices.Contains(ids, snapshot.Workers[index].ID) }
	candidates := keep(snapshot.Free(), inside)
	if len(candidates) == 0 {
		if slices.ContainsFunc(snapshot.Routable(), inside) {
			return choice{}, inference.Errorf(inference.ResourceExhausted, "All eligible LoRA workers are overloaded (lora=%s)", adapter)
		}
		return choice{}, inference.Errorf(inference.Unavailable, "No workers available after LoRA filtering (lora=%s)", adapter)
	}
	if untried := keep(candidates, func(index int32) bool { return !slices.Contains(attempt.Tried, snapshot.Workers[index].ID) }); len(untried) > 0 {
		candidates = untried
	}
	if r.mode == Random {
		return r.draw(snapshot, request, attempt, candidates), nil
	}
	index := candidates[turn(&r.adapterCursor, len(candidates), request.Routing.QueryOnly)]
	return choice{index: index, pin: router.Pin{WorkerID: snapshot.Workers[index].ID}, among: candidates, reason: "next in turn with the adapter"}, nil
}
