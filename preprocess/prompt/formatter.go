// Package prompt turns a conversation into the text that a model is asked: it chooses the template, brings messages and tools
// into the form that the template reads, and renders. It takes raw JSON, so that key order and the spelling of numbers reach
// the prompt and with it the cache identity. It knows neither HTTP nor tokens.
package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"signalbox/preprocess/chattemplate"
	"signalbox/preprocess/piece"
)

// Request is one conversation. Raw members are JSON; nil when absent.
type Request struct {
	Messages []byte
	Tools    []byte
	// Arguments are the template arguments of the request: further variables. They cannot take the place of messages, tools,
	// special tokens and add_generation_prompt.
	Arguments       []byte
	ReasoningEffort string
	// Thinking is "", "enabled", "disabled" or "adaptive".
	Thinking string
	// NoGenerationPrompt leaves out what asks the model to speak.
	NoGenerationPrompt bool
	// NoTools says that the client forbids calls. Templates are still given Tools; leave them out where they should not be.
	NoTools bool
	// ResponseFormat is the request's response_format, which some models are told of.
	ResponseFormat []byte
	// Constrained says that the output must follow a grammar: a response format, or a call that the client demands.
	Constrained bool
	// NamedTool says that the client demands a call of one function.
	NamedTool bool
	// ToolChoice is "", "auto", "none" or "required", or with NamedTool the function's name.
	ToolChoice string
	// ContinueFinalMessage ends the prompt inside the last message, for the model to go on with.
	ContinueFinalMessage bool
}

// Files are the places that a template may come from. "" is a file that the model does not have.
type Files struct {
	// Custom is a template that the worker's operator named; it wins.
	Custom string
	// Template is chat_template.jinja or chat_template.json.
	Template string
	// TokenizerConfig is tokenizer_config.json: the usual place of the template and of the special tokens.
	TokenizerConfig string
	// Config is config.json, whose model_type tells of models with an encoder of their own.
	Config string
	// Name is the model's, which tells of them where config.json does not.
	Name string
}

// Options steer a Formatter.
type Options struct {
	// Limits bound what one prompt may cost; zero fields are the template engine's defaults.
	Limits chattemplate.Limits
	// Now is the clock of templates that print the date; nil means time.Now.
	Now func() time.Time
	// ParseArguments says that past tool calls enter the template as objects, whatever the template seems to want.
	ParseArguments bool
	// Family is the model's, for what differs in how thinking is switched.
	Family Family
	// DefaultThinking switches thinking on or off where the request says nothing; nil leaves it to the template.
	DefaultThinking *bool
}

// Formatter renders conversations for one model. It is safe for concurrent use.
type Formatter struct {
	native encoder // of models that have one in place of templates
	// alsoKnown are members of messages that only the native encoder knows.
	alsoKnown []string
	byName    map[string]*form // "default", "tool_use"
	content   contentUse
	tokens    map[string]chattemplate.Value
	options   Options
}

// ErrNoTemplate means that none of the model's files has a chat template.
var ErrNoTemplate = errors.New("the model has no chat template")

// Refusal is what a template or the conversion says against a conversation; its words are meant for the client.
type Refusal struct {
	Param   string
	Message string
	Cause   error
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// Load reads and compiles the model's templates.
func Load(files Files, options Options) (*Formatter, error) {
	f := &Formatter{byName: make(map[string]*form), tokens: make(map[string]chattemplate.Value), options: options}
	kind, err := modelType(files.Config)
	if err != nil {
		return nil, err
	}
	if f.native = nativeEncoder(kind, files.Name); f.native != nil {
		if isKimiK3(kind, files.Name) {
			f.alsoKnown = []string{"tools", "partial"}
		}
		return f, nil
	}
	var config map[string]json.RawMessage
	if files.TokenizerConfig != "" {
		text, err := os.ReadFile(files.TokenizerConfig)
		if err != nil {
			return nil, fmt.Errorf("chat template: %w", err)
		}
		if err := json.Unmarshal(text, &config); err != nil {
			return nil, fmt.Errorf("chat template: %s: %w", files.TokenizerConfig, err)
		}
		for _, name := range []string{"bos_token", "eos_token", "unk_token"} {
			if token, ok := tokenText(config[name]); ok {
				f.tokens[name] = chattemplate.String(token)
			}
		}
	}
	sources, err := templateSources(files, config["chat_template"])
	if errors.Is(err, ErrNoTemplate) && strings.EqualFold(kind, inklingType) {
		// Where such a model has a template, the live frontend uses that.
		f.native = inklingPieces
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	return f, f.setTemplates(sources)
}

// New returns a formatter for one template given as text, for tests and tools.
func New(source string, tokens map[string]string, options Options) (*Formatter, error) {
	f := &Formatter{byName: make(map[string]*form), tokens: make(map[string]chattemplate.Value), options: options}
	for name, token := range tokens {
		f.tokens[name] = chattemplate.String(token)
	}
	return f, f.setTemplates(map[string]string{"default": source, "tool_use": source})
}

// setTemplates compiles the templates and finds out what they want. Templates of the same source are compiled once.
func (f *Formatter) setTemplates(sources map[string]string) error {
	compiled := make(map[string]*chattemplate.Template)
	for name, source := range sources {
		template := compiled[source]
		if template == nil {
			var err error
			if template, err = f.compile(source, f.options.Limits); err != nil {
				return fmt.Errorf("chat template %q: %w", name, err)
			}
			compiled[source] = template
		}
		probe, err := f.compile(source, probeLimits)
		if err != nil {
			return fmt.Errorf("chat template %q: %w", name, err)
		}
		tools := "null"
		if name == "tool_use" {
			tools = probeTool
		}
		f.byName[name] = f.examine(template, probe, tools)
		if name == "default" {
			f.content = f.examineContent(probe)
		}
	}
	return nil
}

// setTokens gives a template the model's special tokens; one that the model lacks is none.
func (f *Formatter) setTokens(variables *chattemplate.Dict) {
	for _, name := range [...]string{"bos_token", "eos_token", "unk_token"} {
		variables.Set(name, f.token(name))
	}
}

func (f *Formatter) token(name string) chattemplate.Value {
	if token, ok := f.tokens[name]; ok {
		return token
	}
	return chattemplate.None
}

// tokenText reads a special token: a string, or an object with content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, string(raw) != "null" && raw != nil
	}
	var object struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(raw, &object) == nil && object.Content != nil {
		return *object.Content, true
	}
	return "", false
}

// templateSources returns the templates by name, from the first place that has one.
func templateSources(files Files, inConfig json.RawMessage) (map[string]string, error) {
	for _, path := range []string{files.Custom, files.Template} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("chat template: %w", err)
		}
		if strings.HasSuffix(path, ".json") {
			var file struct {
				Template json.RawMessage `json:"chat_template"`
			}
			if err := json.Unmarshal(text, &file); err != nil {
				return nil, fmt.Errorf("chat template: %s: %w", path, err)
			}
			return namedTemplates(file.Template)
		}
		return map[string]string{"default": string(text), "tool_use": string(text)}, nil
	}
	return namedTemplates(inConfig)
}

// namedTemplates reads a template, or a list of templates with names.
func namedTemplates(raw json.RawMessage) (map[string]string, error) {
	var one string
	if raw == nil || string(raw) == "null" {
		return nil, ErrNoTemplate
	}
	if json.Unmarshal(raw, &one) == nil {
		return map[string]string{"default": one, "tool_use": one}, nil
	}
	var list []map[string]string
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("chat_template is neither a string nor a list of named templates: %w", err)
	}
	sources := make(map[string]string)
	for _, entry := range list {
		if name, ok := entry["name"]; ok {
			sources[name] = entry["template"]
			continue
		}
		for name, source := range entry {
			sources[name] = source
		}
	}
	if len(sources) == 0 {
		return nil, ErrNoTemplate
	}
	return sources, nil
}

// TemplateFor returns the name of the template that a request is rendered with: "tool_use" where it has tools, else "default";
// "native" for models that have an encoder in place of templates.
func (f *Formatter) TemplateFor(request Request) string {
	if f.native != nil {
		return "native"
	}
	tools, err := parseJSON(request.Tools)
	if err != nil {
		tools = chattemplate.None
	}
	return templateName(tools)
}

func templateName(tools chattemplate.Value) string {
	if tools.Len() > 0 {
		return "tool_use"
	}
	return "default"
}

// Render returns the prompt as text.
func (f *Formatter) Render(request Request) (string, error) {
	p, err := f.Compose(request)
	return p.Text, err
}

// Compose returns the prompt. It has pieces where the model has an encoder that tells special tokens from text.
func (f *Formatter) Compose(request Request) (p piece.Prompt, err error) {
	messages, err := chattemplate.ParseJSON(request.Messages)
	if err != nil {
		return p, &Refusal{Param: "messages", Message: "messages: " + err.Error(), Cause: err}
	}
	tools := chattemplate.None
	if len(request.Tools) > 0 {
		if tools, err = parseJSON(request.Tools); err != nil {
			return p, &Refusal{Param: "tools", Message: "tools: " + err.Error(), Cause: err}
		}
	}
	cut := func(text string) (string, error) { return text, nil }
	if request.ContinueFinalMessage {
		if messages, cut, err = Continuation(messages); err != nil {
			return p, err
		}
	}
	if f.native != nil {
		written, err := f.encode(request, messages, tools)
		if err != nil {
			return p, err
		}
		text, err := cut(written.Text)
		if err != nil {
			return p, err
		}
		return written.Cut(len(text)), nil
	}
	name := templateName(tools)
	chosen := f.byName[name]
	if chosen == nil {
		return p, &Refusal{Param: "messages", Message: fmt.Sprintf("the model has no chat template called %q, which this request needs", name)}
	}
	normalised, err := f.normalise(chosen, messages)
	if err != nil {
		return p, err
	}
	tools = normaliseTools(tools)
	completed := chosen.needsContent
	if completed {
		normalised, _ = withEmptyContent(normalised)
	}
	text, err := f.render(chosen, normalised, tools, request)
	if err != nil && !completed {
		// The probe said nothing of it, but this conversation may fail for want of content all the same.
		if normalised, completed = withEmptyContent(normalised); completed {
			text, err = f.render(chosen, normalised, tools, request)
		}
	}
	if err != nil {
		return p, err
	}
	if text, err = cut(text); err != nil {
		return p, err
	}
	return piece.Prompt{Text: text}, nil
}

// render renders normalised messages.
func (f *Formatter) render(chosen *form, messages, tools chattemplate.Value, request Request) (string, error) {
	variables := chattemplate.NewDict(12)
	if err := f.setArguments(variables, request); err != nil {
		return "", err
	}
	variables.Set("messages", messages)
	variables.Set("tools", tools)
	f.setTokens(variables)
	variables.Set("add_generation_prompt", chattemplate.Bool(!request.NoGenerationPrompt && !request.ContinueFinalMessage))
	text, err := chosen.template.Render(variables.Value())
	if err != nil {
		return "", refusal(err)
	}
	return text, nil
}

// refusal turns an error of the render into what the client may read.
func refusal(err error) error {
	var raised *chattemplate.RaisedError
	if errors.As(err, &raised) {
		return &Refusal{Param: "messages", Message: "The model's chat template refuses the conversation: " + raised.Message, Cause: err}
	}
	return &Refusal{Param: "messages", Message: "The model's chat template cannot render the conversation: " + err.Error(), Cause: err}
}
