package deepseek

import (
	"fmt"
	"strings"

	"signalbox/preprocess/chattemplate"
)

// v32Tools tells a V3.2 model about its tools; it ends where the schemas begin.
const v32Tools = `## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<` + markup + `function_calls>" block like the following as part of your reply to the user:
<` + markup + `function_calls>
<` + markup + `invoke name="$FUNCTION_NAME">
<` + markup + `parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</` + markup + `parameter>
...
</` + markup + `invoke>
<` + markup + `invoke name="$FUNCTION_NAME2">
...
</` + markup + `invoke>
</` + markup + `function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<` + markup + `function_calls>
...
</` + markup + `function_calls>

<function_results>
...
</function_results>

` + thinkBegin + `...thinking about results` + thinkEnd + `

Here are the functions available in JSONSchema format:
<functions>
`

// V32 writes the prompt of a V3.2 model.
func V32(c Conversation) (string, error) {
	list, err := turns(c.Messages, visibleText)
	if err != nil {
		return "", err
	}
	e := v32{list: instruct(list, &c), thinks: c.thinks()}
	e.last = lastAsker(e.list, userOrDeveloper)
	e.b.WriteString(begin)
	for i := range e.list {
		if err := e.write(i); err != nil {
			return "", err
		}
	}
	return e.b.String(), nil
}

// v32 is a V3.2 prompt that is being written.
type v32 struct {
	b      strings.Builder
	list   []turn
	last   int // turn that asks the model last, or -1
	thinks bool
}

func (e *v32) write(i int) error {
	t := &e.list[i]
	switch t.role {
	case "system":
		e.b.WriteString(t.content)
		return e.writeInstructions(t)
	case "user":
		e.b.WriteString(user + t.content + assistant)
		e.openThinking(i == e.last)
	case "developer":
		if !t.hasContent {
			return fmt.Errorf("messages[%d]: a developer's turn needs content", i)
		}
		e.b.WriteString(user + "\n\n# The user's message is: " + t.content + assistant)
		e.openThinking(i == e.last)
	case "assistant":
		return e.writeAnswer(i, t)
	case "tool":
		e.writeResult(i, t)
	default:
		return fmt.Errorf("messages[%d]: the model knows no role %q", i, t.role)
	}
	return nil
}

func (e *v32) openThinking(here bool) {
	if here && e.thinks {
		e.b.WriteString(thinkBegin)
	} else {
		e.b.WriteString(thinkEnd)
	}
}

func (e *v32) writeInstructions(t *turn) error {
	if t.tools != nil {
		lines, err := schemas(t.tools)
		if err != nil {
			return err
		}
		e.b.WriteString("\n\n" + v32Tools + lines + "\n</functions>\n")
	}
	return writeFormat(&e.b, t.format)
}

func (e *v32) writeAnswer(i int, t *turn) error {
	if e.thinks && e.last >= 0 && i > e.last {
		// The turn that asks has opened the block.
		if thoughts := joined(t.reasoning); thoughts != "" {
			e.b.WriteString(thoughts + thinkEnd)
		}
	}
	e.b.WriteString(t.content)
	if len(t.calls) > 0 {
		e.b.WriteString("\n\n<" + markup + "function_calls>\n")
		for _, call := range t.calls {
			function, _ := call.Get("function")
			name, _ := function.Get("name")
			lines, err := parameters(argumentsOf(function), "")
			if err != nil {
				return fmt.Errorf("messages[%d]: %w", i, err)
			}
			e.b.WriteString("<" + markup + `invoke name="` + name.Str() + "\">\n" + lines + "\n</" + markup + "invoke>\n")
		}
		e.b.WriteString("</" + markup + "function_calls>")
	}
	e.b.WriteString(end)
	return nil
}

// joined is reasoning in one piece.
func joined(reasoning chattemplate.Value) string {
	if reasoning.Kind() == chattemplate.KindString {
		return reasoning.Str()
	}
	var texts []string
	for _, segment := range reasoning.Items() {
		if segment.Str() != "" {
			texts = append(texts, segment.Str())
		}
	}
	return strings.Join(texts, "\n")
}

// writeResult writes what a tool answered; the results of one answer's calls stand in one block.
func (e *v32) writeResult(i int, t *turn) {
	place, calls := 1, -1
	for j := i - 1; j >= 0 && calls < 0; j-- {
		switch e.list[j].role {
		case "tool":
			place++
		case "assistant":
			calls = len(e.list[j].calls)
		}
	}
	if place == 1 {
		e.b.WriteString("\n\n<function_results>")
	}
	e.b.WriteString("\n<result>" + t.content + "</result>")
	if place == calls {
		e.b.WriteString("\n</function_results>\n\n")
		e.openThinking(e.last >= 0 && i >= e.last)
	}
}
