package prompt

import "signalbox/preprocess/chattemplate"

// A template that prints a whole message shows its members, so they are those that the API knows, in the order in which it
// knows them, whatever a client adds or swaps. What a client leaves open, as null, is absent.
var (
	messageMembers = map[string][]string{
		"developer": {"role", "content", "name"},
		"system":    {"role", "content", "name"},
		"user":      {"role", "content", "name"},
		"assistant": {"role", "content", "reasoning_content", "refusal", "name", "audio", "tool_calls", "function_call"},
		"tool":      {"role", "content", "tool_call_id"},
		"function":  {"role", "content", "name"},
	}
	partMembers = map[string][]string{
		"text": {"type", "text"}, "refusal": {"type", "refusal"}, "input_audio": {"type", "input_audio"},
	}
	callMembers     = []string{"id", "type", "function"}
	calledMembers   = []string{"name", "arguments"}
	toolMembers     = []string{"type", "function"}
	functionMembers = []string{"name", "description", "parameters", "strict"}
)

// knownMembers returns a message with the members of its role.
func knownMembers(message chattemplate.Value) chattemplate.Value {
	members, known := messageMembers[role(message)]
	if !known {
		return message
	}
	if reasoning, ok := message.Get("reasoning"); ok && role(message) == "assistant" {
		if _, both := message.Get("reasoning_content"); !both {
			message = with(message, "reasoning_content", reasoning)
		}
	}
	message = pick(message, members)
	if content, _ := message.Get("content"); content.Kind() == chattemplate.KindList {
		message = replace(message, "content", content, eachOf(content, knownPart))
	}
	if calls, ok := message.Get("tool_calls"); ok {
		message = replace(message, "tool_calls", calls, eachOf(calls, knownCall))
	}
	if call, ok := message.Get("function_call"); ok {
		message = replace(message, "function_call", call, pick(call, calledMembers))
	}
	return message
}

func knownPart(part chattemplate.Value) chattemplate.Value {
	kind, _ := part.Get("type")
	if members, ok := partMembers[kind.Str()]; ok {
		return pick(part, members)
	}
	return part
}

func knownCall(call chattemplate.Value) chattemplate.Value {
	if _, ok := call.Get("type"); !ok {
		call = with(call, "type", chattemplate.String("function"))
	}
	call = pick(call, callMembers)
	if function, ok := call.Get("function"); ok {
		call = replace(call, "function", function, pick(function, calledMembers))
	}
	return call
}

// knownTool returns a tool with the members that the API knows.
func knownTool(tool chattemplate.Value) chattemplate.Value {
	tool = pick(tool, toolMembers)
	if function, ok := tool.Get("function"); ok {
		tool = replace(tool, "function", function, pick(function, functionMembers))
	}
	return tool
}

// pick returns a dict of the members that are there and not null, in the order given. A dict that is that already is returned
// itself.
func pick(dict chattemplate.Value, members []string) chattemplate.Value {
	if dict.Kind() != chattemplate.KindDict || isPicked(dict.Entries(), members) {
		return dict
	}
	out := chattemplate.NewDict(len(members))
	for _, member := range members {
		if value, ok := dict.Get(member); ok && value.Kind() != chattemplate.KindNone {
			out.Set(member, value)
		}
	}
	return out.Value()
}

func isPicked(entries []chattemplate.Entry, members []string) bool {
	next := 0
	for i := range entries {
		key := entries[i].Key.Str()
		for next < len(members) && members[next] != key {
			next++
		}
		if next == len(members) || entries[i].Value.Kind() == chattemplate.KindNone {
			return false
		}
		next++
	}
	return true
}

// eachOf returns a list with every element changed; the list itself where none was.
func eachOf(list chattemplate.Value, change func(chattemplate.Value) chattemplate.Value) chattemplate.Value {
	items := list.Items()
	for i, item := range items {
		if changed := change(item); changed != item {
			out := append([]chattemplate.Value(nil), items...)
			for out[i] = changed; i+1 < len(out); i++ {
				out[i+1] = change(out[i+1])
			}
			return chattemplate.List(out)
		}
	}
	return list
}

// replace sets a member that changed.
func replace(dict chattemplate.Value, key string, old, value chattemplate.Value) chattemplate.Value {
	if old == value {
		return dict
	}
	return with(dict, key, value)
}

// with returns a dict in which a key has another value; it is added at the end if it is not there.
func with(dict chattemplate.Value, key string, value chattemplate.Value) chattemplate.Value {
	if dict.Kind() != chattemplate.KindDict {
		return dict
	}
	out := chattemplate.NewDict(dict.Len() + 1)
	for _, entry := range dict.Entries() {
		out.Set(entry.Key.Str(), entry.Value)
	}
	out.Set(key, value)
	return out.Value()
}

// without returns a dict that lacks a key. The last entry takes the place of the one that goes.
func without(dict chattemplate.Value, key string) chattemplate.Value {
	entries := append([]chattemplate.Entry(nil), dict.Entries()...)
	for i := range entries {
		if entries[i].Key.Str() == key {
			entries[i] = entries[len(entries)-1]
			entries = entries[:len(entries)-1]
			break
		}
	}
	out := chattemplate.NewDict(len(entries) + 1)
	for _, entry := range entries {
		out.Set(entry.Key.Str(), entry.Value)
	}
	return out.Value()
}
