package main

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
)

// levelTrace is below debug: what every step does.
const levelTrace = slog.LevelDebug - 4

var levels = map[string]slog.Level{"error": slog.LevelError, "warn": slog.LevelWarn, "warning": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug,
	"trace": levelTrace, "off": slog.LevelError + 100}

// newLogger writes to standard error, at the level that the text names.
func newLogger(level string, asJSON bool) *slog.Logger {
	switch format := strings.ToLower(strings.TrimSpace(os.Getenv("DYN_LOGGING_CONSOLE_FORMAT"))); format {
	case "jsonl":
		asJSON = true
	case "readable":
		asJSON = false
	}
	return loggerTo(os.Stderr, level, asJSON, truthy(os.Getenv("DYN_LOG_USE_LOCAL_TZ")))
}

// loggerTo writes lines of text, or of JSON whose members are named as in the logs of the fleet's other members: time, level, message.
func loggerTo(w io.Writer, level string, asJSON, local bool) *slog.Logger {
	options := &slog.HandlerOptions{Level: logLevel(level), ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 {
			return a
		}
		switch a.Key {
		case slog.TimeKey:
			if at, ok := a.Value.Any().(time.Time); ok && !local {
				a.Value = slog.TimeValue(at.UTC())
			}
		case slog.LevelKey:
			if at, ok := a.Value.Any().(slog.Level); ok && at == levelTrace {
				a.Value = slog.StringValue("TRACE")
			}
		case slog.MessageKey:
			if asJSON {
				a.Key = "message"
			}
		}
		if took := a.Value; took.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(took.Duration().String()) // with its unit, in JSON too
		}
		return a
	}}
	if asJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// logLevel reads a filter such as "info,other=debug": the word without a target counts, wherever it stands. Targets are modules of the
// fleet's other members; they say nothing here.
func logLevel(filter string) slog.Level {
	for word := range strings.SplitSeq(strings.ToLower(filter), ",") {
		if level, ok := levels[strings.TrimSpace(word)]; ok {
			return level
		}
	}
	return slog.LevelInfo
}
