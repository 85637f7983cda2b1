package prompt

import (
	"strings"

	"signalbox/preprocess/chattemplate"
)

// setArguments adds the request's template arguments, which override everything, after the thinking switches are made to agree.
func (f *Formatter) setArguments(variables *chattemplate.Dict, chosen *form, request Request) error {
	arguments := chattemplate.None
	if len(request.Arguments) > 0 {
		var err error
		if arguments, err = chattemplate.ParseJSON(request.Arguments); err != nil {
			return &Refusal{Param: "chat_template_args", Message: "chat_template_args: " + err.Error(), Cause: err}
		}
	}
	thinking, known := thinkingSwitch(arguments)
	if !known {
		switch {
		case request.Thinking == "enabled":
			thinking, known = true, true
		case request.Thinking == "disabled" || request.ReasoningEffort == "none":
			thinking, known = false, true
		case request.ReasoningEffort != "":
			thinking, known = true, true
		case f.options.DefaultThinking != nil:
			thinking, known = *f.options.DefaultThinking, true
		}
	}
	if request.ReasoningEffort != "" {
		variables.Set("reasoning_effort", chattemplate.String(request.ReasoningEffort))
	}
	for _, entry := range arguments.Entries() {
		variables.Set(entry.Key.Str(), entry.Value)
	}
	if known {
		variables.Set("thinking", chattemplate.Bool(thinking))
		variables.Set("enable_thinking", chattemplate.Bool(thinking))
		if mode, _ := arguments.Get("thinking_mode"); chosen.thinkingMode && !strings.EqualFold(mode.Str(), "adaptive") {
			variables.Set("thinking_mode", chattemplate.String(map[bool]string{true: "enabled", false: "disabled"}[thinking]))
		}
	}
	return nil
}

// thinkingSwitch reads the argument that switches thinking, whatever it is called.
func thinkingSwitch(arguments chattemplate.Value) (on, known bool) {
	for _, name := range []string{"thinking", "enable_thinking", "thinking_mode"} {
		value, ok := arguments.Get(name)
		if !ok {
			continue
		}
		switch value.Kind() {
		case chattemplate.KindBool:
			return value.IsTrue(), true
		case chattemplate.KindInt, chattemplate.KindFloat:
			return value.Truthy(), true
		case chattemplate.KindString:
			switch strings.ToLower(value.Str()) {
			case "true", "1", "yes", "on", "enabled":
				return true, true
			case "false", "0", "no", "off", "disabled":
				return false, true
			}
		}
	}
	return false, false
}
