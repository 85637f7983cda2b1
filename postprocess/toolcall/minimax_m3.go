package toolcall

import "strings"

// MiniMax-M3: every tag has the model's own token before it, and parameters are tags themselves, nested for objects and arrays.

const (
	m3Space  = "]<]minimax[>["
	m3Invoke = m3Space + "<invoke"
	m3Done   = m3Space + "</invoke>"
	m3Open   = m3Space + "<"
)

func readMinimaxM3(block string, _ bool, tools []Tool) (calls []found, ok bool) {
	for {
		_, rest, begun := strings.Cut(block, m3Invoke)
		attributes, rest, opened := strings.Cut(rest, ">")
		body, rest, closed := strings.Cut(rest, m3Done)
		if !begun || !opened || !closed {
			return calls, len(calls) > 0
		}
		block = rest
		name, ok := strings.CutPrefix(strings.TrimSpace(attributes), "name")
		if !ok {
			continue
		}
		if name, ok = strings.CutPrefix(strings.TrimSpace(name), "="); !ok {
			continue
		}
		name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
		if name = strings.TrimSpace(strings.Trim(name, `"'`)); name != "" {
			calls = append(calls, found{name: name, arguments: m3Arguments(body, schemaOf(tools, name))})
		}
	}
}

// m3Arguments reads the parameters of a call.
func m3Arguments(body string, schema *schemas) string {
	var arguments m3Object
	for {
		at := strings.Index(body, m3Open)
		if at < 0 {
			break
		}
		body = body[at+len(m3Open):]
		name, rest, ok := strings.Cut(body, ">")
		if !ok {
			break
		}
		if name == "" || name[0] == '/' || strings.ContainsAny(name, " \n\t\r<") {
			continue
		}
		raw, after, ok := strings.Cut(rest, m3Space+"</"+name+">")
		if !ok {
			break
		}
		body = after
		definition, declared := schema.props[name]
		if strings.Contains(raw, m3Open) {
			arguments.add(name, m3Nested(raw, definition, schema))
		} else {
			arguments.add(name, m3Scalar(raw, definition, declared, schema))
		}
	}
	return arguments.String()
}

// m3Object is an object in which a key that comes again makes an array.
type m3Object struct {
	object
	many map[string][]string
}

func (o *m3Object) add(key, value string) {
	at := o.find(key)
	if at < 0 {
		o.set(key, value)
		return
	}
	if o.many == nil {
		o.many = make(map[string][]string)
	}
	list, again := o.many[key]
	if have := o.list[at].value; !again && have != "[]" {
		list = append(list, strings.TrimSuffix(strings.TrimPrefix(have, "["), "]"))
		if have[0] != '[' {
			list[0] = have
		}
	}
	o.many[key] = append(list, value)
}

func (o *m3Object) String() string {
	for key, list := range o.many {
		o.set(key, "["+strings.Join(list, ",")+"]")
	}
	return o.object.String()
}

// m3Node is an open tag.
type m3Node struct {
	tag      string
	schema   string
	declared bool
	text     strings.Builder
	object   m3Object
	array    []string
	isArray  bool
	isObject bool
}

func (n *m3Node) value(schema *schemas) string {
	switch {
	case n.isArray:
		return "[" + strings.Join(n.array, ",") + "]"
	case n.isObject:
		if text := n.text.String(); strings.TrimSpace(text) != "" {
			key := "$text"
			for n.object.find(key) >= 0 {
				key = "$" + key
			}
			n.object.set(key, quoted(text))
		}
		return n.object.String()
	}
	return m3Scalar(n.text.String(), n.schema, n.declared, schema)
}

func (n *m3Node) add(child *m3Node, schema *schemas) {
	value := child.value(schema)
	if n.isArray {
		n.array = append(n.array, value)
		return
	}
	n.isObject = true
	n.object.add(child.tag, value)
}

// m3Nested reads a value that holds tags.
func m3Nested(raw, definition string, schema *schemas) string {
	parts := strings.Split(raw, m3Space)
	items := func(at int) bool { return at < len(parts) && strings.HasPrefix(parts[at], "<item>") }
	root := &m3Node{schema: definition, declared: definition != "", isObject: true}
	if items(1) && schema.allows(definition, "array") {
		root.isArray, root.isObject = true, false
	}
	root.text.WriteString(strings.TrimSpace(parts[0]))
	stack := []*m3Node{root}
	pop := func() *m3Node {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		stack[len(stack)-1].add(top, schema)
		return top
	}
	for i, part := range parts[1:] {
		top := stack[len(stack)-1]
		tag, text, _ := strings.Cut(part, ">")
		switch {
		case strings.HasPrefix(tag, "</"):
			for len(stack) > 1 && pop().tag != tag[2:] {
			}
			if strings.TrimSpace(text) != "" {
				stack[len(stack)-1].text.WriteString(text)
			}
		case strings.HasPrefix(tag, "<") && len(tag) > 1:
			if len(stack) >= maxDepth {
				continue
			}
			node := &m3Node{tag: tag[1:]}
			if node.tag == "item" {
				node.schema, node.declared = schema.item(top.schema)
			}
			if !node.declared {
				node.schema, node.declared = schema.child(top.schema, node.tag)
			}
			node.isArray = items(i+2) && node.declared && schema.allows(node.schema, "array")
			if leaf := i+2 >= len(parts) || strings.HasPrefix(parts[i+2], "</"); leaf || strings.TrimSpace(text) != "" {
				node.text.WriteString(text)
			}
			stack = append(stack, node)
		default:
			top.text.WriteString(part)
		}
	}
	for len(stack) > 1 {
		pop()
	}
	return root.value(schema)
}

// m3Scalar converts a text by its schema.
func m3Scalar(raw, definition string, declared bool, schema *schemas) string {
	text := unescapeHTML(raw)
	trimmed := strings.TrimSpace(text)
	is := func(kind string) bool { return schema.allows(definition, kind) }
	switch {
	case !declared:
		return quoted(text)
	case strings.EqualFold(trimmed, "null"):
		if is("null") || !strings.Contains(definition, `"type"`) {
			return "null"
		}
		return quoted(text)
	case is("string") || is("enum"):
		return quoted(text)
	case is("integer"):
		if n, ok := integer(trimmed); ok {
			return n
		}
	case is("number"):
		if n, ok := fraction(trimmed, false); ok {
			return n
		}
	case is("boolean"):
		switch strings.ToLower(trimmed) {
		case "true", "1":
			return "true"
		case "false", "0":
			return "false"
		}
	case is("object"), is("array"):
		if trimmed == "" && is("object") {
			return "{}"
		}
		if trimmed == "" {
			return "[]"
		}
		if value, ok := compactString(trimmed); ok {
			return value
		}
	}
	return quoted(text)
}

var minimaxM3 = (&grammar{openers: []opener{
	{word: m3Space + "<tool_call>", closer: until(m3Space + "</tool_call>"), read: readMinimaxM3},
	{word: m3Invoke, closer: until(m3Done), bare: true, read: func(block string, cut bool, tools []Tool) ([]found, bool) {
		if cut {
			return nil, false
		}
		return readMinimaxM3(m3Invoke+block+m3Done, cut, tools)
	}},
}}).prepare()
