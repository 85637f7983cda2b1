package pipeline

import (
	"testing"

	"signalbox/inference"
)

type grammarStages struct {
	TextStages
	tag string
}

func (g grammarStages) CallGrammar(*Parsing) []byte {
	if g.tag == "" {
		return nil
	}
	return []byte(g.tag)
}

func TestToolChoiceConstrainsTheWorker(t *testing.T) {
	no := false
	tools := []Tool{{Name: "f", Parameters: []byte(`{"type":"object"}`)}, {Name: "g"}}
	const items = `{"type":"array","minItems":1,"items":{"type":"object","anyOf":[{"properties":{"name":{"type":"string","enum":["f"]},"parameters":{"type":"object"}},"required":["name","parameters"]},` +
		`{"properties":{"name":{"type":"string","enum":["g"]},"parameters":{"type":"object","properties":{}}},"required":["name","parameters"]}]}`
	for _, c := range []struct {
		parsing         Parsing
		tag, json, want string
	}{
		{Parsing{}, "", `{"type":"string"}`, ""},
		{Parsing{ToolChoice: ToolChoiceRequired}, "", items + "}", ""},
		{Parsing{ToolChoice: ToolChoiceRequired, ParallelToolCalls: &no}, "", items + `,"maxItems":1}`, ""},
		{Parsing{ToolChoice: ToolChoiceNamed, ToolName: "f"}, "", `{"type":"object"}`, ""},
		{Parsing{ToolChoice: ToolChoiceNamed, ToolName: "g"}, "", `{"type":"object","properties":{}}`, ""},
		{Parsing{ToolChoice: ToolChoiceRequired}, "{}", "", "{}"},
		{Parsing{}, "{}", `{"type":"string"}`, ""},
	} {
		c.parsing.Tools = tools
		job := &Job{Parsing: c.parsing, Request: &inference.Request{}}
		job.Request.Sampling.Guided = &inference.GuidedDecoding{JSON: []byte(`{"type":"string"}`)} // of a response format
		p := &Pipeline{Model: Model{Stages: grammarStages{tag: c.tag}}}
		p.constrainToolChoice(job)
		got := job.Request.Sampling.Guided
		if string(got.JSON) != c.json || string(got.StructuralTag) != c.want {
			t.Errorf("%+v: %s, %s", c.parsing, got.JSON, got.StructuralTag)
		}
	}
}
