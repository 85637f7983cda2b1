package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"signalbox/preprocess/chattemplate"
	"signalbox/preprocess/prompt"
)

// conversation is one input of the templates.
type conversation struct {
	ID                   string
	Messages, Tools      json.RawMessage
	AddGenerationPrompt  bool `json:"add_generation_prompt"`
	ContinueFinalMessage bool `json:"continue_final_message"`
	Kwargs               json.RawMessage
}

// chatBody is the same conversation as the body of a request.
type chatBody struct {
	Messages, Tools      json.RawMessage
	Arguments            json.RawMessage `json:"chat_template_args"`
	ReasoningEffort      string          `json:"reasoning_effort"`
	AddGenerationPrompt  *bool           `json:"add_generation_prompt"`
	ContinueFinalMessage bool            `json:"continue_final_message"`
}

// templateCases are the recordings of a folder of chat templates.
type templateCases struct {
	tokens        map[string]map[string]*string
	conversations map[string]conversation
	bodies        map[string]chatBody
	rendered      []renderedCase
	prompts       []promptCase
}

// renderedCase is what transformers makes of a conversation; promptCase what the Dynamo frontend makes of the body.
type (
	renderedCase struct{ Tpl, Conv, Text, Error string }
	promptCase   struct {
		Tpl, Conv, Prompt string
		Status            int
		SameAsPython      bool `json:"same_as_python"`
	}
)

// recordedNow is the clock of the recordings.
func recordedNow() time.Time { return time.Date(2026, 11, 30, 12, 34, 56, 0, time.Local) }

// ChatTemplates checks rendered conversations, and the prompts of whole requests.
func ChatTemplates(path string) Result {
	var result Result
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		path = filepath.Dir(path)
	}
	cases, err := readTemplateCases(path)
	if err != nil {
		result.fail("%v", err)
		return result
	}
	sources := make(map[string]string)
	for name := range cases.tokens {
		source, err := os.ReadFile(filepath.Join(modelsFolder(), "tpl", name+".jinja"))
		if err != nil {
			result.fail("%v", err)
			continue
		}
		sources[name] = string(source)
	}
	cases.checkRendered(&result, sources)
	cases.checkPrompts(&result, sources)
	return result
}

func readTemplateCases(folder string) (*templateCases, error) {
	var list []conversation
	cases := &templateCases{conversations: make(map[string]conversation)}
	for name, into := range map[string]any{"templates.json": &cases.tokens, "conversations.json": &list, "http_bodies.json": &cases.bodies} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, c := range list {
		cases.conversations[c.ID] = c
	}
	var err error
	if cases.rendered, err = readLines[renderedCase](filepath.Join(folder, "render.jsonl.gz")); err != nil {
		return nil, err
	}
	cases.prompts, err = readLines[promptCase](filepath.Join(folder, "dynamo.jsonl.gz"))
	return cases, err
}

// checkRendered compares the template engine.
func (cases *templateCases) checkRendered(result *Result, sources map[string]string) {
	compiled := make(map[string]*chattemplate.Template)
	for _, c := range cases.rendered {
		conversation, known := cases.conversations[c.Conv]
		if !known {
			result.fail("%s: conversation %q is not there", c.Tpl, c.Conv)
			continue
		}
		template, known := compiled[c.Tpl]
		if !known && sources[c.Tpl] != "" {
			var err error
			if template, err = chattemplate.Compile(sources[c.Tpl], chattemplate.Options{Now: recordedNow}); err != nil {
				result.fail("%s: %v", c.Tpl, err)
			}
			compiled[c.Tpl] = template
		}
		if template == nil {
			continue
		}
		got, err := cases.render(template, conversation, c.Tpl)
		if c.Error != "" && err != nil || c.Error == "" && err == nil && got == c.Text {
			result.Passed++
			continue
		}
		result.fail("%s, %s: renders another text (error %v)", c.Tpl, c.Conv, err)
	}
}

// render renders a conversation as transformers does.
func (cases *templateCases) render(template *chattemplate.Template, c conversation, name string) (string, error) {
	variables := chattemplate.NewDict(8)
	messages, err := chattemplate.ParseJSON(c.Messages)
	if err != nil {
		return "", err
	}
	messages = copyReasoning(messages)
	cut := func(text string) (string, error) { return text, nil }
	if c.ContinueFinalMessage {
		if messages, cut, err = prompt.Continuation(messages); err != nil {
			return "", err
		}
	}
	variables.Set("messages", messages)
	variables.Set("tools", chattemplate.None)
	if len(c.Tools) > 0 {
		tools, err := chattemplate.ParseJSON(c.Tools)
		if err != nil {
			return "", err
		}
		variables.Set("tools", tools)
	}
	for token, text := range cases.tokens[name] {
		if text != nil {
			variables.Set(token, chattemplate.String(*text))
		}
	}
	variables.Set("add_generation_prompt", chattemplate.Bool(c.AddGenerationPrompt))
	if len(c.Kwargs) > 0 {
		kwargs, err := chattemplate.ParseJSON(c.Kwargs)
		if err != nil {
			return "", err
		}
		for _, entry := range kwargs.Entries() {
			variables.Set(entry.Key.Str(), entry.Value)
		}
	}
	text, err := template.Render(variables.Value())
	if err != nil {
		return "", err
	}
	return cut(text)
}

// copyReasoning gives a message's reasoning every name that templates read it under, as transformers does.
func copyReasoning(messages chattemplate.Value) chattemplate.Value {
	list := make([]chattemplate.Value, 0, messages.Len())
	for _, message := range messages.Items() {
		reasoning := chattemplate.None
		for _, key := range []string{"reasoning_content", "thinking", "reasoning"} {
			if value, ok := message.Get(key); ok && value.Kind() != chattemplate.KindNone {
				reasoning = value
				break
			}
		}
		if reasoning.Kind() != chattemplate.KindNone {
			named := chattemplate.NewDict(message.Len() + 2)
			named.Set("thinking", reasoning)
			for _, entry := range message.Entries() {
				named.Set(entry.Key.Str(), entry.Value)
			}
			named.Set("reasoning_content", reasoning)
			message = named.Value()
		}
		list = append(list, message)
	}
	return chattemplate.List(list)
}

// checkPrompts compares what whole requests become.
func (cases *templateCases) checkPrompts(result *Result, sources map[string]string) {
	texts := make(map[[2]string]string)
	for _, c := range cases.rendered {
		texts[[2]string{c.Tpl, c.Conv}] = c.Text
	}
	formatters := make(map[string]*prompt.Formatter)
	for _, c := range cases.prompts {
		body, known := cases.bodies[c.Conv]
		if !known {
			result.fail("%s: body %q is not there", c.Tpl, c.Conv)
			continue
		}
		if string(body.Tools) == "[]" {
			continue // refused before a template is asked
		}
		formatter, known := formatters[c.Tpl]
		if !known && sources[c.Tpl] != "" {
			tokens := make(map[string]string)
			for token, text := range cases.tokens[c.Tpl] {
				if text != nil {
					tokens[token] = *text
				}
			}
			var err error
			if formatter, err = prompt.New(sources[c.Tpl], tokens, prompt.Options{Now: recordedNow}); err != nil {
				result.fail("%s: %v", c.Tpl, err)
			}
			formatters[c.Tpl] = formatter
		}
		if formatter == nil {
			continue
		}
		got, err := formatter.Render(prompt.Request{Messages: body.Messages, Tools: body.Tools, Arguments: body.Arguments,
			ReasoningEffort:    body.ReasoningEffort,
			NoGenerationPrompt: body.AddGenerationPrompt != nil && !*body.AddGenerationPrompt, ContinueFinalMessage: body.ContinueFinalMessage})
		want := c.Prompt
		if c.SameAsPython {
			want = texts[[2]string{c.Tpl, c.Conv}]
		}
		if c.Status != 200 && err != nil || c.Status == 200 && err == nil && got == want {
			result.Passed++
			continue
		}
		result.fail("%s, %s: the request becomes another prompt (error %v)", c.Tpl, c.Conv, err)
	}
}
