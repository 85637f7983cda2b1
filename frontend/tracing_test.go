package frontend

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"signalbox/inference"
	"signalbox/observe/otlp"
	"signalbox/worker/sim"
)

// parents notes the trace headers that workers get.
type parents struct {
	inference.Sender
	mu   sync.Mutex
	seen []string
}

func (p *parents) Send(ctx context.Context, target inference.Target, r *inference.Request) (inference.Stream, error) {
	p.mu.Lock()
	p.seen = append(p.seen, r.TraceParent)
	p.mu.Unlock()
	return p.Sender.Send(ctx, target, r)
}

// TestSpansLeadFromTheClientToTheWorker follows one trace: the client's span is the parent of the request's, that one of the placement's
// and the worker's, and the worker's is what the worker itself is told. The log names the trace and the request, and not the prompt.
func TestSpansLeadFromTheClientToTheWorker(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := otlp.New(recorder, "test", 1)
	var log logs
	f := start(t, func(o *Options) {
		o.Tracer = tracer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	config := sim.DefaultConfig()
	config.BlockSize, config.SpeedupRatio, config.Vocabulary = 4, 0, [2]uint32{'a', 'z' + 1}
	engine, err := sim.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	worker := &parents{Sender: engine}
	f.addWorker(worker)
	f.waitReady(1)
	const trace, client = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	request, err := http.NewRequest("POST", "http://"+f.frontend.Address()+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(chatBody, `,"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-"+trace+"-"+client+"-01")
	request.Header.Set("X-Request-Id", "mine")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if !strings.Contains(string(text), "[DONE]") {
		t.Fatalf("answer %s", text)
	}
	waitFor(t, func() bool { return len(recorder.Ended()) == 3 })
	spans := make(map[string]sdk.ReadOnlySpan)
	for _, span := range recorder.Ended() {
		spans[span.Name()] = span
		if span.SpanContext().TraceID().String() != trace {
			t.Errorf("span %s belongs to another trace", span.Name())
		}
	}
	served, route, sent := spans["http-request"], spans["router.route_request"], spans["worker.request"]
	if served.Parent().SpanID().String() != client || route.Parent().SpanID() != served.SpanContext().SpanID() || sent.Parent().SpanID() != served.SpanContext().SpanID() {
		t.Errorf("the spans hang together wrongly")
	}
	if want := "00-" + trace + "-" + sent.SpanContext().SpanID().String() + "-01"; len(worker.seen) != 1 || worker.seen[0] != want {
		t.Errorf("the worker was told %v, want %s", worker.seen, want)
	}
	if facts := fmt.Sprint(served.Attributes()); !strings.Contains(facts, "200") || !strings.Contains(facts, "mine") || !strings.Contains(facts, "/v1/chat/completions") {
		t.Errorf("facts of the request's span: %s", facts)
	}
	if events := sent.Events(); len(events) != 1 || events[0].Name != "first item" {
		t.Errorf("events of the worker's span: %v", events)
	}
	waitFor(t, func() bool { return strings.Contains(log.all(), "msg=request") })
	line := log.all()
	for _, want := range []string{"trace_id=" + trace, "x_request_id=mine", "request_id=", "endpoint=chat_completions", "completion_tokens=5"} {
		if !strings.Contains(line, want) {
			t.Errorf("the log lacks %s: %s", want, line)
		}
	}
	if strings.Contains(line, "hello there") || strings.Count(line, "msg=request") != 1 {
		t.Errorf("the log: %s", line)
	}
}

// TestMistakesOfClientsAreNoErrors: the log shows them at info level.
func TestMistakesOfClientsAreNoErrors(t *testing.T) {
	var log logs
	f := start(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	f.engine(nil)
	f.waitReady(1)
	for _, body := range []string{`{`, `{"model":"m"}`, `{"model":"nope","messages":[{"role":"user","content":"x"}]}`, `{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":9}`} {
		f.post("/v1/chat/completions", body)
	}
	waitFor(t, func() bool { return strings.Count(log.all(), "msg=request") == 3 }) // what is no JSON is no request
	if text := log.all(); strings.Contains(text, "level=ERROR") || strings.Contains(text, "level=WARN") {
		t.Errorf("the log: %s", text)
	}
}

// TestRequestsOfOthersTracesAreLeftOut: a client that does not sample is not sampled.
func TestRequestsOfOthersTracesAreLeftOut(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	f := start(t, func(o *Options) { o.Tracer = otlp.New(recorder, "test", 1) })
	f.engine(nil)
	f.waitReady(1)
	request, _ := http.NewRequest("POST", "http://"+f.frontend.Address()+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(chatBody, "")))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if spans := recorder.Ended(); response.StatusCode != 200 || len(spans) != 0 {
		t.Errorf("status %d, %d spans", response.StatusCode, len(spans))
	}
}

// all returns everything that was logged.
func (l *logs) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
