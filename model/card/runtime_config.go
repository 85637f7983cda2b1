package card

import "encoding/json"

// RuntimeConfig is what the running engine tells about itself.
type RuntimeConfig struct {
	// ContextLength is the engine's limit in tokens.
	ContextLength *uint32 `json:"context_length"`
	// TotalBlocks is the number of KV-cache blocks of each data-parallel rank.
	TotalBlocks *uint64 `json:"total_kv_blocks"`
	// MaxSequences is how many requests run at a time.
	MaxSequences *uint64 `json:"max_num_seqs"`
	// MaxBatchedTokens is how many tokens one engine step handles.
	MaxBatchedTokens *uint64 `json:"max_num_batched_tokens"`

	// ToolCallParser and ReasoningParser name the parsers that the frontend runs on the output; "" is none.
	ToolCallParser  *string `json:"tool_call_parser"`
	ReasoningParser *string `json:"reasoning_parser"`
	// ToolCallArguments is the form in which past tool calls enter the template: "json_string" or "json_object".
	ToolCallArguments string `json:"tool_call_arguments_format"`

	// TokenizerBackend is "default", "fastokens" or another name; nil leaves it to the frontend.
	TokenizerBackend  *string `json:"tokenizer_backend,omitempty"`
	TokenizerFallback *bool   `json:"tokenizer_fallback_enabled,omitempty"`

	// The way in which tool calls are made to follow their schema.
	StructuralTagMode   string          `json:"structural_tag_mode"`
	StructuralTagScope  string          `json:"structural_tag_scope"`
	StructuralTagSchema string          `json:"structural_tag_schema"`
	StructuralTag       json.RawMessage `json:"structural_tag,omitempty"`
	// ExcludeTools leaves the tools out of the prompt when the client forbids to call any.
	ExcludeTools bool `json:"exclude_tools_when_tool_choice_none"`

	// The worker's data-parallel ranks are RankStart … RankStart+Ranks-1.
	RankStart uint32 `json:"data_parallel_start_rank"`
	Ranks     uint32 `json:"data_parallel_size"`

	// LocalIndexer says that the worker answers queries for KV-cache events that were missed.
	LocalIndexer bool `json:"enable_local_indexer"`
	// PublishesEvents says whether the worker publishes KV-cache events; nil is a worker that is too old to tell.
	PublishesEvents *bool `json:"kv_event_publishing_enabled,omitempty"`
	// EventSourceMode is "framework_v1" or "state_agent_v2"; with an unknown value the worker can't be routed to by KV cache.
	EventSourceMode *string `json:"kv_event_source_mode,omitempty"`
	// EventEndpoint is where the worker's KV-cache events are published, if not at its own endpoint.
	EventEndpoint *Endpoint `json:"kv_state_endpoint,omitempty"`

	// RuntimeData is the engine's own.
	RuntimeData map[string]json.RawMessage `json:"runtime_data,omitzero"`
	// Bootstrap is the address at which a prefill worker hands its KV cache over.
	Bootstrap *Bootstrap `json:"disaggregated_endpoint,omitempty"`
	// Eagle says that blocks are hashed for speculative decoding.
	Eagle bool `json:"enable_eagle"`

	// Taints limit which requests are routed here.
	Taints          []string `json:"taints,omitempty"`
	StableRoutingID *string  `json:"stable_routing_id,omitempty"`

	// Where the worker stands in the topology, and how much a transfer of KV cache has to respect it.
	TopologyDomains         map[string]string `json:"topology_domains,omitempty"`
	TransferDomain          *string           `json:"kv_transfer_domain,omitempty"`
	TransferEnforcement     *string           `json:"kv_transfer_enforcement,omitempty"`
	TransferPreferredWeight *float64          `json:"kv_transfer_preferred_weight,omitempty"`

	MaxGPULoRACount *uint32 `json:"max_gpu_lora_count,omitempty"`
}

// Endpoint names an endpoint of the fleet.
type Endpoint struct {
	Namespace string `json:"namespace"`
	Component string `json:"component"`
	Name      string `json:"name"`
}

// Bootstrap is an address; either part may be missing.
type Bootstrap struct {
	Host *string `json:"bootstrap_host,omitempty"`
	Port *uint16 `json:"bootstrap_port,omitempty"`
}

// DefaultRuntimeConfig is what holds for members that a card leaves out.
func DefaultRuntimeConfig() RuntimeConfig {
	return RuntimeConfig{
		ToolCallArguments:   "json_string",
		StructuralTagMode:   "off",
		StructuralTagScope:  "auto",
		StructuralTagSchema: "auto",
		ExcludeTools:        true,
		Ranks:               1,
		LocalIndexer:        true,
	}
}
