package kimi

import (
	"strings"
	"testing"

	"signalbox/preprocess/chattemplate"
	"signalbox/preprocess/piece"
	"signalbox/preprocess/piece/piecetest"
)

// brief spells the special tokens of a prompt in one letter or two: [tag], [/tag], $ and #.
func brief(p piece.Prompt) string {
	return piecetest.Brief(p, map[string]string{openTag: "[", closeTag: "[/", sep: "]", endTurn: "$\n", image: "#"})
}

// asked makes a conversation that asks the model to speak, without thinking unless arguments say otherwise.
func asked(t *testing.T, messages, tools, arguments string) Conversation {
	t.Helper()
	if arguments == "" {
		arguments = `{"thinking":false}`
	}
	given := piecetest.Parse(t, arguments)
	return Conversation{Messages: piecetest.Parse(t, messages).Items(), Tools: piecetest.Parse(t, tools).Items(), Generate: true,
		Argument: func(name string) chattemplate.Value { return member(given, name) }}
}

const (
	weather  = `{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"unit":{},"city":{"default":1E5}}}}}`
	weatherK = `{"function":{"name":"weather","parameters":{"properties":{"city":{"default":100000.0},"unit":{}},"type":"object"}},"type":"function"}`
	bare     = `{"type":"function","function":{"name":"bare"}}`
	bareK    = `{"function":{"name":"bare"},"type":"function"}`
	hi       = `{"role":"user","content":"hi"}`
	hiK      = "[message role=\"user\"]hi[/message]$\n"
	speakK   = "[message role=\"assistant\"][response]"
)

// TestTurns writes turns of every kind. The same requests, and more, are compared with the real frontend's in package interop.
func TestTurns(t *testing.T) {
	effort := func(effort string) string {
		return "[message role=\"system\" type=\"thinking-effort\"]`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), " +
			"supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort=" + effort + "`.[/message]$\n"
	}
	tools := func(list string) string {
		return "[message role=\"system\" type=\"tool-declare\"]# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n[" + list + "]\n```[/message]$\n"
	}
	calls := func(arguments string) string {
		return `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":` + arguments +
			`}},{"id":"c2","type":"function","function":{"name":"bare","arguments":"{}"}}]}`
	}
	callsK := func(arguments string) string {
		return "[message role=\"assistant\"][response][/response][tools][call tool=\"weather\" index=\"1\"]" + arguments + "[/call][call tool=\"bare\" index=\"2\"][/call][/tools][/message]$\n"
	}
	for _, c := range []struct{ name, messages, tools, arguments, want string }{
		{"no system turn", hi, "", "", hiK + speakK},
		{"system", `{"role":"system","content":"be brief"},` + hi, "", "", "[message role=\"system\"]be brief[/message]$\n" + hiK + speakK},
		{"developer and names", `{"role":"developer","content":"d"},{"role":"user","name":"a \"b\" & <|sep|>","content":"hi"}`, "", "",
			"[message role=\"system\"]d[/message]$\n[message role=\"user\" name=\"a &quot;b&quot; &amp; <|sep|>\"]hi[/message]$\n" + speakK},
		{"markers in a text", `{"role":"user","content":"<|close|>message<|sep|><|end_of_msg|>"}`, "", "", "[message role=\"user\"]<|close|>message<|sep|><|end_of_msg|>[/message]$\n" + speakK},
		{"parts", `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"b "},{"type":"text","text":"<|media_pad|>"}]}`, "", "",
			"[message role=\"user\"]a#b <|media_pad|>[/message]$\n" + speakK},
		{"several turns", hi + `,{"role":"assistant","content":"a","reasoning_content":"r"},` + hi, "", "", hiK + "[message role=\"assistant\"][response]a[/response][/message]$\n" + hiK + speakK},
		{"several turns of thinking", hi + `,{"role":"assistant","content":"a","reasoning_content":"r"},{"role":"assistant","content":"b"}`, "", `{}`,
			effort("max") + hiK + "[message role=\"assistant\"][think]r[/think][response]a[/response][/message]$\n" +
				"[message role=\"assistant\"][think][/think][response]b[/response][/message]$\n[message role=\"assistant\"][think]"},
		{"thoughts in pieces", `{"role":"assistant","content":"a","reasoning_content":["r","","s"]}`, "", `{"thinking_effort":"low"}`,
			effort("low") + "[message role=\"assistant\"][think]r\ns[/think][response]a[/response][/message]$\n[message role=\"assistant\"][think]"},
		{"a switch of another name", hi, "", `{"enable_thinking":true,"reasoning_effort":"high"}`, effort("high") + hiK + "[message role=\"assistant\"][think]"},
		{"tools", hi, weather + "," + bare, "", tools(weatherK+","+bareK) + hiK + speakK},
		{"tools before the effort", hi, bare, `{}`, tools(bareK) + effort("max") + hiK + "[message role=\"assistant\"][think]"},
		{"tools of a turn", `{"role":"system","tools":[` + bare + `]},` + hi, "", "",
			"[message role=\"system\" type=\"tool-declare\"]## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n" +
				"You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n```json\n[" + bareK + "]\n```[/message]$\n" + hiK + speakK},
		{"calls", calls(`"{\"city\": \"Oslo <|sep|>\", \"n\": 1E5, \"big\": 18446744073709551616, \"l\": [1, {\"b\": 2, \"a\": null}], \"z\": null, \"t\": true}"`), "", "",
			callsK(`[argument key="city" type="string"]Oslo <|sep|>[/argument][argument key="n" type="number"]100000.0[/argument]`+
				`[argument key="big" type="number"]1.8446744073709552e+19[/argument][argument key="l" type="array"][1, {"b": 2, "a": null}][/argument]`+
				`[argument key="z" type="null"]null[/argument][argument key="t" type="boolean"]true[/argument]`) + speakK},
		{"a key twice", calls(`"{\"a\": 1, \"b\": -0, \"a\": 3}"`), "", "",
			callsK(`[argument key="a" type="number"]3[/argument][argument key="b" type="number"]-0.0[/argument]`) + speakK},
		{"arguments that are no JSON", calls(`"{\"a\": <|sep|>"`), "", "", callsK(`[json type="object"]{"a": <|sep|>[/json]`) + speakK},
		{"no arguments", calls(`" "`), "", "", callsK("") + speakK},
		{"results in the order of calls", calls(`"{}"`) + `,{"role":"tool","tool_call_id":"c2","content":"two"},{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"o"},{"type":"text","text":"ne"}]}`, "", "",
			callsK("") + "[message role=\"tool\" tool=\"weather\" index=\"1\"]one[/message]$\n[message role=\"tool\" tool=\"bare\" index=\"2\"]two[/message]$\n" + speakK},
		{"results that answer nothing stay in their order", calls(`"{}"`) + `,{"role":"tool","tool_call_id":"c2","content":"two"},{"role":"tool","tool_call_id":"no","content":"one"}`, "", "",
			callsK("") + "[message role=\"tool\" tool=\"weather\" index=\"1\"]two[/message]$\n[message role=\"tool\" tool=\"bare\" index=\"2\"]one[/message]$\n" + speakK},
		{"an answer to go on with", hi + `,{"role":"assistant","content":"par","partial":true}`, "", "", hiK + "[message role=\"assistant\"][response]par"},
		{"an answer to go on with after thinking", hi + `,{"role":"assistant","content":"par","reasoning_content":"r","partial":true}`, "", `{}`,
			effort("max") + hiK + "[message role=\"assistant\"][think]r[/think][response]par"},
	} {
		list := ""
		if c.tools != "" {
			list = "[" + c.tools + "]"
		}
		p, err := K3(asked(t, "["+c.messages+"]", list, c.arguments))
		if got := brief(p); err != nil || got != c.want {
			t.Errorf("%s: %v\n%q, want\n%q", c.name, err, got, c.want)
		}
	}
}

// TestDemands writes what a request wants of the answer, which stands before the model speaks.
func TestDemands(t *testing.T) {
	choice := func(name, order string) string {
		return "[message role=\"system\" type=\"tool-choice\"]The system is invoked with `tool_choice=" + name + "`.\n" + order + "[/message]$\n"
	}
	const format = "`.\nYour response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
	for _, c := range []struct {
		name   string
		change func(*Conversation)
		want   string
	}{
		{"nothing", func(c *Conversation) { c.ToolChoice = "auto" }, ""},
		{"any call", func(c *Conversation) { c.ToolChoice = "required" }, choice("required", "You MUST call tools in the next message.")},
		{"no call", func(c *Conversation) { c.ToolChoice = "none" }, choice("none", "You MUST NOT call any tools in the next message.")},
		{"one function", func(c *Conversation) { c.NamedTool = "bare" }, choice("specified", "You MUST call the tool `bare` in the next message.")},
		{"an object", func(c *Conversation) { c.ResponseFormat = piecetest.Parse(t, `{"type":"json_object"}`) },
			"[message role=\"system\" type=\"response-format\"]The system is invoked with `response_format=json_object" + format + "[/message]$\n"},
		{"a schema", func(c *Conversation) {
			c.ResponseFormat = piecetest.Parse(t, `{"type":"json_schema","json_schema":{"name":"s","schema":{"b":"<|sep|>","a":1}}}`)
		}, "[message role=\"system\" type=\"response-format\"]The system is invoked with `response_format=json_schema" + format +
			"\nThe JSON data must match the following schema:\n```json\n{\"a\":1,\"b\":\"<|sep|>\"}\n```[/message]$\n"},
		{"text", func(c *Conversation) { c.ResponseFormat = piecetest.Parse(t, `{"type":"text"}`) }, ""},
	} {
		conversation := asked(t, "["+hi+"]", "["+bare+"]", "")
		c.change(&conversation)
		p, err := K3(conversation)
		if _, after, _ := strings.Cut(brief(p), hiK); err != nil || after != c.want+speakK {
			t.Errorf("%s: %v\n%q, want\n%q", c.name, err, after, c.want+speakK)
		}
	}
	named := asked(t, "["+hi+"]", "["+bare+"]", "{}")
	named.NamedTool, named.Generate = "bare", false
	if p, err := K3(named); err != nil || strings.Contains(p.Text, "think") || !strings.HasSuffix(brief(p), "[/message]$\n") {
		t.Errorf("a demanded call is made without thinking, and nobody speaks unasked: %q, %v", brief(p), err)
	}
}

func TestRefusals(t *testing.T) {
	call := func(arguments string) string {
		return `{"role":"assistant","content":"","tool_calls":[{"id":"1","function":` + arguments + `}]}`
	}
	for _, c := range []struct{ messages, tools, arguments, words string }{
		{hi, "", `{"thinking_effort":"medium"}`, "medium"},
		{`{"role":"function","name":"f","content":"x"}`, "", "", "function"},
		{`{"role":"system"}`, "", "", "content or tools"},
		{`{"role":"tool","tool_call_id":"1","content":"x"}`, "", "", "call before it"},
		{call(`{"arguments":"{}"}`), "", "", "no function name"},
		{call(`{"name":"f","arguments":"[1]"}`), "", "", "JSON object"},
		{hi, bare + "," + bare, "", "more than once"},
		{hi, `{"type":"function","function":{"name":"1 a"}}`, "", "1 a"},
		{hi, `{"type":"function"}`, "", "want tools as"},
		{`{"role":"system","content":"x","tools":[` + bare + `]}`, "", "", "not both"},
		{`{"role":"developer","tools":[` + bare + `]}`, "", "", "developer"},
		{`{"role":"system","tools":1}`, "", "", "a list"},
		{`{"role":"user","content":"x","partial":true}`, "", "", "partial"},
		{`{"role":"assistant","content":"x","partial":1}`, "", "", "partial"},
		{`{"role":"assistant","content":"x","partial":true},` + hi, "", "", "last message"},
		{`{"role":"assistant","content":"x","partial":true,"tool_calls":[{}]}`, "", "", "tool_calls"},
	} {
		list := ""
		if c.tools != "" {
			list = "[" + c.tools + "]"
		}
		_, err := K3(asked(t, "["+c.messages+"]", list, c.arguments))
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s, tools %s, arguments %s: %v; want an error that says %q", c.messages, c.tools, c.arguments, err, c.words)
		}
	}
	conversation := asked(t, "["+hi+"]", "", "")
	conversation.NamedTool = "f"
	if _, err := K3(conversation); err == nil || !strings.Contains(err.Error(), `"f"`) {
		t.Errorf("a demanded function that is not there: %v", err)
	}
}
