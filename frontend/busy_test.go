package frontend

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"signalbox/api/admin"
	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/kvevents"
	"signalbox/kvindex"
	"signalbox/model/card"
	"signalbox/pipeline"
	"signalbox/worker/sim"
)

// countingLoader counts the prompts that are tokenised.
type countingLoader struct {
	bytesLoader
	encoded *atomic.Int64
}

func (l countingLoader) Load(ctx context.Context, c *card.Card) (*pipeline.Model, error) {
	model, err := l.bytesLoader.Load(ctx, c)
	if err == nil {
		model.Tokenizer = countingTokenizer{model.Tokenizer, l.encoded}
	}
	return model, err
}

type countingTokenizer struct {
	pipeline.Tokenizer
	encoded *atomic.Int64
}

func (c countingTokenizer) Encode(dst []uint32, text string, special bool) []uint32 {
	c.encoded.Add(1)
	return c.Tokenizer.Encode(dst, text, special)
}

// spokenLoads are load reports that the test makes up.
type spokenLoads struct {
	mu        sync.Mutex
	listeners []func(kvevents.Load)
}

func (l *spokenLoads) FollowLoad(ctx context.Context, _ discovery.EndpointID, report func(kvevents.Load)) {
	l.mu.Lock()
	l.listeners = append(l.listeners, report)
	l.mu.Unlock()
	<-ctx.Done()
}

func (l *spokenLoads) say(worker uint64, used uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, listener := range l.listeners {
		listener(kvevents.Load{Rank: kvindex.Rank{WorkerID: worker}, UsedBlocks: kvevents.Figure{Value: used, Known: true}})
	}
}

func (l *spokenLoads) heard() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.listeners) > 0
}

func hundredBlocks(c *card.Card) {
	blocks := uint64(100)
	c.Runtime.TotalBlocks = &blocks
}

func newEngine(t *testing.T) *sim.Engine {
	t.Helper()
	config := sim.DefaultConfig()
	config.BlockSize, config.SpeedupRatio, config.Vocabulary = 4, 0, [2]uint32{'a', 'z' + 1}
	e, err := sim.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// TestReportedLoad: workers that report more than the threshold are passed over; while all do, requests are refused before they are
// tokenised; and the next report within it takes that back.
func TestReportedLoad(t *testing.T) {
	var encoded atomic.Int64
	loads, limit := &spokenLoads{}, 0.5
	f := start(t, func(o *Options) {
		o.Loader, o.Loads, o.Thresholds = countingLoader{encoded: &encoded}, loads, admin.Thresholds{ActiveDecodeBlocks: &limit}
	})
	first, second := f.addWorker(newEngine(t), hundredBlocks), f.addWorker(newEngine(t), hundredBlocks)
	f.waitReady(2)
	waitFor(t, loads.heard)
	body := `{"model":"m","prompt":"where","max_tokens":2,"nvext":{"extra_fields":["worker_id"]}}`
	ask := func() (int, string, http.Header) {
		response, err := http.Post("http://"+f.frontend.Address()+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text), response.Header
	}
	loads.say(first, 51)
	for range 4 {
		status, text, _ := ask()
		if status != 200 || !strings.Contains(text, discoveryID(second)) {
			t.Fatalf("with one busy worker: status %d, %s", status, text)
		}
	}
	loads.say(second, 51)
	before := encoded.Load()
	status, text, header := ask()
	if status != 529 || !strings.Contains(text, `"type":"Overloaded"`) || header.Get("Retry-After") == "" {
		t.Errorf("with two busy workers: status %d, %s, %v", status, text, header)
	}
	if encoded.Load() != before {
		t.Error("a request that was refused had been tokenised")
	}
	loads.say(second, 50) // not more than the threshold
	if status, text, _ := ask(); status != 200 || !strings.Contains(text, discoveryID(second)) {
		t.Errorf("after a healthy report: status %d, %s", status, text)
	}
}

func discoveryID(id uint64) string { return `_worker_id":` + jsonNumber(id) }

func jsonNumber(id uint64) string {
	text := ""
	for ; id > 0; id /= 10 {
		text = string(rune('0'+id%10)) + text
	}
	return text
}

// holding is a worker that answers one token and then waits.
type holding struct {
	inner   inference.Sender
	release chan struct{}
}

func (h *holding) Send(ctx context.Context, target inference.Target, r *inference.Request) (inference.Stream, error) {
	select {
	case <-h.release:
	case <-ctx.Done():
		return nil, inference.Errorf(inference.Cancelled, "gone")
	}
	return h.inner.Send(ctx, target, r)
}

// TestBookedLoad: what the router itself has booked makes a worker busy, as soon as it is booked, and no longer than it is; the
// thresholds are those that an operator sets while the frontend runs.
func TestBookedLoad(t *testing.T) {
	k := startKV(t, nil)
	worker := &holding{newEngine(t), make(chan struct{})}
	k.addWorker(worker, hundredBlocks)
	k.waitReady(1)
	if status, text := k.post("/busy_threshold", `{"model":"m","active_prefill_tokens_threshold":10}`); status != 200 || !strings.Contains(text, `"active_prefill_tokens_threshold":10`) {
		t.Fatalf("status %d, %s", status, text)
	}
	answers := make(chan int, 1)
	go func() {
		status, _ := k.post("/v1/completions", `{"model":"m","prompt":"a prompt of more than ten tokens","max_tokens":2}`)
		answers <- status
	}()
	status, text := 0, ""
	waitFor(t, func() bool { // the first request is booked some moment
		if !busyNow(k.fixture) {
			return false
		}
		status, text = k.post("/v1/completions", `{"model":"m","prompt":"short","max_tokens":2}`)
		return true
	})
	if status != 529 {
		t.Errorf("while the prompt is computed: status %d, %s", status, text)
	}
	close(worker.release)
	if status := <-answers; status != 200 {
		t.Errorf("the first request: status %d", status)
	}
	if status, text := k.post("/v1/completions", `{"model":"m","prompt":"short","max_tokens":2}`); status != 200 {
		t.Errorf("afterwards: status %d, %s", status, text)
	}
}

func busyNow(f *fixture) bool {
	for _, entry := range f.frontend.manager.Served() {
		if entry.Server.rejection.monitor.AllBusy() {
			return true
		}
	}
	return false
}
