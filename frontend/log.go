package frontend

import (
	"log/slog"

	"signalbox/observe"
)

// logRequest writes one line per request at its end. A client's mistake is no error of ours.
func logRequest(logger *slog.Logger) func(observe.Summary) {
	return func(s observe.Summary) {
		level := slog.LevelInfo
		if s.Status >= 500 && s.ErrorType == "internal" {
			level = slog.LevelError
		}
		if !logger.Enabled(nil, level) {
			return
		}
		attributes := []slog.Attr{
			slog.String("endpoint", s.Endpoint), slog.String("model", s.Model), slog.Bool("stream", s.Streaming),
			slog.Int("status", s.Status), slog.Duration("took", s.Duration),
			slog.Int("prompt_tokens", s.Usage.PromptTokens), slog.Int("completion_tokens", s.Usage.CompletionTokens),
		}
		if s.TTFT > 0 {
			attributes = append(attributes, slog.Duration("ttft", s.TTFT))
		}
		if s.ErrorType != "" {
			attributes = append(attributes, slog.String("error_type", s.ErrorType), slog.Any("error", s.Err))
		}
		logger.LogAttrs(nil, level, "request", attributes...)
	}
}
