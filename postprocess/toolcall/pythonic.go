package toolcall

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"signalbox/postprocess/internal/marker"
)

// Calls as Python writes them: [f(a=1, b='x'), g()]. The list is found by its first bracket that begins like one; text before it is
// shown without the white space next to the list, and what follows it is dropped.

var pythonicWords = marker.NewSet("[", "<|python_start|>", "<|python_end|>")

type pythonic struct {
	held  string          // may begin a word
	space strings.Builder // white space that waits for what follows it
	list  strings.Builder
	in    bool
	scan  pythonScanner
	done  bool
}

func (p *pythonic) feed(text string, out *sink) { p.run(text, true, out) }

func (p *pythonic) run(text string, more bool, out *sink) {
	for text != "" && !p.done {
		if p.in {
			text = p.inside(text, out)
			continue
		}
		text, p.held = p.held+text, ""
		m := pythonicWords.Search(text, more)
		p.text(text[:m.At], out)
		if m.Word == "" {
			p.held = text[m.At:]
			return
		}
		text = text[m.At:]
		if m.Word == "[" {
			p.in, p.scan = true, pythonScanner{}
			p.list.Reset()
		} else {
			text = text[len(m.Word):]
		}
	}
}

// text shows text but for the white space at its end.
func (p *pythonic) text(text string, out *sink) {
	shown := strings.TrimRight(text, " \n\t\r")
	if shown != "" {
		out.text(p.takeSpace() + shown)
	}
	p.space.WriteString(text[len(shown):])
}

func (p *pythonic) takeSpace() string {
	text := p.space.String()
	p.space.Reset()
	return text
}

// inside takes text of what may be a list.
func (p *pythonic) inside(text string, out *sink) string {
	step := text
	if len(step) > blockStep {
		end := blockStep
		for end < len(text) && end < blockStep+utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end++
		}
		step = text[:end]
	}
	before := p.list.Len()
	p.list.WriteString(step)
	list := p.list.String()
	end, status := p.scan.find(list)
	if status == closingMore {
		if len(list) <= maxBlock {
			return text[len(step):]
		}
		end, status = len(list), closingBroken
	}
	p.in = false
	if status == closingDone {
		if calls, ok := pythonCalls(list[:end]); ok {
			p.done = true
			p.takeSpace()
			out.call(calls...)
			return ""
		}
	}
	p.text(list[:end], out)
	return text[end-before:]
}

func (p *pythonic) finish(out *sink) bool {
	p.run("", false, out)
	if p.done {
		return false
	}
	if p.in {
		out.open = true
		p.text(p.list.String(), out)
	}
	p.text(p.held, out)
	out.text(p.takeSpace())
	return false
}

// pythonScanner finds the end of a list of calls.
type pythonScanner struct {
	at     int
	begun  bool
	named  bool
	quote  byte
	escape bool
	open   []byte
}

func (s *pythonScanner) find(list string) (end int, status closing) {
	for ; s.at < len(list); s.at++ {
		c := list[s.at]
		switch {
		case s.escape:
			s.escape = false
		case s.quote != 0:
			if c == '\\' {
				s.escape = true
			} else if c == s.quote {
				s.quote = 0
			}
		case !s.begun:
			s.begun, s.open = true, append(s.open, ']')
		case !s.named:
			// The first call must look like one.
			switch {
			case c == '(':
				s.named, s.open = true, append(s.open, ')')
			case !identifierByte(c):
				return s.at, closingBroken
			}
		case c == '\'' || c == '"':
			s.quote = c
		case c == '(' || c == '[' || c == '{':
			if len(s.open) > maxDepth {
				return s.at, closingBroken
			}
			s.open = append(s.open, map[byte]byte{'(': ')', '[': ']', '{': '}'}[c])
		case c == ')' || c == ']' || c == '}':
			last := len(s.open) - 1
			if s.open[last] != c {
				return s.at, closingBroken
			}
			if s.open = s.open[:last]; last == 0 {
				return s.at + 1, closingDone
			}
		}
	}
	return 0, closingMore
}

func identifierByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// pythonReader reads the literals of a call.
type pythonReader struct {
	text  string
	at    int
	depth int
}

// pythonCalls reads a whole list; all of its elements must be calls with named arguments.
func pythonCalls(list string) (calls []found, ok bool) {
	r := pythonReader{text: list}
	r.take('[')
	for {
		r.space()
		name := r.identifier()
		if r.space(); name == "" || !r.take('(') {
			return nil, false
		}
		arguments, ok := r.arguments()
		if !ok {
			return nil, false
		}
		calls = append(calls, found{name: name, arguments: arguments})
		r.space()
		if r.take(',') {
			if r.space(); r.take(']') {
				return calls, true
			}
			continue
		}
		return calls, r.take(']')
	}
}

func (r *pythonReader) space() { r.at += leadingSpace(r.text[r.at:]) }

func (r *pythonReader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *pythonReader) take(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

func (r *pythonReader) identifier() string {
	start := r.at
	for r.at < len(r.text) && identifierByte(r.text[r.at]) {
		r.at++
	}
	if name := r.text[start:r.at]; name != "" && (name[0] < '0' || name[0] > '9') {
		return name
	}
	return ""
}

// arguments reads up to the closing parenthesis. A value that is no constant is left out.
func (r *pythonReader) arguments() (string, bool) {
	var o object
	for {
		if r.space(); r.take(')') {
			return o.String(), true
		}
		key := r.identifier()
		if r.space(); key == "" || !r.take('=') {
			return "", false
		}
		start := r.at
		value, ok := r.value()
		if r.space(); ok && (r.peek() == ',' || r.peek() == ')') {
			o.set(key, value)
		} else if r.at = start; !r.skip() {
			return "", false
		}
		if r.space(); !r.take(',') && r.peek() != ')' {
			return "", false
		}
	}
}

// skip passes over an expression.
func (r *pythonReader) skip() bool {
	depth := 0
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case '\'', '"':
			if _, ok := r.stringText(); !ok {
				return false
			}
			continue
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth == 0 {
				return true
			}
			depth--
		case ',':
			if depth == 0 {
				return true
			}
		}
		r.at++
	}
	return false
}

// value reads a constant and returns it as JSON.
func (r *pythonReader) value() (string, bool) {
	if r.depth++; r.depth > maxDepth {
		return "", false
	}
	defer func() { r.depth-- }()
	r.space()
	switch c := r.peek(); {
	case c == '\'' || c == '"':
		var b []byte
		for r.peek() == '\'' || r.peek() == '"' { // strings side by side are one
			text, ok := r.stringText()
			if !ok {
				return "", false
			}
			b = append(b, text...)
			r.space()
		}
		return quoted(string(b)), true
	case c == '[':
		r.at++
		return r.listValue()
	case c == '{':
		r.at++
		return r.dictValue()
	case c >= '0' && c <= '9' || c == '.':
		return r.numberValue()
	}
	switch r.identifier() {
	case "True":
		return "true", true
	case "False":
		return "false", true
	case "None":
		return "null", true
	}
	return "", false
}

func (r *pythonReader) listValue() (string, bool) {
	b := []byte{'['}
	for {
		if r.space(); r.take(']') {
			return string(append(b, ']')), true
		}
		value, ok := r.value()
		if !ok {
			return "", false
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, value...)
		if r.space(); !r.take(',') && r.peek() != ']' {
			return "", false
		}
	}
}

func (r *pythonReader) dictValue() (string, bool) {
	var o object
	for {
		if r.space(); r.take('}') {
			return o.String(), true
		}
		key, ok := r.value()
		if r.space(); !ok || !r.take(':') {
			return "", false
		}
		value, ok := r.value()
		if !ok {
			return "", false
		}
		if key[0] == '"' {
			key = stringOf(key)
		}
		o.set(key, value)
		if r.space(); !r.take(',') && r.peek() != '}' {
			return "", false
		}
	}
}

func (r *pythonReader) numberValue() (string, bool) {
	start := r.at
	for r.at < len(r.text) && (identifierByte(r.text[r.at]) || r.text[r.at] == '.' ||
		(r.text[r.at] == '+' || r.text[r.at] == '-') && r.at > start && (r.text[r.at-1] == 'e' || r.text[r.at-1] == 'E')) {
		r.at++
	}
	text := strings.ReplaceAll(r.text[start:r.at], "_", "")
	if n, ok := new(big.Int).SetString(text, 0); ok && (len(text) < 2 || text[0] != '0' || text[1] < '0' || text[1] > '9') {
		if n.IsInt64() || n.IsUint64() {
			return n.String(), true
		}
		return quoted(n.String()), true // no JSON reader keeps it as a number
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.ContainsAny(text, "xXpPiInN") {
		return "", false
	}
	return string(appendFloat(nil, f)), true
}

// stringText reads one string literal.
func (r *pythonReader) stringText() (string, bool) {
	quote := r.text[r.at]
	r.at++
	triple := string([]byte{quote, quote})
	if strings.HasPrefix(r.text[r.at:], triple) {
		r.at += 2
		if r.peek() != quote {
			return "", true
		}
		r.at++
		triple += string(quote)
	} else {
		triple = string(quote)
	}
	var b []byte
	for r.at < len(r.text) {
		if strings.HasPrefix(r.text[r.at:], triple) {
			r.at += len(triple)
			return string(b), true
		}
		c := r.text[r.at]
		r.at++
		if c != '\\' || r.at >= len(r.text) {
			b = append(b, c)
			continue
		}
		c = r.text[r.at]
		r.at++
		switch c {
		case 'n':
			b = append(b, '\n')
		case 't':
			b = append(b, '\t')
		case 'r':
			b = append(b, '\r')
		case '0':
			b = append(b, 0)
		case '\\', '\'', '"':
			b = append(b, c)
		case '\n':
		case 'x', 'u', 'U':
			size := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if r.at+size > len(r.text) {
				return "", false
			}
			code, err := strconv.ParseUint(r.text[r.at:r.at+size], 16, 32)
			if err != nil {
				return "", false
			}
			r.at += size
			b = utf8.AppendRune(b, rune(code))
		default:
			b = append(b, '\\', c)
		}
	}
	return "", false
}
