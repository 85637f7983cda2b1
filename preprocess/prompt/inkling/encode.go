// Package inkling writes the prompts of Inkling, whose turns are blocks between special tokens that tell who speaks and what the
// block holds. It knows the wire format and nothing of requests.
package inkling

import (
	"errors"
	"fmt"
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
	// Effort is the reasoning effort: a name, or a number from 0 to 0.99; undefined where none is given.
	Effort chattemplate.Value
	// Generate asks the model to speak at the end.
	Generate bool
}

// Special tokens: who speaks, what a block holds, where it ends.
const (
	user   = "<|message_user|>"
	model  = "<|message_model|>"
	system = "<|message_system|>"
	tool   = "<|message_tool|>"

	text     = "<|content_text|>"
	image    = "<|content_image|>"
	audio    = "<|content_audio_input|>"
	audioEnd = "<|audio_end|>"
	thinking = "<|content_thinking|>"
	xml      = "<|content_xml|>"
	invoke   = "<|content_invoke_tool_json|>"

	endMessage = "<|end_message|>"
	endTurn    = "<|content_model_end_sampling|>"
)

// efforts are the names of how much the model is to think.
var efforts = map[string]float64{"none": 0, "minimal": 0.1, "low": 0.2, "medium": 0.7, "high": 0.9, "xhigh": 0.99, "max": 0.99}

type writer struct {
	piece.Writer
	names map[string]string // of called functions, by the call's id
}

// Encode writes the prompt of an Inkling model.
func Encode(c Conversation) (p piece.Prompt, err error) {
	w := writer{names: map[string]string{}}
	if err := w.declare(c.Tools); err != nil {
		return p, err
	}
	effort, err := effortNotice(c.Effort)
	if err != nil {
		return p, err
	}
	notice := func() {
		if effort != "" {
			w.block(system, "", text, effort)
			effort = ""
		}
	}
	for i, message := range c.Messages {
		role := member(message, "role").Str()
		if role != "system" && role != "developer" { // the effort follows the first system turns
			notice()
		}
		if err := w.write(role, message); err != nil {
			return p, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	notice()
	if c.Generate {
		w.Special(model)
	}
	return w.Prompt(), nil
}

func member(v chattemplate.Value, name string) chattemplate.Value {
	value, _ := v.Get(name)
	return value
}

// block writes who speaks, the name of the tool that is spoken of or "", what kind of content follows, and the content, which is text.
func (w *writer) block(who, name, kind, content string) {
	w.Special(who)
	w.Text(name)
	w.Special(kind)
	w.Text(content)
	w.Special(endMessage)
}

// effortNotice tells the model how much to think; "" says nothing.
func effortNotice(value chattemplate.Value) (string, error) {
	effort, known := 0.9, true
	switch value.Kind() {
	case chattemplate.KindUndefined:
	case chattemplate.KindString:
		effort, known = efforts[value.Str()]
	case chattemplate.KindInt, chattemplate.KindFloat:
		written, err := value.JSON()
		if err == nil {
			effort, err = strconv.ParseFloat(written, 64)
		}
		if err != nil {
			return "", err
		}
	default:
		known = false
	}
	if !known {
		return "", nil
	}
	if !(effort >= 0 && effort <= 0.99) {
		return "", fmt.Errorf("reasoning_effort %v: want a number from 0 to 0.99, or a name", effort)
	}
	level := strings.TrimRight(strings.TrimRight(strconv.FormatFloat(effort, 'f', 2, 64), "0"), ".")
	if level == "0" || level == "-0" || level == "" {
		level = "0.0"
	}
	return "Thinking effort level: " + level, nil
}

func (w *writer) declare(tools []chattemplate.Value) error {
	if len(tools) == 0 {
		return nil
	}
	list := make([]chattemplate.Value, 0, len(tools))
	for i, declared := range tools {
		function := member(declared, "function")
		name := member(function, "name")
		if name.Kind() != chattemplate.KindString {
			return fmt.Errorf("tools[%d]: want a function with a name", i)
		}
		parameters := member(function, "parameters")
		if parameters.Kind() == chattemplate.KindUndefined {
			parameters = chattemplate.NewDict(0).Value()
		}
		kind := member(declared, "type").Str()
		if kind == "" {
			kind = "function"
		}
		entry := chattemplate.NewDict(4)
		entry.Set("description", chattemplate.String(member(function, "description").Str()))
		entry.Set("name", name)
		entry.Set("parameters", parameters)
		entry.Set("type", chattemplate.String(kind))
		list = append(list, entry.Value())
	}
	written, err := chattemplate.List(list).SortedJSON()
	if err != nil {
		return err
	}
	w.block(system, "tool_declare", xml, written)
	return nil
}

func (w *writer) write(role string, message chattemplate.Value) error {
	content := member(message, "content")
	switch role {
	case "system", "developer":
		return w.content(system, content)
	case "user":
		return w.content(user, content)
	case "assistant":
		return w.answer(message, content)
	case "tool":
		return w.result(message, content)
	}
	return fmt.Errorf("the model knows no role %q", role)
}

// content writes a block for each part; an empty text has none.
func (w *writer) content(who string, content chattemplate.Value) error {
	if content.Kind() == chattemplate.KindString && content.Str() != "" {
		w.block(who, "", text, content.Str())
	}
	for _, part := range content.Items() {
		switch kind := member(part, "type").Str(); kind {
		case "text", "input_text":
			w.block(who, "", text, member(part, "text").Str())
		case "image", "input_image", "image_url":
			w.block(who, "", image, "")
		case "audio", "input_audio", "audio_url":
			w.Special(who)
			w.Special(audio)
			w.Special(audioEnd)
			w.Special(endMessage)
		default:
			return fmt.Errorf("the model takes texts, images and sounds, not a part of type %q", kind)
		}
	}
	return nil
}

// answer writes what the model thought, said and called. Thoughts in pieces stand before the calls they led to, and then the content
// comes last.
func (w *writer) answer(message, content chattemplate.Value) error {
	calls, reasoning := member(message, "tool_calls").Items(), member(message, "reasoning_content")
	if reasoning.Kind() == chattemplate.KindList {
		pieces := reasoning.Items()
		for i := range max(len(calls), len(pieces)) {
			if i < len(pieces) {
				w.think(pieces[i].Str())
			}
			if i < len(calls) {
				if err := w.call(calls[i]); err != nil {
					return err
				}
			}
		}
		calls = nil
	} else {
		w.think(reasoning.Str())
	}
	if err := w.content(model, content); err != nil {
		return err
	}
	for _, call := range calls {
		if err := w.call(call); err != nil {
			return err
		}
	}
	w.Special(endTurn)
	return nil
}

func (w *writer) think(thoughts string) {
	if thoughts != "" {
		w.block(model, "", thinking, thoughts)
	}
}

func (w *writer) call(call chattemplate.Value) error {
	function := member(call, "function")
	name := member(function, "name")
	if name.Kind() != chattemplate.KindString {
		return errors.New("a tool call has no function name")
	}
	if id := member(call, "id").Str(); id != "" {
		w.names[id] = name.Str()
	}
	arguments := member(function, "arguments")
	if arguments.Kind() == chattemplate.KindString {
		parsed, err := chattemplate.ParseJSON64(arguments.Str())
		if strings.TrimSpace(arguments.Str()) == "" {
			parsed, err = chattemplate.Value{}, nil
		}
		if err != nil {
			return fmt.Errorf("arguments of a tool call: %w", err)
		}
		arguments = parsed
	}
	if arguments.Kind() == chattemplate.KindUndefined {
		arguments = chattemplate.NewDict(0).Value()
	}
	if arguments.Kind() != chattemplate.KindDict {
		return errors.New("arguments of a tool call: want a JSON object")
	}
	quoted, err := name.JSON()
	if err != nil {
		return err
	}
	written, err := arguments.SortedJSON()
	if err != nil {
		return err
	}
	w.block(model, name.Str(), invoke, `{"name":`+quoted+`,"args":`+written+"}")
	return nil
}

func (w *writer) result(message, content chattemplate.Value) error {
	answer := content.Str()
	for _, part := range content.Items() {
		if kind := member(part, "type").Str(); kind != "text" && kind != "input_text" {
			return fmt.Errorf("a tool's result is text, not a part of type %q", kind)
		}
		answer += member(part, "text").Str()
	}
	name := member(message, "name").Str()
	if name == "" {
		name = w.names[member(message, "tool_call_id").Str()]
	}
	w.block(tool, name, text, answer)
	return nil
}
