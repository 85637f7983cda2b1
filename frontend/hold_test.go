package frontend

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/inference"
)

const heldBody = `{"model":"m","prompt":"where","max_tokens":2}`

// held is how many requests wait.
func held(f *fixture) int {
	f.frontend.holder.mu.Lock()
	defer f.frontend.holder.mu.Unlock()
	return f.frontend.holder.waiting
}

// TestAModelWithoutWorkersIsListedAndWaitedFor: before the first worker, and after the last.
func TestAModelWithoutWorkersIsListedAndWaitedFor(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := start(t, func(o *Options) {
		o.Hold, o.Metrics = HoldOptions{Patience: time.Minute, Limit: 2, Models: []string{"m", "never"}}, registry
	})
	listed := func() int { return len(catalog{f.frontend}.List()) }
	if listed() != 2 {
		t.Errorf("%d models are listed, want 2", listed())
	}
	ask := func() chan int {
		answer := make(chan int, 1)
		go func() {
			status, _ := f.post("/v1/completions", heldBody)
			answer <- status
		}()
		return answer
	}
	round := func() {
		t.Helper()
		first, second := ask(), ask()
		waitFor(t, func() bool { return held(f) == 2 })
		if got := gauge(t, registry); got != 2 {
			t.Errorf("the gauge shows %v", got)
		}
		if status, text := f.post("/v1/completions", heldBody); status != 529 {
			t.Errorf("beyond the limit: status %d, %s", status, text)
		}
		f.engine(nil)
		for _, answer := range []chan int{first, second} {
			if status := <-answer; status != 200 {
				t.Errorf("a request that waited: status %d", status)
			}
		}
	}
	round()
	if err := f.backends[0].Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return len(f.frontend.manager.Served()) == 0 })
	if listed() != 2 {
		t.Errorf("%d models are listed after the last worker, want 2", listed())
	}
	round()
	if status, _ := f.post("/v1/completions", strings.Replace(heldBody, `"m"`, `"other"`, 1)); status != 404 {
		t.Errorf("a model that nobody knows: status %d", status)
	}
}

// gauge reads the one gauge of held requests.
func gauge(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "signalbox_held_requests" {
			return family.Metric[0].Gauge.GetValue()
		}
	}
	t.Fatal("there is no gauge of held requests")
	return 0
}

func TestWaitingIsBounded(t *testing.T) {
	f := start(t, func(o *Options) {
		o.Hold = HoldOptions{Patience: 30 * time.Millisecond, Limit: 2, Models: []string{"m"}}
	})
	if status, text := f.post("/v1/completions", heldBody); status != 503 {
		t.Errorf("status %d, %s", status, text)
	}
	if n := held(f); n != 0 {
		t.Errorf("%d requests still wait", n)
	}
}

func TestWhoGoesAwayWaitsNoLonger(t *testing.T) {
	f := start(t, func(o *Options) { o.Hold = HoldOptions{Patience: time.Hour, Limit: 2, Models: []string{"m"}} })
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.frontend.Address()+"/v1/completions", strings.NewReader(heldBody))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	waitFor(t, func() bool { return held(f) == 1 })
	cancel()
	<-done
	waitFor(t, func() bool { return held(f) == 0 })
	// Who still waits when the program ends does not delay it.
	answer := make(chan int, 1)
	go func() {
		status, _ := f.post("/v1/completions", heldBody)
		answer <- status
	}()
	waitFor(t, func() bool { return held(f) == 1 })
	f.frontend.holder.close()
	if status := <-answer; status != 503 {
		t.Errorf("at the end: status %d", status)
	}
}

func TestWithoutHoldingAModelGoesWithItsWorkers(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	if err := f.backends[0].Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		status, _ := f.post("/v1/completions", heldBody)
		return status == 404
	})
}

// dying is a worker that takes requests and goes before their first byte.
type dying struct {
	taken chan struct{} // one for each request
	gone  chan struct{} // closed when it goes
}

// Send implements inference.Sender.
func (d *dying) Send(context.Context, inference.Target, *inference.Request) (inference.Stream, error) {
	d.taken <- struct{}{}
	return dyingStream{d.gone}, nil
}

type dyingStream struct{ gone chan struct{} }

// Next implements inference.Stream.
func (s dyingStream) Next(ctx context.Context) (*inference.Output, error) {
	select {
	case <-s.gone:
		return nil, inference.Errorf(inference.Disconnected, "the worker is gone")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Buffered implements inference.Stream.
func (dyingStream) Buffered() bool { return false }

// Close implements inference.Stream.
func (dyingStream) Close() error { return nil }

// TestARequestWhoseLastWorkerDiesIsHeld: placed, not answered yet, and nobody else is there. It waits like one that comes later, within
// the same bounds, and is answered by who comes.
func TestARequestWhoseLastWorkerDiesIsHeld(t *testing.T) {
	f := start(t, func(o *Options) { o.Hold = HoldOptions{Patience: time.Minute, Limit: 2} })
	worker := &dying{make(chan struct{}, 8), make(chan struct{})}
	f.addWorker(worker)
	f.waitReady(1)
	answers := make(chan string, 3)
	for _, body := range []string{heldBody, strings.TrimSuffix(heldBody, "}") + `,"stream":true}`, `{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":2}`} {
		path := "/v1/completions"
		if strings.Contains(body, "messages") {
			path = "/v1/chat/completions"
		}
		go func() {
			status, text := f.post(path, body)
			answers <- fmt.Sprint(status, " ", text)
		}()
	}
	for range 3 {
		<-worker.taken
	}
	if err := f.backends[0].Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return len(f.frontend.manager.Served()) == 0 })
	close(worker.gone)
	// A stream that has begun tells it in an event.
	if refused := <-answers; !strings.HasPrefix(refused, "529 ") && !(strings.HasPrefix(refused, "200 data:") && strings.Contains(refused, `"code":529}`)) {
		t.Errorf("beyond the limit: %s", refused)
	}
	waitFor(t, func() bool { return held(f) == 2 })
	f.engine(nil)
	for range 2 {
		if answer := <-answers; !strings.HasPrefix(answer, "200") || strings.Contains(answer, `"error"`) || !strings.Contains(answer, `"finish_reason":"length"`) {
			t.Errorf("a request that was held: %s", answer)
		}
	}
	waitFor(t, func() bool { return held(f) == 0 })
}

// TestHoldingEndsInTime: a worker that takes requests and breaks them off, again and again, does not hold them for ever.
func TestHoldingEndsInTime(t *testing.T) {
	f := start(t, func(o *Options) { o.Hold = HoldOptions{Patience: 300 * time.Millisecond, Limit: 2} })
	worker := &dying{make(chan struct{}, 1000), make(chan struct{})}
	close(worker.gone)
	f.addWorker(worker)
	f.waitReady(1)
	if status, text := f.post("/v1/completions", heldBody); status < 500 {
		t.Errorf("status %d, %s", status, text)
	}
	if n := len(worker.taken); n == 0 || n > 50 {
		t.Errorf("the worker was asked %d times", n)
	}
}
