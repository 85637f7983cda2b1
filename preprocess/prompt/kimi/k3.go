package kimi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"signalbox/preprocess/chattemplate"
	"signalbox/preprocess/piece"
)

// Conversation is what a prompt is made of.
type Conversation struct {
	// Messages are those of a chat request, without members that are null.
	Messages []chattemplate.Value
	// Tools are the functions that the model may call, as {"type": "function", "function": …}; nil where there are none.
	Tools []chattemplate.Value
	// ToolChoice is "", "auto", "none" or "required"; NamedTool the function that must be called, "" where none must.
	ToolChoice, NamedTool string
	// ResponseFormat is the request's response_format; undefined where there is none.
	ResponseFormat chattemplate.Value
	// Generate asks the model to speak at the end.
	Generate bool
	// Argument returns a template argument: thinking, enable_thinking, thinking_effort or reasoning_effort. One that was not given is
	// undefined.
	Argument func(name string) chattemplate.Value
}

// Special tokens. An image is one token, whatever its size.
const (
	openTag  = "<|open|>"
	closeTag = "<|close|>"
	sep      = "<|sep|>"
	endTurn  = "<|end_of_msg|>"
	image    = "<|media_pad|>"
)

// k3 is a prompt that is being written.
type k3 struct {
	piece.Writer
	thinks bool
	calls  []chattemplate.Value // of the last answer
	result int                  // how many results of these calls were written
}

// K3 writes the prompt of a Kimi K3 model.
func K3(c Conversation) (p piece.Prompt, err error) {
	e := k3{thinks: c.NamedTool == "" && c.thinks()}
	effort := c.effort()
	if e.thinks && effort != "low" && effort != "high" && effort != "max" {
		return p, fmt.Errorf("thinking effort %q: want low, high or max", effort)
	}
	if err := checkTools(&c); err != nil {
		return p, err
	}
	history, partial, err := splitPartial(orderResults(c.Messages))
	if err != nil {
		return p, err
	}
	if len(c.Tools) > 0 {
		if err := e.declare("# Tools\nHere are the available tools, described in JSONSchema.\n\n", c.Tools); err != nil {
			return p, err
		}
	}
	if e.thinks {
		e.notice("thinking-effort", "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), supported values include "+
			"`low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort="+effort+"`.")
	}
	for i, message := range history {
		if err := e.write(message); err != nil {
			return p, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	e.demand(&c)
	if err := e.format(c.ResponseFormat); err != nil {
		return p, err
	}
	switch {
	case partial.Kind() == chattemplate.KindDict:
		if len(member(partial, "tool_calls").Items()) > 0 {
			return p, fmt.Errorf("messages: an answer that is to be gone on with cannot have tool_calls")
		}
		if err := e.openAnswer(partial); err != nil {
			return p, err
		}
	case c.Generate:
		e.open("message", "role", "assistant")
		if e.thinks {
			e.open("think")
		} else {
			e.open("response")
		}
	}
	return e.Prompt(), nil
}

func member(v chattemplate.Value, name string) chattemplate.Value {
	value, _ := v.Get(name)
	return value
}

func isSet(v chattemplate.Value) bool {
	return v.Kind() != chattemplate.KindUndefined && v.Kind() != chattemplate.KindNone
}

func (c *Conversation) thinks() bool {
	for _, name := range [...]string{"thinking", "enable_thinking"} {
		if value := c.Argument(name); value.Kind() == chattemplate.KindBool {
			return value.IsTrue()
		}
	}
	return true
}

// effort is how much a model that thinks is to think.
func (c *Conversation) effort() string {
	value := c.Argument("thinking_effort")
	if value.Kind() == chattemplate.KindUndefined {
		value = c.Argument("reasoning_effort")
	}
	if value.Kind() != chattemplate.KindString {
		return "max"
	}
	return value.Str()
}

var escape = strings.NewReplacer("&", "&amp;", `"`, "&quot;")

// open writes an opening tag with attributes, name and value in turn.
func (e *k3) open(tag string, attributes ...string) {
	e.Special(openTag)
	e.Text(tag)
	for i := 0; i+1 < len(attributes); i += 2 {
		e.Text(" " + attributes[i])
		e.Text(`="`)
		e.Text(escape.Replace(attributes[i+1]))
		e.Text(`"`)
	}
	e.Special(sep)
}

func (e *k3) close(tag string) {
	e.Special(closeTag)
	e.Text(tag)
	e.Special(sep)
}

func (e *k3) endMessage() {
	e.close("message")
	e.Special(endTurn)
}

// notice is what the system says of itself.
func (e *k3) notice(kind, text string) {
	e.open("message", "role", "system", "type", kind)
	e.Text(strings.TrimSpace(text))
	e.endMessage()
}

// declare tells the model of tools; their members are sorted.
func (e *k3) declare(introduction string, tools []chattemplate.Value) error {
	text, err := chattemplate.List(tools).SortedJSON()
	if err != nil {
		return err
	}
	e.notice("tool-declare", introduction+"```json\n"+text+"\n```")
	return nil
}

// demand tells the model what the client wants of calls.
func (e *k3) demand(c *Conversation) {
	choice, order := c.ToolChoice, ""
	switch {
	case c.NamedTool != "":
		choice, order = "specified", "You MUST call the tool `"+c.NamedTool+"` in the next message."
	case choice == "required":
		order = "You MUST call tools in the next message."
	case choice == "none":
		order = "You MUST NOT call any tools in the next message."
	default:
		return
	}
	e.notice("tool-choice", "The system is invoked with `tool_choice="+choice+"`.\n"+order)
}

// format tells the model in which format to answer.
func (e *k3) format(format chattemplate.Value) error {
	kind := member(format, "type").Str()
	if kind != "json_object" && kind != "json_schema" {
		return nil
	}
	text := "The system is invoked with `response_format=" + kind + "`.\nYour response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
	if kind == "json_schema" {
		schema := member(format, "json_schema")
		if inner := member(schema, "schema"); inner.Kind() != chattemplate.KindUndefined {
			schema = inner
		}
		if !isSet(schema) {
			schema = chattemplate.None
		}
		written, err := schema.SortedJSON()
		if err != nil {
			return err
		}
		text += "\nThe JSON data must match the following schema:\n```json\n" + written + "\n```"
	}
	e.notice("response-format", text)
	return nil
}

// write writes one message.
func (e *k3) write(message chattemplate.Value) error {
	switch role := member(message, "role").Str(); role {
	case "system", "developer":
		if tools := member(message, "tools").Items(); len(tools) > 0 {
			return e.declare("## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\nYou have access to all existing and extended tools.\n"+
				"Here are the specs for the extended tools.\n\n", tools)
		}
		if !isSet(member(message, "content")) {
			return fmt.Errorf("a turn of role %s needs content or tools", role)
		}
		return e.spoken(message, "system")
	case "user":
		return e.spoken(message, role)
	case "assistant":
		e.calls, e.result = member(message, "tool_calls").Items(), 0
		return e.answer(message)
	case "tool":
		e.result++
		return e.toolResult(message)
	default:
		return fmt.Errorf("the model knows no role %q", role)
	}
}

// head are the attributes of a turn.
func head(message chattemplate.Value, role string) []string {
	attributes := []string{"role", role}
	if name := member(message, "name").Str(); name != "" {
		attributes = append(attributes, "name", name)
	}
	return attributes
}

func (e *k3) spoken(message chattemplate.Value, role string) error {
	e.open("message", head(message, role)...)
	if err := e.content(member(message, "content")); err != nil {
		return err
	}
	e.endMessage()
	return nil
}

func (e *k3) toolResult(message chattemplate.Value) error {
	name := member(message, "tool").Str()
	if name == "" {
		name = member(message, "name").Str()
	}
	if name == "" && e.result <= len(e.calls) {
		name = member(member(e.calls[e.result-1], "function"), "name").Str()
	}
	if name == "" {
		return fmt.Errorf("a tool's result needs a call before it that it answers")
	}
	e.open("message", "role", "tool", "tool", name, "index", strconv.Itoa(e.result))
	if err := e.content(member(message, "content")); err != nil {
		return err
	}
	e.endMessage()
	return nil
}

// content writes texts and images.
func (e *k3) content(content chattemplate.Value) error {
	if content.Kind() != chattemplate.KindList {
		text, err := bodyText(content)
		e.Text(text)
		return err
	}
	for _, part := range content.Items() {
		switch kind := member(part, "type").Str(); kind {
		case "image", "image_url":
			e.Special(image)
		default:
			text, err := bodyText(member(part, "text"))
			if err != nil {
				return err
			}
			e.Text(text)
		}
	}
	return nil
}

// bodyText is a text, or texts line by line, or JSON.
func bodyText(value chattemplate.Value) (string, error) {
	switch value.Kind() {
	case chattemplate.KindUndefined, chattemplate.KindNone:
		return "", nil
	case chattemplate.KindString:
		return value.Str(), nil
	case chattemplate.KindList:
		items := value.Items()
		if !slices.ContainsFunc(items, func(v chattemplate.Value) bool { return v.Kind() != chattemplate.KindString }) {
			var texts []string
			for _, item := range items {
				if item.Str() != "" {
					texts = append(texts, item.Str())
				}
			}
			return strings.Join(texts, "\n"), nil
		}
	}
	return value.ShortJSON()
}

// openAnswer writes an answer up to the end of its content.
func (e *k3) openAnswer(message chattemplate.Value) error {
	e.open("message", head(message, "assistant")...)
	if e.thinks {
		thoughts := member(message, "reasoning_content")
		if !thoughts.Truthy() {
			thoughts = member(message, "reasoning")
		}
		text, err := bodyText(thoughts)
		if err != nil {
			return err
		}
		e.open("think")
		e.Text(text)
		e.close("think")
	}
	e.open("response")
	return e.content(member(message, "content"))
}

func (e *k3) answer(message chattemplate.Value) error {
	if err := e.openAnswer(message); err != nil {
		return err
	}
	e.close("response")
	if len(e.calls) > 0 {
		e.open("tools")
		for i, call := range e.calls {
			if err := e.call(i+1, member(call, "function")); err != nil {
				return err
			}
		}
		e.close("tools")
	}
	e.endMessage()
	return nil
}

// call writes a call, an argument a tag. Arguments that are no JSON are written as they came.
func (e *k3) call(index int, function chattemplate.Value) error {
	name := member(function, "name").Str()
	if name == "" {
		return fmt.Errorf("tool call %d has no function name", index)
	}
	e.open("call", "tool", name, "index", strconv.Itoa(index))
	arguments := member(function, "arguments")
	if raw := arguments; raw.Kind() == chattemplate.KindString {
		parsed, err := chattemplate.ParseJSON64(raw.Str())
		switch {
		case strings.TrimSpace(raw.Str()) == "":
			parsed = chattemplate.Value{}
		case err != nil:
			e.open("json", "type", "object")
			e.Text(raw.Str())
			e.close("json")
			e.close("call")
			return nil
		}
		arguments = parsed
	}
	if arguments.Kind() != chattemplate.KindDict && arguments.Kind() != chattemplate.KindUndefined {
		return fmt.Errorf("arguments of a tool call: want a JSON object")
	}
	for _, entry := range arguments.Entries() {
		text := entry.Value.Str()
		if entry.Value.Kind() != chattemplate.KindString {
			var err error
			if text, err = entry.Value.ShortJSON(); err != nil {
				return err
			}
		}
		e.open("argument", "key", entry.Key.Str(), "type", kindOf(entry.Value))
		e.Text(text)
		e.close("argument")
	}
	e.close("call")
	return nil
}

func kindOf(value chattemplate.Value) string {
	switch value.Kind() {
	case chattemplate.KindBool:
		return "boolean"
	case chattemplate.KindInt, chattemplate.KindFloat:
		return "number"
	case chattemplate.KindString:
		return "string"
	case chattemplate.KindDict:
		return "object"
	case chattemplate.KindList:
		return "array"
	}
	return "null"
}
