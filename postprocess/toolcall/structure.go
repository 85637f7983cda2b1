package toolcall

import "encoding/json"

// Structure returns a structural tag, as xgrammar reads it, that makes a model write calls in a format's own markup: at least one
// call of any of the tools or, with function, one of that function. It is nil for formats that are not made to call so, whose
// forced calls are JSON (see [NewForced]).
func Structure(format, function string, tools []Tool, firstCallOnly bool) []byte {
	if !Structured(format) {
		return nil
	}
	tag := append([]byte(nil), `{"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"const_string","value":"<|tool_calls_section_begin|>"},`...)
	if function == "" {
		tag = append(tag, `{"type":"tags_with_separator","tags":[`...)
	}
	first := true
	for _, tool := range tools {
		if function != "" && tool.Name != function {
			continue
		}
		if !first {
			tag = append(tag, ',')
		}
		first = false
		begin, _ := json.Marshal(tool.Name) // a text can always be written
		tag = append(tag, `{"type":"tag","begin":"<|tool_call_begin|>functions.`...)
		tag = append(tag, begin[1:len(begin)-1]...)
		tag = append(tag, `:","content":{"type":"sequence","elements":[{"type":"regex","pattern":"\\d+"},{"type":"const_string","value":"<|tool_call_argument_begin|>"},{"type":"json_schema","json_schema":`...)
		if tool.Parameters == nil {
			tag = append(tag, "true"...)
		} else {
			tag = append(tag, tool.Parameters...)
		}
		tag = append(tag, `,"style":"json"}]},"end":"<|tool_call_end|>"}`...)
		if function != "" {
			break
		}
	}
	if first {
		return nil
	}
	if function == "" {
		tag = append(tag, `],"separator":"","at_least_one":true,"stop_after_first":`...)
		if firstCallOnly {
			tag = append(tag, "true}"...)
		} else {
			tag = append(tag, "false}"...)
		}
	}
	return append(tag, `,{"type":"const_string","value":"<|tool_calls_section_end|>"}]}}`...)
}

// Structured tells whether a format's calls are forced by [Structure].
func Structured(format string) bool { return format == "kimi_k2" }
