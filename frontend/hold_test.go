package frontend

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
