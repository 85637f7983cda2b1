package router

// Decision explains one choice: everybody who could have been chosen, what they were worth, and why one of them was.
type Decision struct {
	Mode string `json:"mode"`
	// Phase is the leg of a disaggregated request; "" for one that a single worker serves.
	Phase string `json:"phase,omitempty"`
	// Policy is the worker-selection policy that ranked the candidates; "" in modes without.
	Policy string `json:"policy,omitempty"`
	// Reason is why the winner won, in words: "lowest cost", "tie of 3", "pinned", "next in turn", …
	Reason string `json:"reason"`

	InputTokens   int     `json:"isl_tokens"`
	RequestBlocks int     `json:"request_blocks,omitempty"`
	Temperature   float64 `json:"temperature,omitempty"`
	// PolicyClass is the queue class, QueuedSeconds the time waited in it.
	PolicyClass   string  `json:"policy_class,omitempty"`
	QueuedSeconds float64 `json:"queued_seconds,omitempty"`

	Candidates []Candidate `json:"candidates"`
	// Winner indexes Candidates; -1 when nobody was chosen.
	Winner int `json:"winner"`
	// Excluded lists workers that were not considered, with the reason.
	Excluded []Exclusion `json:"excluded,omitempty"`
}

// SetPhase notes the leg that the decision is about.
func (d *Decision) SetPhase(phase Phase) {
	if phase != Aggregated {
		d.Phase = phase.String()
	}
}

// Candidate is one rank that could have been chosen. Blocks and costs are in KV blocks, zero in modes that know none.
type Candidate struct {
	WorkerID uint64 `json:"worker_id"`
	Rank     uint32 `json:"dp_rank"`
	// Load is the requests in flight that counting modes compare.
	Load int `json:"load,omitempty"`

	DeviceBlocks float64 `json:"device_blocks"`
	HostBlocks   float64 `json:"host_blocks"`
	DiskBlocks   float64 `json:"disk_blocks"`
	SharedBlocks float64 `json:"shared_blocks,omitempty"`
	CachedTokens int     `json:"cached_tokens"`

	ActivePrefillTokens    uint64 `json:"active_prefill_tokens"`
	ActiveDecodeBlocks     uint64 `json:"active_decode_blocks"`
	AdditionalActiveBlocks uint64 `json:"additional_active_blocks"`
	ActiveRequests         uint64 `json:"active_requests"`

	// The terms of the cost: prefill is already scaled and credited; Credit is what was taken off.
	PrefillCost     float64 `json:"prefill_cost"`
	Credit          float64 `json:"credit"`
	DecodeCost      float64 `json:"decode_cost"`
	RequestCost     float64 `json:"request_cost"`
	TaintMultiplier float64 `json:"taint_multiplier"`
	Cost            float64 `json:"cost"`
	// Probability is the chance that sampling had of choosing this candidate; 0 without sampling.
	Probability float64 `json:"probability,omitempty"`
}

// Exclusion is a worker that was passed over before costs were looked at.
type Exclusion struct {
	WorkerID uint64 `json:"worker_id"`
	Reason   string `json:"reason"`
}
