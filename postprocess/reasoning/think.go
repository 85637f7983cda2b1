package reasoning

import (
	"strings"

	"signalbox/postprocess/internal/marker"
)

// thinkFormat is a format with reasoning between two markers.
type thinkFormat struct {
	start, end string
	// forced formats start inside reasoning; the marker that begins it may be missing.
	forced bool
	// tools are words that begin a tool call and end reasoning that was not closed.
	tools []string
	// dangling formats take what stands before an end without a start for reasoning, which is found out only when the end comes.
	dangling bool
	// implicit formats do so, too, for what stands before a tool call at the answer's beginning.
	implicit bool
	// final formats leave all text alone once a tool call has ended reasoning.
	final bool
	// label is removed from the beginning of each reasoning.
	label string
	// repeat drops a start inside of reasoning wherever it stands.
	repeat bool
	// parameter and parameterEnd surround data in which markers mean nothing; parameterEnd may be one of several words.
	parameter    string
	parameterEnd []string
	// offDrops removes the leading start even when reasoning is switched off.
	offDrops bool

	outside, inside, in *marker.Set
}

const (
	// maxUndecided bounds the text that waits to be told reasoning from content, in bytes.
	maxUndecided = 4 << 10
	// maxUndecidedAgain is the same after a reasoning: an end that comes again soon.
	maxUndecidedAgain = 8
)

func (f thinkFormat) prepare() *thinkFormat {
	outside := []string{f.start, f.end}
	if f.parameter != "" {
		outside = append(outside, f.parameter)
	}
	if f.dangling {
		outside = append(outside, f.tools...)
	}
	inside := append([]string{f.end}, f.tools...)
	if f.repeat {
		inside = append(inside, f.start)
	}
	f.outside, f.inside, f.in = marker.NewSet(outside...), marker.NewSet(inside...), marker.NewSet(f.parameterEnd...)
	return &f
}

// think reads one answer in such a format.
type think struct {
	format   *thinkFormat
	state    thinkState
	begin    bool // at the answer's first byte: a leading start is still expected
	held     string
	waiting  strings.Builder // undecided text
	limit    int             // of waiting; 0 when nothing waits
	first    bool            // no reasoning and no tool call was seen yet
	labelled bool            // the label was dealt with
}

type thinkState uint8

const (
	thinkOutside thinkState = iota
	thinkInside
	thinkData
	thinkPassed
)

func (f *thinkFormat) machine(options Options) machine {
	t := &think{format: f, begin: !options.Begun, first: true}
	switch {
	case options.Begun:
		t.state = thinkInside
	case f.forced:
		t.state = thinkInside
	case f.dangling:
		t.limit = maxUndecided
	}
	return t
}

func (t *think) feed(text string, out *Parser) { t.run(text, true, out) }

func (t *think) run(text string, more bool, out *Parser) {
	for text != "" {
		text, t.held = t.held+text, ""
		if t.begin {
			start := t.format.start
			if len(text) < len(start) && start[:len(text)] == text && more {
				t.held = text
				return
			}
			t.begin = false
			if rest, ok := strings.CutPrefix(text, start); ok {
				t.enter()
				text = rest
				continue
			}
		}
		var set *marker.Set
		switch t.state {
		case thinkPassed:
			out.content(text)
			return
		case thinkInside:
			set = t.format.inside
		case thinkData:
			set = t.format.in
		default:
			set = t.format.outside
		}
		m := set.Search(text, more)
		t.take(text[:m.At], out)
		if m.Word == "" {
			t.held = text[m.At:]
			return
		}
		text = text[m.At+len(m.Word):]
		t.word(m.Word, out)
	}
}

func (t *think) enter() {
	t.state, t.first, t.labelled = thinkInside, false, false
	t.limit = 0
}

// take takes text without markers.
func (t *think) take(text string, out *Parser) {
	switch {
	case text == "":
	case t.state == thinkInside:
		t.reason(text, out)
	case t.state == thinkOutside && t.limit > 0:
		t.waiting.WriteString(text)
		if t.waiting.Len() > t.limit {
			t.limit = 0
			out.content(t.takeWaiting())
		}
	default:
		out.content(text)
	}
}

// reason shows reasoning without its label.
func (t *think) reason(text string, out *Parser) {
	if label := t.format.label; label != "" && !t.labelled {
		t.waiting.WriteString(text)
		have := t.waiting.String()
		if len(have) < len(label) && strings.HasPrefix(label, have) {
			return
		}
		t.labelled = true
		text = strings.TrimPrefix(t.takeWaiting(), label)
	}
	out.reasoning(text)
}

func (t *think) takeWaiting() string {
	text := t.waiting.String()
	t.waiting.Reset()
	return text
}

// word takes a marker.
func (t *think) word(word string, out *Parser) {
	f := t.format
	switch {
	case t.state == thinkData:
		out.content(word)
		t.state = thinkOutside
	case word == f.start:
		out.content(t.undecided())
		t.enter()
	case word == f.end:
		if t.state == thinkInside {
			t.takeWaiting() // no more than a beginning of the label
		} else if text := t.undecided(); f.dangling {
			out.reasoning(text)
		} else {
			out.content(text)
		}
		t.state, t.first, t.limit = thinkOutside, false, 0
		if f.dangling {
			t.limit = maxUndecidedAgain
		}
	case word == f.parameter:
		out.content(t.undecided() + word)
		t.state = thinkData
	default:
		t.tool(word, out)
	}
}

// tool takes a word that begins a tool call.
func (t *think) tool(word string, out *Parser) {
	if t.state == thinkInside {
		t.takeWaiting()
	} else if text := t.undecided(); t.first && t.format.implicit {
		out.reasoning(text)
	} else {
		out.content(text)
	}
	inside := t.state == thinkInside
	t.state, t.first = thinkOutside, false
	out.content(word)
	switch {
	case inside && t.format.final:
		t.state = thinkPassed
	case t.format.parameter != "" && word == t.format.parameter:
		t.state = thinkData
	}
}

// undecided returns the text that waits outside of reasoning.
func (t *think) undecided() string {
	t.limit = 0
	return t.takeWaiting()
}

func (t *think) finish(out *Parser) {
	held := t.held
	t.held = ""
	t.run(held, false, out)
	if t.state != thinkInside {
		out.content(t.undecided())
	}
}

// off removes a leading marker and leaves the rest alone.
type off struct {
	word string
	held string
	done bool
}

func (o *off) feed(text string, out *Parser) {
	if !o.done {
		text, o.held = o.held+text, ""
		if len(text) < len(o.word) && o.word[:len(text)] == text {
			o.held = text
			return
		}
		o.done = true
		text = strings.TrimPrefix(text, o.word)
	}
	out.content(text)
}

func (o *off) finish(out *Parser) { out.content(o.held) }

// append prefixes the answer with a marker and leaves it alone.
type appended struct{ begun bool }

func (a *appended) feed(text string, out *Parser) {
	if !a.begun {
		a.begun = true
		text = "<think>" + text
	}
	out.content(text)
}

func (a *appended) finish(*Parser) {}
