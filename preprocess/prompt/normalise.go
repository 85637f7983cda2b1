package prompt

import (
	"strings"

	"signalbox/preprocess/chattemplate"
)

// normalise brings the messages into the form that the template reads.
func (f *Formatter) normalise(chosen *form, messages chattemplate.Value) (chattemplate.Value, error) {
	list := make([]chattemplate.Value, 0, messages.Len())
	for _, message := range messages.Items() {
		if err := checkMessage(message); err != nil {
			return messages, err
		}
		list = append(list, knownMembers(message))
	}
	if chosen.oneSystem {
		list = mergeSystem(list)
	}
	if chosen.alternating {
		list = mergeUsers(list)
	}
	for i, message := range list {
		if f.options.ParseArguments {
			if err := checkArguments(message); err != nil {
				return messages, err
			}
		}
		list[i] = f.normaliseMessage(chosen, message)
	}
	return chattemplate.List(list), nil
}

// checkMessage refuses what no template can show.
func checkMessage(message chattemplate.Value) error {
	if partial, _ := message.Get("partial"); partial.IsTrue() {
		return &Refusal{Param: "messages", Message: "messages: partial: true is not supported by this model's chat template; use continue_final_message"}
	}
	if tools, ok := message.Get("tools"); ok && tools.Kind() != chattemplate.KindNone && !(tools.Kind() == chattemplate.KindList && tools.Len() == 0) {
		return &Refusal{Param: "messages", Message: "messages: tools of a single message are not supported by this model's chat template; give them with the request"}
	}
	return nil
}

// withEmptyContent gives past tool calls without content an empty one, and tells whether there were any. Clients send null
// beside tool calls; many a template then adds the content to a text, which only an empty text survives.
func withEmptyContent(messages chattemplate.Value) (chattemplate.Value, bool) {
	found := false
	list := append([]chattemplate.Value(nil), messages.Items()...)
	for i, message := range list {
		_, hasContent := message.Get("content")
		if _, hasCalls := message.Get("tool_calls"); hasCalls && !hasContent {
			list[i], found = with(message, "content", chattemplate.String("")), true
		}
	}
	return chattemplate.List(list), found
}

// normaliseMessage brings one message into the template's form. A message that has it already is not copied.
func (f *Formatter) normaliseMessage(chosen *form, message chattemplate.Value) chattemplate.Value {
	content, hasContent := message.Get("content")
	if changed := f.content.normalise(content); changed.Kind() != content.Kind() || changed.Kind() == chattemplate.KindList {
		message = with(message, "content", changed)
		content = changed
	}
	if calls, ok := message.Get("tool_calls"); ok && (!chosen.stringArguments || f.options.ParseArguments) {
		message = with(message, "tool_calls", parseCalls(calls, f.options.ParseArguments))
	}
	if call, ok := message.Get("function_call"); ok {
		message = with(message, "function_call", parseArguments(call, false))
	}
	reasoning, ok := message.Get("reasoning_content")
	if !ok || role(message) != "assistant" {
		return message
	}
	switch chosen.reasoning {
	case reasoningUnread:
		thoughts := thinkBlocks(reasoning)
		if thoughts == "" || hasContent && content.Kind() != chattemplate.KindString && content.Kind() != chattemplate.KindList {
			return message
		}
		return without(with(message, "content", prependText(content, thoughts)), "reasoning_content")
	case reasoningString:
		if reasoning.Kind() == chattemplate.KindList {
			return with(message, "reasoning_content", chattemplate.String(joinSegments(reasoning)))
		}
	}
	return message
}

// thinkBlocks is a past turn's reasoning as models write it: in a block of its own for each segment.
func thinkBlocks(reasoning chattemplate.Value) string {
	segments := reasoning.Items()
	if reasoning.Kind() == chattemplate.KindString {
		segments = []chattemplate.Value{reasoning}
	}
	var b strings.Builder
	for _, segment := range segments {
		if segment.Str() != "" {
			b.WriteString("<think>" + segment.Str() + "</think>")
		}
	}
	return b.String()
}

// joinSegments is reasoning in one piece, for templates that read only strings.
func joinSegments(segments chattemplate.Value) string {
	var texts []string
	for _, segment := range segments.Items() {
		if segment.Str() != "" {
			texts = append(texts, segment.Str())
		}
	}
	return strings.Join(texts, "\n")
}

// prependText puts text before a message's content, which may be absent.
func prependText(content chattemplate.Value, text string) chattemplate.Value {
	if content.Kind() == chattemplate.KindList {
		return chattemplate.List(append([]chattemplate.Value{textPart(text)}, content.Items()...))
	}
	return chattemplate.String(text + content.Str())
}

// checkArguments refuses past tool calls whose arguments are no JSON, for models whose templates take only objects.
func checkArguments(message chattemplate.Value) error {
	calls, _ := message.Get("tool_calls")
	for _, call := range calls.Items() {
		function, _ := call.Get("function")
		arguments, _ := function.Get("arguments")
		if arguments.Str() == "" {
			continue
		}
		if _, err := parseJSONText(arguments.Str()); err != nil {
			return &Refusal{Param: "messages", Message: "messages: the arguments of a tool call are not valid JSON: " + err.Error(), Cause: err}
		}
	}
	return nil
}

// parseCalls parses the arguments of past tool calls.
func parseCalls(calls chattemplate.Value, onlyObjects bool) chattemplate.Value {
	if calls.Kind() != chattemplate.KindList {
		return calls
	}
	list := make([]chattemplate.Value, 0, calls.Len())
	for _, call := range calls.Items() {
		if function, ok := call.Get("function"); ok {
			call = with(call, "function", parseArguments(function, onlyObjects))
		}
		list = append(list, call)
	}
	return chattemplate.List(list)
}

// parseArguments turns a call's arguments, a JSON text, into what the text says. Text that is no JSON stays, unless only an
// object will do: then anything else becomes an empty one.
func parseArguments(function chattemplate.Value, onlyObjects bool) chattemplate.Value {
	arguments, ok := function.Get("arguments")
	if !ok || arguments.Kind() != chattemplate.KindString {
		return function
	}
	parsed, err := parseJSONText(arguments.Str())
	switch {
	case onlyObjects && (err != nil || parsed.Kind() != chattemplate.KindDict):
		parsed = chattemplate.NewDict(0).Value()
	case err != nil:
		return function
	}
	return with(function, "arguments", parsed)
}

func role(message chattemplate.Value) string {
	value, _ := message.Get("role")
	return value.Str()
}

// mergeSystem makes one system turn of the leading ones and user turns of later ones, for templates that refuse them. A later
// turn stays in its place: moved to the front it would change the prefix of all that was cached.
func mergeSystem(list []chattemplate.Value) []chattemplate.Value {
	leading := 0
	for leading < len(list) && role(list[leading]) == "system" {
		leading++
	}
	out := make([]chattemplate.Value, 0, len(list))
	for i, message := range list {
		switch {
		case i > 0 && i < leading:
			out[0] = mergeContents(out[0], message)
		case i >= leading && role(message) == "system":
			out = append(out, with(message, "role", chattemplate.String("user")))
		default:
			out = append(out, message)
		}
	}
	return out
}

// mergeUsers makes one user turn of neighbouring ones, for templates that demand alternation.
func mergeUsers(list []chattemplate.Value) []chattemplate.Value {
	out := make([]chattemplate.Value, 0, len(list))
	for _, message := range list {
		if last := len(out) - 1; last >= 0 && role(message) == "user" && role(out[last]) == "user" {
			out[last] = mergeContents(out[last], message)
			continue
		}
		out = append(out, message)
	}
	return out
}

// mergeContents adds the second message's content to the first, with a blank line between texts. Parts stay parts.
func mergeContents(first, second chattemplate.Value) chattemplate.Value {
	a, hasA := first.Get("content")
	b, hasB := second.Get("content")
	switch {
	case !hasB:
		return first
	case !hasA:
		return with(first, "content", b)
	case a.Kind() == chattemplate.KindString && b.Kind() == chattemplate.KindString:
		separator := "\n\n"
		if a.Str() == "" || b.Str() == "" {
			separator = ""
		}
		return with(without(first, "content"), "content", chattemplate.String(a.Str()+separator+b.Str()))
	}
	parts := append(append([]chattemplate.Value(nil), asParts(a)...), asParts(b)...)
	return with(without(first, "content"), "content", chattemplate.List(parts))
}

func asParts(content chattemplate.Value) []chattemplate.Value {
	if content.Kind() != chattemplate.KindString {
		return content.Items()
	}
	if content.Str() == "" {
		return nil
	}
	return []chattemplate.Value{textPart(content.Str())}
}
