package observe

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/inference"
)

// Plane measures the request plane: how long workers take to accept requests and to answer with the first item.
type Plane struct {
	inflight               prometheus.Gauge
	queue, send, firstItem prometheus.Observer
	errors                 prometheus.Counter
	roundtrip              prometheus.Observer // the stage of the same name
}

// NewPlane registers the metrics. stages has the stage durations that the round trip belongs to.
func NewPlane(registry prometheus.Registerer, stages *Stages) *Plane {
	p := &Plane{roundtrip: stages.duration.WithLabelValues("transport_roundtrip")}
	inflight := prometheus.NewGauge(prometheus.GaugeOpts{Name: "dynamo_request_plane_inflight_requests", Help: "Requests at workers"})
	registry.MustRegister(inflight)
	p.inflight = inflight
	histogram := func(name, help string, buckets []float64) prometheus.Observer {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dynamo_request_plane_" + name, Help: help, Buckets: buckets})
		registry.MustRegister(h)
		return h
	}
	quick := []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1}
	p.queue = histogram("queue_seconds", "Time that a request waits before it is sent", quick)
	p.send = histogram("send_seconds", "Time until the worker has accepted a request", quick)
	p.firstItem = histogram("roundtrip_ttft_seconds", "From sending a request to the first item of its answer", []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5})
	failures := prometheus.NewCounter(prometheus.CounterOpts{Name: "dynamo_transport_tcp_errors_total", Help: "Requests that could not be sent"})
	registry.MustRegister(failures)
	p.errors = failures
	return p
}

// Traffic shows the bytes that went over the connections for requests, and how often none could be accepted.
func (p *Plane) Traffic(registry prometheus.Registerer, sent, received, backoffs func() uint64) {
	for _, row := range []struct {
		name, help string
		count      func() uint64
	}{
		{"bytes_sent_total", "Bytes of requests sent to workers", sent},
		{"bytes_received_total", "Bytes received on the connections for requests; answers come over others", received},
		{"accept_backoff_total", "Times that no connection with an answer could be accepted", backoffs},
	} {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "dynamo_transport_tcp_" + row.name, Help: row.help},
			func() float64 { return float64(row.count()) }))
	}
}

// Sender returns the sender with everything that goes through it measured.
func (p *Plane) Sender(inner inference.Sender) inference.Sender { return &measuredSender{inner, p} }

type measuredSender struct {
	inner inference.Sender
	plane *Plane
}

// Send implements inference.Sender.
func (s *measuredSender) Send(ctx context.Context, target inference.Target, r *inference.Request) (inference.Stream, error) {
	p := s.plane
	p.queue.Observe(0) // nothing waits here: placed requests are sent at once
	p.inflight.Inc()
	start := time.Now()
	stream, err := s.inner.Send(ctx, target, r)
	p.send.Observe(time.Since(start).Seconds())
	if err != nil {
		p.inflight.Dec()
		if inference.KindOf(err) != inference.Cancelled {
			p.errors.Inc()
		}
		return nil, err
	}
	return &measuredStream{Stream: stream, plane: p, sent: start}, nil
}

// measuredStream notes the first item. It counts as in flight until it is closed, which its reader always does.
type measuredStream struct {
	inference.Stream
	plane    *Plane
	sent     time.Time
	answered bool
	ended    onceFlag
}

// Next implements inference.Stream.
func (s *measuredStream) Next(ctx context.Context) (*inference.Output, error) {
	item, err := s.Stream.Next(ctx)
	if !s.answered && err == nil {
		s.answered = true
		seconds := time.Since(s.sent).Seconds()
		s.plane.firstItem.Observe(seconds)
		s.plane.roundtrip.Observe(seconds)
	}
	return item, err
}

// Close implements inference.Stream.
func (s *measuredStream) Close() error {
	if s.ended.first() {
		s.plane.inflight.Dec()
	}
	return s.Stream.Close()
}
