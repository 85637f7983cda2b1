package prompt

import (
	"strings"
	"testing"
)

const (
	k3Effort = `<|open|>message role="system" type="thinking-effort"<|sep|>` + "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort=max`.<|close|>message<|sep|><|end_of_msg|>"
	k3User   = `<|open|>message role="user"<|sep|>hi<|close|>message<|sep|><|end_of_msg|>`
	k3Speak  = `<|open|>message role="assistant"<|sep|>`
)

// What the live frontend, 1.6.1, makes of the same.
func TestKimiK3Prompts(t *testing.T) {
	hi := `{"role":"user","content":"hi"}`
	for _, c := range []struct{ messages, arguments, want string }{
		{`[` + hi + `]`, ``, k3Effort + k3User + k3Speak + `<|open|>think<|sep|>`},
		{`[` + hi + `]`, `{"thinking":false}`, k3User + k3Speak + `<|open|>response<|sep|>`},
		{`[` + hi + `]`, `{"thinking_effort":"high"}`, strings.Replace(k3Effort, "=max", "=high", 1) + k3User + k3Speak + `<|open|>think<|sep|>`},
		{`[` + hi + `,{"role":"assistant","content":"par","partial":true}]`, ``, k3Effort + k3User + k3Speak + `<|open|>think<|sep|><|close|>think<|sep|><|open|>response<|sep|>par`},
	} {
		got, err := native(t, "kimi_k3").Render(Request{Messages: []byte(c.messages), Arguments: []byte(c.arguments)})
		if err != nil || got != c.want {
			t.Errorf("%s %s: got %q, %v\nwant %q", c.messages, c.arguments, got, err, c.want)
		}
	}
}

// Written from the published encoder's facts: the live frontend 1.6.1 does not use it.
func TestInklingPrompts(t *testing.T) {
	f, err := Load(Files{Config: typeConfig(t, inklingType)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Render(Request{Messages: []byte(`[{"role":"system","content":"S"},{"role":"user","content":"u"},{"role":"assistant","reasoning_content":"r","content":"c","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\":1,\"a\":2}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]`)})
	want := `<|message_system|><|content_text|>S<|end_message|><|message_system|><|content_text|>Thinking effort level: 0.9<|end_message|><|message_user|><|content_text|>u<|end_message|>` +
		`<|message_model|><|content_thinking|>r<|end_message|><|message_model|><|content_text|>c<|end_message|><|message_model|>f<|content_invoke_tool_json|>{"name":"f","args":{"a":2,"b":1}}<|end_message|>` +
		`<|content_model_end_sampling|><|message_tool|>f<|content_text|>x<|end_message|><|message_model|>`
	if err != nil || got != want {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}
