package toolcall

import "strings"

// DeepSeek V3 and V3.1: calls between special tokens, the older one with its arguments in a code block.

const (
	deepseekBegin = "<｜tool▁calls▁begin｜>"
	deepseekEnd   = "<｜tool▁calls▁end｜>"
	deepseekCall  = "<｜tool▁call▁begin｜>"
	deepseekDone  = "<｜tool▁call▁end｜>"
	deepseekSep   = "<｜tool▁sep｜>"
	codeFence     = "```"
)

// deepseekBlock reads the calls of a block whose bodies one reads.
func deepseekBlock(one func(body string) (found, bool)) func(string, bool, []Tool) ([]found, bool) {
	return func(block string, _ bool, _ []Tool) (calls []found, ok bool) {
		for {
			_, rest, begun := strings.Cut(block, deepseekCall)
			body, rest, closed := strings.Cut(rest, deepseekDone)
			if !begun || !closed {
				return calls, len(calls) > 0
			}
			if call, ok := one(body); ok {
				calls = append(calls, call)
			}
			block = rest
		}
	}
}

func deepseekV31Call(body string) (found, bool) {
	name, arguments, ok := strings.Cut(body, deepseekSep)
	if !ok {
		return found{}, false
	}
	return deepseekNamed(name, arguments)
}

func deepseekV3Call(body string) (found, bool) {
	_, body, ok := strings.Cut(body, deepseekSep) // the type, always "function"
	if !ok {
		return found{}, false
	}
	name, body, ok := strings.Cut(body, "\n")
	if !ok {
		return found{}, false
	}
	_, arguments, ok := strings.Cut(body, codeFence+"json")
	if !ok {
		return found{}, false
	}
	arguments, _, _ = strings.Cut(arguments, codeFence)
	return deepseekNamed(name, arguments)
}

func deepseekNamed(name, arguments string) (found, bool) {
	name = strings.TrimSpace(name)
	if name == "" || strings.ContainsAny(name, "{}[]") {
		return found{}, false
	}
	text, ok := compactString(arguments)
	if !ok {
		// Line breaks inside strings make it no JSON; the models mean spaces.
		lines := strings.Split(strings.TrimSpace(arguments), "\n")
		for i := range lines {
			lines[i] = strings.TrimLeft(lines[i], " \t\r")
		}
		text, ok = compactString(strings.Join(lines, " "))
	}
	return found{name: name, arguments: text}, ok
}

func deepseekGrammar(one func(string) (found, bool)) *grammar {
	read := deepseekBlock(one)
	return (&grammar{openers: []opener{
		{word: deepseekBegin, closer: until(deepseekEnd), read: read},
		{word: deepseekCall, closer: until(deepseekDone), bare: true, read: func(block string, cut bool, tools []Tool) ([]found, bool) {
			if cut {
				return nil, false
			}
			return read(deepseekCall+block+deepseekDone, cut, tools)
		}},
	}}).prepare()
}

var (
	deepseekV3  = deepseekGrammar(deepseekV3Call)
	deepseekV31 = deepseekGrammar(deepseekV31Call)
)
