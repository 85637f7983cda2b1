package router

import (
	"cmp"
	"slices"
)

// Worker is one registered instance as routing sees it. Numbers that the worker did not publish are zero.
type Worker struct {
	ID uint64
	// DeviceType is "cpu" for a worker without accelerator; anything else counts as one with.
	DeviceType string
	// The worker owns the ranks [DataParallelStart, DataParallelStart+DataParallelSize). Size 0 counts as 1 unless RanksUnknown.
	DataParallelStart uint32
	DataParallelSize  uint32
	// RanksUnknown marks a worker that has not published its runtime configuration yet: cache-aware routing waits for it.
	RanksUnknown bool
	// TotalKVBlocks is the KV capacity of each rank in blocks, MaxNumBatchedTokens the tokens that a rank computes per step.
	TotalKVBlocks       uint64
	MaxNumBatchedTokens uint64
	// Taints are labels that requests can require or prefer, topology among them.
	Taints []string
	// Topology is what the worker says about where its KV cache may be transferred to.
	Topology Topology
}

// Topology is a worker's place and its rule for KV transfers that start at it.
type Topology struct {
	// Domains maps a domain ("zone") to the worker's value in it. Every entry is also a taint, see [TopologyTaint].
	Domains map[string]string
	// TransferDomain is the domain that a transfer should stay within; "" for none.
	TransferDomain string
	// Enforcement is "required", "preferred" or "".
	Enforcement string
	// PreferredWeight is 0 to 1 with "preferred", else nil.
	PreferredWeight *float32
}

// TopologyTaint returns the taint that stands for a value in a topology domain.
func TopologyTaint(domain, value string) string { return "dynamo.topology/" + domain + "=" + value }

// Ranks returns the half-open range of ranks that the worker owns, and whether it is known.
func (w *Worker) Ranks() (start, end uint32, known bool) {
	if w.RanksUnknown {
		return 0, 0, false
	}
	return w.DataParallelStart, w.DataParallelStart + max(1, w.DataParallelSize), true
}

// Owns tells whether rank is one of the worker's.
func (w *Worker) Owns(rank uint32) bool {
	start, end, known := w.Ranks()
	return known && start <= rank && rank < end
}

// HasTaint tells whether the worker carries the taint, its topology included.
func (w *Worker) HasTaint(taint string) bool {
	if slices.Contains(w.Taints, taint) {
		return true
	}
	for domain, value := range w.Topology.Domains {
		if len(taint) == len("dynamo.topology/=")+len(domain)+len(value) && taint == TopologyTaint(domain, value) {
			return true
		}
	}
	return false
}

// HasAllTaints tells whether the worker carries every one of required.
func (w *Worker) HasAllTaints(required []string) bool {
	for _, taint := range required {
		if !w.HasTaint(taint) {
			return false
		}
	}
	return true
}

// WeightedTaint is a taint that a request would like its worker to carry.
type WeightedTaint struct {
	Taint  string
	Weight float64
}

// AppendPreferred appends a request's preferred taints in a fixed order, so that sums of weights do not depend on chance.
func AppendPreferred(list []WeightedTaint, preferred map[string]float32) []WeightedTaint {
	for taint, weight := range preferred {
		list = append(list, WeightedTaint{Taint: taint, Weight: float64(weight)})
	}
	slices.SortFunc(list, func(a, b WeightedTaint) int { return cmp.Compare(a.Taint, b.Taint) })
	return list
}

// TaintWeight sums the weights of the preferred taints that the worker carries.
func (w *Worker) TaintWeight(preferred []WeightedTaint) float64 {
	sum := 0.0
	for _, taint := range preferred {
		if w.HasTaint(taint.Taint) {
			sum += taint.Weight
		}
	}
	return sum
}
