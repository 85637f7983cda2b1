package prompt

import (
	"fmt"
	"strings"

	"signalbox/preprocess/chattemplate"
)

// normalise brings the messages into the form that the template reads.
func (f *Formatter) normalise(chosen *form, messages chattemplate.Value) (chattemplate.Value, error) {
	list := make([]chattemplate.Value, 0, messages.Len())
	for _, message := range messages.Items() {
		list = append(list, f.normaliseMessage(chosen, message))
	}
	if chosen.oneSystem {
		list = mergeSystem(list)
	}
	if chosen.alternating {
		list = mergeUsers(list)
	}
	return chattemplate.List(list), nil
}

func (f *Formatter) normaliseMessage(chosen *form, message chattemplate.Value) chattemplate.Value {
	out := chattemplate.NewDict(message.Len() + 1)
	_, hasCalls := message.Get("tool_calls")
	reasoning, hasReasoning := message.Get("reasoning_content")
	if !hasReasoning {
		reasoning, hasReasoning = message.Get("reasoning")
		hasReasoning = hasReasoning && chosen.reasoning == reasoningUnread
	}
	inline := ""
	if hasReasoning && chosen.reasoning == reasoningUnread {
		inline = thinkBlocks(reasoning)
	}
	contentSeen := false
	for _, entry := range message.Entries() {
		key := entry.Key.Str()
		value := entry.Value
		switch key {
		case "content":
			contentSeen = true
			if value.Kind() == chattemplate.KindNone {
				if !hasCalls && inline == "" {
					continue // an absent content is what templates expect where there is none
				}
				value = chattemplate.String("")
			}
			value = prependText(chosen.content(value), inline)
		case "tool_calls":
			if value.Kind() == chattemplate.KindNone {
				continue
			}
			value = f.normaliseCalls(chosen, value)
		case "function_call":
			value = parseArguments(value)
		case "reasoning_content":
			if chosen.reasoning == reasoningUnread {
				continue
			}
			if value.Kind() == chattemplate.KindList && chosen.reasoning == reasoningString {
				value = chattemplate.String(joinSegments(value, "\n"))
			}
		}
		out.Set(key, value)
	}
	if !contentSeen && (hasCalls || inline != "") {
		// Templates ask whether words are in the content: an empty text answers, an absent one fails.
		out.Set("content", prependText(chattemplate.String(""), inline))
	}
	return out.Value()
}

func thinkBlocks(reasoning chattemplate.Value) string {
	if reasoning.Kind() == chattemplate.KindString {
		if reasoning.Str() == "" {
			return ""
		}
		return "<think>" + reasoning.Str() + "</think>"
	}
	var b strings.Builder
	for _, segment := range reasoning.Items() {
		if text := segmentText(segment); text != "" {
			b.WriteString("<think>" + text + "</think>")
		}
	}
	return b.String()
}

func joinSegments(segments chattemplate.Value, separator string) string {
	var texts []string
	for _, segment := range segments.Items() {
		if text := segmentText(segment); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, separator)
}

func segmentText(segment chattemplate.Value) string {
	if text, ok := segment.Get("text"); ok {
		return text.Str()
	}
	return segment.Str()
}

// prependText puts text before a message's content.
func prependText(content chattemplate.Value, text string) chattemplate.Value {
	if text == "" {
		return content
	}
	if content.Kind() == chattemplate.KindString {
		return chattemplate.String(text + content.Str())
	}
	return chattemplate.List(append([]chattemplate.Value{textPart(text)}, content.Items()...))
}

func textPart(text string) chattemplate.Value {
	part := chattemplate.NewDict(2)
	part.Set("type", chattemplate.String("text"))
	part.Set("text", chattemplate.String(text))
	return part.Value()
}

// content brings a message's content into the template's form: text alone becomes one string, or one part for templates that
// read only parts.
func (t *form) content(value chattemplate.Value) chattemplate.Value {
	switch value.Kind() {
	case chattemplate.KindString:
		if t.partsOnly {
			return chattemplate.List([]chattemplate.Value{textPart(value.Str())})
		}
		return value
	case chattemplate.KindList:
	default:
		return value
	}
	parts := value.Items()
	if len(parts) == 0 {
		return value
	}
	var texts []string
	onlyText := true
	media := 0
	converted := make([]chattemplate.Value, 0, len(parts))
	for _, part := range parts {
		kind, _ := part.Get("type")
		text, hasText := part.Get("text")
		switch word := kind.Str(); {
		case word == "text" && hasText:
			texts = append(texts, text.Str())
			converted = append(converted, part)
		case strings.HasSuffix(word, "_url"):
			onlyText = false
			media++
			texts = append(texts, t.mediaMark(media))
			marker := chattemplate.NewDict(1)
			marker.Set("type", chattemplate.String(strings.TrimSuffix(word, "_url")))
			converted = append(converted, marker.Value())
		default:
			onlyText = false
			converted = append(converted, part)
		}
	}
	switch {
	case onlyText && t.partsOnly:
		return value
	case onlyText:
		return chattemplate.String(strings.Join(texts, "\n"))
	case t.media != mediaParts:
		return chattemplate.String(strings.Join(keepNonEmpty(texts), t.mediaJoin()))
	}
	return chattemplate.List(converted)
}

func keepNonEmpty(texts []string) []string {
	kept := texts[:0]
	for _, text := range texts {
		if text != "" {
			kept = append(kept, text)
		}
	}
	return kept
}

func (f *Formatter) normaliseCalls(chosen *form, calls chattemplate.Value) chattemplate.Value {
	if chosen.stringArguments && !f.options.ParseArguments {
		return calls
	}
	list := make([]chattemplate.Value, 0, calls.Len())
	for _, call := range calls.Items() {
		out := chattemplate.NewDict(call.Len())
		for _, entry := range call.Entries() {
			if entry.Key.Str() == "function" {
				out.Set("function", parseArguments(entry.Value))
				continue
			}
			out.Set(entry.Key.Str(), entry.Value)
		}
		list = append(list, out.Value())
	}
	return chattemplate.List(list)
}

// parseArguments turns a call's arguments, a JSON text, into what the text says. Text that is no JSON stays.
func parseArguments(function chattemplate.Value) chattemplate.Value {
	out := chattemplate.NewDict(function.Len())
	for _, entry := range function.Entries() {
		value := entry.Value
		if entry.Key.Str() == "arguments" && value.Kind() == chattemplate.KindString {
			if parsed, err := chattemplate.ParseJSONString(value.Str()); err == nil {
				value = parsed
			}
		}
		out.Set(entry.Key.Str(), value)
	}
	return out.Value()
}

// normaliseTools fills in what many templates read without asking: a description, and the parameters' type and properties.
func normaliseTools(tools chattemplate.Value) chattemplate.Value {
	if tools.Kind() != chattemplate.KindList {
		return tools
	}
	list := make([]chattemplate.Value, 0, tools.Len())
	for _, tool := range tools.Items() {
		out := chattemplate.NewDict(tool.Len())
		for _, entry := range tool.Entries() {
			value := entry.Value
			if entry.Key.Str() == "function" {
				value = normaliseFunction(value)
			}
			out.Set(entry.Key.Str(), value)
		}
		list = append(list, out.Value())
	}
	return chattemplate.List(list)
}

func normaliseFunction(function chattemplate.Value) chattemplate.Value {
	out := chattemplate.NewDict(function.Len() + 1)
	for _, entry := range function.Entries() {
		value := entry.Value
		switch entry.Key.Str() {
		case "description":
			if value.Kind() != chattemplate.KindString {
				value = chattemplate.String("")
			}
		case "parameters":
			value = normaliseParameters(value)
		}
		out.Set(entry.Key.Str(), value)
	}
	if _, ok := function.Get("description"); !ok {
		out.Set("description", chattemplate.String(""))
	}
	return out.Value()
}

func normaliseParameters(parameters chattemplate.Value) chattemplate.Value {
	if parameters.Kind() != chattemplate.KindDict {
		return parameters
	}
	_, hasType := parameters.Get("type")
	_, hasProperties := parameters.Get("properties")
	if hasType && hasProperties {
		return parameters
	}
	out := chattemplate.NewDict(parameters.Len() + 2)
	for _, entry := range parameters.Entries() {
		out.Set(entry.Key.Str(), entry.Value)
	}
	if !hasType {
		out.Set("type", chattemplate.String("object"))
	}
	if !hasProperties {
		out.Set("properties", chattemplate.NewDict(0).Value())
	}
	return out.Value()
}

func role(message chattemplate.Value) string {
	value, _ := message.Get("role")
	return value.Str()
}

// with returns the message with a role and a content.
func with(message chattemplate.Value, role string, content chattemplate.Value) chattemplate.Value {
	out := chattemplate.NewDict(message.Len())
	for _, entry := range message.Entries() {
		switch entry.Key.Str() {
		case "role":
			out.Set("role", chattemplate.String(role))
		case "content":
			out.Set("content", content)
		default:
			out.Set(entry.Key.Str(), entry.Value)
		}
	}
	return out.Value()
}

// mergeSystem makes one system turn of the leading ones and user turns of later ones, for templates that refuse them.
func mergeSystem(list []chattemplate.Value) []chattemplate.Value {
	leading := 0
	for leading < len(list) && role(list[leading]) == "system" {
		leading++
	}
	out := list
	if leading > 1 {
		merged := list[0]
		for _, message := range list[1:leading] {
			merged = mergeContents(merged, message)
		}
		out = append([]chattemplate.Value{merged}, list[leading:]...)
		leading = 1
	}
	for i := leading; i < len(out); i++ {
		if role(out[i]) == "system" {
			content, _ := out[i].Get("content")
			out[i] = with(out[i], "user", content)
		}
	}
	return out
}

// mergeUsers makes one user turn of neighbouring ones, for templates that demand alternation.
func mergeUsers(list []chattemplate.Value) []chattemplate.Value {
	var out []chattemplate.Value
	for _, message := range list {
		if last := len(out) - 1; last >= 0 && role(message) == "user" && role(out[last]) == "user" {
			out[last] = mergeContents(out[last], message)
			continue
		}
		out = append(out, message)
	}
	return out
}

func mergeContents(first, second chattemplate.Value) chattemplate.Value {
	a, _ := first.Get("content")
	b, _ := second.Get("content")
	if a.Kind() == chattemplate.KindString && b.Kind() == chattemplate.KindString {
		return with(first, role(first), chattemplate.String(a.Str()+"\n\n"+b.Str()))
	}
	parts := append(append([]chattemplate.Value(nil), asParts(a)...), asParts(b)...)
	return with(first, role(first), chattemplate.List(parts))
}

func asParts(content chattemplate.Value) []chattemplate.Value {
	if content.Kind() == chattemplate.KindString {
		return []chattemplate.Value{textPart(content.Str())}
	}
	return content.Items()
}

func imageMark(number int) string { return fmt.Sprintf("<|image_%d|>", number) }
