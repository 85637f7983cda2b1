package postprocess

import "strings"

// Thinking is what a request wants of the model's reasoning, after its several ways of saying so are made to agree.
type Thinking struct {
	// On is the switch; nil when nothing was said.
	On *bool
	// Mode is the template argument thinking_mode, "" when absent.
	Mode string
	// Effort is the reasoning effort, "" when absent.
	Effort string
}

// off tells whether a parser must leave the text alone because the request switched reasoning off, or did not switch it on where
// that is needed.
func (t Thinking) off(parser string) bool {
	no := t.On != nil && !*t.On
	yes := t.On != nil && *t.On
	switch strings.ToLower(parser) {
	case "kimi_k25", "kimi_k3", "kimi-k3", "nemotron_nano", "nemotron3", "nemotron_v3":
		return no
	case "deepseek_v3", "deepseek_v3_1":
		return !yes && (t.On != nil || t.Mode != "thinking")
	case "deepseek_r1", "deepseek_v3_2", "deepseek_v4", "deepseek-v4", "deepseekv4", "deepseek_v41", "minimax_m2":
		return no || t.On == nil && t.Mode == "chat"
	case "gemma4", "gemma-4":
		return !yes
	case "mistral":
		return t.Effort == "" || t.Effort == "none"
	case "minimax_m3", "minimax-m3":
		return t.Mode == "disabled"
	}
	return false
}
