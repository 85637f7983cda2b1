package reasoning

import (
	"fmt"
	"slices"
	"strings"
)

// Piece is text of one kind; exactly one member is set.
type Piece struct {
	Content   string
	Reasoning string
}

// Options say how a parser works for one answer.
type Options struct {
	// Begun tells that the prompt ended with the marker that begins reasoning, so the answer starts inside it.
	Begun bool
	// Off tells that the request switched reasoning off: all text is content.
	Off bool
	// JSON tells that the answer is to be a JSON document. One that begins like it is content from its first byte.
	JSON bool
	// KeepCalls passes messages to tools on as content, for a tool-call parser to read; else formats with channels drop them
	// where they cannot be shown.
	KeepCalls bool
	// SecondGeneration selects the newer of two parsers where there are two.
	SecondGeneration bool
}

// Parser reads the text of one answer. Methods are called from one goroutine at a time.
type Parser struct {
	machine machine
	emit    func(Piece)
	decide  strings.Builder // text of an answer that may be JSON, before that is known
	seen    int             // how much of it is white space
	json    bool
	bracket string // the format's first marker where it begins like JSON
	done    bool
}

// machine is the reader of one format.
type machine interface {
	feed(text string, out *Parser)
	finish(out *Parser)
}

func (p *Parser) content(text string) {
	if text != "" {
		p.emit(Piece{Content: text})
	}
}

func (p *Parser) reasoning(text string) {
	if text != "" {
		p.emit(Piece{Reasoning: text})
	}
}

// New returns the parser of a format. The error for an unknown name lists the known ones.
func New(name string, options Options) (*Parser, error) {
	format, ok := formats[strings.ToLower(name)]
	if !ok {
		return nil, fmt.Errorf("reasoning parser %q is not known; known are %s", name, strings.Join(Names(), ", "))
	}
	return &Parser{machine: format.make(options), json: options.JSON && !options.Off, bracket: format.bracket}, nil
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
	_, ok := formats[strings.ToLower(name)]
	return ok
}

// NeedsSpecialTokens tells whether the format's markers are special tokens, which the detokenizer must then show.
func NeedsSpecialTokens(name string) bool { return formats[strings.ToLower(name)].special }

// Opener returns the text at a prompt's end that tells that the answer starts inside reasoning.
func Opener(name string) string {
	if opener := formats[strings.ToLower(name)].opener; opener != "" {
		return opener
	}
	return "<think>"
}

// Feed adds text of the answer. emit is called for each piece that is now certain.
func (p *Parser) Feed(text string, emit func(Piece)) {
	if text == "" || p.done {
		return
	}
	p.emit = emit
	if p.json {
		p.decide.WriteString(text)
		all := p.decide.String()
		visible := strings.TrimLeft(all[p.seen:], " \n\t\r")
		p.seen = len(all) - len(visible)
		if len(visible) < len(p.bracket) && strings.HasPrefix(p.bracket, visible) || visible == "" {
			return
		}
		text, p.json = all, false
		p.decide.Reset()
		if visible[0] == '{' || visible[0] == '[' && (p.bracket == "" || !strings.HasPrefix(visible, p.bracket)) {
			p.machine = passed{}
		}
	}
	p.machine.feed(text, p)
}

// Finish ends the answer; emit is called for what was held back. Later calls do nothing.
func (p *Parser) Finish(emit func(Piece)) {
	if p.done {
		return
	}
	p.done = true
	p.emit = emit
	if text := p.decide.String(); text != "" {
		p.machine.feed(text, p)
	}
	p.machine.finish(p)
}

// Parse reads a whole answer at once. It is Feed and Finish in one.
func Parse(name, text string, options Options) (content, reasoning string, err error) {
	p, err := New(name, options)
	if err != nil {
		return "", "", err
	}
	var c, r strings.Builder
	collect := func(piece Piece) {
		c.WriteString(piece.Content)
		r.WriteString(piece.Reasoning)
	}
	p.Feed(text, collect)
	p.Finish(collect)
	return c.String(), r.String(), nil
}

// passed leaves the text alone.
type passed struct{}

func (passed) feed(text string, out *Parser) { out.content(text) }
func (passed) finish(*Parser)                {}
