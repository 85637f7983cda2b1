package openai

import (
	"slices"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// invalidSchema refuses the parameters of a strict function: its name, the place, the mistake.
const invalidSchema = "Invalid schema for function '%s': In context=%s, %s"

const (
	maxTools         = 1536
	maxToolNameBytes = 128
)

// readTools judges tools and tool_choice and tells the pipeline about them.
func (c *chatRequest) readTools(f *body.Fields, chat *pipeline.Chat) *problem.Problem {
	tools := f.Node("tools")
	parsing := &c.job.Parsing
	if tools.Exists() {
		if tools.Kind() != jsontape.Array {
			return problem.Invalid("tools", body.DeserializePrefix+"invalid type: %s, expected a sequence", tools.Kind())
		}
		if tools.Len() == 0 {
			return invalid("tools", "tools array cannot be empty; omit the field entirely to disable tool use")
		}
		if tools.Len() > maxTools {
			return invalid("tools", "Maximum of %d tools are supported, got %d", maxTools, tools.Len())
		}
		for i, tool := range tools.Elements {
			parsed, p := readTool(i, tool)
			if p != nil {
				return p
			}
			parsing.Tools = append(parsing.Tools, parsed)
		}
		chat.Tools = tools.Raw()
	}
	return c.readToolChoice(f, chat)
}

func readTool(i int, tool jsontape.Node) (pipeline.Tool, *problem.Problem) {
	switch kind := tool.Get("type"); {
	case !kind.Exists():
		return pipeline.Tool{}, problem.Invalid("tools", body.DeserializePrefix+"missing field `type` (tools[%d])", i)
	case kind.Kind() != jsontape.String:
		return pipeline.Tool{}, problem.Invalid("tools", body.DeserializePrefix+"invalid type: %s, expected a string (tools[%d].type)", kind.Kind(), i)
	case kind.Text() != "function":
		return pipeline.Tool{}, problem.Invalid("tools", body.DeserializePrefix+"unknown variant `%s`, expected `function` (tools[%d])", kind.Text(), i)
	}
	function := tool.Get("function")
	nameNode := function.Get("name")
	if nameNode.Kind() != jsontape.String {
		return pipeline.Tool{}, problem.Invalid("tools", body.DeserializePrefix+"missing field `name` (tools[%d].function)", i)
	}
	name := nameNode.Text()
	if name == "" {
		return pipeline.Tool{}, invalid("tools", "Function name at index %d cannot be empty", i)
	}
	if len(name) > maxToolNameBytes {
		return pipeline.Tool{}, invalid("tools", "Function name at index %d exceeds %d character limit, got %d characters", i, maxToolNameBytes, len(name))
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-') {
			return pipeline.Tool{}, invalid("tools", "Function at index %d has an invalid name: %q. Only a-z, A-Z, 0-9, underscores, and dashes are allowed.", i, name)
		}
	}
	parameters := function.Get("parameters")
	if parameters.Present() && parameters.Kind() != jsontape.Object {
		return pipeline.Tool{}, invalid("tools", "Function parameters at index %d for %q must be a JSON Schema object", i, name)
	}
	parsed := pipeline.Tool{Name: name}
	if strict := function.Get("strict"); strict.Present() {
		demanded, ok := strict.Bool()
		if !ok {
			return pipeline.Tool{}, problem.Invalid("tools", body.DeserializePrefix+"invalid type: %s, expected a boolean (tools[%d].function.strict)", strict.Kind(), i)
		}
		if context, mistake := strictSchemaMistake(parameters); demanded && mistake != "" {
			return pipeline.Tool{}, invalid("tools", invalidSchema, name, context, mistake)
		}
		parsed.Strict = &demanded
	}
	if parameters.Present() {
		parsed.Parameters = parameters.Raw()
	}
	return parsed, nil
}

func (c *chatRequest) readToolChoice(f *body.Fields, chat *pipeline.Chat) *problem.Problem {
	parsing := &c.job.Parsing
	choice := f.Node("tool_choice")
	switch choice.Kind() {
	case jsontape.Invalid:
		return nil
	case jsontape.String:
		switch choice.Text() {
		case "auto":
		case "none":
			parsing.ToolChoice = pipeline.ToolChoiceNone
		case "required":
			if len(parsing.Tools) == 0 {
				return invalid("tool_choice", "tool_choice is \"required\" but tools is empty")
			}
			parsing.ToolChoice = pipeline.ToolChoiceRequired
		default:
			return problem.Invalid("tool_choice", body.DeserializePrefix+"unknown variant `%s`, expected one of `none`, `auto`, `required`", choice.Text())
		}
		chat.ToolChoice = choice.Text()
		return nil
	case jsontape.Object:
		if choice.Get("type").Text() != "function" {
			break
		}
		name := choice.Get("function").Get("name").Text()
		if !slices.ContainsFunc(parsing.Tools, func(t pipeline.Tool) bool { return t.Name == name }) {
			return invalid("tool_choice", "tool named %q in tool_choice is not present in tools", name)
		}
		parsing.ToolChoice, parsing.ToolName = pipeline.ToolChoiceNamed, name
		chat.ToolChoice = name
		return nil
	}
	return problem.Invalid("tool_choice", body.DeserializePrefix+"data did not match any variant of untagged enum ChatCompletionToolChoiceOption")
}

// readResponseFormat returns the schema that the answer must follow, nil for free text. The mistake comes back apart, since it
// is judged late.
func readResponseFormat(f *body.Fields) ([]byte, *problem.Problem) {
	format := f.Node("response_format")
	if !format.Exists() {
		return nil, nil
	}
	switch kind := format.Get("type").Text(); kind {
	case "text":
		return nil, nil
	case "json_object":
		return []byte(`{"type":"object"}`), nil
	case "json_schema":
		schema := format.Get("json_schema")
		switch {
		case !schema.Exists():
			f.Fail("response_format", "missing field `json_schema`")
			return nil, nil
		case !schema.Get("name").Exists():
			f.Fail("response_format", "missing field `name`")
			return nil, nil
		case !schema.Get("schema").Exists():
			f.Fail("response_format", "missing field `schema`")
			return nil, nil
		}
		if schema.Get("name").Text() == "" {
			return nil, invalid("response_format", "`response_format.json_schema.name` cannot be empty")
		}
		definition := schema.Get("schema")
		if definition.Kind() != jsontape.Object {
			word := map[jsontape.Kind]string{jsontape.Array: "array", jsontape.String: "string", jsontape.Number: "number", jsontape.True: "boolean", jsontape.False: "boolean", jsontape.Null: "null"}[definition.Kind()]
			return nil, invalid("response_format", "`response_format.json_schema.schema` must be a JSON object, got %s", word)
		}
		return definition.Raw(), nil
	default:
		f.Fail("response_format", "unknown variant `%s`, expected one of `text`, `json_object`, `json_schema`", kind)
		return nil, nil
	}
}
