package observe

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"signalbox/inference"
	"signalbox/router"
)

// Attribute is one fact about a span.
type Attribute struct{ Key, Value string }

// Span is a piece of work that takes time. Its methods are safe for use by many goroutines.
type Span interface {
	// Set adds facts.
	Set(attributes ...Attribute)
	// Event notes that something happened.
	Event(name string)
	// End closes the span; a failure is noted with it. Only the first call counts.
	End(failure error)
}

// Tracer makes spans. package otlp has one that exports them.
type Tracer interface {
	// Serve begins the span of a request that came in with the headers; the context carries it to the spans below.
	Serve(ctx context.Context, h http.Header, name string, attributes ...Attribute) (context.Context, Span)
	// Start begins a span below the context's.
	Start(ctx context.Context, name string, attributes ...Attribute) (context.Context, Span)
	// Headers returns the context's span as W3C headers.
	Headers(ctx context.Context) (traceParent, traceState string)
}

// Traced returns the handler with a span around every request. Handlers find the span in the request's traceparent header, from where
// it goes to workers.
func Traced(tracer Tracer, handler http.Handler) http.Handler {
	if tracer == nil {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Serve(r.Context(), r.Header, "http-request", Attribute{"http.request.method", r.Method}, Attribute{"url.path", r.URL.Path})
		if id := r.Header.Get("X-Request-Id"); id != "" {
			span.Set(Attribute{"x_request_id", id})
		}
		r = r.Clone(ctx)
		parent, state := tracer.Headers(ctx)
		r.Header.Set("Traceparent", parent)
		if state != "" {
			r.Header.Set("Tracestate", state)
		}
		answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			span.Set(Attribute{"http.response.status_code", strconv.Itoa(answer.status)})
			span.End(nil)
		}()
		handler.ServeHTTP(answer, r)
	})
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach what the writer can do.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TracedRouter returns the router with a span around every placement; the router itself without a tracer.
func TracedRouter(tracer Tracer, inner router.Router) router.Router {
	if tracer == nil {
		return inner
	}
	return &tracedRouter{inner, tracer}
}

type tracedRouter struct {
	router.Router
	tracer Tracer
}

// Place implements router.Router.
func (t *tracedRouter) Place(ctx context.Context, r *inference.Request, attempt router.Attempt) (*router.Placement, error) {
	// Not the span's context: a placement may outlive it.
	_, span := t.tracer.Start(ctx, "router.route_request", Attribute{"request_id", r.ID}, Attribute{"model", r.Model}, Attribute{"phase", attempt.Phase.String()},
		Attribute{"input_tokens", strconv.Itoa(len(r.TokenIDs))})
	placement, err := t.Router.Place(ctx, r, attempt)
	if err == nil {
		span.Set(Attribute{"worker_id", strconv.FormatUint(placement.WorkerID, 10)}, Attribute{"cached_tokens", strconv.Itoa(placement.CachedTokens)})
	}
	span.End(err)
	return placement, err
}

// TracedSender returns the sender with a span around every request to a worker, which is the worker's parent.
func TracedSender(tracer Tracer, inner inference.Sender) inference.Sender {
	if tracer == nil {
		return inner
	}
	return &tracedSender{inner, tracer}
}

type tracedSender struct {
	inner  inference.Sender
	tracer Tracer
}

// Send implements inference.Sender.
func (t *tracedSender) Send(ctx context.Context, target inference.Target, r *inference.Request) (inference.Stream, error) {
	spanContext, span := t.tracer.Start(ctx, "worker.request", Attribute{"request_id", r.ID}, Attribute{"model", r.Model},
		Attribute{"worker_id", strconv.FormatUint(target.WorkerID, 10)})
	sent := *r
	sent.TraceParent, sent.TraceState = t.tracer.Headers(spanContext)
	stream, err := t.inner.Send(ctx, target, &sent)
	if err != nil {
		span.End(err)
		return nil, err
	}
	return &tracedStream{Stream: stream, span: span}, nil
}

// tracedStream ends its span with the answer.
type tracedStream struct {
	inference.Stream
	span     Span
	answered bool
}

// Next implements inference.Stream.
func (t *tracedStream) Next(ctx context.Context) (*inference.Output, error) {
	item, err := t.Stream.Next(ctx)
	switch {
	case err != nil:
		t.span.End(cause(err))
	case !t.answered:
		t.answered = true
		t.span.Event("first item")
	}
	return item, err
}

// Close implements inference.Stream.
func (t *tracedStream) Close() error {
	err := t.Stream.Close()
	t.span.End(nil)
	return err
}

// cause is the failure that an error tells of; nil for a clean end.
func cause(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
