package frontend

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"signalbox/inference"
	"signalbox/observe"
	"signalbox/router"
)

// logRequest writes one line per request at its end. A client's mistake is no error of ours.
func logRequest(logger *slog.Logger) func(observe.Summary) {
	return func(s observe.Summary) {
		level := slog.LevelInfo
		if s.Status >= 500 && s.ErrorType == "internal" {
			level = slog.LevelError
		}
		if !logger.Enabled(context.Background(), level) {
			return
		}
		attributes := []slog.Attr{
			slog.String("request_id", s.RequestID), slog.String("endpoint", s.Endpoint), slog.String("model", s.Model), slog.Bool("stream", s.Streaming),
			slog.Int("status", s.Status), slog.Duration("took", s.Duration),
			slog.Int("prompt_tokens", s.Usage.PromptTokens), slog.Int("completion_tokens", s.Usage.CompletionTokens),
		}
		if s.ClientID != "" {
			attributes = append(attributes, slog.String("x_request_id", s.ClientID))
		}
		if parts := strings.Split(s.TraceParent, "-"); len(parts) == 4 { // version, trace, span, flags
			attributes = append(attributes, slog.String("trace_id", parts[1]))
		}
		if s.TTFT > 0 {
			attributes = append(attributes, slog.Duration("ttft", s.TTFT))
		}
		if s.ErrorType != "" {
			attributes = append(attributes, slog.String("error_type", s.ErrorType), slog.Any("error", s.Err))
		}
		logger.LogAttrs(context.Background(), level, "request", attributes...)
	}
}

// logStep writes one line per step of preparing a prompt.
func logStep(logger *slog.Logger) func(step string, took time.Duration, tokens int) {
	return func(step string, took time.Duration, tokens int) {
		logger.Info("perf", "step", step, "took", took, "tokens", tokens)
	}
}

// logDecision writes one line per placement, for an operator who wants to know why a request went where it did. The line's last
// attribute is what "signalbox explain" reads.
func logDecision(logger *slog.Logger) func(*inference.Request, *router.Decision) {
	return func(request *inference.Request, d *router.Decision) {
		if !logger.Enabled(context.Background(), slog.LevelDebug) {
			return
		}
		text, err := json.Marshal(d)
		if err != nil {
			return // a cost that is no number: nothing that JSON can show
		}
		attributes := []slog.Attr{slog.String("request_id", request.ID), slog.String("model", request.Model), slog.String("reason", d.Reason)}
		if d.Winner >= 0 && d.Winner < len(d.Candidates) {
			winner := &d.Candidates[d.Winner]
			attributes = append(attributes, slog.Uint64("worker_id", winner.WorkerID), slog.Uint64("dp_rank", uint64(winner.Rank)), slog.Float64("cost", winner.Cost))
		}
		logger.LogAttrs(context.Background(), slog.LevelDebug, "decision", append(attributes, slog.String("decision", string(text)))...)
	}
}
