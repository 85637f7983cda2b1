package toolcall

import "strings"

// Gemma 4: <|tool_call>call:NAME{key:<|"|>text<|"|>,other:1}<tool_call|>, with bare keys and strings between tokens.

const (
	gemmaCall  = "<|tool_call>"
	gemmaDone  = "<tool_call|>"
	gemmaQuote = `<|"|>`
)

// gemmaCloser ends a block at its end word outside of strings.
type gemmaCloser struct {
	at     int
	inside bool // in a string
}

func (g *gemmaCloser) find(block string) (content, next int, status closing) {
	for g.at < len(block) {
		rest := block[g.at:]
		i := strings.IndexByte(rest, '<')
		if i < 0 {
			g.at = len(block)
			break
		}
		g.at += i
		rest = rest[i:]
		switch quote, done := word(rest, gemmaQuote, closingBroken), word(rest, gemmaDone, closingBroken); {
		case quote == closingDone:
			g.inside = !g.inside
			g.at += len(gemmaQuote)
		case done == closingDone && !g.inside:
			return g.at, g.at + len(gemmaDone), closingDone
		case quote == closingMore, done == closingMore:
			return 0, 0, closingMore
		default:
			g.at++
		}
	}
	return 0, 0, closingMore
}

func readGemma(block string, cut bool, _ []Tool) ([]found, bool) {
	body, ok := strings.CutPrefix(block, "call:")
	name, body, braced := strings.Cut(body, "{")
	if cut {
		body = strings.TrimRight(body, " \n\t\r")
	}
	body, closed := strings.CutSuffix(body, "}")
	if !ok || !braced || !closed || name == "" || strings.Trim(name, gemmaNameBytes) != "" {
		return nil, false
	}
	r := gemmaReader{text: body}
	arguments, ok := r.members()
	if r.space(); !ok || r.at != len(r.text) {
		if cut {
			return nil, false
		}
		arguments = "{}"
	}
	return []found{{name: name, arguments: arguments}}, true
}

const (
	gemmaWordBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
	gemmaNameBytes = gemmaWordBytes + "-."
)

// gemmaConstants are the spellings of JSON's constants, in any case.
var gemmaConstants = [][2]string{{"true", "true"}, {"false", "false"}, {"null", "null"}, {"none", "null"}, {"nil", "null"}}

// gemmaReader turns the notation into JSON.
type gemmaReader struct {
	text  string
	at    int
	depth int
}

func (r *gemmaReader) space() { r.at += leadingSpace(r.text[r.at:]) }

func (r *gemmaReader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *gemmaReader) take(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

// members reads what is between the braces of an object.
func (r *gemmaReader) members() (string, bool) {
	if r.depth++; r.depth > maxDepth {
		return "", false
	}
	defer func() { r.depth-- }()
	var o object
	r.space()
	if c := r.peek(); c == 0 || c == '}' {
		return "{}", true
	}
	for {
		r.space()
		start := r.at
		for r.at < len(r.text) && strings.IndexByte(gemmaNameBytes, r.text[r.at]) >= 0 {
			r.at++
		}
		key := r.text[start:r.at]
		r.space()
		if key == "" || !r.take(':') {
			return "", false
		}
		r.space()
		value, ok := `""`, true
		if c := r.peek(); c != 0 && c != ',' && c != '}' {
			value, ok = r.value()
		}
		if !ok {
			return "", false
		}
		o.set(key, value)
		r.space()
		if !r.take(',') {
			return o.String(), true
		}
	}
}

func (r *gemmaReader) value() (string, bool) {
	r.space()
	rest := r.text[r.at:]
	if content, ok := strings.CutPrefix(rest, gemmaQuote); ok {
		content, _, closed := strings.Cut(content, gemmaQuote)
		r.at += len(gemmaQuote) + len(content)
		if closed {
			r.at += len(gemmaQuote)
		}
		return quoted(content), true
	}
	if r.take('{') {
		value, ok := r.members()
		r.space()
		return value, ok && r.take('}')
	}
	if r.take('[') {
		return r.items()
	}
	for _, constant := range gemmaConstants {
		spelled := constant[0]
		if len(rest) >= len(spelled) && strings.EqualFold(rest[:len(spelled)], spelled) &&
			(len(rest) == len(spelled) || strings.IndexByte(gemmaWordBytes, rest[len(spelled)]) < 0) {
			r.at += len(spelled)
			return constant[1], true
		}
	}
	n := jsonReader{text: rest}
	if !n.number() {
		return "", false
	}
	r.at += n.at
	return compactString(rest[:n.at])
}

func (r *gemmaReader) items() (string, bool) {
	if r.depth++; r.depth > maxDepth {
		return "", false
	}
	defer func() { r.depth-- }()
	b := []byte{'['}
	if r.space(); r.take(']') {
		return "[]", true
	}
	for {
		value, ok := r.value()
		if !ok {
			return "", false
		}
		b = append(b, value...)
		switch r.space(); {
		case r.take(']'):
			return string(append(b, ']')), true
		case !r.take(','):
			return "", false
		}
		b = append(b, ',')
	}
}

func gemmaGrammar(rule gapRule) *grammar {
	return (&grammar{rule: rule, openers: []opener{
		{word: gemmaCall, closer: func() closer { return &gemmaCloser{} }, read: readGemma},
		{word: gemmaDone, markup: true},
	}}).prepare()
}

var (
	gemma4  = gemmaGrammar(gapOutside)
	gemma42 = gemmaGrammar(gapKeep)
)

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
	return (&grammar{rule: gapOutside, openers: []opener{inklingOpener(header, true), joined, inklingOpener(inklingInvoke, false)}}).prepare()
}

var inkling = inklingGrammar()
