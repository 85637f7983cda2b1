package toolcall

import (
	"encoding/json"
	"testing"
)

// TestStructure has the tags that the real frontend of 1.6.1 sends to workers of kimi_k2.
func TestStructure(t *testing.T) {
	tools := []Tool{{Name: "f", Parameters: []byte(`{"type":"object"}`)}, {Name: "g"}}
	const (
		begin = `{"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"const_string","value":"<|tool_calls_section_begin|>"},`
		end   = `{"type":"const_string","value":"<|tool_calls_section_end|>"}]}}`
		f     = `{"type":"tag","begin":"<|tool_call_begin|>functions.f:","content":{"type":"sequence","elements":[{"type":"regex","pattern":"\\d+"},{"type":"const_string","value":"<|tool_call_argument_begin|>"},{"type":"json_schema","json_schema":{"type":"object"},"style":"json"}]},"end":"<|tool_call_end|>"}`
		g     = `{"type":"tag","begin":"<|tool_call_begin|>functions.g:","content":{"type":"sequence","elements":[{"type":"regex","pattern":"\\d+"},{"type":"const_string","value":"<|tool_call_argument_begin|>"},{"type":"json_schema","json_schema":true,"style":"json"}]},"end":"<|tool_call_end|>"}`
	)
	for _, c := range []struct {
		format, function string
		first            bool
		want             string
	}{
		{"kimi_k2", "f", false, begin + f + "," + end},
		{"kimi_k2", "g", true, begin + g + "," + end},
		{"kimi_k2", "", false, begin + `{"type":"tags_with_separator","tags":[` + f + "," + g + `],"separator":"","at_least_one":true,"stop_after_first":false},` + end},
		{"kimi_k2", "", true, begin + `{"type":"tags_with_separator","tags":[` + f + "," + g + `],"separator":"","at_least_one":true,"stop_after_first":true},` + end},
		{"kimi_k2", "nonesuch", false, ""},
		{"kimi_k25", "f", false, ""},
		{"mistral", "", false, ""},
	} {
		got, err := Structure(c.format, StructureOptions{Tools: tools, Function: c.function, Forced: true, FirstCallOnly: c.first})
		if err != nil {
			t.Error(err)
		}
		if string(got) != c.want {
			t.Errorf("%s %q\n got %s\nwant %s", c.format, c.function, got, c.want)
		}
		if c.want != "" && !json.Valid(got) {
			t.Errorf("%s %q is no JSON", c.format, c.function)
		}
	}
}

func TestOnly(t *testing.T) {
	const text = `<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>`
	if got := parsed(t, "kimi_k2", text, Options{Only: "g"}); got != `"" g{}` {
		t.Error(got)
	}
}
