package reasoning

import (
	"strings"

	"signalbox/postprocess/internal/marker"
)

// Inkling: messages that say what they hold: thinking, text, pictures, sounds, or a call of a tool, which is passed on with its markers.

const (
	inklingModel    = "<|message_model|>"
	inklingThinking = "<|content_thinking|>"
	inklingText     = "<|content_text|>"
	inklingInvoke   = "<|content_invoke_tool_json|>"
	inklingImage    = "<|content_image|>"
	inklingAudio    = "<|content_audio_input|>"
	inklingEnd      = "<|end_message|>"
	inklingDone     = "<|content_model_end_sampling|>"
)

var (
	inklingFirst = marker.NewSet(inklingModel, inklingThinking, inklingText, inklingInvoke, inklingImage, inklingAudio)
	inklingIdle  = marker.NewSet(inklingModel, inklingThinking, inklingText, inklingInvoke, inklingImage, inklingAudio, inklingEnd, inklingDone,
		inklingModel+inklingThinking, inklingModel+inklingText, inklingModel+inklingImage, inklingModel+inklingAudio)
	inklingEnds = marker.NewSet(inklingEnd, inklingDone)
	// inklingStrip removes the ends of messages from plain text.
	inklingStrip = strings.NewReplacer(inklingEnd, "", inklingDone, "")
	inklingTool  = marker.NewSet(inklingInvoke, inklingEnd)
)

type inklingState uint8

const (
	inklingPrimed    inklingState = iota // nothing was recognised yet
	inklingBetween                       // between messages
	inklingReasoning                     // thinking
	inklingContent                       // text
	inklingDropped                       // what cannot be shown as text
	inklingCall                          // a call, passed on
)

type inkling struct {
	state   inklingState
	held    string
	waiting strings.Builder // of an answer without markers so far
	quote   bool            // inside a string of the call's JSON
	escape  bool
	json    bool // behind the invocation
}

func (k *inkling) feed(text string, out *Parser) { k.run(text, true, out) }

func (k *inkling) run(text string, more bool, out *Parser) {
	for text != "" {
		text, k.held = k.held+text, ""
		set := inklingIdle
		switch k.state {
		case inklingPrimed:
			set = inklingFirst
		case inklingReasoning, inklingContent, inklingDropped:
			set = inklingEnds
		case inklingCall:
			set = inklingTool
		}
		m := set.Search(text, more)
		k.take(text[:m.At], out)
		if m.Word == "" {
			k.held = text[m.At:]
			return
		}
		text = k.word(m.Word, text[m.At:], out)
	}
}

func (k *inkling) take(text string, out *Parser) {
	switch k.state {
	case inklingPrimed:
		k.waiting.WriteString(text)
		if k.waiting.Len() > maxUndecided {
			k.settle(out)
		}
	case inklingReasoning:
		out.reasoning(text)
	case inklingContent, inklingBetween:
		out.content(text)
	case inklingCall:
		out.content(text)
		if k.json {
			k.strings(text)
		}
	}
}

// strings follows the strings of JSON, in which markers mean nothing.
func (k *inkling) strings(text string) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case k.escape:
			k.escape = false
		case k.quote && c == '\\':
			k.escape = true
		case c == '"':
			k.quote = !k.quote
		}
	}
}

// settle shows an answer that begins with plain text.
func (k *inkling) settle(out *Parser) {
	out.content(inklingStrip.Replace(k.waiting.String()))
	k.waiting.Reset()
	k.state = inklingBetween
}

// word takes the marker at the beginning of text and returns what is to be read next.
func (k *inkling) word(word, text string, out *Parser) string {
	rest := text[len(word):]
	switch k.state {
	case inklingPrimed:
		if word != inklingModel && k.waiting.Len() == 0 || word == inklingInvoke {
			// The prompt ended with the marker that begins a message.
			text = inklingModel + text
		}
		if word == inklingInvoke {
			text = inklingModel + k.waiting.String() + strings.TrimPrefix(text, inklingModel)
			k.waiting.Reset()
		}
		k.settle(out)
		return text
	case inklingReasoning, inklingContent, inklingDropped:
		k.state = inklingBetween
	case inklingCall:
		out.content(word)
		switch {
		case word == inklingInvoke:
			k.json = true
		case k.quote:
			k.strings(word)
		default:
			k.state = inklingBetween
		}
	default:
		switch word {
		case inklingModel + inklingThinking:
			k.state = inklingReasoning
		case inklingModel + inklingText:
			k.state = inklingContent
		case inklingModel + inklingImage, inklingModel + inklingAudio:
			k.state = inklingDropped
		case inklingModel:
			k.state, k.json, k.quote, k.escape = inklingCall, false, false, false
			out.content(word)
		}
	}
	return rest
}

func (k *inkling) finish(out *Parser) {
	held := k.held
	k.held = ""
	if held == "<" || held == "<|" || k.state == inklingCall {
		k.run(held, false, out)
	}
	out.content(k.waiting.String())
}
