package postprocess

import (
	"strings"

	"signalbox/postprocess/reasoning"
	"signalbox/postprocess/toolcall"
)

// TagPolicy is what a worker says about structural tags, by which its engine holds a model to calls in the model's own markup.
type TagPolicy struct {
	// On asks for tags.
	On bool
	// Always has a tag for every request with tools; else one that leaves the choice to the model has it only if a tool is strict or one
	// call is the limit.
	Always bool
	// Strict holds calls to the schema even of tools that say strict: false.
	Strict bool
	// BansCalls has a tag for requests that forbid calls, too: their prompts show the tools nevertheless.
	BansCalls bool
	// EngineReasons tells that the engine lets reasoning pass before its grammar begins.
	EngineReasons bool

	// The following hold with the second generation of parsers, for formats that have tags of their own there.

	// AllowsSpecial lets text beside calls hold the format's marks.
	AllowsSpecial bool
	// AnyOrder lets arguments stand in any order.
	AnyOrder bool
	// WithAnswers holds requests that ask for JSON answers to calls or such an answer.
	WithAnswers bool
}

// CallTag returns the structural tag of a request, nil for none. native tells that the calls of a request that forces them are in the
// model's own markup, with a tag or without; else they are to be JSON. The error tells why markup cannot be held to the tools' schemas
// where JSON cannot stand for it either.
func (p Parsers) CallTag(policy TagPolicy, r Request) (tag []byte, native bool, err error) {
	p = p.effective()
	forced := r.ForcesCalls()
	always := forced && toolcall.AlwaysStructured(p.Tool, r.Choice == Named)
	neverJSON := forced && isKimiK3(p.Tool)
	if !policy.On && !always || len(r.Tools) == 0 {
		return nil, neverJSON, nil
	}
	if r.Answer != nil && r.Choice == Auto && (!policy.WithAnswers || p.Version != toolcall.Version2) {
		return nil, false, nil // the answer's own constraint holds
	}
	switch r.Choice {
	case None:
		if policy.BansCalls {
			return toolcall.Ban(p.Tool, p.Version == toolcall.Version2), false, nil
		}
		return nil, false, nil
	case Auto:
		if !policy.Always && !r.FirstCallOnly && !anyStrict(r.Tools) {
			return nil, false, nil
		}
	}
	tag, err = toolcall.Structure(p.Tool, toolcall.StructureOptions{Tools: r.Tools, Function: r.Function, Forced: forced, FirstCallOnly: r.FirstCallOnly,
		Strict: policy.Strict, InReasoning: r.begun(p) && !policy.EngineReasons,
		Version2: p.Version == toolcall.Version2, AnySpecial: policy.AllowsSpecial, AnyOrder: policy.AnyOrder, Answer: r.Answer})
	if err != nil && !(neverJSON && r.Choice == Named) {
		return nil, neverJSON, nil // JSON, or what the prompt says, has to do
	}
	return tag, forced && (tag != nil || neverJSON), err
}

func anyStrict(tools []toolcall.Tool) bool {
	for _, tool := range tools {
		if tool.Strict != nil && *tool.Strict {
			return true
		}
	}
	return false
}

func isKimiK3(name string) bool { return name == "kimi_k3" || name == "kimi-k3" }

// begun tells whether the prompt ends inside reasoning.
func (r *Request) begun(p Parsers) bool {
	name := p.Reasoning
	if name == "" && isKimiK3(p.Tool) {
		name = p.Tool
	}
	return strings.HasSuffix(strings.TrimRight(r.Prompt, " \n\t\r"), reasoning.Opener(name))
}

// BegunReasoning tells whether the engine has to know that the prompt ends inside reasoning: engines of a few formats cannot see it.
func (p Parsers) BegunReasoning(r Request) bool {
	switch p.Reasoning {
	case "minimax_m2", "minimax_m3", "minimax-m3", "kimi_k3", "kimi-k3":
		return r.begun(p)
	}
	return false
}

// RequiresReasoning tells whether the engine has to let the model reason before it holds it to a form: the request constrains the
// answer, and reasons.
func (p Parsers) RequiresReasoning(r Request) bool {
	if p.Reasoning == "" || !r.ForcesCalls() && (!r.JSON || p.Reasoning == "gpt_oss") {
		return false
	}
	switch strings.ToLower(p.Reasoning) {
	case "qwen3", "glm45", "nemotron_nano", "nemotron3", "nemotron_v3":
		return r.Thinking.On == nil || *r.Thinking.On
	case "kimi_k25", "kimi_k3", "kimi-k3", "minimax_m2", "deepseek_v3", "deepseek_v3_1", "deepseek_v3_2", "deepseek_v4", "deepseek-v4", "deepseekv4",
		"gemma4", "gemma-4", "mistral", "minimax_m3", "minimax-m3":
		return !r.Thinking.off(p.Reasoning)
	case "deepseek_r1", "step3", "gpt_oss", "kimi":
		return true
	}
	return false
}
