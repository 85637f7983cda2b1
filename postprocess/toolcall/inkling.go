package toolcall

import "strings"

// Inkling: <|message_model|>NAME<|content_invoke_tool_json|>{"name": NAME, "args": {..}}<|end_message|>.

const inklingInvoke = "<|content_invoke_tool_json|>"

// inklingCloser takes the header up to the invocation, then a JSON value with the end's word behind it.
type inklingCloser struct {
	header bool // the header is still to be read
	seen   int
	start  int // of the JSON
	json   afterJSON
}

func (c *inklingCloser) find(block string) (content, next int, status closing) {
	if c.header {
		from := max(0, c.seen-len(inklingInvoke)+1)
		c.seen = len(block)
		at := strings.Index(block[from:], inklingInvoke)
		if end := strings.Index(block[from:], "<|end_message|>"); end >= 0 && (at < 0 || end < at) {
			// A message of another kind.
			return from + end, from + end + len("<|end_message|>"), closingBroken
		}
		if at < 0 {
			return 0, 0, closingMore
		}
		c.header, c.start = false, from+at+len(inklingInvoke)
	}
	content, next, status = c.json.find(block[c.start:])
	return content + c.start, next + c.start, status
}

// complete implements completer: the end's word may be missing at the answer's end.
func (c *inklingCloser) complete() (int, bool) { return c.start + c.json.value, c.json.value > 0 }

func readInkling(block string, _ bool, _ []Tool) ([]found, bool) {
	if _, after, ok := strings.Cut(block, inklingInvoke); ok {
		block = after
	}
	call, ok := jsonCall(strings.TrimSpace(block), true, "args")
	if !ok || call.name == "" {
		return nil, false
	}
	return []found{call}, true
}

func inklingOpener(word string, header bool) opener {
	return opener{word: word, read: readInkling, closer: func() closer {
		return &inklingCloser{header: header, json: afterJSON{fence: "<|end_message|>"}}
	}}
}

func inklingGrammar() *grammar {
	const header, end = "<|message_model|>", "<|end_message|>"
	// The end of a message before the call is part of the markup; before anything else it is shown.
	joined := inklingOpener(end+header, true)
	joined.instead = end
	return (&grammar{openers: []opener{inklingOpener(header, true), joined, inklingOpener(inklingInvoke, false)}}).prepare()
}

var inkling = inklingGrammar()
