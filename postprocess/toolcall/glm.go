package toolcall

import "strings"

// GLM-4.7: <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>.

func readGLM(block string, cut bool, tools []Tool) ([]found, bool) {
	if cut {
		return nil, false
	}
	name, rest := block, ""
	if at := strings.Index(block, "<arg_key>"); at >= 0 {
		name, rest = block[:at], block[at:]
	}
	name = strings.TrimSpace(name)
	if name == "" {
		return nil, false
	}
	schema := schemaOf(tools, name)
	var arguments object
	for {
		_, after, ok := strings.Cut(rest, "<arg_key>")
		if !ok {
			break
		}
		key, after, ok := strings.Cut(after, "</arg_key>")
		if !ok {
			break
		}
		if rest = after; strings.Contains(key, "<") {
			continue
		}
		// A value counts only directly behind its key.
		value, ok := strings.CutPrefix(after, "<arg_value>")
		if !ok {
			continue
		}
		value, after, ok = strings.Cut(value, "</arg_value>")
		if !ok {
			break
		}
		rest = after
		if key = strings.TrimSpace(key); key != "" {
			arguments.set(key, glmValue(value, key, schema))
		}
	}
	return []found{{name: name, arguments: arguments.String()}}, true
}

func glmValue(text, key string, schema *schemas) string {
	definition, declared := schema.props[key]
	trimmed := strings.TrimSpace(text)
	is := func(kinds ...string) bool {
		for _, kind := range kinds {
			if declared && schema.allows(definition, kind) {
				return true
			}
		}
		return false
	}
	if trimmed == "null" && declared {
		if is("null") {
			return "null"
		}
		return quoted(text)
	}
	if is("string") {
		return quoted(text)
	}
	if trimmed != "" && strings.IndexByte(`{["`, trimmed[0]) >= 0 {
		if value, ok := compactString(trimmed); ok {
			return value
		}
	}
	if is("integer", "int", "number", "float", "double") {
		if n, ok := integer(trimmed); ok {
			return n
		}
	}
	if is("number", "float", "double") {
		if n, ok := fraction(trimmed, false); ok {
			return n
		}
	}
	if is("boolean", "bool") {
		switch strings.ToLower(trimmed) {
		case "true", "1", "yes":
			return "true"
		case "false", "0", "no":
			return "false"
		}
	}
	if is("array") {
		b := []byte{'['}
		for i, item := range strings.Split(trimmed, ",") {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(b, strings.TrimSpace(item))
		}
		return string(append(b, ']'))
	}
	if is("null") && (trimmed == "None" || trimmed == "") {
		return "null"
	}
	return quoted(text)
}

var glm47 = (&grammar{lost: true, openers: []opener{{word: "<tool_call>", closer: until("</tool_call>"), read: readGLM}}}).prepare()
