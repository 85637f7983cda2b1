package openai

import (
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
	switch role.Text() {
	case "user", "system", "developer":
		if !content.Exists() {
			return "missing field `content`"
		}
	case "tool":
		if !message.Get("tool_call_id").Exists() {
			return "missing field `tool_call_id`"
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
		if source.Get("url").Kind() != jsontape.String && source.Kind() != jsontape.String {
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
			document, err := jsontape.Parse([]byte(text))
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
