package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"signalbox/inference"
	"signalbox/internal/jsontape"
)

func readChatBody(t *testing.T, text string) (*chatRequest, string) {
	t.Helper()
	document, err := jsontape.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	chat, p := New(nil, nil, Options{BodyLimitMB: 1}).readChat(document, &inference.Request{})
	if p != nil {
		return nil, p.Message
	}
	return chat, ""
}

// TestConversationsAreJudgedAsTheReferenceDoes goes through shapes that clients get wrong; "" is accepted.
func TestConversationsAreJudgedAsTheReferenceDoes(t *testing.T) {
	call := func(members string) string {
		return `{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[{` + members + `}]}`
	}
	for messages, want := range map[string]string{
		call(`"id":"c","type":"function","function":{"name":"f","arguments":"{}"}`):              "",
		call(`"id":"c","function":{"name":"f","arguments":"{}"}`):                                "",
		call(`"index":0,"id":"c","type":"function","function":{"name":"f","arguments":{"a":1}}`): "",
		call(`"type":"function","function":{"name":"f","arguments":"{}"}`):                       "missing field `id`",
		call(`"id":null,"type":"function","function":{"name":"f","arguments":"{}"}`):             "invalid type: null, expected a string",
		call(`"id":"c","type":"x","function":{"name":"f","arguments":"{}"}`):                     "unknown variant `x`, expected `function`",
		call(`"id":"c","type":"function","function":{"arguments":"{}"}`):                         "missing field `name`",
		call(`"id":"c","type":"function","function":{"name":"f"}`):                               "missing field `arguments`",
		call(`"id":"c","type":"function","function":{"name":"f","arguments":[1]}`):               "expected string or object for `arguments`",
		`{"role":"user","content":"x"},{"role":"tool","tool_call_id":"c"}`:                       "", // agents leave empty results out
		`{"role":"user","content":"x"},{"role":"tool","tool_call_id":"c","content":null}`:        "",
		`{"role":"user","content":"x"},{"role":"tool","tool_call_id":3,"content":"x"}`:           "invalid type: number, expected a string as tool_call_id",
		`{"role":"user","content":"x"},{"role":"tool","content":"x"}`:                            "missing field `tool_call_id`",
		`{"role":"user","content":"x","name":3}`:                                                 "invalid type: number, expected a string as name",
		`{"role":"system","content":null},{"role":"user","content":"x"}`:                         "a system message needs `content`",
		`{"role":"system","tools":[{}]},{"role":"user","content":"x"}`:                           "",
		`{"role":"assistant","content":"a","reasoning":"x","reasoning_content":"y"}`:             "", // both names are in use
	} {
		_, got := readChatBody(t, `{"model":"m","messages":[`+messages+`]}`)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", messages, got, want)
		}
	}
}

func TestToolsAreJudgedAsTheReferenceDoes(t *testing.T) {
	tool := func(parameters string) string {
		return `"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":` + parameters + `}}]`
	}
	const closed = `,"additionalProperties":false`
	strict := func(context, mistake string) string {
		return "Validation: Invalid schema for function 'f': In context=" + context + ", " + mistake
	}
	for member, want := range map[string]string{
		`"tools":[{"function":{"name":"f"}}]`:             "missing field `type`",
		`"tools":[{"type":"x","function":{"name":"f"}}]`:  "unknown variant `x`, expected `function`",
		`"tools":[{"type":null,"function":{"name":"f"}}]`: "invalid type: null",
		`"tools":[]`: "Validation: tools array cannot be empty; omit the field entirely to disable tool use",
		`"tools":[{"type":"function","function":{"name":"f","strict":"x"}}]`:                                                      "expected a boolean",
		`"tools":[{"type":"function","function":{"name":"f","strict":null}}]`:                                                     "",
		`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"function":{"name":"f"}}`:                           "untagged enum ChatCompletionToolChoiceOption",
		`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required","guided_regex":"a"`:                       "received: regex, tool_choice",
		`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required","response_format":{"type":"json_object"}`: "",
		`"guided_regex":"a","response_format":{"type":"json_object"}`:                                                             "received: json, regex",
		`"guided_json":{},"response_format":{"type":"json_object"}`:                                                               "",
		`"thinking":true`: "",
		`"thinking":"x"`:  "Validation: `thinking` must be a boolean or an object",
		`"response_format":{"type":"json_schema"}`:                                                                                       "missing field `json_schema`",
		`"response_format":{"type":"json_schema","json_schema":{"name":"a"}}`:                                                            "missing field `schema`",
		`"response_format":{"type":"json_schema","json_schema":{"schema":{}}}`:                                                           "missing field `name`",
		tool(`{"type":"object","properties":{"a":{"type":"string"}}}`):                                                                   strict("#", "object schemas require additionalProperties: false"),
		tool(`{"type":"object","properties":{"a":{}},"required":[]` + closed + `}`):                                                      strict("#/required", "must include property 'a'"),
		tool(`{"type":"object","properties":{"a":{}}` + closed + `}`):                                                                    strict("#/required", "must include property 'a'"),
		tool(`{"type":"object","properties":{"a":{}},"required":["a","b"]` + closed + `}`):                                               strict("#/required", "unknown property 'b' in a closed object"),
		tool(`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"]` + closed + `}`):           strict("#/properties/a/items", "object schemas require additionalProperties: false"),
		tool(`{"type":"object","properties":{"a":{"anyOf":[{"type":["object","null"]}]}},"required":["a"]` + closed + `}`):               strict("#/properties/a/anyOf/0", "object schemas require additionalProperties: false"),
		tool(`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"$defs":{"x":{"type":"object"}}` + closed + `}`): strict("#/$defs/x", "object schemas require additionalProperties: false"),
		tool(`{"type":"object","properties":{"a":{"$ref":"#/$defs/y"}},"required":["a"]` + closed + `}`):                                 strict("#/properties/a/$ref", "reference target does not exist"),
		tool(`{"type":"object","properties":{"a":{"oneOf":[]}},"required":["a"]` + closed + `}`):                                         strict("#/properties/a/oneOf", "keyword is not supported in strict schemas"),
		tool(`{"type":"string"}`): strict("#", "root must have object-only type"),
		tool(`{}`):                strict("#", "unsupported root representation"),
		tool(`null`):              "",
		tool(`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"},"b":true,"c":{"type":"string","minLength":3}},"required":["a","b","c"],"$defs":{"x":{"$ref":"#"}}` + closed + `}`): "",
	} {
		_, got := readChatBody(t, `{"model":"m","messages":[{"role":"user","content":"x"}],`+member+`}`)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", member, got, want)
		}
	}
}

// TestArgumentsThatAreObjectsBecomeText compares all of the messages: what is around them stays as it was written.
func TestArgumentsThatAreObjectsBecomeText(t *testing.T) {
	chat, mistake := readChatBody(t, `{"model":"m","messages": [ {"role":"user","content":"é"}, {"role":"assistant","content":"","tool_calls":[
		{"id":"c","function":{"name":"f","arguments":{"a" : "\u00e9\""}}},{"id":"d","function":{"name":"g","arguments":"{ }"}},{"id":"e","function":{"arguments":{ },"name":"h"}}]} ] }`)
	if mistake != "" {
		t.Fatal(mistake)
	}
	want := `[ {"role":"user","content":"é"}, {"role":"assistant","content":"","tool_calls":[
		{"id":"c","function":{"name":"f","arguments":"{\"a\":\"\\u00e9\\\"\"}"}},{"id":"d","function":{"name":"g","arguments":"{ }"}},{"id":"e","function":{"arguments":"{}","name":"h"}}]} ]`
	if got := string(chat.job.Prompt.Chat.Messages); got != want || !json.Valid([]byte(got)) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestPromptsOfCompletions(t *testing.T) {
	long := strings.Repeat("AAAA", 50)
	for members, want := range map[string]string{
		`"prompt":["a",[1]]`:                         "untagged enum Prompt",
		`"prompt":[[1],[2]]`:                         "",
		`"prompt":"","prompt_embeds":"` + long + `"`: "",
		`"prompt":"","prompt_embeds":"AAAA"`:         "Validation: prompt_embeds decoded data must be at least 100 bytes, got 3 bytes",
		`"prompt":"","prompt_embeds":"***"`:          "Validation: prompt_embeds must be valid base64-encoded data",
		`"prompt_embeds":"` + long + `"`:             "missing field `prompt`",
	} {
		document, err := jsontape.Parse([]byte(`{"model":"m",` + members + `}`))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if _, p := New(nil, nil, Options{BodyLimitMB: 1}).readCompletion(document, &inference.Request{}); p != nil {
			got = p.Message
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%.60s: %q, want %q", members, got, want)
		}
	}
}
