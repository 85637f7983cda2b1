package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/internal/jsontape"
)

var roles = []string{"developer", "system", "user", "assistant", "tool", "function"}

var partTypes = []string{"text", "image_url", "video_url", "audio_url", "input_audio", "refusal", "file"}

// checkMessageShapes judges what the peer's parser judges: every message has a known role and the members that the role needs.
func checkMessageShapes(f *body.Fields, messages jsontape.Node) {
	if !messages.Exists() {
		return
	}
	if messages.Kind() != jsontape.Array {
		f.Fail("messages", "invalid type: %s, expected a sequence", messages.Kind())
		return
	}
	for i, message := range messages.Elements {
		if text := messageMistake(message); text != "" {
			f.Fail("messages", "%s (messages[%d])", text, i)
			return
		}
	}
}

func messageMistake(message jsontape.Node) string {
	if message.Kind() != jsontape.Object {
		return fmt.Sprintf("invalid type: %s, expected a message object", message.Kind())
	}
	role := message.Get("role")
	if !role.Exists() {
		return "missing field `role`"
	}
	if !slices.Contains(roles, role.Text()) {
		return fmt.Sprintf("unknown variant `%s`, expected one of `%s`", role.Text(), strings.Join(roles, "`, `"))
	}
	content := message.Get("content")
	if name := message.Get("name"); name.Present() && name.Kind() != jsontape.String && role.Text() != "tool" {
		return fmt.Sprintf("invalid type: %s, expected a string as name", name.Kind())
	}
	switch role.Text() {
	case "system":
		// Some templates take tools in place of a text.
		if !content.Present() && message.Get("tools").Len() == 0 {
			return "missing field `content`: a system message needs `content` unless it declares `tools`"
		}
	case "user", "developer":
		if !content.Exists() {
			return "missing field `content`"
		}
	case "assistant":
		if text := pastCallsMistake(message.Get("tool_calls")); text != "" {
			return text
		}
	case "tool":
		if id := message.Get("tool_call_id"); !id.Exists() {
			return "missing field `tool_call_id`"
		} else if id.Kind() != jsontape.String {
			return fmt.Sprintf("invalid type: %s, expected a string as tool_call_id", id.Kind())
		}
	case "function":
		if !message.Get("name").Exists() {
			return "missing field `name`"
		}
	}
	switch content.Kind() {
	case jsontape.Invalid, jsontape.String:
	case jsontape.Null:
		if role.Text() == "user" {
			return "data did not match any variant of untagged enum ChatCompletionRequestUserMessageContent"
		}
	case jsontape.Array:
		for _, part := range content.Elements {
			if text := partMistake(part); text != "" {
				return text
			}
		}
	default:
		return fmt.Sprintf("invalid type: %s, expected a string or an array of content parts", content.Kind())
	}
	return ""
}

// pastCallsMistake judges the calls that an assistant's turn made.
func pastCallsMistake(calls jsontape.Node) string {
	if !calls.Present() {
		return ""
	}
	if calls.Kind() != jsontape.Array {
		return fmt.Sprintf("invalid type: %s, expected a sequence of tool calls", calls.Kind())
	}
	for _, call := range calls.Elements {
		id, kind, name, arguments := call.Get("id"), call.Get("type"), call.Get("function").Get("name"), call.Get("function").Get("arguments")
		switch {
		case !id.Exists():
			return "missing field `id` of a tool call"
		case id.Kind() != jsontape.String:
			return fmt.Sprintf("invalid type: %s, expected a string as a tool call's id", id.Kind())
		case kind.Exists() && kind.Text() != "function":
			return fmt.Sprintf("unknown variant `%s`, expected `function` as a tool call's type", kind.Text())
		case name.Kind() != jsontape.String:
			return "missing field `name` of a tool call's function"
		case !arguments.Exists():
			return "missing field `arguments` of a tool call"
		case arguments.Kind() != jsontape.String && arguments.Kind() != jsontape.Object:
			return fmt.Sprintf("expected string or object for `arguments`, got %s", arguments.Kind())
		}
	}
	return ""
}

// withArgumentTexts returns the messages with arguments that are objects turned into their compact text, which is how templates know
// them.
func withArgumentTexts(messages jsontape.Node) []byte {
	raw := messages.Raw()
	start := messages.Offset() - len(raw)
	var out []byte
	copied := 0
	for _, message := range messages.Elements {
		for _, call := range message.Get("tool_calls").Elements {
			arguments := call.Get("function").Get("arguments")
			if arguments.Kind() != jsontape.Object {
				continue
			}
			var compact bytes.Buffer
			if json.Compact(&compact, arguments.Raw()) != nil {
				continue
			}
			end := arguments.Offset() - start
			out = append(out, raw[copied:end-len(arguments.Raw())]...)
			out = appendString(out, compact.String())
			copied = end
		}
	}
	if copied == 0 {
		return raw
	}
	return append(out, raw[copied:]...)
}

func partMistake(part jsontape.Node) string {
	kind := part.Get("type")
	if part.Kind() != jsontape.Object || !slices.Contains(partTypes, kind.Text()) {
		return fmt.Sprintf("content part of an unknown type %q, expected one of `%s`", kind.Text(), strings.Join(partTypes, "`, `"))
	}
	switch kind.Text() {
	case "text":
		if part.Get("text").Kind() != jsontape.String {
			return "missing field `text` in a text part"
		}
	case "image_url", "video_url", "audio_url":
		source := part.Get(kind.Text())
		if source.Get("url").Kind() != jsontape.String && source.Kind() != jsontape.String && !part.Get("uuid").Present() {
			return "missing field `url` in an " + kind.Text() + " part"
		}
	}
	return ""
}

// checkToolCallArguments demands that past calls carry a JSON object, or nothing.
func checkToolCallArguments(messages jsontape.Node) *problem.Problem {
	for i, message := range messages.Elements {
		for j, call := range message.Get("tool_calls").Elements {
			arguments := call.Get("function").Get("arguments")
			if arguments.Kind() != jsontape.String {
				continue
			}
			text := strings.TrimSpace(arguments.Text())
			if text == "" {
				continue
			}
			param := fmt.Sprintf("messages[%d].tool_calls[%d].function.arguments", i, j)
			document, err := jsontape.ParseRepeating([]byte(text))
			if err != nil {
				return invalid(param, "`%s` must be a valid JSON object string: %v", param, err)
			}
			if kind := document.Root().Kind(); kind != jsontape.Object {
				return invalid(param, "`%s` must be a valid JSON object string: got %s", param, kind)
			}
		}
	}
	return nil
}
