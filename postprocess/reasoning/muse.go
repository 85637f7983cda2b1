package reasoning

import (
	"strings"

	"signalbox/postprocess/internal/marker"
)

// Muse: messages with recipients. What goes to itself is reasoning, what goes to the user is content, what goes to a tool is passed on
// with its markers where a tool-call parser reads on.

const (
	museStart   = "<|start|>assistant"
	museMessage = "<|message|>"
	museHeader  = " to="
)

var (
	museWords   = marker.NewSet(museStart, museMessage, "<|eom|>", "<|eot|>")
	museHeaders = marker.NewSet(museMessage)
	museEnds    = marker.NewSet(museStart, "<|eom|>", "<|eot|>")
)

type museState uint8

const (
	museContent museState = iota
	museInHeader
	museReasoning
	museCall
)

type muse struct {
	keep  bool
	state museState
	begun bool
	held  string
	head  strings.Builder
}

func newMuse(o Options) machine { return &muse{keep: o.KeepCalls} }

func (m *muse) feed(text string, out *Parser) { m.run(text, true, out) }

func (m *muse) run(text string, more bool, out *Parser) {
	for text != "" {
		text, m.held = m.held+text, ""
		if !m.begun {
			// The first message's header has no opening word: the prompt ended with it.
			if len(text) < len(museHeader) && museHeader[:len(text)] == text && more {
				m.held = text
				return
			}
			m.begun = true
			if strings.HasPrefix(text, museHeader) {
				m.state = museInHeader
			}
		}
		set := museWords
		switch m.state {
		case museInHeader:
			set = museHeaders
		case museReasoning, museCall:
			set = museEnds
		}
		match := set.Search(text, more)
		m.take(text[:match.At], out)
		if match.Word == "" {
			m.held = text[match.At:]
			return
		}
		text = text[match.At+len(match.Word):]
		m.word(match.Word, out)
	}
}

func (m *muse) take(text string, out *Parser) {
	switch m.state {
	case museContent:
		out.content(text)
	case museReasoning:
		out.reasoning(text)
	case museCall:
		if m.keep {
			out.content(text)
		}
	case museInHeader:
		m.head.WriteString(text)
		if m.head.Len() > maxHeader {
			m.state = museContent
			out.content(m.takeHead())
		}
	}
}

func (m *muse) takeHead() string {
	text := m.head.String()
	m.head.Reset()
	return text
}

func (m *muse) word(word string, out *Parser) {
	switch {
	case m.state == museInHeader:
		header := m.takeHead()
		to := ""
		for _, part := range strings.Fields(header) {
			if name, ok := strings.CutPrefix(part, "to="); ok {
				to = name
			}
		}
		switch to {
		case "self":
			m.state = museReasoning
		case "user", "":
			m.state = museContent
		default:
			m.state = museCall
			if m.keep {
				out.content(museStart + header + museMessage)
			}
		}
		return
	case m.state == museCall && m.keep && word != museStart:
		out.content(word)
	}
	m.state = museContent
	if word == museStart {
		m.state = museInHeader
	}
}

func (m *muse) finish(out *Parser) {
	held := m.held
	m.held = ""
	if m.state != museInHeader && (m.state != museCall || m.keep) {
		m.run(held, false, out)
	}
}
