package frontend

import (
	"maps"
	"slices"

	"signalbox/inference"
	"signalbox/router"
)

// constrainTransfer makes a request's decode worker one that the prefill worker can hand its KV cache to, as the prefill worker says: in
// the same value of its transfer domain, required or preferred. A worker that names no domain constrains nothing; one whose rule is
// incomplete fails the request, before anything is computed.
func (s *server) constrainTransfer(workerID uint64, decode *inference.Request) error {
	snapshot := s.pool.Snapshot()
	index := snapshot.Find(workerID)
	if index < 0 {
		// It has just gone. What it would have said is not known: only where nobody requires anything does that not matter.
		for i := range snapshot.Workers {
			if snapshot.Workers[i].Topology.Enforcement == "required" {
				return inference.Errorf(inference.Unavailable, "prefill worker %d is gone, and with it where its KV cache may be transferred to", workerID)
			}
		}
		return nil
	}
	topology := &snapshot.Workers[index].Topology
	if topology.TransferDomain == "" {
		return nil
	}
	value, has := topology.Domains[topology.TransferDomain]
	if !has {
		return inference.Errorf(inference.Unavailable, "prefill worker %d has kv_transfer_domain %q and no value for it in topology_domains", workerID, topology.TransferDomain)
	}
	taint, routing := router.TopologyTaint(topology.TransferDomain, value), &decode.Routing
	switch topology.Enforcement {
	case "required":
		if !slices.Contains(routing.RequiredTaints, taint) {
			routing.RequiredTaints = append(slices.Clone(routing.RequiredTaints), taint) // the client's list is needed for another try
		}
	case "preferred":
		if topology.PreferredWeight == nil {
			return inference.Errorf(inference.Unavailable, "prefill worker %d prefers its kv_transfer_domain %q and names no kv_transfer_preferred_weight", workerID, topology.TransferDomain)
		}
		weights := maps.Clone(routing.PreferredTaints)
		if weights == nil {
			weights = make(map[string]float32, 1)
		}
		weights[taint] = *topology.PreferredWeight
		routing.PreferredTaints = weights
	default:
		return inference.Errorf(inference.Unavailable, "prefill worker %d has kv_transfer_domain %q and kv_transfer_enforcement %q; want required or preferred", workerID, topology.TransferDomain, topology.Enforcement)
	}
	return nil
}
