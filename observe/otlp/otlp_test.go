package otlp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"signalbox/observe"
)

func truthy(text string) bool { return text == "1" }

var unavailable = status.Error(codes.Unavailable, "not now")

func from(environment map[string]string) func(string) string {
	return func(key string) string { return environment[key] }
}

func TestTheEnvironmentSaysWhatIsExported(t *testing.T) {
	for name, test := range map[string]struct {
		environment map[string]string
		made        bool
		want        string
	}{
		"off":           {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, false, ""},
		"on":            {map[string]string{"OTEL_EXPORT_ENABLED": "1"}, true, ""},
		"endpoint":      {map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_SAMPLE_RATIO": "0.5"}, true, ""},
		"over HTTP":     {map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": "HTTP/protobuf"}, true, ""},
		"protocol":      {map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, false, `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json": grpc or http/protobuf`},
		"not a URL":     {map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, false, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		"ratio":         {map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_TRACES_SAMPLE_RATIO": "2"}, false, "from 0 to 1"},
		"ratio, no one": {map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_TRACES_SAMPLE_RATIO": "NaN"}, false, "from 0 to 1"},
	} {
		tracer, err := FromEnvironment(t.Context(), from(test.environment), truthy)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || (tracer != nil) != test.made {
			t.Errorf("%s: %v, %v", name, tracer, err)
		}
		if tracer != nil {
			if err := tracer.Close(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestTargets(t *testing.T) {
	for _, test := range []struct {
		environment map[string]string
		want        target
	}{
		{nil, target{"http://localhost:4317", false}},
		{map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, target{"http://localhost:4318/v1/logs", true}},
		{map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/base/"}, target{"https://c/base/v1/logs", true}},
		{map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "https://c/mine", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://other"}, target{"https://c/mine", true}},
		{map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1"}, target{"http://c:1", false}},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:1"}, target{"http://localhost:4317", false}},
	} {
		if got, err := targetOf(from(test.environment), "LOGS", "/v1/logs"); err != nil || got != test.want {
			t.Errorf("%v: %+v, %v; want %+v", test.environment, got, err, test.want)
		}
	}
}

const (
	caller  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callers = "00-" + caller + "-00f067aa0ba902b7-01"
)

// Spans and logs arrive as they were, over both protocols, with the headers that the environment asks for, and a refusal is tried again.
func TestWhatArrivesAtACollector(t *testing.T) {
	for protocol, open := range map[string]func(*testing.T) *collector{"grpc": overGRPC, "http/protobuf": overHTTP} {
		t.Run(protocol, func(t *testing.T) {
			c := open(t)
			c.refuse = 1
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
			environment := from(map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_ENDPOINT": c.url, "OTEL_SERVICE_NAME": "door"})
			tracer, err := FromEnvironment(t.Context(), environment, truthy)
			if err != nil {
				t.Fatal(err)
			}
			logs, err := LogsFromEnvironment(t.Context(), environment, truthy)
			if err != nil {
				t.Fatal(err)
			}
			ctx, request := tracer.Serve(t.Context(), http.Header{"Traceparent": {callers}}, "http-request", observe.Attribute{Key: "url.path", Value: "/v1/x"})
			_, worker := tracer.Start(ctx, "worker.request", observe.Attribute{Key: "worker_id", Value: "7"})
			worker.Event("first item")
			worker.End(errors.New("it broke"))
			request.End(nil)

			var console bytes.Buffer
			logger := logs.Beside(slog.New(slog.NewTextHandler(&console, &slog.HandlerOptions{Level: slog.LevelInfo})))
			logger.Debug("below the level")
			logger.With("model", "m").WithGroup("g").Warn("request", "tokens", 5, "took", time.Second, "ok", true)
			logger.Error("failed", "trace_id", caller)
			if err := errors.Join(tracer.Close(t.Context()), logs.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			slices.Sort(c.paths)
			if want := map[string][]string{"grpc": {"logs", "traces"}, "http/protobuf": {"/v1/logs", "/v1/traces"}}[protocol]; !slices.Equal(c.paths, want) || c.tried != 3 {
				t.Errorf("taken %q in %d tries, want %q in 3", c.paths, c.tried, want)
			}
			if !slices.Equal(c.headers, []string{"blue", "blue"}) {
				t.Errorf("headers %q", c.headers)
			}
			c.checkSpans(t)
			c.checkLogs(t)
			if text := console.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "g.tokens=5") {
				t.Errorf("the console shows %q", text)
			}
		})
	}
}

func (c *collector) checkSpans(t *testing.T) {
	if len(c.spans) != 1 || texts(c.spans[0].GetResource().GetAttributes())["service.name"] != "door" {
		t.Fatalf("resources %v", c.spans)
	}
	spans := c.spans[0].GetScopeSpans()[0].GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	worker, request := spans[0], spans[1] // in the order of their ends
	if request.GetName() != "http-request" || hex.EncodeToString(request.GetTraceId()) != caller || hex.EncodeToString(request.GetParentSpanId()) != "00f067aa0ba902b7" ||
		texts(request.GetAttributes())["url.path"] != "/v1/x" {
		t.Errorf("the request's span: %v", request)
	}
	if worker.GetName() != "worker.request" || !bytes.Equal(worker.GetParentSpanId(), request.GetSpanId()) || worker.GetStatus().GetMessage() != "it broke" ||
		len(worker.GetEvents()) != 1 || texts(worker.GetAttributes())["worker_id"] != "7" {
		t.Errorf("the worker's span: %v", worker)
	}
}

func (c *collector) checkLogs(t *testing.T) {
	if len(c.logs) != 1 || texts(c.logs[0].GetResource().GetAttributes())["service.name"] != "door" {
		t.Fatalf("resources %v", c.logs)
	}
	lines := c.logs[0].GetScopeLogs()[0].GetLogRecords()
	if len(lines) != 2 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	warning, failure := lines[0], lines[1]
	got := texts(warning.GetAttributes())
	if warning.GetBody().GetStringValue() != "request" || warning.GetSeverityText() != "WARN" || warning.GetSeverityNumber() != 13 || warning.GetTimeUnixNano() == 0 ||
		got["model"] != "m" || got["g.tokens"] != "int_value:5" || got["g.took"] != "1s" || got["g.ok"] != "bool_value:true" {
		t.Errorf("%v", warning)
	}
	if failure.GetSeverityNumber() != 17 || hex.EncodeToString(failure.GetTraceId()) != caller {
		t.Errorf("%v", failure)
	}
}

// A collector that is away keeps nobody: lines are written, and the end comes in its time.
func TestACollectorThatIsAway(t *testing.T) {
	logs, err := LogsFromEnvironment(t.Context(), from(map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}), truthy)
	if err != nil {
		t.Fatal(err)
	}
	var console bytes.Buffer
	logger := logs.Beside(slog.New(slog.NewTextHandler(&console, nil)))
	for range 5000 { // more than wait for the collector
		logger.Info("line")
	}
	if lines := strings.Count(console.String(), "\n"); lines != 5000 {
		t.Errorf("%d lines on the console", lines)
	}
	var complaints bytes.Buffer
	Report(slog.New(slog.NewTextHandler(&complaints, nil)))
	if err := logs.Close(t.Context()); err == nil {
		t.Error("nobody took the lines, and nobody says so")
	}
	if text := complaints.String(); strings.Count(text, "\n") > 1 {
		t.Errorf("more than one complaint at once: %q", text)
	}
}
