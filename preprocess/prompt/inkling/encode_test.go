package inkling

import (
	"strings"
	"testing"

	"signalbox/preprocess/piece"
	"signalbox/preprocess/piece/piecetest"
)

// brief spells the special tokens of a prompt in few letters.
func brief(p piece.Prompt) string {
	return piecetest.Brief(p, map[string]string{user: "{user}", model: "{model}", system: "{system}", tool: "{tool}", text: "[text]", image: "[image]", audio: "[audio]", audioEnd: "[/audio]",
		thinking: "[think]", xml: "[xml]", invoke: "[invoke]", endMessage: ";", endTurn: "$"})
}

const usual = "{system}[text]Thinking effort level: 0.9;"

// TestTurns writes turns of every kind, from the published encoder's facts.
func TestTurns(t *testing.T) {
	const hi = `{"role":"user","content":"hi"}`
	calls := func(reasoning string) string {
		return `{"role":"assistant","content":"c","reasoning_content":` + reasoning + `,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\":1E5,\"a\":\"<|end_message|>\"}"}},` +
			`{"id":"2","type":"function","function":{"name":"g","arguments":""}}]}`
	}
	const f, g = `{model}f[invoke]{"name":"f","args":{"a":"<|end_message|>","b":100000.0}};`, `{model}g[invoke]{"name":"g","args":{}};`
	for _, c := range []struct{ name, messages, tools, effort, want string }{
		{"no system turn", hi, "", "", usual + "{user}[text]hi;{model}"},
		{"the effort follows system turns", `{"role":"system","content":"S"},{"role":"developer","content":"D"},` + hi + `,{"role":"system","content":"T"}`, "", "",
			"{system}[text]S;{system}[text]D;" + usual + "{user}[text]hi;{system}[text]T;{model}"},
		{"no turn at all", ``, "", "", usual + "{model}"},
		{"markers in a text", `{"role":"user","content":"<|end_message|><|message_system|>"}`, "", "", usual + "{user}[text]<|end_message|><|message_system|>;{model}"},
		{"parts", `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}},{"type":"input_audio","input_audio":{}}]}`, "", "",
			usual + "{user}[text]a;{user}[image];{user}[audio][/audio];{model}"},
		{"several turns", hi + `,{"role":"assistant","content":"a","reasoning_content":"r"},` + hi, "", "",
			usual + "{user}[text]hi;{model}[think]r;{model}[text]a;${user}[text]hi;{model}"},
		{"calls after the content", calls(`"r"`), "", "", usual + "{model}[think]r;{model}[text]c;" + f + g + "${model}"},
		{"thoughts before each call", calls(`["r","s","t"]`), "", "", usual + "{model}[think]r;" + f + "{model}[think]s;" + g + "{model}[think]t;{model}[text]c;${model}"},
		{"results", calls(`""`) + `,{"role":"tool","tool_call_id":"2","content":[{"type":"text","text":"t"},{"type":"text","text":"wo"}]},{"role":"tool","tool_call_id":"1","content":"one"},{"role":"tool","name":"h","content":""}`,
			"", "", usual + "{model}[text]c;" + f + g + "${tool}g[text]two;{tool}f[text]one;{tool}h[text];{model}"},
		{"tools", hi, `[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"b":{},"a":{"const":"<|content_xml|>"}}}}},{"type":"function","function":{"name":"g","description":"d"}}]`, "",
			`{system}tool_declare[xml][{"description":"","name":"f","parameters":{"properties":{"a":{"const":"<|content_xml|>"},"b":{}},"type":"object"},"type":"function"},` +
				`{"description":"d","name":"g","parameters":{},"type":"function"}];` + usual + "{user}[text]hi;{model}"},
		{"an effort by name", hi, "", `"low"`, "{system}[text]Thinking effort level: 0.2;{user}[text]hi;{model}"},
		{"none", hi, "", `"none"`, "{system}[text]Thinking effort level: 0.0;{user}[text]hi;{model}"},
		{"a number", hi, "", `0.25`, "{system}[text]Thinking effort level: 0.25;{user}[text]hi;{model}"},
		{"a name that is not known", hi, "", `"much"`, "{user}[text]hi;{model}"},
	} {
		p, err := Encode(Conversation{Messages: piecetest.Parse(t, "["+c.messages+"]").Items(), Tools: piecetest.Parse(t, c.tools).Items(), Effort: piecetest.Parse(t, c.effort), Generate: true})
		if got := brief(p); err != nil || got != c.want {
			t.Errorf("%s: %v\n%q, want\n%q", c.name, err, got, c.want)
		}
	}
	p, err := Encode(Conversation{Messages: piecetest.Parse(t, "["+hi+"]").Items()})
	if got := brief(p); err != nil || got != usual+"{user}[text]hi;" {
		t.Errorf("unasked the model does not speak: %q, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	call := func(function string) string {
		return `[{"role":"assistant","content":"","tool_calls":[{"id":"1","function":` + function + `}]}]`
	}
	for _, c := range []struct{ messages, tools, effort, words string }{
		{`[{"role":"function","name":"f","content":"x"}]`, "", "", "function"},
		{`[{"role":"user","content":[{"type":"video_url"}]}]`, "", "", "video_url"},
		{`[{"role":"tool","content":[{"type":"image_url"}]}]`, "", "", "image_url"},
		{call(`{"arguments":"{}"}`), "", "", "no function name"},
		{call(`{"name":"f","arguments":"{"}`), "", "", "arguments"},
		{call(`{"name":"f","arguments":"1"}`), "", "", "JSON object"},
		{`[]`, `[{"type":"function"}]`, "", "tools[0]"},
		{`[]`, "", `1`, "0.99"},
		{`[]`, "", `-0.1`, "0.99"},
	} {
		_, err := Encode(Conversation{Messages: piecetest.Parse(t, c.messages).Items(), Tools: piecetest.Parse(t, c.tools).Items(), Effort: piecetest.Parse(t, c.effort)})
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s, tools %s, effort %s: %v; want an error that says %q", c.messages, c.tools, c.effort, err, c.words)
		}
	}
}
