package toolcall

import (
	"fmt"
	"slices"
)

// StructureOptions say what a structural tag has to let through.
type StructureOptions struct {
	Tools []Tool
	// Function is the one function that may be called; "" is any of the tools.
	Function string
	// Forced demands at least one call; else the answer may be text.
	Forced bool
	// FirstCallOnly ends the answer with its first call.
	FirstCallOnly bool
	// Strict holds calls to the schema even of tools that say strict: false.
	Strict bool
	// InReasoning tells that the answer starts inside reasoning and that the engine's grammar begins there, too.
	InReasoning bool

	// Version2 makes the tags of the second generation of parsers, where it has some. The options below are of those alone.
	Version2 bool
	// AnySpecial lets text beside calls hold the format's own marks.
	AnySpecial bool
	// AnyOrder lets arguments stand in any order.
	AnyOrder bool
	// Answer is the schema of an answer that is no call, raw; nil for free text.
	Answer []byte
}

// structured is a format for which engines are given a structural tag.
type structured struct {
	// build returns the format below the tag.
	build func(tools []Tool, o StructureOptions) (node, error)
	// banned are the tokens without which no call can be written; nil when there is no such token.
	banned []string
	// closer ends reasoning.
	closer string
	// closesAlways wraps optional calls, too: the text outside of them may not hold the closer.
	closesAlways bool
	// own formats wrap their reasoning themselves.
	own bool
	// always and alwaysNamed tell that forced calls, and those of one function, go by the tag whether a worker asks for tags or not: no
	// JSON can stand for them.
	always, alwaysNamed bool
}

// structuredFormats are the formats for which the real frontend of 1.6 makes tags. Which names share a form was found by asking it.
var structuredFormats = map[string]structured{
	"hermes":        hermesStructured,
	"qwen25":        hermesStructured,
	"qwen3_coder":   qwenStructured,
	"nemotron_nano": qwenStructured,
	"inkling": {closer: "<|end_message|>", banned: []string{"<|content_invoke_tool_json|>"},
		build: triggered("<|content_invoke_tool_json|>", `<|content_invoke_tool_json|>{"name": "`, `", "args": `, "}<|end_message|>", "json")},
	"deepseek_v3_2": dsmlStructured("function_calls"),
	"deepseek_v4":   dsmlStructured("tool_calls"),
	"deepseek-v4":   dsmlStructured("tool_calls"),
	"deepseekv4":    dsmlStructured("tool_calls"),
	"glm47":         {closer: thinkEnd, banned: append([]string{"<tool_call>", "</tool_call>"}, glmMarkers...), build: glmTags, own: true},
	"kimi_k2":       {closer: thinkEnd, build: kimiK2Tags, always: true, alwaysNamed: true},
	"kimi_k3":       kimiK3Structured,
	"kimi-k3":       kimiK3Structured,
}

var (
	hermesStructured = structured{closer: thinkEnd, banned: []string{"<tool_call>"},
		build: triggered("<tool_call>", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", "json")}
	qwenStructured = structured{closer: thinkEnd, banned: []string{"<tool_call>"},
		build: triggered("<tool_call>\n<function=", "<tool_call>\n<function=", ">\n", "\n</function>\n</tool_call>", "qwen_xml")}
	kimiK3Structured = structured{closer: k3Close + "think" + k3Sep, build: kimiK3Tags, closesAlways: true, alwaysNamed: true}
	glmMarkers       = []string{"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}
)

const (
	thinkBegin = "<think>"
	thinkEnd   = "</think>"
)

// Structured tells whether a format's calls can be constrained by [Structure].
func Structured(format string) bool {
	_, ok := structuredFormats[format]
	return ok
}

// AlwaysStructured tells whether a format's forced calls, of one function or of any, go by a structural tag even for workers that do
// not ask for tags.
func AlwaysStructured(format string, named bool) bool {
	if named {
		return structuredFormats[format].alwaysNamed
	}
	return structuredFormats[format].always
}

// Structure returns a structural tag, as xgrammar reads it, that holds a model to calls in a format's own markup. It is nil for formats
// that are not held so, and when there is nothing to call. The error names the tool and the part of its schema that the tag cannot hold
// a model to.
func Structure(format string, o StructureOptions) ([]byte, error) {
	s, ok := structuredFormats[format]
	if !ok {
		return nil, nil
	}
	tools := o.Tools
	if o.Function != "" {
		i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == o.Function })
		if i < 0 {
			return nil, nil
		}
		tools = tools[i : i+1]
	}
	if len(tools) == 0 {
		return nil, nil
	}
	if second, ok := secondFormats[format]; ok && o.Version2 {
		return structuralTag(second.structure(tools, o)), nil
	}
	content, err := s.build(tools, o)
	if err != nil {
		return nil, err
	}
	if o.InReasoning && !s.own && (o.Forced || s.closesAlways) {
		content = sequence(tag("", anyText(), s.closer), content)
	}
	return structuralTag(content), nil
}

// Ban returns a structural tag with which a model can write text but no calls; nil for formats in which no single token begins a call.
func Ban(format string, version2 bool) []byte {
	if second, ok := secondFormats[format]; ok && version2 {
		return structuralTag(tag("", anyText(second.banned...), ""))
	}
	s := structuredFormats[format]
	if len(s.banned) == 0 {
		return nil
	}
	return structuralTag(tag("", node{{"type", "any_tokens"}, {"exclude_tokens", s.banned}}, ""))
}

// tagSchema is what holds a tool's arguments: their schema, or true, which is any JSON.
func tagSchema(tool Tool, strict bool) any {
	if tool.Parameters == nil || !heldToSchema(tool, strict) {
		return true
	}
	return rawJSON(tool.Parameters)
}

// heldToSchema tells whether calls of a tool have to follow its schema: unless it says strict: false.
func heldToSchema(tool Tool, strict bool) bool {
	return strict || tool.Strict == nil || *tool.Strict
}

// triggered makes the tags of formats that write each call between two texts; what comes before the first trigger is free.
func triggered(trigger, before, after, end, style string) func([]Tool, StructureOptions) (node, error) {
	return func(tools []Tool, o StructureOptions) (node, error) {
		tags := make([]node, len(tools))
		for i, tool := range tools {
			schema := tagSchema(tool, o.Strict)
			content := jsonSchema(schema, style)
			if style == "qwen_xml" && isClosedEmpty(schema) {
				content = constant("") // engines fail on, or wander off in, a body without parameters
			}
			tags[i] = tag(before+tool.Name+after, content, end)
		}
		return node{{"type", "triggered_tags"}, {"triggers", []string{trigger}}, {"tags", tags}, {"at_least_one", o.Forced}, {"stop_after_first", o.FirstCallOnly}}, nil
	}
}

// dsmlStructured makes the tags of DeepSeek's markup: a block of one or more calls.
func dsmlStructured(block string) structured {
	const mark = "｜DSML｜"
	open, end := "<"+mark+block+">", "</"+mark+block+">"
	return structured{closer: thinkEnd, banned: []string{mark}, build: func(tools []Tool, o StructureOptions) (node, error) {
		tags := make([]node, len(tools))
		for i, tool := range tools {
			tags[i] = tag("<"+mark+`invoke name="`+tool.Name+"\">\n", jsonSchema(tagSchema(tool, o.Strict), "deepseek_xml"), "</"+mark+"invoke>\n")
		}
		return node{{"type", "triggered_tags"}, {"triggers", []string{open}}, {"tags", []node{tag(open+"\n", separated(tags, o.FirstCallOnly), end)}},
			{"at_least_one", o.Forced}, {"stop_after_first", o.FirstCallOnly}}, nil
	}}
}

// glmTags makes the tags of GLM's markup. A call of one function is the whole answer.
func glmTags(tools []Tool, o StructureOptions) (node, error) {
	tags := make([]node, len(tools))
	for i, tool := range tools {
		schema := tagSchema(tool, o.Strict)
		if text, ok := schema.(rawJSON); ok {
			inlined, err := glmSchema(text)
			if err != nil {
				return nil, fmt.Errorf("tool %q: %w", tool.Name, err)
			}
			schema = inlined
		}
		tags[i] = tag("<tool_call>"+tool.Name, jsonSchema(schema, "glm_xml"), "</tool_call>")
	}
	format := tags[0]
	if o.Function == "" {
		format = node{{"type", "triggered_tags"}, {"triggers", []string{"<tool_call>"}}, {"tags", tags},
			{"excludes", append([]string{thinkBegin, thinkEnd, "</tool_call>"}, glmMarkers...)}, {"at_least_one", o.Forced}, {"stop_after_first", o.FirstCallOnly}}
	}
	if o.InReasoning { // the free text may not hold what ends reasoning
		excluded := append([]string{thinkBegin, thinkEnd, "<tool_call>", "</tool_call>"}, glmMarkers...)
		format = sequence(tag("", anyText(excluded...), thinkEnd), format)
	}
	return format, nil
}

// kimiK2Tags makes the tags of Kimi K2's section of calls, whose numbers the model chooses.
func kimiK2Tags(tools []Tool, o StructureOptions) (node, error) {
	const begin, end = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
	tags := make([]node, len(tools))
	for i, tool := range tools {
		tags[i] = tag("<|tool_call_begin|>functions."+tool.Name+":",
			sequence(pattern(`\d+`), constant("<|tool_call_argument_begin|>"), jsonSchema(tagSchema(tool, o.Strict), "json")), "<|tool_call_end|>")
	}
	calls := separated(tags, o.FirstCallOnly)
	if o.Function != "" {
		calls = tags[0]
	}
	if o.Forced {
		return sequence(constant(begin), calls, constant(end)), nil
	}
	return node{{"type", "triggered_tags"}, {"triggers", []string{begin}}, {"tags", []node{tag(begin, calls, end)}},
		{"at_least_one", false}, {"stop_after_first", o.FirstCallOnly}}, nil
}
