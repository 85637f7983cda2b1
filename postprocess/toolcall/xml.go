package toolcall

import "strings"

// The formats that write each parameter between tags: <function=NAME> <parameter=KEY>VALUE</parameter> </function> of Qwen3-Coder,
// <invoke name="NAME"> <parameter name="KEY">VALUE</parameter> </invoke> of MiniMax-M2.

// tagWords are the tags of such a format. Opening tags have their name up to the next ">".
type tagWords struct {
	function, functionEnd   string
	parameter, parameterEnd string
	blockEnd                string
	// strict wants all closing tags; else the last function and the last parameter may lack theirs.
	strict bool
	// exact keeps the space inside a value but for one line break at each end.
	exact bool
}

// element is what stands between two tags.
type element struct {
	name, body string
	closed     bool
}

// elements yields the elements of a kind in turn. Without closing tags in reach, the last one goes to the end of the text
// unless strict.
func elements(text, start, end string, strict bool, yield func(element)) {
	for {
		at := strings.Index(text, start)
		if at < 0 {
			return
		}
		text = text[at+len(start):]
		name, body, ok := strings.Cut(text, ">")
		if !ok {
			return
		}
		name = unquote(strings.TrimSpace(name))
		inner, rest, closed := strings.Cut(body, end)
		if !closed && strict {
			return
		}
		if name != "" {
			yield(element{name, inner, closed})
		}
		text = rest
	}
}

func unquote(text string) string {
	if len(text) >= 2 && (text[0] == '"' || text[0] == '\'') && text[len(text)-1] == text[0] {
		return text[1 : len(text)-1]
	}
	return text
}

// read returns the calls of a block.
func (w *tagWords) read(block string, cut bool, tools []Tool) (calls []found, ok bool) {
	elements(block, w.function, w.functionEnd, w.strict, func(f element) {
		if !f.closed && (w.exact || w.openValue(f.body)) {
			return
		}
		schema := schemaOf(tools, f.name)
		var arguments object
		elements(f.body, w.parameter, w.parameterEnd, w.strict, func(p element) {
			arguments.set(p.name, w.value(p.body, p.name, schema))
		})
		calls = append(calls, found{name: f.name, arguments: arguments.String()})
	})
	return calls, len(calls) > 0
}

// openValue tells whether the last parameter of a function without its end is cut off.
func (w *tagWords) openValue(body string) bool {
	at := strings.LastIndex(body, w.parameter)
	return at >= 0 && !strings.Contains(body[at:], w.parameterEnd) && !strings.Contains(body[at:], w.blockEnd)
}

// value converts a parameter's text by the function's schema.
func (w *tagWords) value(text, name string, schema *schemas) string {
	if w.exact {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "\n"), "\n")
	} else {
		text = strings.TrimSpace(text)
	}
	text = unescapeHTML(text)
	trimmed := strings.TrimSpace(text)
	if strings.EqualFold(trimmed, "null") {
		return "null"
	}
	definition, ok := schema.props[name]
	if !ok {
		return quoted(text)
	}
	kind := declaredType(schema.resolve(definition))
	switch {
	case kind == "string" || kind == "str" || kind == "text" || kind == "varchar" || kind == "char" || kind == "enum":
		return quoted(text)
	case hasPrefixOf(kind, "int", "uint", "long", "short", "unsigned"):
		if n, ok := integer(trimmed); ok {
			return n
		}
		return quoted(text)
	case hasPrefixOf(kind, "num", "float"):
		if n, ok := fraction(trimmed, true); ok {
			return n
		}
		return quoted(text)
	case kind == "boolean" || kind == "bool" || kind == "binary":
		if strings.EqualFold(trimmed, "true") {
			return "true"
		}
		return "false"
	}
	if value, ok := literal(trimmed); ok {
		return value
	}
	return quoted(text)
}

// declaredType returns a schema's type in small letters: "object" for alternatives, "string" when it has none.
func declaredType(schema string) string {
	kind, alternatives := "", false
	eachMember(schema, func(m member) {
		switch m.key {
		case "type":
			kind = strings.ToLower(stringOf(m.value))
		case "anyOf", "oneOf":
			alternatives = true
		}
	})
	switch {
	case kind != "":
		return kind
	case alternatives:
		return "object"
	}
	return "string"
}

func hasPrefixOf(text string, prefixes ...string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// grammar makes a format of the tags: blocks between two words, or functions without them.
func (w *tagWords) grammar(start string) *grammar {
	return (&grammar{
		openers: []opener{
			{word: start, closer: until(w.blockEnd), read: w.read},
			// The tag itself is part of what is read.
			{word: w.function, closer: until(w.functionEnd), bare: true, read: func(block string, cut bool, tools []Tool) ([]found, bool) {
				if !cut {
					block += w.functionEnd
				}
				return w.read(w.function+block, cut, tools)
			}},
		},
	}).prepare()
}

var (
	qwenTags = tagWords{function: "<function=", functionEnd: "</function>", parameter: "<parameter=", parameterEnd: "</parameter>", blockEnd: "</tool_call>"}
	// qwenTags2 is the second generation: values keep their space.
	qwenTags2 = tagWords{function: "<function=", functionEnd: "</function>", parameter: "<parameter=", parameterEnd: "</parameter>", blockEnd: "</tool_call>", exact: true}
	m2Tags    = tagWords{function: "<invoke name=", functionEnd: "</invoke>", parameter: "<parameter name=", parameterEnd: "</parameter>", blockEnd: "</minimax:tool_call>", strict: true}

	qwen3Coder  = qwenTags.grammar("<tool_call>")
	qwen3Coder2 = qwenTags2.grammar("<tool_call>")
	minimaxM2   = m2Tags.grammar("<minimax:tool_call>")
)
