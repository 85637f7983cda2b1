// Package anthropic speaks Anthropic's Messages API over the same models as the OpenAI API: requests are translated into a chat,
// answers into content blocks and their stream events. It knows nothing of routing or of workers' wires.
package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"signalbox/api/body"
	"signalbox/api/nvext"
	"signalbox/api/openai"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// messageRequest is a parsed and judged Messages body.
type messageRequest struct {
	job       *pipeline.Job
	extension *nvext.Extension
	stream    bool
	// estimate is the input length as message_start reports it, before anything is tokenised.
	estimate int
}

// chatMessage is a message of the chat that the conversation is translated into.
type chatMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        []chatToolCall  `json:"tool_calls,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
}

type chatToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Arguments   string          `json:"arguments,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

// read parses the body of a Messages request.
func (a *API) read(document *jsontape.Document, r *inference.Request) (*messageRequest, *problem.Problem) {
	root := document.Root()
	f := body.NewFields(root, "")
	if f.Problem != nil {
		return nil, f.Problem
	}
	chat := &pipeline.Chat{}
	m := &messageRequest{job: &pipeline.Job{Request: r, Prompt: pipeline.Prompt{Chat: chat}, Received: time.Now(), Endpoint: "anthropic_messages"}}
	r.Model = f.RequiredString("model")
	if !root.Get("messages").Exists() {
		f.Missing("messages")
	}
	if !root.Get("max_tokens").Exists() {
		f.Missing("max_tokens")
	}
	r.Stop.MaxTokens = f.Uint32("max_tokens")
	r.Sampling.Temperature = f.Float32("temperature")
	r.Sampling.TopP = f.Float32("top_p")
	if k := f.Uint32("top_k"); k != nil {
		value := int32(min(*k, 1<<30))
		r.Sampling.TopK = &value
	}
	r.Stop.Strings = f.Strings("stop_sequences")
	if stream := f.Bool("stream"); stream != nil {
		m.stream = *stream
	}
	extension, p := nvext.Parse(f.Node("nvext"), r, a.options.DisableExtensions)
	if f.Problem != nil {
		return nil, f.Problem
	}
	if p != nil {
		return nil, p
	}
	m.extension = extension
	if p := m.check(root, r); p != nil {
		return nil, p
	}
	messages, p := a.translate(root)
	if p != nil {
		return nil, p
	}
	text, err := json.Marshal(messages)
	if err != nil {
		return nil, problem.Invalid("messages", "messages: %v", err)
	}
	chat.Messages = text
	if p := openai.ReadMedia(text, r); p != nil {
		return nil, p
	}
	if p := m.tools(root, chat); p != nil {
		return nil, p
	}
	if thinking := f.Node("thinking"); thinking.Exists() {
		chat.Thinking = thinking.Raw()
	}
	chat.UseRawPrompt = extension.UseRaw
	if extension.HasTokens {
		r.TokenIDs = extension.TokenData
	}
	m.job.Extras = extension.Extras()
	if !a.options.DisableExtensions {
		r.ExtraArgs = extension.ExtraArguments(f.Node("nvext"), "stop_reason")
	}
	m.job.Streaming = m.stream
	m.estimate = estimate(root)
	return m, nil
}

func (m *messageRequest) check(root jsontape.Node, r *inference.Request) *problem.Problem {
	if strings.TrimSpace(r.Model) == "" {
		return problem.Invalid("model", "model: must not be empty")
	}
	if root.Get("messages").Len() == 0 {
		return problem.Invalid("messages", "messages: field required")
	}
	if r.Stop.MaxTokens != nil && *r.Stop.MaxTokens == 0 {
		return problem.Invalid("max_tokens", "max_tokens: must be greater than 0")
	}
	if t := r.Sampling.Temperature; t != nil && (*t < 0 || *t > 2) {
		return problem.Invalid("temperature", "Temperature must be between 0 and 2, got %v", *t)
	}
	if t := r.Sampling.TopP; t != nil && (*t <= 0 || *t > 1) {
		return problem.Invalid("top_p", "Top_p must be between 0 and 1, got %v", *t)
	}
	return nil
}

// translate turns system and messages into chat messages.
func (a *API) translate(root jsontape.Node) ([]chatMessage, *problem.Problem) {
	var messages []chatMessage
	if system := systemText(root.Get("system")); system != "" {
		if a.options.StripPreamble {
			system = stripPreamble(system)
		}
		messages = append(messages, chatMessage{Role: "system", Content: quote(system)})
	}
	for i, message := range root.Get("messages").Elements {
		role := message.Get("role").Text()
		if role == "" {
			return nil, problem.Invalid("messages", body.DeserializePrefix+"missing field `role` (messages[%d])", i)
		}
		content := message.Get("content")
		switch content.Kind() {
		case jsontape.String:
			messages = append(messages, chatMessage{Role: role, Content: content.Raw()})
		case jsontape.Array:
			if content.Len() == 0 {
				return nil, problem.Invalid("messages", "messages[%d].content: must contain at least one content block", i)
			}
			translated, p := translateBlocks(i, role, content)
			if p != nil {
				return nil, p
			}
			messages = append(messages, translated...)
		default:
			return nil, problem.Invalid("messages", body.DeserializePrefix+"missing field `content` (messages[%d])", i)
		}
	}
	return messages, nil
}

// translateBlocks turns one message's blocks into chat messages: tool results become messages of their own, before the rest.
func translateBlocks(i int, role string, content jsontape.Node) ([]chatMessage, *problem.Problem) {
	message := chatMessage{Role: role}
	var results []chatMessage
	var parts []json.RawMessage
	onlyText := true
	for j, block := range content.Elements {
		path := fmt.Sprintf("messages[%d].content[%d]", i, j)
		if block.Kind() != jsontape.Object {
			return nil, problem.Invalid(path, "%s: content blocks must be objects", path)
		}
		kind := block.Get("type").Text()
		if kind == "" {
			return nil, problem.Invalid(path, "%s.type: must be a non-empty string", path)
		}
		switch kind {
		case "text":
			parts = append(parts, part("text", "text", block.Get("text").Text()))
		case "image":
			onlyText = false
			url := block.Get("source").Get("url").Text()
			if data := block.Get("source").Get("data"); data.Exists() {
				url = "data:" + block.Get("source").Get("media_type").Text() + ";base64," + data.Text()
			}
			parts = append(parts, json.RawMessage(`{"type":"image_url","image_url":{"url":`+string(quote(url))+`}}`))
		case "thinking":
			message.ReasoningContent += block.Get("thinking").Text()
		case "redacted_thinking":
		case "tool_use":
			arguments := string(block.Get("input").Raw())
			if arguments == "" {
				arguments = "{}"
			}
			message.ToolCalls = append(message.ToolCalls, chatToolCall{ID: block.Get("id").Text(), Type: "function",
				Function: chatFunction{Name: block.Get("name").Text(), Arguments: arguments}})
		case "tool_result":
			results = append(results, chatMessage{Role: "tool", ToolCallID: block.Get("tool_use_id").Text(), Content: quote(resultText(block.Get("content")))})
		default:
			return nil, problem.Invalid(path, "%s: content block type %q is not supported", path, kind)
		}
	}
	switch {
	case len(parts) == 1 && onlyText, len(parts) > 1 && onlyText:
		var texts []string
		for _, p := range parts {
			var text struct{ Text string }
			_ = json.Unmarshal(p, &text)
			texts = append(texts, text.Text)
		}
		message.Content = quote(strings.Join(texts, "\n"))
	case len(parts) > 0:
		message.Content, _ = json.Marshal(parts)
	case len(message.ToolCalls) > 0 || message.ReasoningContent != "":
		message.Content = quote("")
	default:
		return results, nil
	}
	return append(results, message), nil
}

func part(kind, member, text string) json.RawMessage {
	return json.RawMessage(`{"type":"` + kind + `","` + member + `":` + string(quote(text)) + `}`)
}

// systemText joins the system prompt's blocks.
func systemText(system jsontape.Node) string {
	if system.Kind() == jsontape.String {
		return system.Text()
	}
	var texts []string
	for _, block := range system.Elements {
		texts = append(texts, block.Get("text").Text())
	}
	return strings.Join(texts, "\n")
}

// stripPreamble removes the billing line that some agents put before their system prompt: it differs from request to request
// and would keep every prompt from being found in a cache.
func stripPreamble(text string) string {
	if !strings.HasPrefix(text, "x-anthropic-billing-header:") {
		return text
	}
	_, rest, _ := strings.Cut(text, "\n")
	return rest
}

// resultText returns a tool result as text.
func resultText(content jsontape.Node) string {
	if content.Kind() == jsontape.String {
		return content.Text()
	}
	var texts []string
	for _, block := range content.Elements {
		if text := block.Get("text"); text.Exists() {
			texts = append(texts, text.Text())
		}
	}
	return strings.Join(texts, "\n")
}

// tools judges tools and tool_choice.
func (m *messageRequest) tools(root jsontape.Node, chat *pipeline.Chat) *problem.Problem {
	var tools []chatTool
	for i, tool := range root.Get("tools").Elements {
		kind := tool.Get("type")
		if kind.Present() && kind.Text() == "" {
			return problem.Invalid("tools", "tools[%d].type: must be a non-empty string", i)
		}
		if kind.Present() && kind.Text() != "custom" {
			return problem.Invalid("tools", "tools[%d]: server tool type %q is not supported", i, kind.Text())
		}
		schema := tool.Get("input_schema")
		if !schema.Present() {
			return problem.Invalid("tools", "tools[%d].input_schema: field required for client tools", i)
		}
		name := tool.Get("name").Text()
		if name == "" {
			return problem.Invalid("tools", "tools[%d].name: field required", i)
		}
		tools = append(tools, chatTool{Type: "function", Function: chatFunction{Name: name, Description: tool.Get("description").Text(), Parameters: schema.Raw()}})
		m.job.Parsing.Tools = append(m.job.Parsing.Tools, pipeline.Tool{Name: name, Parameters: schema.Raw()})
	}
	if len(tools) > 0 {
		text, err := json.Marshal(tools)
		if err != nil {
			return problem.Invalid("tools", "tools: %v", err)
		}
		chat.Tools = text
	}
	choice := root.Get("tool_choice")
	if !choice.Present() {
		return nil
	}
	if disable, ok := choice.Get("disable_parallel_tool_use").Bool(); ok {
		parallel := !disable
		m.job.Parsing.ParallelToolCalls = &parallel
	}
	switch kind := choice.Get("type").Text(); kind {
	case "auto":
		chat.ToolChoice = "auto"
	case "none":
		chat.ToolChoice, m.job.Parsing.ToolChoice = "none", pipeline.ToolChoiceNone
	case "any":
		if len(tools) == 0 {
			return problem.Invalid("tool_choice", "tool_choice is \"required\" but tools is empty")
		}
		chat.ToolChoice, m.job.Parsing.ToolChoice = "required", pipeline.ToolChoiceRequired
	case "tool":
		name := choice.Get("name").Text()
		known := false
		for _, tool := range tools {
			known = known || tool.Function.Name == name
		}
		if !known {
			return problem.Invalid("tool_choice", "tool named %q in tool_choice is not present in tools", name)
		}
		chat.ToolChoice, m.job.Parsing.ToolChoice, m.job.Parsing.ToolName = name, pipeline.ToolChoiceNamed, name
	default:
		return problem.Invalid("tool_choice", body.DeserializePrefix+"unknown variant `%s`, expected one of `auto`, `any`, `none`, `tool`", kind)
	}
	return nil
}

// estimate guesses the input length in tokens without a tokenizer: a third of the characters, four more for each message.
func estimate(root jsontape.Node) int {
	characters := len([]rune(systemText(root.Get("system"))))
	for _, message := range root.Get("messages").Elements {
		characters += 4
		content := message.Get("content")
		if content.Kind() == jsontape.String {
			characters += len([]rune(content.Text()))
			continue
		}
		for _, block := range content.Elements {
			characters += len([]rune(block.Get("text").Text())) + len([]rune(resultText(block.Get("content")))) + len(block.Get("input").Raw())
		}
	}
	for _, tool := range root.Get("tools").Elements {
		characters += len([]rune(tool.Get("name").Text())) + len([]rune(tool.Get("description").Text()))
		var compact strings.Builder
		if schema := tool.Get("input_schema"); schema.Exists() {
			compact.WriteString(compactJSON(schema.Raw()))
		}
		characters += len([]rune(compact.String()))
	}
	return characters / 3
}

func compactJSON(raw []byte) string {
	var value json.RawMessage = raw
	text, err := json.Marshal(value)
	if err != nil {
		return string(raw)
	}
	return string(text)
}

func quote(text string) json.RawMessage {
	quoted, err := json.Marshal(text)
	if err != nil { // a string always marshals
		return json.RawMessage(`""`)
	}
	return quoted
}
