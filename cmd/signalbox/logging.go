package main

import (
	"log/slog"
	"os"
	"strings"
)

// newLogger writes to standard error, at the level that the text names; a filter such as "info,other=debug" counts by its
// first word.
func newLogger(level string, asJSON bool) *slog.Logger {
	word, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(level)), ",")
	levels := map[string]slog.Level{"error": slog.LevelError, "warn": slog.LevelWarn, "warning": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug, "trace": slog.LevelDebug - 4}
	chosen, ok := levels[word]
	if !ok {
		chosen = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: chosen}
	if asJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}
