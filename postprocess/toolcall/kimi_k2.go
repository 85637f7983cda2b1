package toolcall

import (
	"regexp"
	"strings"
)

// Kimi K2: sections of calls that carry their own ids.

const (
	kimiCall     = "<|tool_call_begin|>"
	kimiArgument = "<|tool_call_argument_begin|>"
	kimiDone     = "<|tool_call_end|>"
)

var kimiID = regexp.MustCompile(`^[\w.\-]+:\d+$`)

func readKimiK2(block string, _ bool, _ []Tool) (calls []found, ok bool) {
	for {
		_, rest, begun := strings.Cut(block, kimiCall)
		id, rest, argued := strings.Cut(rest, kimiArgument)
		if !begun || !argued {
			break
		}
		if at := strings.LastIndex(id, kimiCall); at >= 0 {
			id = id[at+len(kimiCall):] // the call before it was never finished
		}
		text, rest, closed := kimiArguments(rest)
		if !closed {
			break
		}
		block = rest
		if id = strings.TrimSpace(id); !kimiID.MatchString(id) {
			continue
		}
		name := strings.TrimPrefix(id[:strings.LastIndexByte(id, ':')], "functions.")
		if name == "" {
			name = id
		}
		if value, ok := compactString(text); ok {
			text = value
		}
		calls = append(calls, found{name: name, arguments: text, id: id})
	}
	return calls, len(calls) > 0
}

// kimiArguments cuts the arguments from what follows them: a JSON value may hold the end's word in a string.
func kimiArguments(text string) (arguments, rest string, ok bool) {
	r := jsonReader{text: text}
	if value, valid := r.value(); valid {
		after := text[r.at:]
		end, next := strings.Index(after, kimiDone), strings.Index(after, kimiCall)
		if end >= 0 && (next < 0 || end < next) {
			return value, after[end+len(kimiDone):], true
		}
	}
	arguments, rest, ok = strings.Cut(text, kimiDone)
	return strings.TrimSpace(arguments), rest, ok
}

func kimiGrammar() *grammar {
	section := func(word string) opener {
		return opener{word: word, closer: until("<|tool_calls_section_end|>", "<|tool_call_section_end|>"), read: readKimiK2}
	}
	return (&grammar{openers: []opener{
		section("<|tool_calls_section_begin|>"), section("<|tool_call_section_begin|>"),
		{word: kimiCall, closer: until(kimiDone), bare: true, read: func(block string, cut bool, tools []Tool) ([]found, bool) {
			if cut {
				return nil, false
			}
			return readKimiK2(kimiCall+block+kimiDone, cut, tools)
		}},
	}}).prepare()
}

var kimiK2 = kimiGrammar()
