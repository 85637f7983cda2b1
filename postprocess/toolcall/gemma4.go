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

var gemma4 = (&grammar{openers: []opener{
	{word: gemmaCall, closer: func() closer { return &gemmaCloser{} }, read: readGemma},
	{word: gemmaDone, markup: true},
}}).prepare()
