package postprocess

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"signalbox/postprocess/toolcall"
)

// recordedTag is what the real frontend of 1.6.1 sent to a worker for one request.
type recordedTag struct {
	Format   string
	On, Keep bool
	Scope    string
	Schema   string
	Opener   string
	Tools    []struct {
		Function struct {
			Name       string
			Parameters json.RawMessage
			Strict     *bool
		}
	}
	Choice, Function string
	Parallel         bool
	// The second generation's.
	Version2, Special, AnyOrder, Answers bool
	Answer                               json.RawMessage
	Guided                               map[string]any
}

// TestCallTagsAreTheRealOnes compares the tags with those that were recorded of the real frontend: eleven formats, each with every tool choice,
// with strict tools and without, several policies, both generations of parsers, prompts that end inside reasoning, and schemas with everything that a schema can have.
func TestCallTagsAreTheRealOnes(t *testing.T) {
	file, err := os.Open("testdata/structures.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	choices := map[string]Choice{"auto": Auto, "none": None, "required": Required, "named": Named}
	cases, tags := 0, 0
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c recordedTag
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		r := Request{Choice: choices[c.Choice], Function: c.Function, FirstCallOnly: !c.Parallel, Prompt: "x" + c.Opener + "\n", Answer: c.Answer}
		for _, tool := range c.Tools {
			r.Tools = append(r.Tools, toolcall.Tool{Name: tool.Function.Name, Parameters: tool.Function.Parameters, Strict: tool.Function.Strict})
		}
		parsers := Parsers{Tool: c.Format}
		if c.Version2 {
			parsers.Version = toolcall.Version2
		}
		tag, _, err := parsers.CallTag(TagPolicy{On: c.On, Always: c.Scope == "always", Strict: c.Schema == "strict", BansCalls: c.Keep,
			AllowsSpecial: c.Special, AnyOrder: c.AnyOrder, WithAnswers: c.Answers}, r)
		if err != nil {
			t.Errorf("%s: %v", lines.Bytes(), err)
			continue
		}
		var got any
		if tag != nil {
			if err := json.Unmarshal(tag, &got); err != nil {
				t.Fatalf("%s: %v", tag, err)
			}
			tags++
		}
		if want := c.Guided["structural_tag"]; !reflect.DeepEqual(got, want) {
			wanted, _ := json.Marshal(want)
			t.Errorf("%s %s %s %v\n got %s\nwant %s", c.Format, c.Choice, c.Opener, c.Tools[0].Function.Name, tag, wanted)
		}
		cases++
	}
	if lines.Err() != nil || cases < 1100 || tags < 700 {
		t.Fatalf("%d cases with %d tags: %v", cases, tags, lines.Err())
	}
}

func TestEngineThatReasonsByItself(t *testing.T) {
	tools := []toolcall.Tool{{Name: "f"}}
	wrapped := func(p TagPolicy) bool {
		tag, _, _ := Parsers{Tool: "hermes"}.CallTag(p, Request{Tools: tools, Choice: Required, Prompt: "<think>"})
		var read struct{ Format struct{ Type string } }
		if err := json.Unmarshal(tag, &read); err != nil {
			t.Fatal(err)
		}
		return read.Format.Type == "sequence"
	}
	if !wrapped(TagPolicy{On: true}) || wrapped(TagPolicy{On: true, EngineReasons: true}) {
		t.Error("reasoning is the tag's or the engine's, as the worker says")
	}
}

// What cannot be held to a schema is called by JSON; Kimi K3, for which no JSON can stand, refuses a function by name and else goes by its prompt.
func TestToolsThatNoTagHolds(t *testing.T) {
	never := []toolcall.Tool{{Name: "f", Parameters: []byte(`{"type":"object","properties":{"a":false},"required":["a"]}`)}}
	beside := []toolcall.Tool{{Name: "f", Parameters: []byte(`{"properties":{"a":{"$ref":"#/$defs/s","maxLength":3}},"$defs":{"s":{"type":"string"}}}`)}}
	on := TagPolicy{On: true}
	for _, c := range []struct {
		format         string
		tools          []toolcall.Tool
		choice         Choice
		native, failed bool
	}{
		{"glm47", beside, Required, false, false},
		{"kimi_k3", never, Required, true, false},
		{"kimi_k3", never, Named, true, true},
		{"mistral", never, Required, false, false},
	} {
		tag, native, err := Parsers{Tool: c.format}.CallTag(on, Request{Tools: c.tools, Choice: c.choice, Function: map[bool]string{true: "f"}[c.choice == Named]})
		if tag != nil || native != c.native || (err != nil) != c.failed {
			t.Errorf("%s: %s %v %v", c.format, tag, native, err)
		}
	}
}
