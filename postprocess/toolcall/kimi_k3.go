package toolcall

import (
	"strconv"
	"strings"
)

// Kimi K3: channels and typed arguments between <|open|>, <|sep|> and <|close|>.

const (
	k3Sep      = "<|sep|>"
	k3Call     = "<|open|>call"
	k3CallEnd  = "<|close|>call<|sep|>"
	k3Argument = "<|open|>argument"
	k3ArgEnd   = "<|close|>argument<|sep|>"
	k3JSON     = "<|open|>json"
	k3JSONEnd  = "<|close|>json<|sep|>"
	k3Tools    = "<|open|>tools<|sep|>"
	k3ToolsEnd = "<|close|>tools<|sep|>"
	k3MsgEnd   = "<|close|>message<|sep|>"
	k3End      = "<|end_of_msg|>"
)

// k3Spaced undoes the spaces that a detokenizer may put around the names of channels.
var k3Spaced = strings.NewReplacer(
	"<|open|> tools <|sep|>", k3Tools, "<|close|> tools <|sep|>", k3ToolsEnd,
	"<|open|> call", k3Call, "<|close|> call <|sep|>", k3CallEnd,
	"<|open|> argument", k3Argument, "<|close|> argument <|sep|>", k3ArgEnd,
	"<|open|> json", k3JSON, "<|close|> json <|sep|>", k3JSONEnd,
)

// k3Reader reads the calls of a block. Version 2 takes ids from the wire.
func k3Reader(version Version) func(string, bool, []Tool) ([]found, bool) {
	return func(block string, cut bool, _ []Tool) (calls []found, ok bool) {
		if strings.Contains(block, "|> ") {
			block = k3Spaced.Replace(block)
		}
		if cut && version == Version2 {
			return nil, false
		}
		for {
			_, rest, begun := strings.Cut(block, k3Call)
			attributes, rest, opened := strings.Cut(rest, k3Sep)
			if !begun || !opened {
				return calls, len(calls) > 0
			}
			body, after, closed := strings.Cut(rest, k3CallEnd)
			if !closed {
				trimmed := strings.TrimRight(body, " \n\t\r")
				if !cut || !strings.HasSuffix(trimmed, k3ArgEnd) && !strings.HasSuffix(trimmed, k3JSONEnd) {
					return calls, len(calls) > 0
				}
			}
			block = after
			named, ok := k3Attributes(attributes)
			if !ok || named["tool"] == "" {
				continue
			}
			arguments, ok := k3Arguments(body, version)
			if !ok {
				continue
			}
			call := found{name: named["tool"], arguments: arguments}
			if index, err := strconv.Atoi(named["index"]); err == nil && version == Version2 {
				call.id = call.name + ":" + strconv.Itoa(index-1)
			}
			calls = append(calls, call)
		}
	}
}

func k3Attributes(text string) (map[string]string, bool) {
	attributes := make(map[string]string)
	for {
		text = strings.TrimLeft(text, " \n\t\r")
		if text == "" {
			return attributes, true
		}
		key, rest, ok := strings.Cut(text, `="`)
		if !ok || key == "" || strings.ContainsAny(key, "\" \n\t\r") {
			return nil, false
		}
		value, after, ok := strings.Cut(rest, `"`)
		if !ok {
			return nil, false
		}
		if _, have := attributes[key]; !have {
			attributes[key] = strings.ReplaceAll(strings.ReplaceAll(value, "&quot;", `"`), "&amp;", "&")
		}
		text = after
	}
}

func k3Arguments(body string, version Version) (string, bool) {
	body = strings.TrimSpace(body)
	if rest, ok := strings.CutPrefix(body, k3JSON); ok {
		_, rest, opened := strings.Cut(rest, k3Sep)
		value, after, closed := strings.Cut(rest, k3JSONEnd)
		if !opened || !closed || strings.TrimSpace(after) != "" {
			return "", false
		}
		if text, ok := compactString(value); ok && version == Version2 {
			value = text
		}
		return value, true
	}
	var arguments object
	for body != "" {
		rest, ok := strings.CutPrefix(body, k3Argument)
		attributes, rest, opened := strings.Cut(rest, k3Sep)
		raw, after, closed := strings.Cut(rest, k3ArgEnd)
		if !ok || !opened || !closed {
			return "", false
		}
		body = strings.TrimSpace(after)
		named, ok := k3Attributes(attributes)
		if !ok {
			return "", false
		}
		value := quoted(raw)
		if kind, has := named["type"]; has && kind != "string" && validJSON(raw) {
			value = strings.TrimSpace(raw)
		}
		arguments.set(named["key"], value)
	}
	return arguments.String(), true
}

func k3Grammar(version Version) *grammar {
	read := k3Reader(version)
	nothing := func(string, bool, []Tool) ([]found, bool) { return nil, true }
	g := &grammar{reserved: "<|close|>"}
	for _, space := range []string{"", " "} {
		open := func(name string) string { return "<|open|>" + space + name }
		shut := func(name string) string { return "<|close|>" + space + name + space + k3Sep }
		g.openers = append(g.openers,
			opener{word: open("tools") + space + k3Sep, closer: until(k3ToolsEnd, "<|close|> tools <|sep|>", k3MsgEnd, k3End), read: read},
			opener{word: open("call"), closer: until(k3CallEnd, "<|close|> call <|sep|>"), bare: true, read: func(block string, cut bool, tools []Tool) ([]found, bool) {
				if !cut {
					block += k3CallEnd
				}
				return read(k3Call+block, cut, tools)
			}},
			opener{word: open("argument"), closer: until(k3ArgEnd, "<|close|> argument <|sep|>"), read: nothing, markup: true},
			opener{word: open("json"), closer: until(k3JSONEnd, "<|close|> json <|sep|>"), read: nothing, markup: true},
			opener{word: open("message"), closer: until(k3Sep), read: nothing, markup: true},
			opener{word: open("response") + space + k3Sep, markup: true},
		)
		for _, name := range []string{"response", "tools", "call", "argument", "json", "message", "think"} {
			g.openers = append(g.openers, opener{word: shut(name), markup: true})
		}
	}
	g.openers = append(g.openers, opener{word: k3End, markup: true})
	return g.prepare()
}

var (
	kimiK3  = k3Grammar(Version1)
	kimiK32 = k3Grammar(Version2)
)
