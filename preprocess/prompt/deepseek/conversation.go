package deepseek

import (
	"errors"
	"fmt"
	"strings"

	"signalbox/preprocess/chattemplate"
)

// Conversation is what a prompt is made of.
type Conversation struct {
	// Messages are those of a chat request, without members that are null.
	Messages []chattemplate.Value
	// Tools are the functions that the model may call, as {"type": "function", "function": …}; nil where there are none.
	Tools []chattemplate.Value
	// ResponseFormat is the request's response_format; undefined where there is none.
	ResponseFormat chattemplate.Value
	// Argument returns a template argument: thinking, enable_thinking, thinking_mode, reasoning_effort or drop_thinking. One
	// that was not given is undefined.
	Argument func(name string) chattemplate.Value
}

// Special tokens.
const (
	begin      = "<｜begin▁of▁sentence｜>"
	end        = "<｜end▁of▁sentence｜>"
	user       = "<｜User｜>"
	assistant  = "<｜Assistant｜>"
	system     = "<｜System｜>"
	thinkBegin = "<think>"
	thinkEnd   = "</think>"
	markup     = "｜DSML｜"
	image      = "<｜deepseek_image｜>"
)

// turn is a message in the encoder's view.
type turn struct {
	role       string
	content    string
	hasContent bool
	reasoning  chattemplate.Value
	calls      []chattemplate.Value
	callID     string // of the call that a tool answers
	blocks     []block
	tools      []chattemplate.Value
	format     chattemplate.Value
}

// block is a piece of a user turn: a text, or what a tool answered.
type block struct {
	text   string
	isTool bool
	callID string
}

// turns reads the messages. content turns a list of parts into text.
func turns(messages []chattemplate.Value, content func(parts []chattemplate.Value) (string, error)) ([]turn, error) {
	list := make([]turn, 0, len(messages)+1)
	for _, message := range messages {
		get := func(name string) chattemplate.Value { value, _ := message.Get(name); return value }
		t := turn{role: get("role").Str(), reasoning: get("reasoning_content"), calls: get("tool_calls").Items(), callID: get("tool_call_id").Str()}
		switch value := get("content"); value.Kind() {
		case chattemplate.KindString:
			t.content, t.hasContent = value.Str(), true
		case chattemplate.KindList:
			text, err := content(value.Items())
			if err != nil {
				return nil, err
			}
			t.content, t.hasContent = text, true
		}
		list = append(list, t)
	}
	return list, nil
}

// visibleText is the text of a list of parts; what is no text is left out.
func visibleText(parts []chattemplate.Value) (string, error) {
	var b strings.Builder
	for _, part := range parts {
		if kind, _ := part.Get("type"); kind.Str() == "text" {
			text, _ := part.Get("text")
			b.WriteString(text.Str())
		}
	}
	return b.String(), nil
}

// instruct puts the tools and the response format into the first system turn, which is made where there is none.
func instruct(list []turn, c *Conversation) []turn {
	if c.Tools == nil && c.ResponseFormat.Kind() == chattemplate.KindUndefined {
		return list
	}
	for i := range list {
		if list[i].role == "system" {
			list[i].tools, list[i].format = c.Tools, c.ResponseFormat
			return list
		}
	}
	return append([]turn{{role: "system", hasContent: true, tools: c.Tools, format: c.ResponseFormat}}, list...)
}

// lastAsker is the index of the last turn that asks the model, or -1.
func lastAsker(list []turn, asks func(i int, t *turn) bool) int {
	for i := len(list) - 1; i >= 0; i-- {
		if asks(i, &list[i]) {
			return i
		}
	}
	return -1
}

func userOrDeveloper(_ int, t *turn) bool { return t.role == "user" || t.role == "developer" }

// thinks decides whether the model is to think; it does unless it is told not to.
func (c *Conversation) thinks() bool {
	for _, name := range [...]string{"thinking", "enable_thinking"} {
		if value := c.Argument(name); value.Kind() == chattemplate.KindBool {
			return value.IsTrue()
		}
	}
	return c.Argument("thinking_mode").Str() != "chat"
}

// writeFormat writes the instruction to answer in a format.
func writeFormat(b *strings.Builder, format chattemplate.Value) error {
	if format.Kind() == chattemplate.KindUndefined {
		return nil
	}
	schema, err := format.JSON()
	if err != nil {
		return err
	}
	b.WriteString("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n" + schema)
	return nil
}

// schemas are the functions of the tools, one JSON text a line.
func schemas(tools []chattemplate.Value) (string, error) {
	var lines []string
	for _, tool := range tools {
		function, ok := tool.Get("function")
		if !ok {
			continue
		}
		line, err := function.JSON()
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}

// parameters writes the arguments of a call, a line each. space stands between the markup and the word.
func parameters(arguments chattemplate.Value, space string) (string, error) {
	if arguments.Kind() != chattemplate.KindDict {
		return "", errors.New("arguments of a tool call: want a JSON object")
	}
	var lines []string
	for _, entry := range arguments.Entries() {
		text, isText := entry.Value.Str(), entry.Value.Kind() == chattemplate.KindString
		if !isText {
			var err error
			if text, err = entry.Value.JSON(); err != nil {
				return "", err
			}
		}
		lines = append(lines, fmt.Sprintf(`<%s%sparameter name="%s" string="%t">%s</%s%sparameter>`, markup, space, entry.Key.Str(), isText, text, markup, space))
	}
	return strings.Join(lines, "\n"), nil
}

// argumentsOf reads the arguments of a call. A text that is no JSON becomes an argument itself.
func argumentsOf(function chattemplate.Value) chattemplate.Value {
	raw, _ := function.Get("arguments")
	if raw.Kind() != chattemplate.KindString {
		return raw
	}
	parsed, err := chattemplate.ParseJSONString(raw.Str())
	if err != nil {
		return onlyArgument(raw)
	}
	return parsed
}

func onlyArgument(raw chattemplate.Value) chattemplate.Value {
	dict := chattemplate.NewDict(1)
	dict.Set("arguments", raw)
	return dict.Value()
}
