package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/router/kv"
	"signalbox/router/policy"
)

// gate is an engine whose answers wait until the test lets them go, one by one.
type gate struct {
	mu      sync.Mutex
	waiting []*gated
	seen    []string // the prompts that came, in order
}

type gated struct {
	prompt string
	tokens int
	open   chan error // what ends the wait
	ended  bool
}

func (g *gate) Send(_ context.Context, _ inference.Target, r *inference.Request) (inference.Stream, error) {
	var prompt strings.Builder
	for _, id := range r.TokenIDs {
		prompt.WriteByte(byte(id))
	}
	stream := &gated{prompt: prompt.String(), tokens: len(r.TokenIDs), open: make(chan error, 1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, stream)
	g.seen = append(g.seen, stream.prompt)
	return stream, nil
}

func (s *gated) Next(ctx context.Context) (*inference.Output, error) {
	if s.ended {
		return nil, io.EOF
	}
	select {
	case err := <-s.open:
		if err != nil {
			return nil, err
		}
		s.ended = true
		return &inference.Output{TokenIDs: []uint32{'x'}, Finish: inference.FinishLength}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
func (s *gated) Buffered() bool { return false }
func (s *gated) Close() error   { return nil }

// next waits for the oldest request that the engine holds and takes it out.
func (g *gate) next(t *testing.T) (oldest *gated) {
	t.Helper()
	waitFor(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.waiting) == 0 {
			return false
		}
		oldest, g.waiting = g.waiting[0], g.waiting[1:]
		return true
	})
	return oldest
}

func (g *gate) prompts() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

// reply is an answer to a request of a tenant.
type reply struct {
	status int
	text   string
}

// send posts a completion and returns where its answer will come.
func (f *fixture) send(prompt string, headers ...string) <-chan reply {
	f.t.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://"+f.frontend.Address()+"/v1/completions",
		strings.NewReader(fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":1,"nvext":{"extra_fields":["worker_id"]}}`, prompt)))
	if err != nil {
		f.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer := make(chan reply, 1)
	go func() { // ends with the answer
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			answer <- reply{0, err.Error()}
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		answer <- reply{response.StatusCode, string(text)}
	}()
	return answer
}

const tenants = `
default_policy_family: bulk
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: premium, policy_family: premium, cache_bucket: all, quantum: 400, prefill_busy_threshold: 0}
  - {name: bulk, policy_family: bulk, cache_bucket: all, quantum: 100, prefill_busy_threshold: 0, request_queue_limit_per_worker: 3}
`

func withPolicies(t *testing.T, text string) func(*Routing) {
	t.Helper()
	parsed, err := policy.Parse("tenants.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return func(r *Routing) { r.Policies, r.OverlapRefreshAfter = parsed, kv.DefaultOverlapRefresh }
}

// Under overload a premium tenant gets four times the service of a bulk one, a bulk tenant that goes too far is refused with what waits
// and what may wait, and all counters return to zero.
func TestPremiumAndBulkUnderOverload(t *testing.T) {
	k := startKV(t, withPolicies(t, tenants))
	engine := &gate{}
	k.addWorker(engine)
	k.waitReady(1)
	const pending, refused = "dynamo_frontend_router_queue_pending_requests", "dynamo_frontend_router_queue_backpressure_total"
	prompt := func(name string) string { return name + strings.Repeat("-", 100-len(name)) }
	answers := []<-chan reply{k.send(prompt("running"))}
	running := engine.next(t)
	for i, name := range []string{"b0", "p1", "p2", "b3", "p4", "p5", "p6", "p7", "b8", "p9"} {
		class := map[byte]string{'p': "premium", 'b': "anything"}[name[0]]
		answers = append(answers, k.send(prompt(name), "x-dynamo-meta-policy-class", class))
		waitFor(t, func() bool { return k.metric(pending) == float64(i+1) })
	}
	if tokens := k.metric("dynamo_frontend_router_queue_pending_isl_tokens"); tokens != 1000 {
		t.Errorf("%v tokens wait, want 1000", tokens)
	}
	over := <-k.send(prompt("b10"))
	var body struct {
		Message, Type string
		Code          int
		Details       struct {
			PolicyClass    string `json:"policy_class"`
			LimitKind      string `json:"limit_kind"`
			Current, Limit int
		}
	}
	if err := json.Unmarshal([]byte(over.text), &body); err != nil {
		t.Fatal(err, over.text)
	}
	if over.status != 529 || body.Type != "Overloaded" || body.Code != 529 || body.Message != `router policy class "bulk" queue requests limit reached (current=3, limit=3)` ||
		body.Details.PolicyClass != "bulk" || body.Details.LimitKind != "requests" || body.Details.Current != 3 || body.Details.Limit != 3 {
		t.Errorf("a full class answered %d %s", over.status, over.text)
	}
	if k.metric(refused) != 1 {
		t.Errorf("%v refusals are counted", k.metric(refused))
	}
	for range answers {
		running.open <- nil
		if len(engine.prompts()) == len(answers) && k.metric(pending) == 0 {
			break
		}
		running = engine.next(t)
	}
	for _, answer := range answers {
		if got := <-answer; got.status != 200 {
			t.Errorf("status %d: %s", got.status, got.text)
		}
	}
	var order []string
	for _, prompt := range engine.prompts()[1:] {
		order = append(order, strings.TrimRight(prompt, "-"))
	}
	if want := []string{"p1", "p2", "p4", "p5", "b0", "p6", "p7", "p9", "b3", "b8"}; !slices.Equal(order, want) {
		t.Errorf("%v went, want %v", order, want)
	}
	for _, name := range []string{pending, "dynamo_frontend_router_queue_pending_isl_tokens", "dynamo_frontend_router_queue_pending_cached_tokens",
		"dynamo_frontend_worker_active_prefill_tokens", "dynamo_frontend_worker_active_decode_blocks"} {
		waitFor(t, func() bool { return k.metric(name) == 0 })
	}
}

// A client that goes away while it waits is not sent to the worker, and its place in line is free.
func TestWhoGivesUpInLineIsForgotten(t *testing.T) {
	k := startKV(t, func(r *Routing) { zero := 0.0; r.KV.QueueThreshold = &zero })
	engine := &gate{}
	k.addWorker(engine)
	k.waitReady(1)
	const pending = "dynamo_frontend_router_queue_pending_requests"
	first := k.send("first request")
	running := engine.next(t)
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+k.frontend.Address()+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"gives up","max_tokens":1}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	gone := make(chan error, 1)
	go func() { // ends with ctx
		_, err := http.DefaultClient.Do(request)
		gone <- err
	}()
	waitFor(t, func() bool { return k.metric(pending) == 1 })
	second := k.send("urgent request", "x-dynamo-request-strict-priority", "1")
	waitFor(t, func() bool { return k.metric(pending) == 2 })
	cancel()
	<-gone
	waitFor(t, func() bool { return k.metric(pending) == 1 })
	running.open <- nil
	engine.next(t).open <- nil
	for _, answer := range []<-chan reply{first, second} {
		if got := <-answer; got.status != 200 {
			t.Errorf("%+v", got)
		}
	}
	if got := engine.prompts(); !slices.Equal(got, []string{"first request", "urgent request"}) {
		t.Errorf("%q were sent", got)
	}
}

// Each model may have classes of its own; the file's selection names the policy that decides.
func TestPoliciesOfTheFileAreInForce(t *testing.T) {
	k := startKV(t, withPolicies(t, tenants+`
models:
  m:
    default_policy_family: only
    uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
    policy_classes: [{name: own, policy_family: only, cache_bucket: all, quantum: 1}]
worker_selection:
  aggregated: lean
  instances: [{name: lean, type: dynamo-two-tier-cost-fn, parameters: {cache_threshold: 0.9}}]
`))
	k.kvEngine(nil)
	k.waitReady(1)
	k.ask("anything")
	if log := k.log.String(); !strings.Contains(log, `\"policy\":\"lean\"`) {
		t.Errorf("the decision does not name the policy:\n%s", log)
	}
	families, err := k.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "dynamo_frontend_router_queue_backpressure_total" && len(family.Metric) == 3 {
			return
		}
	}
	t.Error("the classes are not those of the model")
}

// A policy that decides along is in the metrics, and decides nothing.
func TestShadowPolicyIsMeasured(t *testing.T) {
	k := startKV(t, func(r *Routing) {
		withPolicies(t, "worker_selection: {instances: [{name: lean, type: dynamo-two-tier-cost-fn}]}")(r)
		r.Shadow = "lean"
	})
	for range 2 {
		k.kvEngine(nil)
	}
	k.waitReady(2)
	for range 5 {
		k.ask(prefix("ann"))
	}
	if got := k.metric("signalbox_router_shadow_decisions_total"); got != 5 {
		t.Errorf("%v choices were compared, want 5", got)
	}
	if k.metric("signalbox_router_shadow_cached_tokens_total") == 0 || strings.Contains(k.log.String(), `\"policy\":\"lean\"`) {
		t.Error("the policy that decides along was not compared, or it decided")
	}
}

// Keyed identities are for the router's own books: caches are found all the same.
func TestKeyedTracking(t *testing.T) {
	k := startKV(t, func(r *Routing) {
		key, err := kvhash.NewTrackingKey([]byte(strings.Repeat("k", 32)), "epoch-1")
		if err != nil {
			t.Fatal(err)
		}
		r.KV.TrackingHash, r.TrackingKey = KeyedTracking, &key
	})
	for range 2 {
		k.kvEngine(nil)
	}
	k.waitReady(2)
	first := k.ask(prefix("ann"))
	for range 3 {
		if again := k.ask(prefix("ann")); again.NVExt.WorkerID.Decode != first.NVExt.WorkerID.Decode || *again.NVExt.Timing.HitRate < 0.7 {
			t.Errorf("%+v after %+v", again, first)
		}
	}
}

// What cannot work stops the start, by name.
func TestSelectionIsCheckedAtTheStart(t *testing.T) {
	for _, c := range []struct {
		yaml   string
		wishes []policy.Wish
		want   string
	}{
		{"worker_selection: {prefill: default}", []policy.Wish{{Stage: policy.Prefill, Name: "zzz"}}, `unknown worker-selection instance "zzz"; configured instances: <none>`},
		{"worker_selection: {decode: t, instances: [{name: t, type: nope}]}", nil, `unknown worker-selection policy type "nope"; linked policy types: dynamo-default-cost-fn, dynamo-two-tier-cost-fn`},
		{"worker_selection: {decode: t, instances: [{name: t, type: nope}]}", []policy.Wish{{Name: "default"}}, ""},
		{"worker_selection: {instances: [{name: t, type: nope}]}", nil, ""},
		{"worker_selection: {encode: t, instances: [{name: t, type: dynamo-two-tier-cost-fn, parameters: {cache_threshold: 2}}]}", nil,
			`invalid parameters for worker-selection policy type "dynamo-two-tier-cost-fn": cache_threshold must be a finite number between 0.0 and 1.0`},
	} {
		r := Routing{Wishes: c.wishes}
		withPolicies(t, c.yaml)(&r)
		err := r.Check()
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s with %v: %v, want %q", c.yaml, c.wishes, err, c.want)
		}
	}
}
