package kimi

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"signalbox/preprocess/chattemplate"
)

var toolName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,255}$`)

// nameOf is the name of a tool that is declared, wrapped as the API does it or bare.
func nameOf(tool chattemplate.Value) (string, error) {
	kind, function := member(tool, "type"), member(tool, "function")
	wrapped := function.Kind() == chattemplate.KindDict
	if tool.Kind() != chattemplate.KindDict || isSet(kind) != isSet(function) || isSet(kind) && (kind.Str() != "function" || !wrapped) {
		return "", errors.New(`want tools as {"type": "function", "function": {"name": …}}`)
	}
	if wrapped {
		tool = function
	}
	name := member(tool, "name").Str()
	if !toolName.MatchString(name) {
		return "", fmt.Errorf("tool name %q: want a letter or _, then letters, digits, _ and -, at most 256 in all", name)
	}
	return name, nil
}

// checkTools refuses tools that the model cannot tell apart, in the request and in its messages.
func checkTools(c *Conversation) error {
	seen := map[string]bool{}
	add := func(tools []chattemplate.Value) error {
		for _, tool := range tools {
			name, err := nameOf(tool)
			if err != nil {
				return fmt.Errorf("tools: %w", err)
			}
			if seen[name] {
				return fmt.Errorf("tools: %q is declared more than once", name)
			}
			seen[name] = true
		}
		return nil
	}
	if err := add(c.Tools); err != nil {
		return err
	}
	for i, message := range c.Messages {
		tools, role := member(message, "tools"), member(message, "role").Str()
		switch {
		case !isSet(tools):
			continue
		case role != "system":
			return fmt.Errorf("messages[%d]: tools are declared by system, not by %s", i, role)
		case tools.Kind() != chattemplate.KindList:
			return fmt.Errorf("messages[%d]: tools: want a list", i)
		case tools.Len() > 0 && member(message, "content").Truthy():
			return fmt.Errorf("messages[%d]: a system turn has content or tools, not both", i)
		}
		if err := add(tools.Items()); err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	if c.NamedTool != "" && !seen[c.NamedTool] {
		return fmt.Errorf("tool_choice: the function %q is not among the tools", c.NamedTool)
	}
	return nil
}

// splitPartial takes off a last answer that the model is to go on with (partial, true).
func splitPartial(messages []chattemplate.Value) (history []chattemplate.Value, partial chattemplate.Value, err error) {
	for i, message := range messages {
		mark := member(message, "partial")
		switch {
		case !isSet(mark):
			continue
		case mark.Kind() != chattemplate.KindBool || member(message, "role").Str() != "assistant":
			return nil, partial, fmt.Errorf("messages[%d]: partial: want true or false, on an assistant's turn", i)
		case !mark.IsTrue():
			continue
		case i != len(messages)-1:
			return nil, partial, fmt.Errorf("messages[%d]: only the last message can be partial", i)
		}
		return messages[:i], message, nil
	}
	return messages, partial, nil
}

// orderResults brings tools' results that follow each other into the order of the calls, and names their tools, where all of them
// answer one of the last answer's calls.
func orderResults(messages []chattemplate.Value) []chattemplate.Value {
	out := slices.Clone(messages)
	var calls []chattemplate.Value
	for i := 0; i < len(out); i++ {
		switch member(out[i], "role").Str() {
		case "assistant":
			calls = member(out[i], "tool_calls").Items()
		case "tool":
			end := i
			for end < len(out) && member(out[end], "role").Str() == "tool" {
				end++
			}
			orderRun(out[i:end], calls)
			i = end - 1
		}
	}
	return out
}

func orderRun(run, calls []chattemplate.Value) {
	type placed struct {
		at      int
		message chattemplate.Value
	}
	list := make([]placed, len(run))
	for i, message := range run {
		id := member(message, "tool_call_id").Str()
		at := slices.IndexFunc(calls, func(call chattemplate.Value) bool { return member(call, "id").Str() == id })
		if at < 0 {
			return
		}
		named := chattemplate.NewDict(message.Len() + 1)
		for _, entry := range message.Entries() {
			named.Set(entry.Key.Str(), entry.Value)
		}
		named.Set("tool", member(member(calls[at], "function"), "name"))
		list[i] = placed{at, named.Value()}
	}
	slices.SortStableFunc(list, func(a, b placed) int { return a.at - b.at })
	for i := range list {
		run[i] = list[i].message
	}
}
