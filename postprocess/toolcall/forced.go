package toolcall

import "strings"

// NewForced returns the parser of an answer that must be calls, because the worker was told to write JSON: an array of objects with
// "name" and "parameters" or, with function, that function's bare arguments. Arguments are passed on piece by piece as they come. A
// worker that writes its own format instead is read by the parser called native; "" has none, and text that is no JSON is then shown.
//
// whole says that the client reads the answer as one: a call that broke off is left out.
func NewForced(function, native string, whole bool, options Options) *Parser {
	if !Known(native) {
		native = ""
	}
	p := &Parser{machine: &forced{function: function, native: native, whole: whole, options: options, from: -1, to: -1}}
	p.out = sink{ids: idSource{random: options.NewID}, firstOnly: options.FirstCallOnly, tools: options.Tools}
	return p
}

// forcedState is what the answer turned out to be.
type forcedState uint8

const (
	forcedUndecided forcedState = iota // only white space came
	forcedJSON                         // JSON, read as it comes
	forcedCollected                    // something else, read at the end
	forcedShown                        // text
)

type forced struct {
	function string
	native   string
	whole    bool
	options  Options

	state   forcedState
	text    strings.Builder
	scanner jsonScanner
	read    int // how much of text was scanned
	over    bool

	// The element that is being read.
	keyDepth  int
	key       string
	keyAt     int // where the current string began
	valueAt   int // where the current member's value began; -1 outside of one
	begin     int // where the element began
	name      string
	named     bool
	from, to  int // the arguments; to is -1 while they last
	sent      int // how much of them was passed on
	committed bool
	blocked   bool // two candidates for the arguments: decided at the element's end

	calls []Call // with whole: gathered until the end
}

func (f *forced) feed(text string, out *sink) {
	if f.state == forcedShown {
		out.text(text)
		return
	}
	f.text.WriteString(text)
	if f.text.Len() > maxBlock && f.state != forcedJSON {
		f.state = forcedShown
		out.text(f.text.String())
		return
	}
	if f.state == forcedUndecided {
		f.decide(out)
	}
	if f.state == forcedJSON {
		f.scan(out)
	}
}

// decide looks at the first visible byte.
func (f *forced) decide(out *sink) {
	text := f.text.String()
	at := f.read + leadingSpace(text[f.read:])
	if f.read = at; at == len(text) {
		return
	}
	switch c := text[at]; {
	case c == '{':
		f.state, f.keyDepth, f.begin = forcedJSON, 1, at
		if f.function != "" {
			f.name, f.named, f.from = f.function, true, at
		}
	case c == '[' && f.function == "":
		f.state, f.keyDepth = forcedJSON, 2
	case c == '[' || f.native != "":
		f.state = forcedCollected
	default:
		f.state = forcedShown
		out.text(text)
	}
	f.valueAt = -1
}

// scan reads on and passes on what is certain.
func (f *forced) scan(out *sink) {
	text := f.text.String()
	for f.read < len(text) && !f.over {
		depth := len(f.scanner.open)
		state := f.scanner.state
		_, done, bad := f.scanner.scan(text[:f.read+1], f.read)
		if bad {
			f.over = true
			break
		}
		f.read++
		f.step(text, depth, state, out)
		if done {
			f.over = true
		}
	}
	f.pass(text, out)
}

// step follows the structure at the byte before f.read; depth and state are from before it.
func (f *forced) step(text string, depth int, state scanState, out *sink) {
	at, now := f.read-1, len(f.scanner.open)
	if f.function != "" {
		if now == 0 {
			f.to = f.read
		}
		return
	}
	switch {
	case now == f.keyDepth && depth == f.keyDepth-1 && text[at] == '{':
		f.begin, f.name, f.named, f.from, f.to, f.sent, f.committed, f.blocked, f.valueAt = at, "", false, -1, -1, 0, false, false, -1
		return
	case depth == f.keyDepth && (state == scanFirstKey || state == scanKey) && text[at] == '"':
		f.keyAt = at
	case depth == f.keyDepth && now == depth && f.scanner.state == scanColon && state == scanString:
		f.key = stringOf(text[f.keyAt:f.read])
	case depth == f.keyDepth && state == scanValue && leadingSpace(text[at:f.read]) == 0:
		f.valueAt = at
		if f.key == "arguments" || f.key == "parameters" {
			if f.from >= 0 || text[at] != '{' {
				f.blocked = true
			} else {
				f.from, f.to = at, -1
			}
		}
	}
	if now == f.keyDepth && f.scanner.state == scanNext && f.valueAt >= 0 && (state == scanString || now < depth) {
		switch {
		case f.from == f.valueAt:
			f.to = f.read
		case f.key == "name" && text[f.valueAt] == '"':
			f.name, f.named = stringOf(text[f.valueAt:f.read]), true
		}
		f.valueAt = -1
	}
	if now == f.keyDepth-1 && depth == f.keyDepth && text[at] == '}' {
		f.pass(text, out)
		if !f.committed {
			if call, ok := jsonCall(text[f.begin:f.read], false, "arguments", "parameters"); ok {
				f.name, f.named, f.from, f.to, f.blocked = call.name, true, 0, len(call.arguments), false
				f.pass(call.arguments, out)
			}
		}
		f.from, f.named = -1, false
	}
}

// pass passes on the arguments so far.
func (f *forced) pass(text string, out *sink) {
	if f.from < 0 || !f.named || f.blocked {
		return
	}
	if !f.committed {
		if out.firstOnly && out.calls > 0 {
			f.from = -1
			return
		}
		f.committed = true
		f.send(Call{Index: out.calls, ID: out.ids.next(), Name: f.name}, text, out)
		out.calls++
		return
	}
	f.send(Call{Index: out.calls - 1}, text, out)
}

func (f *forced) send(call Call, text string, out *sink) {
	end := f.to
	if end < 0 {
		end = min(f.read, len(text))
	}
	if from := f.from + f.sent; from < end {
		call.Arguments = text[from:end]
		f.sent = end - f.from
	} else if call.Name == "" {
		return
	}
	if !f.whole {
		out.emit(Piece{Calls: []Call{call}})
		return
	}
	if call.Name != "" {
		f.calls = append(f.calls, call)
	} else {
		f.calls[len(f.calls)-1].Arguments += call.Arguments
	}
}

func (f *forced) finish(out *sink) bool {
	if f.state == forcedShown {
		return false
	}
	if f.whole {
		out.calls = 0
		for _, call := range f.calls {
			if validJSON(call.Arguments) {
				call.Index = out.calls
				out.calls++
				out.emit(Piece{Calls: []Call{call}})
			}
		}
		f.committed = f.committed || len(f.calls) > 0
	}
	if f.committed || out.calls > 0 {
		out.open = !f.over
		return false
	}
	f.fallback(out)
	return false
}

// fallback reads an answer that was not the expected JSON.
func (f *forced) fallback(out *sink) {
	text := f.text.String()
	var calls []found
	if at := strings.IndexAny(text, "{["); at >= 0 {
		calls, _ = jsonCalls(text[at:], false)
	}
	unfinished := false
	if len(calls) == 0 && f.native != "" {
		options := f.options
		options.FirstCallOnly = false
		_, list, end, err := Parse(f.native, text, options)
		unfinished = err == nil && end.Unfinished
		for _, call := range list {
			calls = append(calls, found{name: call.Name, arguments: call.Arguments, id: call.ID})
		}
		var scanner jsonScanner
		if at := leadingSpace(text); at < len(text) && (text[at] == '{' || text[at] == '[') {
			_, done, bad := scanner.scan(text, at)
			unfinished = unfinished || !done && !bad
		}
	}
	wanted := calls
	if f.function != "" {
		wanted = nil
		for _, call := range calls {
			if call.name == f.function {
				wanted = append(wanted, call)
			}
		}
	}
	switch {
	case len(wanted) > 0:
		out.call(wanted...)
	case len(calls) == 0 && unfinished:
		out.open = true
	case len(calls) == 0:
		out.text(text)
	}
}
