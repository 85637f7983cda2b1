package toolcall

import "strings"

// DeepSeek's markup language (DSML): invocations with typed parameters in a block. What separates the block from the text before
// it, an empty line, belongs to the block.

const dsmlSeparator = "\n\n"

type dsml struct {
	block, blockEnd         string
	invoke, invokeEnd       string
	parameter, parameterEnd string
	// jsonBody takes a JSON object in the place of parameters.
	jsonBody bool
}

// dsmlWords spells the tags: block is the name of the outer one, space what stands after the language's sign.
func dsmlWords(block, space string) *dsml {
	open, shut := "<｜DSML｜"+space, "</｜DSML｜"+space
	return &dsml{
		block: open + block + ">", blockEnd: shut + block + ">",
		invoke: open + "invoke name=", invokeEnd: shut + "invoke>",
		parameter: open + "parameter name=", parameterEnd: shut + "parameter>",
		jsonBody: space != "",
	}
}

// attribute reads a quoted attribute value at the beginning of text.
func attribute(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", text, false
	}
	value, rest, ok = strings.Cut(text[1:], `"`)
	return value, rest, ok && value != ""
}

func (d *dsml) read(block string, _ bool, _ []Tool) (calls []found, ok bool) {
	for {
		at := strings.Index(block, d.invoke)
		if at < 0 {
			break
		}
		block = block[at+len(d.invoke):]
		body, rest, closed := strings.Cut(block, d.invokeEnd)
		if !closed {
			break
		}
		name, body, ok := attribute(body)
		body, end := strings.CutPrefix(strings.TrimLeft(body, " \n\t\r"), ">")
		if ok && end {
			calls = append(calls, found{name: strings.TrimSpace(name), arguments: d.arguments(body)})
		}
		block = rest
	}
	return calls, len(calls) > 0
}

func (d *dsml) arguments(body string) string {
	if d.jsonBody && strings.HasPrefix(strings.TrimSpace(body), "{") {
		if text, ok := compactString(body); ok {
			return text
		}
	}
	var arguments object
	for {
		at := strings.Index(body, d.parameter)
		if at < 0 {
			break
		}
		body = body[at+len(d.parameter):]
		text, rest, closed := strings.Cut(body, d.parameterEnd)
		if !closed {
			break
		}
		body = rest
		name, text, ok := attribute(text)
		text = strings.TrimLeft(text, " \n\t\r")
		isString := false
		if kind, after, found := strings.Cut(text, ">"); found {
			isString = strings.TrimSpace(kind) == `string="true"`
			ok = ok && (isString || strings.TrimSpace(kind) == "" || strings.TrimSpace(kind) == `string="false"`)
			text = strings.TrimSpace(after)
		} else {
			ok = false
		}
		if !ok {
			continue
		}
		value := quoted(text)
		if !isString && validJSON(text) {
			value = text
		}
		arguments.set(strings.TrimSpace(name), value)
	}
	return arguments.String()
}

// grammar makes a format; orphans says that ends without a beginning are taken away.
func (d *dsml) grammar(orphans bool) *grammar {
	block := func(word string) opener {
		return opener{word: word, closer: until(d.blockEnd), read: d.read}
	}
	bare := func(word string) opener {
		return opener{word: word, closer: until(d.invokeEnd), bare: true, read: func(text string, cut bool, tools []Tool) ([]found, bool) {
			if !cut {
				text += d.invokeEnd
			}
			return d.read(d.invoke+text, cut, tools)
		}}
	}
	g := &grammar{openers: []opener{
		block(d.block), block(dsmlSeparator + d.block), bare(d.invoke), bare(dsmlSeparator + d.invoke),
	}}
	if orphans {
		g.openers = append(g.openers, opener{word: d.blockEnd, markup: true})
	}
	return g.prepare()
}

var (
	dsmlV32 = dsmlWords("function_calls", "").grammar(false)
	dsmlV4  = dsmlWords("tool_calls", "").grammar(false)
	dsmlV42 = dsmlWords("tool_calls", "").grammar(true)
	dsmlV41 = dsmlWords("calls", " ").grammar(true)
)
