package toolcall

import "strings"

// The formats that write a call as a JSON object with "name" and "arguments" (or "parameters"), or several in an array.

// jsonCalls reads such a text. recognized tells that it had one of the two forms, even if no entry was a call. The arguments
// are passed on as they were written.
func jsonCalls(text string, nameOnly bool) (calls []found, recognized bool) {
	text = strings.TrimSpace(text)
	if text == "" || !validJSON(text) {
		return nil, false
	}
	r := jsonReader{text: text}
	switch text[0] {
	case '[':
		r.items(func(item string) {
			if call, ok := jsonCall(item, nameOnly, "arguments", "parameters"); ok {
				calls = append(calls, call)
			}
		})
		return calls, true
	case '{':
		call, ok := jsonCall(text, nameOnly, "parameters", "arguments")
		if !ok {
			return nil, false
		}
		return []found{call}, true
	}
	return nil, false
}

// jsonCall reads one object; of two keys for the arguments the first counts.
func jsonCall(text string, nameOnly bool, keys ...string) (found, bool) {
	if text == "" || text[0] != '{' {
		return found{}, false
	}
	call := found{}
	values := make([]string, len(keys))
	named := false
	r := jsonReader{text: text}
	ok := r.members(func(m member) {
		if m.key == "name" && m.value != "" && m.value[0] == '"' {
			name := jsonReader{text: m.value}
			call.name, _ = name.stringText(true)
			named = true
		}
		for i, key := range keys {
			if m.key == key {
				values[i] = m.value
			}
		}
	})
	if !ok || !named {
		return found{}, false
	}
	for _, value := range values {
		if value != "" {
			call.arguments = value
			return call, true
		}
	}
	call.arguments = "{}"
	return call, nameOnly
}

// jsonBlock reads blocks of one payload. A payload that is cut off is repaired when repair says so.
func jsonBlock(nameOnly, repair bool) func(string, bool, []Tool) ([]found, bool) {
	return func(block string, cut bool, _ []Tool) ([]found, bool) {
		if cut && !repair {
			return nil, false
		}
		calls, _ := jsonCalls(block, nameOnly)
		if len(calls) == 0 && cut {
			if fixed, changed := repaired(strings.TrimSpace(block)); changed {
				calls, _ = jsonCalls(fixed, nameOnly)
			}
		}
		return calls, len(calls) > 0
	}
}

// bareJSON reads a call without any markup. It must have arguments: an answer that is just an object with a name is an answer.
func bareJSON(repair bool) func(string, bool) ([]found, bool) {
	read := jsonBlock(false, repair)
	return func(text string, cut bool) ([]found, bool) { return read(text, cut, nil) }
}

// jsonSequence reads objects with semicolons between them, or an array.
func jsonSequence(block string, cut bool, _ []Tool) ([]found, bool) {
	if cut {
		return nil, false
	}
	var calls []found
	r := jsonReader{text: block}
	for {
		value, ok := r.value()
		if !ok {
			break
		}
		list, _ := jsonCalls(value, false)
		calls = append(calls, list...)
		if r.space(); !r.take(';') {
			break
		}
	}
	return calls, len(calls) > 0
}

// jsonLeading reads an array as far as its objects are complete.
func jsonLeading(block string, cut bool, _ []Tool) ([]found, bool) {
	if !cut {
		calls, _ := jsonCalls(block, false)
		return calls, len(calls) > 0
	}
	var calls []found
	r := jsonReader{text: strings.TrimSpace(block)}
	r.take('[')
	for {
		r.space()
		value, ok := r.value()
		if !ok {
			break
		}
		if call, ok := jsonCall(value, false, "arguments", "parameters"); ok {
			calls = append(calls, call)
		}
		if r.space(); !r.take(',') {
			break
		}
	}
	return calls, len(calls) > 0
}

// tagged is a format with payloads between two words.
func tagged(start, end string, rule gapRule, nameOnly, repair, verbatim bool) *grammar {
	return (&grammar{
		rule: rule,
		bare: bareJSON(repair),
		openers: []opener{{
			word: start, closer: until(end), read: jsonBlock(nameOnly, repair), verbatim: verbatim,
		}},
	}).prepare()
}

var (
	hermes   = tagged("<tool_call>", "</tool_call>", gapKeep, true, true, false)
	qwen25   = tagged("<tool_call>", "</tool_call>", gapKeep, true, false, false)
	nemotron = tagged("<TOOLCALL>", "</TOOLCALL>", gapKeep, false, true, true)
	jamba    = tagged("<tool_calls>", "</tool_calls>", gapBetween, false, true, false)

	// defaultFormat takes the words of two formats; its blocks end with their JSON.
	defaultFormat = (&grammar{
		rule: gapFirst,
		bare: bareJSON(true),
		openers: []opener{
			{word: "<TOOLCALL>", closer: func() closer { return &afterJSON{closing: "</TOOLCALL>"} }, read: jsonBlock(false, true), verbatim: true},
			{word: "<|python_tag|>", closer: func() closer { return &afterJSON{separator: ';'} }, read: jsonSequence},
		},
	}).prepare()

	llama3 = (&grammar{
		rule:    gapLead,
		bare:    bareJSON(false),
		openers: []opener{{word: "<|python_tag|>", closer: func() closer { return &afterJSON{separator: ';'} }, read: jsonSequence, strict: true}},
	}).prepare()

	// phi4 begins its calls with an ordinary word, which counts only with JSON behind it.
	phi4 = (&grammar{
		bare:    bareJSON(false),
		openers: []opener{{word: "functools", closer: func() closer { return &afterJSON{text: true} }, read: jsonLeadingWhole, strict: true}},
	}).prepare()

	mistral = (&grammar{
		bare: func(text string, cut bool) ([]found, bool) { return jsonLeading(text, cut, nil) },
		openers: []opener{
			{word: "[TOOL_CALLS]", closer: func() closer { return &afterJSON{closing: "[/TOOL_CALLS]"} }, read: jsonLeading, strict: true},
			{word: "[/TOOL_CALLS]", markup: true},
		},
	}).prepare()
)

// jsonLeadingWhole reads complete payloads only.
func jsonLeadingWhole(block string, cut bool, _ []Tool) ([]found, bool) {
	if cut {
		return nil, false
	}
	calls, _ := jsonCalls(block, false)
	return calls, len(calls) > 0
}
