package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

func TestLogLevelsAreReadFromFilters(t *testing.T) {
	for filter, want := range map[string]slog.Level{"": slog.LevelInfo, "debug": slog.LevelDebug, "WARN": slog.LevelWarn, "tower=error,trace": levelTrace,
		"error,dynamo_llm=debug": slog.LevelError, "dynamo_llm=debug": slog.LevelInfo, "nonsense": slog.LevelInfo} {
		if got := logLevel(filter); got != want {
			t.Errorf("%q: %v, want %v", filter, got, want)
		}
	}
}

func TestLogLinesOfJSON(t *testing.T) {
	var out bytes.Buffer
	logger := loggerTo(&out, "trace", true, false)
	logger.Log(t.Context(), levelTrace, "a step", "request_id", "x")
	var line map[string]string
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["level"] != "TRACE" || line["message"] != "a step" || line["request_id"] != "x" || !strings.HasSuffix(line["time"], "Z") {
		t.Errorf("line %s", out.String())
	}
	out.Reset()
	if loggerTo(&out, "warn", false, false).Info("hidden"); out.Len() > 0 {
		t.Errorf("shown: %s", out.String())
	}
}
