package postprocess

import (
	"strings"

	"signalbox/postprocess/reasoning"
	"signalbox/postprocess/toolcall"
)

// Parsers are the names of a model's parsers, as its worker registered them; "" for none.
type Parsers struct {
	Tool, Reasoning string
	// Version is the generation of parsers; 0 is the first.
	Version toolcall.Version
}

// Choice says whether and how the model may call tools.
type Choice uint8

const (
	// Auto leaves it to the model.
	Auto Choice = iota
	// None forbids calls: their markup stays text.
	None
	// Required demands at least one call.
	Required
	// Named demands a call of one function.
	Named
)

// Request is what a request says about its answer.
type Request struct {
	Tools    []toolcall.Tool
	Choice   Choice
	Function string // with Named
	// FirstCallOnly keeps one call.
	FirstCallOnly bool
	// NativeCalls tells that calls which the request forces are in the model's own markup (see [Parsers.CallTag]).
	NativeCalls bool
	// Answer is the schema of the answer where the request asks for JSON and calls may come in its place, raw; nil for none.
	Answer []byte
	// JSON tells that the answer itself is to be a JSON document.
	JSON bool
	// Prompt is the rendered prompt; its end tells whether the answer starts inside reasoning.
	Prompt   string
	Thinking Thinking
	// Whole tells that the client reads the answer as one.
	Whole bool
	// FillContent shows the reasoning as content when the answer has no other.
	FillContent bool
}

// Piece is one thing that a stage found; exactly one kind is set.
type Piece struct {
	Content   string
	Reasoning string
	Calls     []toolcall.Call
}

// Finish says why an answer ended, as far as parsers change it.
type Finish uint8

const (
	// Unchanged leaves the engine's reason.
	Unchanged Finish = iota
	// ToolCalls replaces the engine's stop, or its silence: there were calls.
	ToolCalls
	// Length replaces the engine's stop: the answer broke off inside a call.
	Length
)

// Stage reads the text of one answer: first reasoning, then calls in what remains. Methods are called from one goroutine at a time.
type Stage struct {
	reasoning *reasoning.Parser
	tool      *toolcall.Parser
	silent    bool // calls are read but not allowed
	held      bool // text was given to the tool-call parser
	emit      func(Piece)
	fill      *filler

	// The functions that parsers call are made once.
	takeReasoning func(reasoning.Piece)
	takeTool      func(toolcall.Piece)
}

// ForcesCalls tells whether the request makes the worker write calls.
func (r *Request) ForcesCalls() bool {
	return (r.Choice == Required || r.Choice == Named) && len(r.Tools) > 0
}

// New returns the stage of one answer; nil when its text needs no reading.
func New(p Parsers, r Request) *Stage {
	p = p.effective()
	s := &Stage{}
	if p.Reasoning != "" {
		s.reasoning = newReasoning(p, r)
	}
	options := toolcall.Options{Tools: r.Tools, Version: p.Version, Paired: p.Reasoning != "", FirstCallOnly: r.FirstCallOnly}
	allowed := len(r.Tools) > 0 && r.Choice != None
	switch {
	case r.ForcesCalls() && (r.NativeCalls || toolcall.AlwaysStructured(p.Tool, r.Choice == Named)):
		options.Only = r.Function
		s.tool, _ = toolcall.New(p.Tool, options)
	case allowed && r.ForcesCalls():
		s.tool = toolcall.NewForced(r.Function, p.Tool, r.Whole, options)
	case p.Tool != "" && (allowed || toolcall.Always(p.Tool)):
		s.tool, _ = toolcall.New(p.Tool, options) // an unknown parser leaves the text alone
		s.silent = !allowed
	}
	if s.reasoning == nil && s.tool == nil {
		return nil
	}
	if r.FillContent && s.reasoning != nil {
		s.fill = &filler{}
	}
	s.takeReasoning = func(piece reasoning.Piece) {
		switch {
		case piece.Reasoning != "":
			s.show(Piece{Reasoning: piece.Reasoning})
		case s.tool != nil:
			s.held = true
			s.tool.Feed(piece.Content, s.takeTool)
		default:
			s.show(Piece{Content: piece.Content})
		}
	}
	s.takeTool = func(piece toolcall.Piece) {
		if len(piece.Calls) > 0 && s.silent {
			return
		}
		s.show(Piece{Content: piece.Content, Calls: piece.Calls})
	}
	return s
}

// effective completes the names: formats of one piece have both parsers when they have one.
func (p Parsers) effective() Parsers {
	switch {
	case isMuse(p.Tool) && !isMuse(p.Reasoning):
		p.Reasoning = p.Tool
	case p.Tool == "" && (p.Reasoning == "kimi_k3" || p.Reasoning == "kimi-k3"):
		p.Tool = p.Reasoning // takes the channels' marks off
	}
	return p
}

func isMuse(name string) bool { return name == "muse" || name == "muse_glimmer" }

// NeedsSpecialTokens tells whether the parsers need special tokens to show in the text.
func (p Parsers) NeedsSpecialTokens() bool {
	return toolcall.NeedsSpecialTokens(p.Tool) || reasoning.NeedsSpecialTokens(p.Reasoning)
}

// Unknown returns what is wrong with the names: one text for each that no parser has.
func (p Parsers) Unknown() (problems []string) {
	if p.Tool != "" && !toolcall.Known(p.Tool) {
		_, err := toolcall.New(p.Tool, toolcall.Options{})
		problems = append(problems, err.Error()+"; the text of answers is left alone")
	}
	if p.Reasoning != "" && !reasoning.Known(p.Reasoning) {
		_, err := reasoning.New(p.Reasoning, reasoning.Options{})
		problems = append(problems, err.Error()+"; basic is used")
	}
	return problems
}

func newReasoning(p Parsers, r Request) *reasoning.Parser {
	name := p.Reasoning
	if !reasoning.Known(name) {
		name = "basic"
	}
	allowed := len(r.Tools) > 0 && r.Choice != None
	parser, _ := reasoning.New(name, reasoning.Options{
		Begun:            r.begun(Parsers{Reasoning: name}),
		Off:              r.Thinking.off(name),
		JSON:             r.JSON || r.ForcesCalls() && !r.NativeCalls,
		KeepCalls:        p.Tool != "" && allowed,
		SecondGeneration: p.Version == toolcall.Version2,
	})
	return parser
}

// Feed adds text of the answer. emit is called for each piece that is now certain.
func (s *Stage) Feed(text string, emit func(Piece)) {
	s.emit = emit
	if s.reasoning != nil {
		s.reasoning.Feed(text, s.takeReasoning)
		return
	}
	s.held = true
	s.tool.Feed(text, s.takeTool)
}

// HoldsCall tells, while nothing was found yet, whether text waits that may be a call.
func (s *Stage) HoldsCall() bool { return s.held }

// Finish ends the answer; emit is called for what was held back.
func (s *Stage) Finish(emit func(Piece)) Finish {
	s.emit = emit
	if s.reasoning != nil {
		s.reasoning.Finish(s.takeReasoning)
	}
	var end toolcall.End
	if s.tool != nil {
		end = s.tool.Finish(s.takeTool)
	}
	if s.fill != nil {
		s.fill.finish(emit)
	}
	switch {
	case end.Called && !s.silent:
		return ToolCalls
	case end.Truncated && !s.silent:
		return Length
	}
	return Unchanged
}

func (s *Stage) show(piece Piece) {
	if s.fill != nil {
		s.fill.take(piece, s.emit)
		return
	}
	s.emit(piece)
}

// filler holds reasoning back until there is content, and shows it as content when there never is.
type filler struct {
	reasoning, content strings.Builder
	passed             bool
}

func (f *filler) take(piece Piece, emit func(Piece)) {
	if !f.passed && len(piece.Calls) == 0 && strings.TrimSpace(piece.Content) == "" {
		f.reasoning.WriteString(piece.Reasoning)
		f.content.WriteString(piece.Content)
		return
	}
	f.release(emit)
	emit(piece)
}

func (f *filler) release(emit func(Piece)) {
	if f.passed {
		return
	}
	f.passed = true
	if text := f.reasoning.String(); text != "" {
		emit(Piece{Reasoning: text})
	}
	if text := f.content.String(); text != "" {
		emit(Piece{Content: text})
	}
}

func (f *filler) finish(emit func(Piece)) {
	if f.passed {
		return
	}
	if text := f.reasoning.String(); strings.TrimSpace(text) != "" {
		f.passed = true
		emit(Piece{Content: text})
		return
	}
	f.release(emit)
}
