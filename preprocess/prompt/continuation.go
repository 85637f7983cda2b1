package prompt

import (
	"strings"
	"unicode"

	"signalbox/preprocess/chattemplate"
)

// continuationMark is put behind the words that the model is to go on from, and looked for in the rendered text. The space at
// its end tells whether the template trims what it prints.
const continuationMark = "CONTINUE_FINAL_MESSAGE_TAG "

// Continuation prepares a conversation whose last message the model is to go on with: rendered with the marked messages, the
// text is to be cut. The last message's text must reach the prompt, in one piece and at its end.
func Continuation(messages chattemplate.Value) (marked chattemplate.Value, cut func(text string) (string, error), err error) {
	list := append([]chattemplate.Value(nil), messages.Items()...)
	if len(list) == 0 {
		return messages, nil, continuationRefusal("the conversation is empty")
	}
	last := len(list) - 1
	content, _ := list[last].Get("content")
	var final string
	switch content.Kind() {
	case chattemplate.KindString:
		final = content.Str()
		content = chattemplate.String(final + continuationMark)
	case chattemplate.KindList:
		parts := append([]chattemplate.Value(nil), content.Items()...)
		at := len(parts) - 1
		for at >= 0 {
			if text, ok := parts[at].Get("text"); ok && text.Kind() == chattemplate.KindString {
				final = text.Str()
				break
			}
			at--
		}
		if at < 0 {
			return messages, nil, continuationRefusal("the last message has no text")
		}
		parts[at] = with(parts[at], "text", chattemplate.String(final+continuationMark))
		content = chattemplate.List(parts)
	default:
		return messages, nil, continuationRefusal("the last message has no content")
	}
	list[last] = with(list[last], "content", content)
	return chattemplate.List(list), func(text string) (string, error) { return cutContinuation(text, final) }, nil
}

func cutContinuation(text, final string) (string, error) {
	at := strings.LastIndex(text, strings.TrimRight(continuationMark, " "))
	if at < 0 || !strings.Contains(text, trimSpace(final)) {
		return "", continuationRefusal("the last message does not appear in the rendered prompt: the model's chat template changes it")
	}
	if strings.HasPrefix(text[at:], continuationMark) {
		return text[:at], nil
	}
	// The template trims the content, and would have trimmed what was before the mark.
	return strings.TrimRightFunc(text[:at], isPythonSpace), nil
}

func continuationRefusal(why string) error {
	return &Refusal{Param: "continue_final_message", Message: "continue_final_message: " + why}
}

func trimSpace(text string) string { return strings.TrimFunc(text, isPythonSpace) }

// isPythonSpace is what Python's str.strip takes off.
func isPythonSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
