package nvext

import (
	"slices"
	"strings"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// Extension is a request's nvext object.
type Extension struct {
	// Annotations are those that the frontend answers itself and those for the worker, in the client's order.
	Annotations []string
	ExtraFields []string
	UseRaw      bool
	TokenData   []uint32
	HasTokens   bool
}

var knownFields = []string{"greed_sampling", "use_raw_prompt", "annotations", "backend_instance_id", "token_data", "max_thinking_tokens",
	"cache_salt", "extra_fields", "metadata_upload", "prefill_worker_id", "decode_worker_id", "dp_rank", "prefill_dp_rank", "agent_hints",
	"request_timestamp_ms", "routing_constraints", "router"}

var knownHints = []string{"priority", "strict_priority", "osl", "speculative_prefill", "latency_sensitivity"}

// Parse reads the nvext member of a body and applies its routing to the request. With discard the object is only checked.
// The returned Extension is never nil.
func Parse(node jsontape.Node, r *inference.Request, discard bool) (*Extension, *problem.Problem) {
	extension := &Extension{}
	if !node.Present() {
		return extension, nil
	}
	target := r
	if discard {
		target = &inference.Request{}
	}
	f := body.NewFields(node, "nvext")
	checkKnown(f, node, knownFields)
	extension.Annotations = f.Strings("annotations")
	extension.ExtraFields = f.Strings("extra_fields")
	if raw := f.Bool("use_raw_prompt"); raw != nil {
		extension.UseRaw = *raw
	}
	if tokens := f.Node("token_data"); tokens.Exists() {
		extension.TokenData, extension.HasTokens = f.TokenIDs("token_data"), true
	}
	if greedy := f.Bool("greed_sampling"); greedy != nil && *greedy {
		zero := float32(0)
		target.Sampling.Temperature = &zero
	}
	target.Stop.MaxThinkingTokens = f.Uint32("max_thinking_tokens")
	routing := &target.Routing
	routing.BackendInstanceID = f.Uint64("backend_instance_id")
	routing.PrefillWorkerID = f.Uint64("prefill_worker_id")
	routing.DecodeWorkerID = f.Uint64("decode_worker_id")
	routing.DPRank = f.Uint32("dp_rank")
	routing.PrefillDPRank = f.Uint32("prefill_dp_rank")
	if salt := f.String("cache_salt"); salt != nil {
		routing.CacheSalt = *salt
	}
	target.RequestTimestamp = f.Float64("request_timestamp_ms")
	if f.Problem == nil {
		f.Problem = parseNested(node, target)
	}
	if f.Problem != nil {
		return nil, f.Problem
	}
	if discard {
		return &Extension{}, nil
	}
	target.Annotations = extension.Annotations
	routing.QueryOnly = slices.ContainsFunc(extension.Annotations, func(a string) bool { return strings.HasPrefix(a, "query_instance_id:") })
	return extension, nil
}

func parseNested(node jsontape.Node, target *inference.Request) *problem.Problem {
	routing := &target.Routing
	if hints := node.Get("agent_hints"); hints.Present() {
		f := body.NewFields(hints, "nvext.agent_hints")
		checkKnown(f, hints, knownHints)
		if sensitivity := f.Float64("latency_sensitivity"); sensitivity != nil {
			jump := max(0, *sensitivity)
			routing.PriorityJump = &jump
		}
		if priority := f.Int32("priority"); priority != nil {
			setPriority(routing, *priority)
		}
		routing.StrictPriority = f.Uint32("strict_priority")
		routing.ExpectedOutputTokens = f.Uint32("osl")
		f.Bool("speculative_prefill")
		if f.Problem != nil {
			return f.Problem
		}
	}
	if constraints := node.Get("routing_constraints"); constraints.Present() {
		f := body.NewFields(constraints, "nvext.routing_constraints")
		routing.RequiredTaints = f.Strings("required_taints")
		if preferred := f.Node("preferred_taints"); preferred.Exists() {
			weights := body.NewFields(preferred, "nvext.routing_constraints.preferred_taints")
			routing.PreferredTaints = make(map[string]float32, preferred.Len())
			for taint, weight := range preferred.Members {
				value, ok := weight.Float()
				if !ok && weight.Present() {
					weights.Fail(taint, "invalid type: %s, expected f32", weight.Kind())
				}
				if ok {
					routing.PreferredTaints[taint] = float32(value)
				}
			}
			if weights.Problem != nil {
				return weights.Problem
			}
		}
		if f.Problem != nil {
			return f.Problem
		}
	}
	if targets := node.Get("router"); targets.Present() {
		f := body.NewFields(targets, "nvext.router")
		target.TTFTTarget = f.Float64("ttft_target")
		target.ITLTarget = f.Float64("itl_target")
		return f.Problem
	}
	return nil
}

func checkKnown(f *body.Fields, node jsontape.Node, known []string) {
	for name := range node.Members {
		if !slices.Contains(known, name) {
			f.Fail(name, "unknown field `%s`, expected one of `%s`", name, strings.Join(known, "`, `"))
			return
		}
	}
}

// Wants tells whether the client asked for the response field.
func (e *Extension) Wants(field string) bool { return slices.Contains(e.ExtraFields, field) }

// Asks tells whether the client asked for the annotation.
func (e *Extension) Asks(annotation string) bool { return slices.Contains(e.Annotations, annotation) }

// Extras translates the response fields into the bookkeeping that the pipeline must do.
func (e *Extension) Extras() pipeline.Extras {
	return pipeline.Extras{
		CompletionTokenIDs: e.Wants("completion_token_ids"),
		PromptTokenIDs:     e.Wants("prompt_token_ids"),
		WorkerID:           e.Wants("worker_id"),
		Timing:             e.Wants("timing"),
		StopReason:         e.Wants("stop_reason"),
		EngineData:         e.Wants("engine_data"),
	}
}
