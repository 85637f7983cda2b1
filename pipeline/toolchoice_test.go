package pipeline

import (
	"strings"
	"testing"

	"signalbox/inference"
)

type grammarStages struct {
	TextStages
	tag string
}

func (g grammarStages) CallGrammar(*Job, string) ([]byte, bool, error) {
	if g.tag == "" {
		return nil, false, nil
	}
	return []byte(g.tag), true, nil
}

func (g grammarStages) ReasoningArguments(*Job, string) map[string][]byte {
	return map[string][]byte{"reasoning_ended": []byte("false")}
}

func (g grammarStages) RequiresReasoning(job *Job) bool {
	return job.Parsing.ToolChoice >= ToolChoiceRequired
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
		job := &Job{Parsing: c.parsing, Request: &inference.Request{ExtraArgs: []byte(`{"a":1}`)}}
		job.Request.Sampling.Guided = &inference.GuidedDecoding{JSON: []byte(`{"type":"string"}`)} // of a response format
		p := &Pipeline{Model: Model{Stages: grammarStages{tag: c.tag}}}
		if err := p.constrainToolChoice(job, ""); err != nil {
			t.Error(err)
		}
		if job.Request.RequireReasoning != (c.parsing.ToolChoice != ToolChoiceAuto) || job.Parsing.NativeCalls != (c.want != "") {
			t.Errorf("%+v: reasoning %v, native %v", c.parsing, job.Request.RequireReasoning, job.Parsing.NativeCalls)
		}
		if string(job.Request.ExtraArgs) != `{"a":1,"reasoning_ended":false}` {
			t.Errorf("extra_args %s", job.Request.ExtraArgs)
		}
		got := job.Request.Sampling.Guided
		if string(got.JSON) != c.json || string(got.StructuralTag) != c.want {
			t.Errorf("%+v: %s, %s", c.parsing, got.JSON, got.StructuralTag)
		}
	}
}

// Definitions of all tools stand where references look for them; two that differ are refused.
func TestDefinitionsOfToolsAreShared(t *testing.T) {
	tool := func(name, definition string) Tool {
		return Tool{Name: name, Parameters: []byte(`{"properties":{"a":{"$ref":"#/$defs/d"}},"$defs":{"d":` + definition + `}}`)}
	}
	got, err := anyCall(&Parsing{Tools: []Tool{tool("f", `{"type":"string"}`), tool("g", `{"type":"string"}`)}})
	const call = `{"properties":{"name":{"type":"string","enum":["%"]},"parameters":{"properties":{"a":{"$ref":"#/$defs/d"}}}},"required":["name","parameters"]}`
	want := `{"type":"array","minItems":1,"items":{"type":"object","anyOf":[` + strings.Replace(call, "%", "f", 1) + "," + strings.Replace(call, "%", "g", 1) +
		`]},"$defs":{"d":{"type":"string"}}}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	if got, err := anyCall(&Parsing{Tools: []Tool{tool("f", `{"type":"string"}`), tool("g", `{"type":"null"}`)}}); err == nil {
		t.Errorf("two meanings of one name: %s", got)
	}
}
