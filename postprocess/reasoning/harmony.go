package reasoning

import (
	"strings"

	"signalbox/postprocess/internal/marker"
)

// Harmony, the format of gpt-oss: analysis is reasoning, the final channel and remarks in commentary are content. Messages to functions
// are passed on with their markers once <|call|> ends them. What is no message is dropped up to the next one.

const (
	harmonyStart   = "<|start|>"
	harmonyChannel = "<|channel|>"
	harmonyMessage = "<|message|>"
	harmonyCall    = "<|call|>"
	harmonyEnd     = "<|end|>"
	harmonyReturn  = "<|return|>"
)

var harmonyWords = marker.NewSet(harmonyStart, harmonyChannel, harmonyMessage, harmonyCall, harmonyEnd, harmonyReturn)

const (
	// maxHeader bounds a message's header, in bytes.
	maxHeader = 4 << 10
	// maxCall bounds a message to a function, in bytes.
	maxCall = 16 << 20
)

type harmonyState uint8

const (
	harmonyHeader   harmonyState = iota // before <|message|>; also where the answer begins
	harmonyAnalysis                     // reasoning
	harmonyShown                        // content
	harmonyDirected                     // to a function
	harmonyDropped                      // to nobody
	harmonyBetween                      // behind a message: only <|start|> may come
	harmonyLost                         // no message: waits for <|start|>
)

type harmony struct {
	state   harmonyState
	held    string
	header  strings.Builder // from <|start|> or the answer's begin, without markers before <|channel|>
	channel bool            // the header has its channel
	block   strings.Builder // of a message to a function, with its markers
	thought bool            // reasoning was shown before
	spoke   bool            // content was shown before
	again   bool            // this message is a further one of its kind and has shown nothing yet
}

func (h *harmony) feed(text string, out *Parser) { h.run(text, true, out) }

func (h *harmony) run(text string, more bool, out *Parser) {
	for text != "" {
		text, h.held = h.held+text, ""
		m := harmonyWords.Search(text, more)
		h.take(text[:m.At], out)
		if m.Word == "" {
			h.held = text[m.At:]
			return
		}
		text = text[m.At+len(m.Word):]
		h.word(m.Word, out)
	}
}

func (h *harmony) take(text string, out *Parser) {
	if text == "" {
		return
	}
	switch h.state {
	case harmonyHeader:
		h.header.WriteString(text)
		h.block.WriteString(text)
		if h.header.Len() > maxHeader {
			h.lose()
		}
	case harmonyAnalysis:
		if h.again {
			text = "\n" + text
		}
		h.again, h.thought = false, true
		out.reasoning(text)
	case harmonyShown:
		if h.again {
			text = "\n" + text
		}
		h.again, h.spoke = false, true
		out.content(text)
	case harmonyDirected:
		h.block.WriteString(text)
		if h.block.Len() > maxCall {
			h.lose()
		}
	case harmonyBetween:
		h.lose()
	}
}

// lose gives up up to the next message.
func (h *harmony) lose() {
	h.state = harmonyLost
	h.header.Reset()
	h.block.Reset()
}

func (h *harmony) word(word string, out *Parser) {
	switch {
	case word == harmonyStart:
		if h.state == harmonyHeader && h.header.Len() > 0 {
			h.lose()
		}
		h.begin()
	case word == harmonyChannel && h.state == harmonyHeader:
		role := strings.Fields(h.header.String())
		if h.channel || len(role) > 1 || len(role) == 1 && role[0] != "assistant" {
			h.lose()
			return
		}
		h.header.Reset()
		h.block.Reset()
		h.block.WriteString(word)
		h.channel = true
	case word == harmonyMessage && h.state == harmonyHeader:
		h.message(word)
	case h.state == harmonyLost:
	case word == harmonyCall || word == harmonyEnd || word == harmonyReturn:
		if h.state == harmonyDirected && word == harmonyCall {
			h.block.WriteString(word)
			out.content(h.block.String())
		}
		h.block.Reset()
		h.state = harmonyBetween
		h.again = false
	default:
		h.lose()
	}
}

// begin starts a message's header.
func (h *harmony) begin() {
	h.state, h.channel, h.again = harmonyHeader, false, false
	h.header.Reset()
	h.block.Reset()
}

// message decides what a message is.
func (h *harmony) message(word string) {
	h.block.WriteString(word)
	header := strings.Fields(h.header.String())
	h.header.Reset()
	if !h.channel || len(header) == 0 {
		h.lose()
		return
	}
	directed, function := false, false
	for _, part := range header[1:] {
		if to, ok := strings.CutPrefix(part, "to="); ok {
			directed, function = true, strings.HasPrefix(to, "functions.")
		}
	}
	switch channel := header[0]; {
	case function && (channel == "commentary" || channel == "analysis"):
		h.state = harmonyDirected
	case channel == "analysis" && !directed:
		h.state, h.again = harmonyAnalysis, h.thought
	case channel == "final", channel == "commentary" && !directed:
		h.state, h.again = harmonyShown, h.spoke
	default:
		h.state = harmonyDropped
	}
	if h.state != harmonyDirected {
		h.block.Reset()
	}
}

func (h *harmony) finish(out *Parser) {
	if h.state == harmonyAnalysis || h.state == harmonyShown {
		held := h.held
		h.held = ""
		h.run(held, false, out)
	}
}
