package toolcall

import (
	"strings"

	"signalbox/postprocess/internal/marker"
)

// Harmony, the format of gpt-oss: messages in channels. The final channel and remarks in commentary are text, analysis is dropped, and
// messages to "functions.NAME" are calls once <|call|> ends them.

const (
	harmonyStart   = "<|start|>assistant<|channel|>"
	harmonyChannel = "<|channel|>"
	harmonyMessage = "<|message|>"
	harmonyCall    = "<|call|>"
)

var (
	harmonyOpeners = marker.NewSet(harmonyStart, harmonyChannel)
	harmonyHeader  = marker.NewSet(harmonyMessage)
	harmonyEnds    = marker.NewSet(harmonyCall, "<|end|>", "<|return|>", harmonyStart, harmonyChannel)
)

// maxHeader bounds what may stand between a channel and its message, in bytes.
const maxHeader = 4 << 10

type harmonyState uint8

const (
	harmonyText harmonyState = iota
	harmonyInHeader
	harmonyShown   // a message whose text is shown as it comes
	harmonyDropped // a message that nobody sees
	harmonyHeld    // a remark that looks like JSON: a call to nobody, unless it ends otherwise
	harmonyBody    // the arguments of a call
)

type harmony struct {
	state harmonyState
	held  string
	block strings.Builder
	name  string
}

func (h *harmony) feed(text string, out *sink) { h.run(text, true, out) }

func (h *harmony) run(text string, more bool, out *sink) {
	for text != "" {
		text, h.held = h.held+text, ""
		set := harmonyEnds
		switch h.state {
		case harmonyText:
			set = harmonyOpeners
		case harmonyInHeader:
			set = harmonyHeader
		}
		m := set.Search(text, more)
		h.take(text[:m.At], out)
		if m.Word == "" {
			h.held = text[m.At:]
			return
		}
		text = text[m.At+len(m.Word):]
		h.word(m.Word, out)
	}
}

// take takes text without markers.
func (h *harmony) take(text string, out *sink) {
	if text == "" {
		return
	}
	switch h.state {
	case harmonyText, harmonyShown:
		out.text(text)
	case harmonyInHeader, harmonyHeld, harmonyBody:
		h.block.WriteString(text)
		if h.state == harmonyInHeader && h.block.Len() > maxHeader || h.block.Len() > maxBlock {
			h.state = harmonyDropped
			h.block.Reset()
		}
		if h.state == harmonyHeld && !looksLikeJSON(h.block.String()) {
			text := h.takeBlock()
			h.state = harmonyShown
			h.take(text, out)
		}
	}
}

func looksLikeJSON(text string) bool {
	at := leadingSpace(text)
	return at == len(text) || text[at] == '{' || text[at] == '['
}

func (h *harmony) takeBlock() string {
	text := h.block.String()
	h.block.Reset()
	return text
}

// word takes a marker.
func (h *harmony) word(word string, out *sink) {
	switch h.state {
	case harmonyInHeader:
		h.header(h.takeBlock())
		return
	case harmonyBody:
		if arguments := strings.TrimSpace(h.takeBlock()); word == harmonyCall {
			if text, ok := compactString(arguments); ok {
				arguments = text
			}
			out.call(found{name: h.name, arguments: arguments})
		}
	case harmonyHeld:
		text := h.takeBlock()
		h.state = harmonyText
		if word != harmonyCall {
			h.take(text, out)
		}
	}
	h.state = harmonyText
	if word == harmonyStart || word == harmonyChannel {
		h.state = harmonyInHeader
	}
}

// header decides what a message is.
func (h *harmony) header(header string) {
	channel, to, name := HarmonyHeader(header)
	switch {
	case to && name != "" && (channel == "commentary" || channel == "analysis"):
		h.state, h.name = harmonyBody, name
	case channel == "final":
		h.state = harmonyShown
	case channel == "commentary" && !to:
		h.state = harmonyHeld
	default:
		h.state = harmonyDropped
	}
}

// HarmonyHeader reads what stands between <|channel|> and <|message|>: the channel, whether the message has a recipient, and
// the name of the function when that is one.
func HarmonyHeader(header string) (channel string, directed bool, function string) {
	for i, part := range strings.Fields(strings.ReplaceAll(header, "<|constrain|>", " ")) {
		if to, ok := strings.CutPrefix(part, "to="); ok {
			directed = true
			if name, ok := strings.CutPrefix(to, "functions."); ok {
				function = name
			}
		} else if i == 0 {
			channel = part
		}
	}
	return channel, directed, function
}

func (h *harmony) finish(out *sink) bool {
	held := h.held
	h.held = ""
	h.run(held, false, out)
	switch h.state {
	case harmonyHeld:
		text := h.takeBlock()
		h.state = harmonyText
		h.take(text, out)
	case harmonyBody, harmonyInHeader:
		out.open = true
	}
	return false
}
