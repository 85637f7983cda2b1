package deepseek

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"signalbox/preprocess/chattemplate"
)

// v4Tools tells a V4 model about its tools; "%[1]s" is the markup with what follows it. It ends where the schemas begin.
const v4Tools = `## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<%[1]s%[2]s>" block like the following:

<%[1]s%[2]s>
<%[1]sinvoke name="$TOOL_NAME">
<%[1]sparameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</%[1]sparameter>
...
</%[1]sinvoke>
<%[1]sinvoke name="$TOOL_NAME2">
...
</%[1]sinvoke>
</%[1]s%[2]s>

String parameters should be specified as is and set ` + "`string=\"true\"`" + `. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set ` + "`string=\"false\"`" + `.

If thinking_mode is enabled (triggered by ` + thinkBegin + `), you MUST output your complete reasoning inside ` + thinkBegin + `...` + thinkEnd + ` BEFORE any tool calls or final response.

Otherwise, output directly after ` + thinkEnd + ` with tool calls or final response.

### Available Tool Schemas

`

const v4ToolsEnd = `

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
`

// How much a V4 model is told to think.
const (
	v4High = "Reasoning Effort: Absolute maximum with no shortcuts permitted.\nYou MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\nExplicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n"
	v4Max  = "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\nYou MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.\nDo not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.\n\n"
)

// v4 is a V4 or V4.1 prompt that is being written.
type v4 struct {
	b      strings.Builder
	list   []turn
	last   int // turn that asks the model last, or -1
	thinks bool
	// drops: the reasoning of answers before the last question is left out.
	drops bool
	// effort is what a thinking model is told first.
	effort string
	newer  bool // V4.1
}

// V4 writes the prompt of a V4 model.
func V4(c Conversation) (string, error) {
	e := v4{thinks: c.thinks(), effort: v4High, drops: true}
	switch effort := c.Argument("reasoning_effort"); effort.Str() {
	case "none":
		e.thinks = false
	case "max":
		e.effort = v4Max
	case "low", "minimal":
		e.effort = ""
	}
	if drop := c.Argument("drop_thinking"); drop.Kind() == chattemplate.KindBool {
		e.drops = drop.IsTrue()
	}
	list, err := turns(c.Messages, visibleText)
	if err != nil {
		return "", err
	}
	e.list = mergeUsers(instruct(list, &c))
	sortResults(e.list)
	return e.encode()
}

// V41 writes the prompt of a V4.1 model.
func V41(c Conversation) (string, error) {
	e := v4{thinks: c.thinks(), drops: true, newer: true}
	effort, err := v41Effort(c.Argument("reasoning_effort"))
	if err != nil {
		return "", err
	}
	if c.Argument("reasoning_effort").Str() == "none" {
		e.thinks = false
	}
	e.effort = "Reasoning Effort: " + strconv.Itoa(effort) + " (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
	switch drop := c.Argument("drop_thinking"); drop.Kind() {
	case chattemplate.KindUndefined:
	case chattemplate.KindBool:
		e.drops = drop.IsTrue()
	default:
		return "", errors.New("chat_template_args: drop_thinking: want true or false")
	}
	list, err := turns(c.Messages, v41Content)
	if err != nil {
		return "", err
	}
	for i := range list {
		if list[i].role == "developer" {
			list[i].role = "system"
		}
		if strings.Contains(list[i].reasoning.Str(), image) || isText(c.Messages[i]) && strings.Contains(list[i].content, image) {
			return "", errImageText
		}
	}
	if len(c.Tools) == 0 {
		c.Tools = nil
	}
	if c.Tools != nil || c.ResponseFormat.Kind() != chattemplate.KindUndefined {
		if len(list) == 0 || list[0].role != "system" {
			list = append([]turn{{role: "system", hasContent: true}}, list...)
		}
		list[0].tools, list[0].format = c.Tools, c.ResponseFormat
	}
	sortAnswers(list)
	e.list = mergeUsers(list)
	return e.encode()
}

var errImageText = errors.New("messages: an image must be a part of its own; the text of its place holder is not taken")

func isText(message chattemplate.Value) bool {
	content, _ := message.Get("content")
	return content.Kind() == chattemplate.KindString
}

// v41Effort is how much a V4.1 model is to think, of 100.
func v41Effort(effort chattemplate.Value) (int, error) {
	switch effort.Kind() {
	case chattemplate.KindUndefined, chattemplate.KindNone:
		return 75, nil
	case chattemplate.KindString:
		if level, ok := map[string]int{"none": 75, "low": 50, "high": 75, "max": 100}[effort.Str()]; ok {
			return level, nil
		}
	case chattemplate.KindInt:
		if level, ok := effort.Int64(); ok && level >= 1 && level <= 100 {
			return int(level), nil
		}
	}
	return 0, errors.New("reasoning_effort: want low, high, max, none or a whole number from 1 to 100")
}

// v41Content makes one text of parts, with a place holder for each image.
func v41Content(parts []chattemplate.Value) (string, error) {
	texts := make([]string, 0, len(parts))
	for _, part := range parts {
		kind, _ := part.Get("type")
		switch kind.Str() {
		case "text":
			text, _ := part.Get("text")
			if strings.Contains(text.Str(), image) {
				return "", errImageText
			}
			texts = append(texts, text.Str())
		case "image_url":
			texts = append(texts, image)
		default:
			return "", fmt.Errorf("messages: the model takes texts and images, not a part of type %q", kind.Str())
		}
	}
	return strings.Join(texts, "\n\n"), nil
}

// mergeUsers makes one user turn of neighbouring users and tools.
func mergeUsers(list []turn) []turn {
	out := make([]turn, 0, len(list))
	for _, t := range list {
		if t.role != "user" && t.role != "tool" {
			out = append(out, t)
			continue
		}
		b := block{text: t.content, isTool: t.role == "tool", callID: t.callID}
		if last := len(out) - 1; last >= 0 && out[last].blocks != nil {
			out[last].blocks = append(out[last].blocks, b)
			continue
		}
		out = append(out, turn{role: "user", blocks: []block{b}})
	}
	return out
}

// ranks are the places of calls in an answer, by id.
func ranks(calls []chattemplate.Value) map[string]int {
	places := make(map[string]int, len(calls))
	for i, call := range calls {
		if id, _ := call.Get("id"); id.Str() != "" {
			places[id.Str()] = i
		}
	}
	return places
}

// sortResults brings tools' answers within a user turn into the order of the calls.
func sortResults(list []turn) {
	var places map[string]int
	for i := range list {
		t := &list[i]
		switch {
		case t.role == "assistant" && len(t.calls) > 0:
			places = ranks(t.calls)
		case t.blocks != nil && len(places) > 0:
			var at []int
			var results []block
			for j, b := range t.blocks {
				if b.isTool {
					at, results = append(at, j), append(results, b)
				}
			}
			slices.SortStableFunc(results, func(a, b block) int { return places[a.callID] - places[b.callID] })
			for j, b := range results {
				t.blocks[at[j]] = b
			}
		}
	}
}

// sortAnswers brings tools' answers into the order of the calls, before turns are merged. Users among them stay in their places.
func sortAnswers(list []turn) {
	places := map[string]int{}
	var at []int
	flush := func() {
		answers := make([]turn, len(at))
		for i, j := range at {
			answers[i] = list[j]
		}
		slices.SortStableFunc(answers, func(a, b turn) int { return places[a.callID] - places[b.callID] })
		for i, j := range at {
			list[j] = answers[i]
		}
		at = nil
	}
	for i := range list {
		switch list[i].role {
		case "tool":
			at = append(at, i)
		case "user":
		default:
			flush()
			if list[i].role == "assistant" && len(list[i].calls) > 0 {
				places = ranks(list[i].calls)
			}
		}
	}
	flush()
}

// asks tells whether a turn is one that the model answers.
func (e *v4) asks(i int, t *turn) bool {
	if e.newer {
		return t.role == "user" || t.role == "system" && i > 0
	}
	return userOrDeveloper(i, t)
}

func (e *v4) encode() (string, error) {
	for i := range e.list {
		if len(e.list[i].tools) > 0 {
			e.drops = false
		}
	}
	if e.thinks && e.drops {
		e.dropReasoning()
	}
	e.last = lastAsker(e.list, e.asks)
	e.b.WriteString(begin)
	for i := range e.list {
		if err := e.write(i, &e.list[i]); err != nil {
			return "", fmt.Errorf("messages: %w", err)
		}
		e.handOver(i, &e.list[i])
	}
	return e.b.String(), nil
}

// dropReasoning leaves out what was thought before the last question; V4 leaves out earlier developers too.
func (e *v4) dropReasoning() {
	last := lastAsker(e.list, e.asks)
	kept := e.list[:0:0]
	for i, t := range e.list {
		if i < last && t.role == "assistant" {
			t.reasoning = chattemplate.Value{}
		}
		if e.newer || last < 0 || i >= last || t.role == "user" || t.role == "system" || t.role == "assistant" {
			kept = append(kept, t)
		}
	}
	e.list = kept
}

func (e *v4) write(i int, t *turn) error {
	if e.newer && (t.role == "system" || i == 0 && e.thinks) {
		e.b.WriteString(system)
	}
	if i == 0 && e.thinks {
		e.b.WriteString(e.effort)
	}
	switch t.role {
	case "system":
		e.b.WriteString(t.content)
		return e.writeInstructions(t)
	case "developer":
		if t.content == "" {
			return errors.New("a developer's turn needs content")
		}
		e.b.WriteString(user + t.content)
	case "user":
		e.b.WriteString(user)
		for j, b := range t.blocks {
			if j > 0 {
				e.b.WriteString("\n\n")
			}
			if b.isTool {
				e.b.WriteString("<tool_result>" + b.text + "</tool_result>")
			} else {
				e.b.WriteString(b.text)
			}
		}
	case "assistant":
		if e.thinks && (!e.drops || e.last < 0 || i > e.last) {
			e.b.WriteString(t.reasoning.Str() + thinkEnd)
		}
		e.b.WriteString(t.content)
		if err := e.writeCalls(t.calls); err != nil {
			return err
		}
		e.b.WriteString(end)
	default:
		return fmt.Errorf("the model knows no role %q", t.role)
	}
	return nil
}

// words are the markup and the name of a block of calls.
func (e *v4) words() (prefix, calls, space string) {
	if e.newer {
		return markup + " ", "calls", " "
	}
	return markup, "tool_calls", ""
}

func (e *v4) writeInstructions(t *turn) error {
	if len(t.tools) > 0 {
		lines, err := schemas(t.tools)
		if err != nil {
			return err
		}
		prefix, calls, _ := e.words()
		e.b.WriteString("\n\n")
		fmt.Fprintf(&e.b, v4Tools, prefix, calls)
		e.b.WriteString(lines + v4ToolsEnd)
	}
	return writeFormat(&e.b, t.format)
}

func (e *v4) writeCalls(calls []chattemplate.Value) error {
	if len(calls) == 0 {
		return nil
	}
	prefix, word, space := e.words()
	e.b.WriteString("\n\n<" + prefix + word + ">\n")
	for i, call := range calls {
		if i > 0 {
			e.b.WriteByte('\n')
		}
		function, _ := call.Get("function")
		name, _ := function.Get("name")
		arguments := argumentsOf(function)
		if e.newer {
			arguments = v41Arguments(function)
		}
		lines, err := parameters(arguments, space)
		if err != nil {
			return err
		}
		e.b.WriteString("<" + prefix + `invoke name="` + name.Str() + "\">\n" + lines + "\n</" + prefix + "invoke>")
	}
	e.b.WriteString("\n</" + prefix + word + ">")
	return nil
}

// v41Arguments reads arguments that may have been made a JSON text twice. Anything but an object becomes an argument itself.
func v41Arguments(function chattemplate.Value) chattemplate.Value {
	raw, _ := function.Get("arguments")
	arguments := raw
	for range 2 {
		if arguments.Kind() != chattemplate.KindString {
			break
		}
		parsed, err := chattemplate.ParseJSONString(arguments.Str())
		if err != nil {
			break
		}
		arguments = parsed
	}
	if arguments.Kind() != chattemplate.KindDict {
		return onlyArgument(raw)
	}
	return arguments
}

// handOver lets the model speak after a turn that asks it, unless another such turn follows.
func (e *v4) handOver(i int, t *turn) {
	if i+1 < len(e.list) && e.list[i+1].role != "assistant" {
		return
	}
	if t.role != "user" && t.role != "developer" && !(e.newer && t.role == "system" && i > 0) {
		return
	}
	e.b.WriteString(assistant)
	if e.thinks && (!e.drops || e.last < 0 || i >= e.last) {
		e.b.WriteString(thinkBegin)
	} else {
		e.b.WriteString(thinkEnd)
	}
}
