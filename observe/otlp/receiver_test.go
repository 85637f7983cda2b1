package otlp

import (
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collectlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	tracesv1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// collector is a receiver of the OpenTelemetry protocol, over gRPC and over HTTP, on loopback. It is written with the protocol's own
// types and stands in for an OpenTelemetry collector: it takes what comes, and stores nothing.
type collector struct {
	collecttraces.UnimplementedTraceServiceServer
	url string

	mu      sync.Mutex
	refuse  int // how many requests are refused first
	tried   int
	paths   []string
	headers []string // what came as x-tenant
	spans   []*tracesv1.ResourceSpans
	logs    []*logsv1.ResourceLogs
}

// note takes a request, unless it is one to refuse.
func (c *collector) note(path, tenant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried++
	if c.refuse > 0 {
		c.refuse--
		return false
	}
	c.paths, c.headers = append(c.paths, path), append(c.headers, tenant)
	return true
}

func (c *collector) keep(traces *collecttraces.ExportTraceServiceRequest, logs *collectlogs.ExportLogsServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans, c.logs = append(c.spans, traces.GetResourceSpans()...), append(c.logs, logs.GetResourceLogs()...)
}

// overHTTP serves protobuf over HTTP.
func overHTTP(t *testing.T) *collector {
	c := &collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-protobuf" {
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		if !c.note(r.URL.Path, r.Header.Get("X-Tenant")) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			body = unpacked
		}
		content, err := io.ReadAll(body)
		var traces collecttraces.ExportTraceServiceRequest
		var logs collectlogs.ExportLogsServiceRequest
		if err == nil && strings.HasSuffix(r.URL.Path, "/traces") {
			err = proto.Unmarshal(content, &traces)
		} else if err == nil {
			err = proto.Unmarshal(content, &logs)
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.keep(&traces, &logs)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// logService is the collector's second service of the same method name.
type logService struct {
	collectlogs.UnimplementedLogsServiceServer
	collector *collector
}

// overGRPC serves both services.
func overGRPC(t *testing.T) *collector {
	c := &collector{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collecttraces.RegisterTraceServiceServer(server, c)
	collectlogs.RegisterLogsServiceServer(server, &logService{collector: c})
	done := make(chan struct{})
	go func() { // ends with the server
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	c.url = "http://" + listener.Addr().String()
	return c
}

func tenant(ctx context.Context) string {
	values := metadata.ValueFromIncomingContext(ctx, "x-tenant")
	return strings.Join(values, ",")
}

func (c *collector) Export(ctx context.Context, r *collecttraces.ExportTraceServiceRequest) (*collecttraces.ExportTraceServiceResponse, error) {
	if !c.note("traces", tenant(ctx)) {
		return nil, unavailable
	}
	c.keep(r, nil)
	return &collecttraces.ExportTraceServiceResponse{}, nil
}

func (l *logService) Export(ctx context.Context, r *collectlogs.ExportLogsServiceRequest) (*collectlogs.ExportLogsServiceResponse, error) {
	if !l.collector.note("logs", tenant(ctx)) {
		return nil, unavailable
	}
	l.collector.keep(nil, r)
	return &collectlogs.ExportLogsServiceResponse{}, nil
}

// texts are attributes as text.
func texts(attributes []*commonv1.KeyValue) map[string]string {
	list := make(map[string]string)
	for _, a := range attributes {
		switch value := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			list[a.GetKey()] = value.StringValue
		default:
			list[a.GetKey()] = a.GetValue().String()
		}
	}
	return list
}
