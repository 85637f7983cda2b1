package frontend

import (
	"bytes"
	"encoding/json"

	"signalbox/model/card"
	"signalbox/postprocess"
	"signalbox/postprocess/toolcall"
)

// tagPolicy is what a card says about structural tags: in the object of 1.6, whose null switches them off, or in the three members
// of 1.5. Options without effect are named.
func (l *FileLoader) tagPolicy(c *card.Card) postprocess.TagPolicy {
	runtime := &c.Runtime
	p := postprocess.TagPolicy{On: runtime.StructuralTagMode == "on", Always: runtime.StructuralTagScope == "always", Strict: runtime.StructuralTagSchema == "strict",
		BansCalls: !runtime.ExcludeTools}
	if raw := bytes.TrimSpace(runtime.StructuralTag); len(raw) > 0 {
		var options struct {
			Scope             string `json:"scope"`
			Schema            string `json:"schema"`
			Structured        bool   `json:"allow_tool_calls_with_structured_output"`
			ExcludeSpecial    *bool  `json:"exclude_special_tokens"`
			ReasoningBoundary string `json:"reasoning_boundary"`
			AnyOrder          bool   `json:"tool_arguments_any_order"`
		}
		p.On = raw[0] == '{'
		if err := json.Unmarshal(raw, &options); err != nil {
			l.warn("model " + c.DisplayName + ": structural_tag of its card cannot be read (" + err.Error() + "); no tags are sent")
			p.On = false
		}
		p.Always, p.Strict = options.Scope == "always", options.Schema == "strict"
		p.EngineReasons = options.ReasoningBoundary == "backend"
		p.WithAnswers, p.AnyOrder = options.Structured, options.AnyOrder
		p.AllowsSpecial = options.ExcludeSpecial != nil && !*options.ExcludeSpecial
		for name, asked := range map[string]bool{"allow_tool_calls_with_structured_output": options.Structured, "exclude_special_tokens": options.ExcludeSpecial != nil,
			"tool_arguments_any_order": options.AnyOrder} {
			if asked && !l.SecondParsers {
				l.warn("model " + c.DisplayName + ": structural_tag." + name + " of its card has no effect without DYN_PARSER_VERSION=2")
			}
		}
	}
	if bytes.Equal(bytes.TrimSpace(runtime.RuntimeData["tool_call_structural_tag_excludes_reasoning"]), []byte("true")) {
		p.EngineReasons = true
	}
	if tool := deref(runtime.ToolCallParser); p.On && !toolcall.Structured(tool) {
		l.warn("model " + c.DisplayName + ": its worker asks for structural tags, which the tool-call parser " + quote(tool) + " does not have; calls are forced by JSON")
	}
	return p
}

func quote(name string) string {
	if name == "" {
		return "(none)"
	}
	return name
}

func (l *FileLoader) warn(message string) {
	if l.Warn != nil {
		l.Warn(message)
	}
}
