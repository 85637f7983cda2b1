package prompt

import (
	"errors"
	"strings"

	"signalbox/preprocess/chattemplate"
)

var errArgumentsKind = errors.New("want an object of names and values")

// Family is what the names of a model's output parsers tell about how its thinking is switched.
type Family uint8

const (
	// Ordinary models are told and do as they are told.
	Ordinary Family = iota
	// KimiK25 and KimiK3 models think unless they are told not to.
	KimiK25
	// KimiK3 models do not think before a call of a function that the client named.
	KimiK3
	// MiniMaxM3 models read thinking_mode, and do not think before constrained output unless the client asks for it.
	MiniMaxM3
)

// FamilyOf returns the family that the parsers' names, "" where there is none, tell of.
func FamilyOf(toolParser, reasoningParser string) Family {
	reasoning := strings.ReplaceAll(reasoningParser, "-", "_")
	tool := strings.ReplaceAll(toolParser, "-", "_")
	switch {
	case reasoning == "minimax_m3" || tool == "minimax_m3" || tool == "minimax_m3_nom":
		return MiniMaxM3
	case reasoning == "kimi_k3" || tool == "kimi_k3":
		return KimiK3
	case reasoning == "kimi_k25":
		return KimiK25
	}
	return Ordinary
}

// adjust brings the arguments into the family's own words. asked tells whether the client said anything about thinking.
func (f Family) adjust(a *arguments, request Request, asked bool) {
	on, known := a.spelledOut()
	if !known && (f == KimiK25 || f == KimiK3) {
		on, known = true, true
	}
	mode := a.get(thinkingModeKey)
	switch {
	case f == MiniMaxM3 && !asked && request.Constrained:
		a.switchThinking(false)
	case known:
		a.set(thinkingKey, chattemplate.Bool(on))
		a.set(enableThinkingKey, chattemplate.Bool(on))
		if f == MiniMaxM3 && !strings.EqualFold(mode.Str(), "adaptive") {
			a.switchThinking(on)
		}
	}
	if f == KimiK3 && request.NamedTool {
		a.set(thinkingKey, chattemplate.False)
		a.set(enableThinkingKey, chattemplate.False)
	}
}

// spelledOut reads a switch that is given as a truth value, a number or a word. Modes with a meaning of their own, such as
// adaptive or chat, say nothing here.
func (a *arguments) spelledOut() (on, known bool) {
	for _, key := range [...]string{thinkingKey, enableThinkingKey, thinkingModeKey} {
		switch value := a.get(key); value.Kind() {
		case chattemplate.KindBool:
			return value.IsTrue(), true
		case chattemplate.KindInt, chattemplate.KindFloat:
			return value.Truthy(), true
		case chattemplate.KindString:
			on, known := truthOf(value.Str())
			if key != thinkingModeKey {
				return on, true
			}
			return on, known
		}
	}
	return false, false
}

func truthOf(word string) (on, known bool) {
	switch strings.ToLower(strings.TrimSpace(word)) {
	case "true", "1", "yes", "on":
		return true, true
	case "false", "0", "no", "off":
		return false, true
	}
	return false, false
}
