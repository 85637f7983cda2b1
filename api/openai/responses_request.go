package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/api/body"
	"signalbox/api/nvext"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// responsesRequest is a parsed and judged Responses body.
type responsesRequest struct {
	job       *pipeline.Job
	extension *nvext.Extension
	stream    bool
	// echo holds the request's members that the response repeats, raw; nil members get their defaults.
	echo map[string][]byte
}

// chatItem is a message of the chat that the input is translated into.
type chatItem struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content,omitempty"`
	ToolCalls  []chatItemCall  `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

type chatItemCall struct {
	ID       string           `json:"id"`
	Type     string           `json:"type"`
	Function chatItemFunction `json:"function"`
}

type chatItemFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Arguments   string          `json:"arguments,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

type chatItemTool struct {
	Type     string           `json:"type"`
	Function chatItemFunction `json:"function"`
}

var echoedMembers = []string{"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention",
	"reasoning", "safety_identifier", "service_tier", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation"}

// readResponses parses the body of a Responses request.
func (a *API) readResponses(document *jsontape.Document, r *inference.Request) (*responsesRequest, *problem.Problem) {
	root := document.Root()
	f := body.NewFields(root, "")
	if f.Problem != nil {
		return nil, f.Problem
	}
	chat := &pipeline.Chat{}
	q := &responsesRequest{echo: make(map[string][]byte), job: &pipeline.Job{Request: r, Prompt: pipeline.Prompt{Chat: chat}, Received: time.Now(), Endpoint: "responses"}}
	if name := f.String("model"); name != nil {
		r.Model = *name
	}
	input := root.Get("input")
	switch input.Kind() {
	case jsontape.Invalid:
		f.Missing("input")
	case jsontape.String, jsontape.Array:
	default:
		f.Fail("input", "data did not match any variant of untagged enum InputParam")
	}
	r.Stop.MaxTokens = f.Uint32("max_output_tokens")
	r.Sampling.Temperature = f.Float32("temperature")
	r.Sampling.TopP = f.Float32("top_p")
	q.job.Parsing.ParallelToolCalls = f.Bool("parallel_tool_calls")
	instructions := f.String("instructions")
	if stream := f.Bool("stream"); stream != nil {
		q.stream = *stream
	}
	if top := f.Uint8("top_logprobs"); top != nil && *top > 0 {
		count := uint32(*top)
		r.Output.Logprobs = &count
	}
	background := f.Bool("background")
	checkPassive(f, passiveResponses)
	checkResponsesShapes(f, chat)
	extension, p := nvext.Parse(f.Node("nvext"), r, a.options.DisableExtensions)
	if f.Problem != nil {
		return nil, f.Problem
	}
	if p != nil {
		return nil, p
	}
	q.extension = extension
	if p := refuseResponses(f, background, extension); p != nil {
		return nil, p
	}
	if strings.TrimSpace(r.Model) == "" {
		return nil, problem.Invalid("model", "Model cannot be empty")
	}
	if input.Kind() == jsontape.Array && input.Len() == 0 {
		return nil, problem.Invalid("input", "Messages array cannot be empty")
	}
	if p := checkTemperatureAndTopP(&r.Sampling); p != nil {
		return nil, p
	}
	if p := checkMaxTokens("max_output_tokens", "Max tokens", r.Stop.MaxTokens); p != nil {
		return nil, p
	}
	messages, p := translateInput(input, instructions)
	if p != nil {
		return nil, p
	}
	if chat.Messages, p = marshal(messages); p != nil {
		return nil, p
	}
	if p := ReadMedia(chat.Messages, r); p != nil {
		return nil, p
	}
	if p := q.translateTools(root, chat); p != nil {
		return nil, p
	}
	if p := q.translateFormat(root); p != nil {
		return nil, p
	}
	for _, name := range echoedMembers {
		if raw := f.Raw(name); raw != nil {
			q.echo[name] = raw
		}
	}
	if extension.HasTokens {
		r.TokenIDs = extension.TokenData
	}
	chat.UseRawPrompt = extension.UseRaw
	if !a.options.DisableExtensions {
		r.ExtraArgs = extension.ExtraArguments(f.Node("nvext"))
	}
	q.job.Extras = extension.Extras()
	q.job.Streaming = q.stream
	return q, nil
}

// checkResponsesShapes judges the types of tools, tool_choice and reasoning.effort, and reads the latter.
func checkResponsesShapes(f *body.Fields, chat *pipeline.Chat) {
	if tools := f.Node("tools"); tools.Exists() && tools.Kind() != jsontape.Array {
		f.Fail("tools", "invalid type: %s, expected a sequence", tools.Kind())
	}
	switch choice := f.Node("tool_choice"); choice.Kind() {
	case jsontape.Invalid, jsontape.String, jsontape.Object:
	default:
		f.Fail("tool_choice", "data did not match any variant of untagged enum ToolChoiceParam")
	}
	if reasoning := f.Node("reasoning"); reasoning.Kind() == jsontape.Object {
		inner := body.NewFields(reasoning, "reasoning")
		if effort := inner.String("effort"); effort != nil {
			if !slices.Contains(reasoningEfforts, *effort) {
				inner.Fail("effort", "unknown variant `%s`, expected one of `%s`", *effort, strings.Join(reasoningEfforts, "`, `"))
			}
			chat.ReasoningEffort = *effort
		}
		if f.Problem == nil {
			f.Problem = inner.Problem
		}
	}
}

func marshal(value any) ([]byte, *problem.Problem) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, problem.Invalid("input", "Failed to convert responses request: %v", err)
	}
	return text, nil
}

// refuseResponses names what this service does not do.
func refuseResponses(f *body.Fields, background *bool, extension *nvext.Extension) *problem.Problem {
	if background != nil && *background {
		return problem.Unsupported("background", "Validation: `background: true` is not supported.")
	}
	for _, name := range []string{"previous_response_id", "prompt", "max_tool_calls", "conversation"} {
		if f.Node(name).Exists() {
			return problem.Unsupported(name, "Validation: `%s` is not supported.", name)
		}
	}
	for _, name := range []string{"completion_token_ids", "prompt_logprobs"} {
		if extension.Wants(name) {
			return problem.Unsupported("nvext.extra_fields", "Validation: `nvext.extra_fields=[%q]` is not supported by the Responses API.", name)
		}
	}
	return nil
}

func conversion(param, format string, args ...any) *problem.Problem {
	return problem.Invalid(param, "Failed to convert responses request: "+format, args...)
}

// translateInput turns the input into chat messages.
func translateInput(input jsontape.Node, instructions *string) ([]chatItem, *problem.Problem) {
	var messages []chatItem
	if instructions != nil {
		messages = append(messages, chatItem{Role: "system", Content: appendString(nil, *instructions)})
	}
	if input.Kind() == jsontape.String {
		return append(messages, chatItem{Role: "user", Content: input.Raw()}), nil
	}
	for i, item := range input.Elements {
		path := fmt.Sprintf("input[%d]", i)
		kind := item.Get("type").Text()
		switch {
		case kind == "message" || kind == "" && item.Get("role").Exists():
			message, p := translateMessage(path, item)
			if p != nil {
				return nil, p
			}
			messages = append(messages, message)
		case kind == "function_call":
			call := chatItemCall{ID: item.Get("call_id").Text(), Type: "function",
				Function: chatItemFunction{Name: item.Get("name").Text(), Arguments: item.Get("arguments").Text()}}
			if last := len(messages) - 1; last >= 0 && messages[last].Role == "assistant" {
				messages[last].ToolCalls = append(messages[last].ToolCalls, call)
				continue
			}
			messages = append(messages, chatItem{Role: "assistant", Content: json.RawMessage(`""`), ToolCalls: []chatItemCall{call}})
		case kind == "function_call_output":
			output := item.Get("output")
			text := output.Text()
			if output.Kind() != jsontape.String {
				text = partsText(output)
			}
			messages = append(messages, chatItem{Role: "tool", ToolCallID: item.Get("call_id").Text(), Content: appendString(nil, text)})
		case kind == "reasoning":
		default:
			return nil, conversion(path, "Unsupported input item type '%s'", kind)
		}
	}
	return messages, nil
}

func partsText(parts jsontape.Node) string {
	var texts []string
	for _, part := range parts.Elements {
		texts = append(texts, part.Get("text").Text())
	}
	return strings.Join(texts, "\n")
}

func translateMessage(path string, item jsontape.Node) (chatItem, *problem.Problem) {
	role := item.Get("role").Text()
	content := item.Get("content")
	switch content.Kind() {
	case jsontape.String:
		return chatItem{Role: role, Content: content.Raw()}, nil
	case jsontape.Array:
	default:
		return chatItem{}, problem.Invalid(path, body.DeserializePrefix+"missing field `content` (%s)", path)
	}
	onlyText := true
	var parts []json.RawMessage
	var texts []string
	for j, part := range content.Elements {
		switch kind := part.Get("type").Text(); kind {
		case "input_text", "output_text", "text":
			text := part.Get("text").Text()
			texts = append(texts, text)
			parts = append(parts, append(appendString([]byte(`{"type":"text","text":`), text), '}'))
		case "input_image":
			onlyText = false
			image := appendString([]byte(`{"type":"image_url","image_url":{"url":`), part.Get("image_url").Text())
			if detail := part.Get("detail"); detail.Kind() == jsontape.String {
				image = append(append(image, `,"detail":`...), detail.Raw()...)
			}
			parts = append(parts, append(image, "}}"...))
		case "refusal":
			texts = append(texts, part.Get("refusal").Text())
		default:
			return chatItem{}, conversion(fmt.Sprintf("%s.content[%d]", path, j), "Unsupported content part type '%s'", kind)
		}
	}
	if onlyText {
		return chatItem{Role: role, Content: appendString(nil, strings.Join(texts, "\n"))}, nil
	}
	joined, p := marshal(parts)
	return chatItem{Role: role, Content: joined}, p
}

const onlyFunctions = "the Chat Completions adapter supports only function tools and none, auto, required, named function, or function-only allowed_tools choices"

func (q *responsesRequest) translateTools(root jsontape.Node, chat *pipeline.Chat) *problem.Problem {
	var tools []chatItemTool
	for i, tool := range root.Get("tools").Elements {
		if kind := tool.Get("type").Text(); kind != "function" {
			return conversion("tools", "Unsupported Responses tools type '%s': %s", kind, onlyFunctions)
		}
		name := tool.Get("name").Text()
		if name == "" {
			return problem.Invalid("tools", body.DeserializePrefix+"missing field `name` (tools[%d])", i)
		}
		parameters := tool.Get("parameters")
		if strict, ok := tool.Get("strict").Bool(); ok && strict {
			if context, mistake := strictSchemaMistake(parameters); mistake != "" {
				return conversion("tools", invalidSchema, name, context, mistake)
			}
		}
		entry := chatItemTool{Type: "function", Function: chatItemFunction{Name: name, Description: tool.Get("description").Text()}}
		if parameters.Present() {
			entry.Function.Parameters = parameters.Raw()
		}
		if strict, ok := tool.Get("strict").Bool(); ok {
			entry.Function.Strict = &strict
		}
		tools = append(tools, entry)
		q.job.Parsing.Tools = append(q.job.Parsing.Tools, pipeline.Tool{Name: name, Parameters: entry.Function.Parameters})
	}
	if len(tools) > 0 {
		text, p := marshal(tools)
		if p != nil {
			return p
		}
		chat.Tools = text
	}
	choice := root.Get("tool_choice")
	switch choice.Kind() {
	case jsontape.String:
		chat.ToolChoice = choice.Text()
		switch choice.Text() {
		case "auto":
		case "none":
			q.job.Parsing.ToolChoice = pipeline.ToolChoiceNone
		case "required":
			if len(tools) == 0 {
				return invalid("tool_choice", "tool_choice is \"required\" but tools is empty")
			}
			q.job.Parsing.ToolChoice = pipeline.ToolChoiceRequired
		default:
			return problem.Invalid("tool_choice", body.DeserializePrefix+"unknown variant `%s`, expected one of `none`, `auto`, `required`", choice.Text())
		}
	case jsontape.Object:
		if kind := choice.Get("type").Text(); kind != "function" {
			return conversion("tool_choice", "Unsupported Responses tool_choice type '%s': %s", kind, onlyFunctions)
		}
		name := choice.Get("name").Text()
		for _, tool := range tools {
			if tool.Function.Name == name {
				chat.ToolChoice, q.job.Parsing.ToolChoice, q.job.Parsing.ToolName = name, pipeline.ToolChoiceNamed, name
				return nil
			}
		}
		return invalid("tool_choice", "tool named %q in tool_choice is not present in tools", name)
	}
	return nil
}

func (q *responsesRequest) translateFormat(root jsontape.Node) *problem.Problem {
	format := root.Get("text").Get("format")
	switch format.Get("type").Text() {
	case "json_object":
		q.job.Request.Sampling.Guided = &inference.GuidedDecoding{JSON: []byte(`{"type":"object"}`)}
	case "json_schema":
		schema := format.Get("schema")
		if schema.Kind() != jsontape.Object {
			return invalid("text.format.schema", "`text.format.schema` must be a JSON object")
		}
		q.job.Request.Sampling.Guided = &inference.GuidedDecoding{JSON: schema.Raw()}
	}
	q.job.Parsing.JSONConstrained = q.job.Request.Sampling.Guided != nil
	return nil
}
