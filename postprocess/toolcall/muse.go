package toolcall

import (
	"strings"

	"signalbox/postprocess/internal/marker"
)

// Muse: messages with recipients. What goes to a tool holds its calls, what goes to the user is text. The words around messages are
// never shown.

const (
	museStart   = "<|start|>assistant"
	museMessage = "<|message|>"
	museInvoke  = "<atem:invoke"
	museInvEnd  = "</atem:invoke>"
	museParam   = "<atem:parameter"
	museParEnd  = "</atem:parameter>"
)

var (
	museWords  = marker.NewSet(museStart, museMessage, "<|eom|>", "<|eot|>")
	museHeader = marker.NewSet(museMessage)
	museEnds   = marker.NewSet("<|eom|>", "<|eot|>", museStart)
)

type museState uint8

const (
	museText museState = iota
	museInHeader
	museBody
)

type muse struct {
	state museState
	begun bool
	held  string
	block strings.Builder
}

func newMuse() machine { return &muse{} }

func (m *muse) feed(text string, out *sink) { m.run(text, true, out) }

func (m *muse) run(text string, more bool, out *sink) {
	for text != "" {
		text, m.held = m.held+text, ""
		if !m.begun {
			// The first message's header has no opening word: the prompt ended with it.
			if header := " to="; len(text) < len(header) && strings.HasPrefix(header, text) && more {
				m.held = text
				return
			}
			m.begun = true
			if strings.HasPrefix(text, " to=") {
				m.state = museInHeader
			}
		}
		set := museWords
		switch m.state {
		case museInHeader:
			set = museHeader
		case museBody:
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

func (m *muse) take(text string, out *sink) {
	if m.state == museText {
		out.text(text)
		return
	}
	m.block.WriteString(text)
	if m.state == museInHeader && m.block.Len() > maxHeader || m.block.Len() > maxBlock {
		out.text(m.takeBlock())
		m.state = museText
	}
}

func (m *muse) takeBlock() string {
	text := m.block.String()
	m.block.Reset()
	return text
}

func (m *muse) word(word string, out *sink) {
	switch m.state {
	case museInHeader:
		m.state = museBody
		switch to := MuseRecipient(m.takeBlock()); to {
		case "user", "self", "":
			m.state = museText
		}
		return
	case museBody:
		out.call(museCalls(m.takeBlock(), out.tools)...)
	}
	m.state = museText
	if word == museStart {
		m.state = museInHeader
	}
}

// MuseRecipient returns to whom a header's message goes.
func MuseRecipient(header string) string {
	for _, part := range strings.Fields(header) {
		if to, ok := strings.CutPrefix(part, "to="); ok {
			return to
		}
	}
	return ""
}

// museCalls reads the calls of a message.
func museCalls(body string, tools []Tool) (calls []found) {
	elements(body, museInvoke, museInvEnd, true, func(f element) {
		name := attributeValue(f.name)
		if name == "" {
			return
		}
		schema := schemaOf(tools, name)
		var arguments object
		elements(f.body, museParam, museParEnd, true, func(p element) {
			key := attributeValue(p.name)
			if key == "" {
				return
			}
			value := quoted(p.body)
			if definition, declared := schema.props[key]; !declared || !schema.allows(definition, "string") {
				if text, ok := compactString(p.body); ok {
					value = text
				}
			}
			arguments.set(key, value)
		})
		calls = append(calls, found{name: name, arguments: arguments.String()})
	})
	return calls
}

// attributeValue returns the value of a tag's name attribute.
func attributeValue(tag string) string {
	_, value, _ := strings.Cut(tag, `name="`)
	value, _, _ = strings.Cut(value, `"`)
	return value
}

func (m *muse) finish(out *sink) bool {
	held := m.held
	m.held = ""
	m.run(held, false, out)
	if m.state == museBody {
		calls := museCalls(m.takeBlock(), out.tools)
		out.open = len(calls) == 0
		out.call(calls...)
	}
	return false
}
