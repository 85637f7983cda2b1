package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdk "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
)

// Logs exports log lines.
type Logs struct{ provider *sdk.LoggerProvider }

// LogsFromEnvironment returns an exporter of logs when OTEL_EXPORT_ENABLED asks for one, else nil. It reads the same variables as
// [FromEnvironment], with LOGS in place of TRACES.
func LogsFromEnvironment(ctx context.Context, get func(string) string, truthy func(string) bool) (*Logs, error) {
	if !truthy(get("OTEL_EXPORT_ENABLED")) {
		return nil, nil
	}
	target, err := targetOf(get, "LOGS", "/v1/logs")
	if err != nil {
		return nil, err
	}
	var exporter sdk.Exporter // it connects when there is something to send
	if target.HTTP {
		exporter, err = otlploghttp.New(ctx, otlploghttp.WithEndpointURL(target.URL))
	} else {
		exporter, err = otlploggrpc.New(ctx, otlploggrpc.WithEndpointURL(target.URL))
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT %s: %w", target.URL, err)
	}
	return &Logs{sdk.NewLoggerProvider(sdk.WithProcessor(sdk.NewBatchProcessor(exporter)),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", service(get)))))}, nil
}

// Close sends what is waiting.
func (l *Logs) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return errors.Join(l.provider.ForceFlush(ctx), l.provider.Shutdown(ctx))
}

// Beside returns a logger that writes what the local one writes, and exports it. Lines never wait for the collector: what it does not
// take in time is lost.
func (l *Logs) Beside(local *slog.Logger) *slog.Logger {
	if l == nil {
		return local
	}
	return slog.New(&handler{local: local.Handler(), out: l.provider.Logger("signalbox")})
}

// handler gives lines to a local handler and exports them. The local one's level counts for both.
type handler struct {
	local  slog.Handler
	out    log.Logger
	prefix string
	fixed  []attribute.KeyValue
	trace  trace.TraceID // of the fixed attributes
}

// traceKey is the attribute that names the trace that a line belongs to.
const traceKey = "trace_id"

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.local.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, line slog.Record) error {
	var record log.Record
	record.SetTimestamp(line.Time)
	record.SetObservedTimestamp(time.Now())
	record.SetBody(attribute.StringValue(line.Message))
	record.SetSeverity(severity(line.Level))
	record.SetSeverityText(severityText(line.Level))
	record.AddAttributes(h.fixed...)
	id := h.trace
	line.Attrs(func(a slog.Attr) bool {
		record.AddAttributes(appendAttribute(nil, h.prefix, a, &id)...)
		return true
	})
	if id.IsValid() && !trace.SpanContextFromContext(ctx).HasTraceID() {
		ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id}))
	}
	h.out.Emit(ctx, record)
	return h.local.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attributes []slog.Attr) slog.Handler {
	next := *h
	next.local = h.local.WithAttrs(attributes)
	next.fixed = append([]attribute.KeyValue{}, h.fixed...)
	for _, a := range attributes {
		next.fixed = appendAttribute(next.fixed, h.prefix, a, &next.trace)
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	next := *h
	next.local = h.local.WithGroup(name)
	if name != "" {
		next.prefix += name + "."
	}
	return &next
}

// appendAttribute appends an attribute as the protocol has it, groups by their members. A trace's id is noted as well.
func appendAttribute(list []attribute.KeyValue, prefix string, a slog.Attr, id *trace.TraceID) []attribute.KeyValue {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			list = appendAttribute(list, prefix, member, id)
		}
		return list
	}
	if a.Key == "" {
		return list
	}
	if prefix == "" && a.Key == traceKey {
		if parsed, err := trace.TraceIDFromHex(value.String()); err == nil {
			*id = parsed
		}
	}
	var converted attribute.Value
	switch value.Kind() {
	case slog.KindBool:
		converted = attribute.BoolValue(value.Bool())
	case slog.KindInt64:
		converted = attribute.Int64Value(value.Int64())
	case slog.KindFloat64:
		converted = attribute.Float64Value(value.Float64())
	default:
		converted = attribute.StringValue(value.String()) // large numbers, times and durations as on the console
	}
	return append(list, attribute.KeyValue{Key: attribute.Key(prefix + a.Key), Value: converted})
}

func severity(level slog.Level) log.Severity {
	switch {
	case level >= slog.LevelError:
		return log.SeverityError
	case level >= slog.LevelWarn:
		return log.SeverityWarn
	case level >= slog.LevelInfo:
		return log.SeverityInfo
	case level >= slog.LevelDebug:
		return log.SeverityDebug
	}
	return log.SeverityTrace
}

func severityText(level slog.Level) string {
	if level < slog.LevelDebug {
		return "TRACE"
	}
	return level.String()
}

// complaintPeriod is how often a collector that does not answer is spoken of.
const complaintPeriod = time.Minute

// Report lets the logger know what cannot be exported, at most once a minute. It must not be one that exports.
func Report(local *slog.Logger) {
	var mutex sync.Mutex
	var last time.Time
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		mutex.Lock()
		defer mutex.Unlock()
		if now := time.Now(); last.IsZero() || now.Sub(last) >= complaintPeriod {
			last = now
			local.Warn("telemetry cannot be exported; further failures are left out for a minute", "error", err)
		}
	}))
}
