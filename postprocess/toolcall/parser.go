package toolcall

import (
	"fmt"
	"slices"
	"strings"
)

// Tool is one function that the request offers to the model.
type Tool struct {
	Name string
	// Parameters is the JSON schema of the arguments, raw; nil when there is none. Formats without types of their own read
	// their values by it.
	Parameters []byte
	// Strict is what the tool itself says about following that schema; nil when it says nothing.
	Strict *bool
}

// Call is one tool call, complete or, with forced calls that stream, a part of one: ID and Name come with the first part only.
type Call struct {
	// Index counts the calls of an answer from 0.
	Index int
	// ID names the call; its shape depends on the format.
	ID string
	// Name is the function's name as the model wrote it: it need not be one of the tools.
	Name string
	// Arguments is JSON text, or what the model wrote in its place.
	Arguments string
}

// Piece is one thing that a parser found; exactly one kind is set.
type Piece struct {
	Content string
	Calls   []Call
}

// Version selects between the two generations of parsers that the field knows.
type Version int

const (
	// Version1 is the default: what stands between and after calls is partly dropped, as the format's first parsers do.
	Version1 Version = 1
	// Version2 keeps all text outside of calls. Formats without a second generation behave as in version 1.
	Version2 Version = 2
)

// Options say how a parser works for one answer.
type Options struct {
	Tools []Tool
	// Version is Version1 when 0.
	Version Version
	// Paired tells that a reasoning parser reads the text first. A few formats exist only in that company.
	Paired bool
	// FirstCallOnly ignores all calls after the first: parallel_tool_calls false.
	FirstCallOnly bool
	// Only is the one function whose calls count; "" counts all.
	Only string
	// NewID makes the variable part of a call's id, an UUID with dashes; nil makes random ones.
	NewID func() string
}

// End says how an answer ended.
type End struct {
	// Called tells that there was at least one call.
	Called bool
	// Truncated tells that the answer broke off inside a call in a format whose users count that as running out of tokens,
	// whatever the engine says.
	Truncated bool
	// Unfinished tells that the answer broke off inside a call, of which nothing was kept.
	Unfinished bool
}

// Parser reads the text of one answer. Methods are called from one goroutine at a time.
type Parser struct {
	machine machine
	out     sink
	done    bool
}

// machine is the reader of one format.
type machine interface {
	feed(text string, out *sink)
	finish(out *sink) (truncated bool)
}

// sink is where machines put what they find.
type sink struct {
	emit      func(Piece)
	ids       idSource
	calls     int
	firstOnly bool
	only      string
	tools     []Tool
	open      bool // the text ended inside a call
}

func (s *sink) text(text string) {
	if text != "" {
		s.emit(Piece{Content: text})
	}
}

// found is a call before it has its place and id.
type found struct {
	name, arguments string
	id              string // "" makes one
}

func (s *sink) call(list ...found) {
	var calls []Call
	for _, f := range list {
		if s.firstOnly && s.calls > 0 {
			break
		}
		if s.only != "" && f.name != s.only {
			continue
		}
		id := f.id
		if id == "" {
			id = s.ids.next()
		}
		calls = append(calls, Call{Index: s.calls, ID: id, Name: f.name, Arguments: f.arguments})
		s.calls++
	}
	if len(calls) > 0 {
		s.emit(Piece{Calls: calls})
	}
}

// New returns the parser of a format. The error for an unknown name lists the known ones.
func New(name string, options Options) (*Parser, error) {
	if options.Version == 0 {
		options.Version = Version1
	}
	format, ok := formats[name]
	if !ok {
		return nil, fmt.Errorf("tool-call parser %q is not known; known are %s", name, strings.Join(Names(), ", "))
	}
	p := &Parser{machine: format.make(options)}
	p.out = sink{ids: idSource{style: format.ids(options.Version), random: options.NewID}, firstOnly: options.FirstCallOnly, only: options.Only, tools: options.Tools}
	return p, nil
}

// Names returns the names of all formats, sorted.
func Names() []string {
	names := make([]string, 0, len(formats))
	for name := range formats {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Known tells whether New accepts the name.
func Known(name string) bool {
	_, ok := formats[name]
	return ok
}

// NeedsSpecialTokens tells whether the format's markers are special tokens, which the detokenizer must then show.
func NeedsSpecialTokens(name string) bool { return formats[name].special }

// Always tells whether the format is to be read even when the request offers no tools, because answers in it are never plain text.
func Always(name string) bool { return formats[name].always }

// Feed adds text of the answer. emit is called for each piece that is now certain.
func (p *Parser) Feed(text string, emit func(Piece)) {
	if text == "" || p.done {
		return
	}
	p.out.emit = emit
	p.machine.feed(text, &p.out)
}

// Finish ends the answer; emit is called for what was held back. Later calls do nothing.
func (p *Parser) Finish(emit func(Piece)) End {
	if p.done {
		return End{Called: p.out.calls > 0}
	}
	p.done = true
	p.out.emit = emit
	truncated := p.machine.finish(&p.out)
	return End{Called: p.out.calls > 0, Truncated: truncated, Unfinished: p.out.open}
}

// Parse reads a whole answer at once. It is Feed and Finish in one.
func Parse(name, text string, options Options) (content string, calls []Call, end End, err error) {
	p, err := New(name, options)
	if err != nil {
		return "", nil, End{}, err
	}
	var b strings.Builder
	collect := func(piece Piece) {
		b.WriteString(piece.Content)
		calls = append(calls, piece.Calls...)
	}
	p.Feed(text, collect)
	end = p.Finish(collect)
	return b.String(), calls, end, nil
}
