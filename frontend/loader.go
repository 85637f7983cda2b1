package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"weak"

	"signalbox/model"
	"signalbox/model/card"
	"signalbox/pipeline"
	"signalbox/preprocess/piece"
	"signalbox/preprocess/prompt"
	"signalbox/preprocess/tokenizer"
)

// FileLoader loads models from the files that their cards name.
type FileLoader struct {
	Resolver *card.Resolver
	// SecondParsers selects the second generation of output parsers where there is one.
	SecondParsers bool
	// Warn is told of parsers that a card names and nobody knows; it may be nil.
	Warn func(message string)
	// ExcludeToolsWhenNone leaves tools out of the prompt when the client forbids calls.
	ExcludeToolsWhenNone bool

	mu         sync.Mutex
	tokenizers map[string]weak.Pointer[tokenizer.Tokenizer] // by checksum: adapters and stages share one
}

// Load implements Loader.
func (l *FileLoader) Load(ctx context.Context, c *card.Card) (*pipeline.Model, error) {
	files, err := l.Resolver.Resolve(ctx, c)
	if err != nil {
		return nil, err
	}
	encoder, err := l.tokenizer(c, files)
	if err != nil {
		return nil, err
	}
	eos, err := model.EOSTokenIDs(files, encoder.TokenToID)
	if err != nil {
		return nil, err
	}
	m := &pipeline.Model{Name: c.DisplayName, Checksum: c.Checksum(), EOSTokenIDs: eos, ContextLength: int(c.EffectiveContextLength()),
		Tokenizer: modelTokenizer{encoder}, ToolParser: c.Runtime.ToolCallParser != nil}
	if budget := tokenBudget(c); budget != nil {
		m.ContextLength, m.RejectPromptOverflow, m.RejectTotalOverflow = int(budget.CombinedLimit), budget.RejectPrompt, budget.RejectTotal
	}
	options := prompt.Options{ParseArguments: c.Runtime.ToolCallArguments == "json_object", DefaultThinking: defaultThinking(c),
		Family: prompt.FamilyOf(deref(c.Runtime.ToolCallParser), deref(c.Runtime.ReasoningParser))}
	formatter, err := prompt.Load(prompt.Files{Template: files.ChatTemplate, TokenizerConfig: files.PromptFormatter, Config: files.Config, Name: c.DisplayName}, options)
	switch {
	case err == nil:
		m.Renderer = &renderer{formatter: formatter, excludeTools: l.ExcludeToolsWhenNone && c.Runtime.ExcludeTools}
	case !errors.Is(err, prompt.ErrNoTemplate):
		return nil, err
	case c.ModelType.Has(card.Chat):
		return nil, fmt.Errorf("model %s is registered for chat: %w", c.DisplayName, err)
	}
	m.Stages = l.parsersOf(c, options)
	return m, nil
}

func deref(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}

// budget is what a worker's card says about requests that do not fit: the tokens that prompt and output may have together, and
// whether the frontend is to refuse what is longer. What it is not to refuse the engine clips or refuses itself.
type budget struct {
	CombinedLimit uint32 `json:"combined_limit"`
	RejectPrompt  bool   `json:"reject_prompt_overflow"`
	RejectTotal   bool   `json:"reject_total_overflow"`
}

// tokenBudget returns nil where the card has none.
func tokenBudget(c *card.Card) *budget {
	var b *budget
	if json.Unmarshal(c.Runtime.RuntimeData["token_budget"], &b) != nil || b == nil || b.CombinedLimit == 0 {
		return nil
	}
	return b
}

// defaultThinking is what the worker says about requests that say nothing; nil when it leaves that to the template.
func defaultThinking(c *card.Card) *bool {
	var mode string
	if json.Unmarshal(c.Runtime.RuntimeData["default_thinking_mode"], &mode) != nil || mode != "enabled" && mode != "disabled" {
		return nil
	}
	on := mode == "enabled"
	return &on
}

// tokenizer loads the card's tokenizer, or finds it among those in use.
func (l *FileLoader) tokenizer(c *card.Card, files *card.Files) (*tokenizer.Tokenizer, error) {
	if files.Tokenizer == "" {
		return nil, fmt.Errorf("model %s: its card names no tokenizer", c.DisplayName)
	}
	key := c.Tokenizer.File.Checksum
	l.mu.Lock()
	known := l.tokenizers[key].Value()
	l.mu.Unlock()
	if known != nil {
		return known, nil
	}
	loaded, err := tokenizer.LoadModel(tokenizer.ModelFiles{Tokenizer: files.Tokenizer, TokenizerConfig: files.PromptFormatter, Config: files.Config})
	if err != nil {
		return nil, err
	}
	const rememberedBytes = 32 << 20 // of conversations that go on
	loaded.Remember(rememberedBytes)
	l.mu.Lock()
	if l.tokenizers == nil {
		l.tokenizers = make(map[string]weak.Pointer[tokenizer.Tokenizer])
	}
	l.tokenizers[key] = weak.Make(loaded)
	l.mu.Unlock()
	return loaded, nil
}

// modelTokenizer shows a tokenizer to the pipeline.
type modelTokenizer struct{ *tokenizer.Tokenizer }

// NewDecoder implements pipeline.Tokenizer.
func (t modelTokenizer) NewDecoder(prompt []uint32, skipSpecial bool) pipeline.Decoder {
	return t.Tokenizer.NewDecoder(prompt, skipSpecial)
}

// renderer shows a formatter to the pipeline.
type renderer struct {
	formatter    *prompt.Formatter
	excludeTools bool
}

// Render implements pipeline.Renderer.
func (r *renderer) Render(_ context.Context, chat *pipeline.Chat) (piece.Prompt, error) {
	request := promptRequest(chat)
	if r.excludeTools && chat.ToolChoice == "none" {
		request.Tools = nil
	}
	composed, err := r.formatter.Compose(request)
	var refusal *prompt.Refusal
	if errors.As(err, &refusal) {
		return composed, &pipeline.PromptError{Param: refusal.Param, Message: refusal.Message}
	}
	return composed, err
}

// promptRequest is a conversation as templates take it.
func promptRequest(chat *pipeline.Chat) prompt.Request {
	request := prompt.Request{Messages: chat.Messages, Tools: chat.Tools, Arguments: chat.TemplateArguments,
		ReasoningEffort: chat.ReasoningEffort, Thinking: chat.ThinkingType(),
		NoGenerationPrompt:   chat.AddGenerationPrompt != nil && !*chat.AddGenerationPrompt,
		ContinueFinalMessage: chat.ContinueFinalMessage != nil && *chat.ContinueFinalMessage, Constrained: chat.JSONConstrained, ResponseFormat: chat.ResponseFormat,
		NoTools: chat.ToolChoice == "none", ToolChoice: chat.ToolChoice}
	switch chat.ToolChoice {
	case "", "auto", "none":
	case "required":
		request.Constrained = true
	default:
		request.Constrained, request.NamedTool = true, true
	}
	return request
}
