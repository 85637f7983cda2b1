// Package otlp exports spans and logs by the OpenTelemetry protocol, over gRPC or as protobuf over HTTP, as the variables of
// OpenTelemetry say.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"signalbox/observe"
)

// defaultService is the name that the spans of the whole fleet carry.
const defaultService = "dynamo"

// Tracer makes and exports spans. It is safe for use by many goroutines.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	format   propagation.TextMapPropagator
}

var _ observe.Tracer = (*Tracer)(nil)

// FromEnvironment returns a tracer when OTEL_EXPORT_ENABLED asks for one, else nil. It reads the variables of [Target] for TRACES,
// OTEL_SERVICE_NAME and OTEL_TRACES_SAMPLE_RATIO; headers, certificates, compression, time-outs and queues have the variables of
// OpenTelemetry's own library.
func FromEnvironment(ctx context.Context, get func(string) string, truthy func(string) bool) (*Tracer, error) {
	if !truthy(get("OTEL_EXPORT_ENABLED")) {
		return nil, nil
	}
	ratio := 1.0
	if text := get("OTEL_TRACES_SAMPLE_RATIO"); text != "" {
		var err error
		if ratio, err = strconv.ParseFloat(text, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLE_RATIO is %q: a number from 0 to 1 is needed", text)
		}
	}
	target, err := targetOf(get, "TRACES", "/v1/traces")
	if err != nil {
		return nil, err
	}
	var exporter sdk.SpanExporter // it connects when there is something to send
	if target.HTTP {
		exporter, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(target.URL))
	} else {
		exporter, err = otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(target.URL))
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT %s: %w", target.URL, err)
	}
	return New(sdk.NewBatchSpanProcessor(exporter), service(get), ratio), nil
}

func service(get func(string) string) string {
	if name := get("OTEL_SERVICE_NAME"); name != "" {
		return name
	}
	return defaultService
}

// New returns a tracer that gives its spans to the processor. ratio is the part of requests that is traced; a request that comes with
// a span is traced when that one is.
func New(processor sdk.SpanProcessor, service string, ratio float64) *Tracer {
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(processor), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(ratio))),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", service))))
	return &Tracer{provider: provider, tracer: provider.Tracer("signalbox"), format: propagation.TraceContext{}}
}

// Close sends what is waiting.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return errors.Join(t.provider.ForceFlush(ctx), t.provider.Shutdown(ctx))
}

// Serve implements observe.Tracer.
func (t *Tracer) Serve(ctx context.Context, h http.Header, name string, attributes ...observe.Attribute) (context.Context, observe.Span) {
	ctx = t.format.Extract(ctx, propagation.HeaderCarrier(h))
	ctx, inner := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(convert(attributes)...))
	return ctx, &span{Span: inner}
}

// Start implements observe.Tracer.
func (t *Tracer) Start(ctx context.Context, name string, attributes ...observe.Attribute) (context.Context, observe.Span) {
	ctx, inner := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(convert(attributes)...))
	return ctx, &span{Span: inner}
}

// Headers implements observe.Tracer.
func (t *Tracer) Headers(ctx context.Context) (traceParent, traceState string) {
	carrier := propagation.HeaderCarrier{}
	t.format.Inject(ctx, carrier)
	return carrier.Get("traceparent"), carrier.Get("tracestate")
}

func convert(attributes []observe.Attribute) []attribute.KeyValue {
	list := make([]attribute.KeyValue, len(attributes))
	for i, a := range attributes {
		list[i] = attribute.String(a.Key, a.Value)
	}
	return list
}

// span shows an OpenTelemetry span.
type span struct {
	trace.Span
	once sync.Once
}

// Set implements observe.Span.
func (s *span) Set(attributes ...observe.Attribute) { s.SetAttributes(convert(attributes)...) }

// Event implements observe.Span.
func (s *span) Event(name string) { s.AddEvent(name) }

// End implements observe.Span.
func (s *span) End(failure error) {
	s.once.Do(func() {
		if failure != nil {
			s.SetStatus(codes.Error, failure.Error())
		}
		s.Span.End()
	})
}
