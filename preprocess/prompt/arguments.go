package prompt

import (
	"strings"

	"signalbox/preprocess/chattemplate"
)

// The ways in which requests and templates speak of thinking.
const (
	thinkingKey       = "thinking"
	enableThinkingKey = "enable_thinking"
	thinkingModeKey   = "thinking_mode"
	effortKey         = "reasoning_effort"
)

// arguments are a request's template arguments while its wishes about thinking are brought together.
type arguments struct{ entries []chattemplate.Entry }

func (a *arguments) get(key string) chattemplate.Value {
	for i := range a.entries {
		if a.entries[i].Key.Str() == key {
			return a.entries[i].Value
		}
	}
	return chattemplate.Value{}
}

func (a *arguments) set(key string, value chattemplate.Value) {
	for i := range a.entries {
		if a.entries[i].Key.Str() == key {
			a.entries[i].Value = value
			return
		}
	}
	a.entries = append(a.entries, chattemplate.Entry{Key: chattemplate.String(key), Value: value})
}

func (a *arguments) remove(key string) {
	for i := range a.entries {
		if a.entries[i].Key.Str() == key {
			a.entries = append(a.entries[:i], a.entries[i+1:]...)
			return
		}
	}
}

// has tells whether one of the keys is there, whatever its value.
func (a *arguments) has(keys ...string) bool {
	for _, key := range keys {
		if a.get(key).Kind() != chattemplate.KindUndefined {
			return true
		}
	}
	return false
}

// switchThinking says on or off in every way that a template may read.
func (a *arguments) switchThinking(on bool) {
	a.set(thinkingKey, chattemplate.Bool(on))
	a.set(enableThinkingKey, chattemplate.Bool(on))
	mode := "disabled"
	if on {
		mode = "enabled"
	}
	a.set(thinkingModeKey, chattemplate.String(mode))
}

// setArguments adds the request's template arguments.
func (f *Formatter) setArguments(variables *chattemplate.Dict, request Request) error {
	a, err := f.arguments(request)
	if err != nil {
		return err
	}
	for _, entry := range a.entries {
		variables.Set(entry.Key.Str(), entry.Value)
	}
	return nil
}

// arguments are the request's template arguments, after its wishes about thinking are made to agree.
func (f *Formatter) arguments(request Request) (*arguments, error) {
	a := &arguments{}
	if len(request.Arguments) > 0 {
		given, err := parseJSON(request.Arguments)
		if err == nil && given.Kind() != chattemplate.KindDict && given.Kind() != chattemplate.KindNone {
			err = errArgumentsKind
		}
		if err != nil {
			return nil, &Refusal{Param: "chat_template_args", Message: "chat_template_args: " + err.Error(), Cause: err}
		}
		a.entries = append(make([]chattemplate.Entry, 0, given.Len()+4), given.Entries()...)
	}
	asked := request.Thinking != "" || request.ReasoningEffort != "" || a.has(thinkingKey, enableThinkingKey, thinkingModeKey, effortKey)
	a.resolve(request)
	if !asked && f.options.DefaultThinking != nil {
		a.switchThinking(*f.options.DefaultThinking)
	}
	f.options.Family.adjust(a, request, asked)
	return a, nil
}

// resolve decides whether the request wants the model to think, and states it in every way. The highest of these decides:
// thinking, then the template arguments thinking and enable_thinking, then thinking_mode, then the reasoning effort.
func (a *arguments) resolve(request Request) {
	effort := a.get(effortKey)
	if request.ReasoningEffort != "" {
		effort = chattemplate.String(request.ReasoningEffort)
	}
	if effort.Kind() == chattemplate.KindNone {
		effort = chattemplate.Value{}
	}
	switch request.Thinking {
	case "enabled":
		a.switchThinking(true)
	case "disabled":
		a.switchThinking(false)
	case "adaptive": // the model decides: no switch may survive
		a.remove(thinkingKey)
		a.remove(enableThinkingKey)
		a.set(thinkingModeKey, chattemplate.String("adaptive"))
	}
	if on, decided := a.decide(effort); decided {
		a.switchThinking(on)
	}
	if effort.Kind() != chattemplate.KindUndefined {
		a.set(effortKey, effort)
	}
}

func (a *arguments) decide(effort chattemplate.Value) (on, decided bool) {
	for _, key := range [...]string{thinkingKey, enableThinkingKey} {
		if value := a.get(key); value.Kind() == chattemplate.KindBool {
			return value.IsTrue(), true
		}
	}
	switch strings.ToLower(a.get(thinkingModeKey).Str()) {
	case "adaptive":
		return false, false
	case "enabled":
		return true, true
	case "disabled":
		return false, true
	}
	return effort.Str() != "none", effort.Kind() == chattemplate.KindString
}
