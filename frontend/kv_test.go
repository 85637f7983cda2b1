package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/kvindex"
	"signalbox/model/card"
	"signalbox/observe"
	"signalbox/router/kv"
	"signalbox/worker/sim"
)

// wires carries the events of engines to indexes directly: transports have tests of their own.
type wires struct {
	mu    sync.Mutex
	feeds map[*wire]bool
}

type wire struct {
	wires  *wires
	target FeedTarget
}

func (w *wires) Feed(target FeedTarget) (EventFeed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	feed := &wire{w, target}
	w.feeds[feed] = true
	return feed, nil
}

func (w *wire) Expect(uint64, ...uint32)         {}
func (w *wire) Leave(uint64)                     {}
func (w *wire) Silent() int                      { return 0 }
func (w *wire) WaitSynced(context.Context) error { return nil }
func (w *wire) Stats() observe.EventStats        { return observe.EventStats{} }

func (w *wire) Close() {
	w.wires.mu.Lock()
	defer w.wires.mu.Unlock()
	delete(w.wires.feeds, w)
}

// mouth speaks for one engine; its id is known only once the worker is registered.
type mouth struct {
	wires *wires
	id    atomic.Uint64
}

func (m *mouth) say(event kvindex.Event) {
	m.wires.mu.Lock()
	defer m.wires.mu.Unlock()
	event.Rank.WorkerID = m.id.Load()
	for feed := range m.wires.feeds {
		_ = feed.target.Index.Apply(event)
	}
}

func (m *mouth) Stored(rank int, parent uint64, hasParent bool, blocks []sim.Block) {
	event := kvindex.Event{Rank: kvindex.Rank{DPRank: uint32(rank)}, Op: kvindex.Stored, Parent: parent, HasParent: hasParent}
	for _, block := range blocks {
		event.Blocks = append(event.Blocks, kvindex.Block(block))
	}
	m.say(event)
}

func (m *mouth) Removed(rank int, hashes []uint64) {
	m.say(kvindex.Event{Rank: kvindex.Rank{DPRank: uint32(rank)}, Op: kvindex.Removed, Hashes: hashes})
}

func (m *mouth) Load(int, int) {}

// kvFixture is a frontend in mode kv.
type kvFixture struct {
	*fixture
	wires    *wires
	log      *lockedLog
	registry *prometheus.Registry
}

// lockedLog collects log lines.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startKV(t *testing.T, change func(*Routing)) *kvFixture {
	t.Helper()
	k := &kvFixture{wires: &wires{feeds: map[*wire]bool{}}, log: &lockedLog{}, registry: prometheus.NewRegistry()}
	logger := slog.New(slog.NewTextHandler(k.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	routing := Routing{Mode: KVMode, KV: kv.DefaultConfig(), Events: k.wires, Logger: logger}
	if change != nil {
		change(&routing)
	}
	k.fixture = start(t, func(o *Options) {
		o.Routers, o.Logger, o.Metrics, o.Explain = routing.Routers(), logger, k.registry, true
	})
	return k
}

// kvEngine adds an engine that tells what it caches.
func (k *kvFixture) kvEngine(change func(*sim.Config)) uint64 {
	k.t.Helper()
	config := sim.DefaultConfig()
	config.BlockSize, config.SpeedupRatio, config.Vocabulary = 4, 0, [2]uint32{'a', 'z' + 1}
	if change != nil {
		change(&config)
	}
	speaker := &mouth{wires: k.wires}
	e, err := sim.New(config, speaker)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(e.Close)
	id := k.addWorker(e)
	speaker.id.Store(id)
	return id
}

type kvAnswer struct {
	Usage struct {
		PromptDetails struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	NVExt struct {
		WorkerID struct {
			Prefill     uint64  `json:"prefill_worker_id"`
			PrefillRank *uint32 `json:"prefill_dp_rank"`
			Decode      uint64  `json:"decode_worker_id"`
			DecodeRank  *uint32 `json:"decode_dp_rank"`
		} `json:"worker_id"`
		Timing struct {
			HitRate *float64 `json:"kv_hit_rate"`
			Depth   *int     `json:"router_queue_depth"`
		}
	}
}

func (k *kvFixture) ask(prompt string) kvAnswer {
	k.t.Helper()
	status, text := k.post("/v1/completions", fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":4,"nvext":{"extra_fields":["worker_id","timing"]}}`, prompt))
	var answer kvAnswer
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
		k.t.Fatalf("status %d, %v: %s", status, err, text)
	}
	return answer
}

func (k *kvFixture) metric(name string) float64 {
	k.t.Helper()
	families, err := k.registry.Gather()
	if err != nil {
		k.t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.Metric {
			switch {
			case metric.Histogram != nil:
				sum += float64(metric.Histogram.GetSampleCount())
			case metric.Counter != nil:
				sum += metric.Counter.GetValue()
			default:
				sum += metric.Gauge.GetValue()
			}
		}
	}
	return sum
}

func prefix(name string) string { return strings.Repeat(name+" goes where? ", 8) }

// A conversation comes back to the worker that knows its beginning, as the engine itself confirms.
func TestRequestsFollowTheCache(t *testing.T) {
	k := startKV(t, nil)
	for range 3 {
		k.kvEngine(nil)
	}
	k.waitReady(3)
	for _, name := range []string{"ann", "bob", "cid", "dan"} {
		first := k.ask(prefix(name))
		if first.Usage.PromptDetails.Cached > 60 {
			t.Errorf("%s's first question found %d tokens in a cache", name, first.Usage.PromptDetails.Cached)
		}
		for turn := range 3 {
			again := k.ask(prefix(name) + strings.Repeat("and then? ", turn))
			w := again.NVExt.WorkerID
			if w.Decode != first.NVExt.WorkerID.Decode || w.Prefill != w.Decode || w.DecodeRank == nil || *w.DecodeRank != 0 || w.PrefillRank == nil {
				t.Errorf("%s: %+v after %+v", name, w, first.NVExt.WorkerID)
			}
			// The engine computes at least the last token anew, so that a whole block may be missing.
			expected := len(prefix(name)) / 4 * 4
			if cached := again.Usage.PromptDetails.Cached; cached < expected-4 || cached > expected+40 {
				t.Errorf("%s: %d tokens of %d were cached", name, cached, expected)
			}
			if rate := again.NVExt.Timing.HitRate; rate == nil || *rate < 0.7 || *rate > 1 {
				t.Errorf("%s: hit rate %v", name, rate)
			}
		}
	}
	for name, want := range map[string]float64{
		"dynamo_component_router_requests_started_total":      16,
		"dynamo_component_router_requests_total":              16,
		"dynamo_component_router_time_to_first_token_seconds": 16,
		"dynamo_component_router_kv_hit_rate":                 16,
		"dynamo_router_overhead_indexer_find_matches_ms":      16,
		"dynamo_component_router_worker_registered":           3,
		"dynamo_frontend_worker_active_decode_blocks":         0,
		"dynamo_frontend_worker_active_prefill_tokens":        0,
	} {
		if got := k.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if k.metric("signalbox_kv_index_ranks") == 0 || k.metric("signalbox_kv_index_blocks") < 100 {
		t.Errorf("the index holds %v blocks", k.metric("signalbox_kv_index_blocks"))
	}
	if decisions := strings.Count(k.log.String(), "msg=decision"); decisions != 16 {
		t.Errorf("%d decisions in the log:\n%s", decisions, k.log)
	}
}

// Without events the router goes by what it did before.
func TestPredictedCachesWithoutEvents(t *testing.T) {
	for name, change := range map[string]func(*Routing){
		"approximate": func(r *Routing) { r.KV.UseKVEvents, r.Events = false, nil },
		"predicted":   func(r *Routing) { ttl := 60.0; r.KV.PredictedTTLSecs, r.Events = &ttl, nil },
	} {
		t.Run(name, func(t *testing.T) {
			k := startKV(t, change)
			for range 3 {
				k.engine(nil)
			}
			k.waitReady(3)
			first := k.ask(prefix("eve"))
			for range 5 {
				if again := k.ask(prefix("eve")); again.NVExt.WorkerID.Decode != first.NVExt.WorkerID.Decode || again.Usage.PromptDetails.Cached == 0 {
					t.Errorf("%+v after %+v", again, first.NVExt.WorkerID)
				}
			}
		})
	}
}

// An operator who forgot to switch events on reads which workers are meant.
func TestSilentWorkersAreNamed(t *testing.T) {
	k := startKV(t, nil)
	no := false
	id := k.addCard(func(c *card.Card) { c.Runtime.PublishesEvents = &no })
	k.waitReady(1)
	if !strings.Contains(k.log.String(), "workers publish no KV events") || !strings.Contains(k.log.String(), fmt.Sprint(id)) {
		t.Errorf("log:\n%s", k.log)
	}
	if count := k.metric("dynamo_component_router_kv_event_source_mismatch_workers"); count != 1 {
		t.Errorf("%v workers are counted", count)
	}
}

// What a feed logs has each key once, however many parts of the program have added theirs.
func TestFeedsNameTheirEndpointOnce(t *testing.T) {
	k := startKV(t, nil)
	k.kvEngine(nil)
	k.waitReady(1)
	k.wires.mu.Lock()
	defer k.wires.mu.Unlock()
	if len(k.wires.feeds) == 0 {
		t.Fatal("there is no feed")
	}
	for feed := range k.wires.feeds {
		feed.target.Logger.Warn("a feed speaks")
	}
	spoken := 0
	for line := range strings.Lines(k.log.String()) {
		if !strings.Contains(line, "a feed speaks") {
			continue
		}
		spoken++
		if strings.Contains(line, "endpoint=") || !strings.Contains(line, "model=m") {
			t.Errorf("a feed, which adds its endpoint itself, is given a logger that says %s", line)
		}
	}
	if spoken == 0 {
		t.Error("no feed has spoken")
	}
}

// A set that advertises a configuration is routed by it, whatever the frontend's own is.
func TestAdvertisedConfigurationReplacesTheFrontends(t *testing.T) {
	k := startKV(t, func(r *Routing) { r.Mode = "round-robin" })
	advertised := `{"router_mode":"k_v","kv_router_config":{"overlap_score_credit":2,"use_kv_events":false,"skip_initial_worker_wait":false},"enforce_disagg":false}`
	k.addCard(func(c *card.Card) { c.RouterConfig = json.RawMessage(advertised) })
	k.waitReady(1)
	found := false
	for _, entry := range k.frontend.manager.Served() {
		if r, ok := entry.Server.router.(*kvRouting); ok {
			found = true
			if config := r.Config(); config.OverlapScoreCredit != 2 || config.UseKVEvents || !config.TrackActiveBlocks {
				t.Errorf("configuration %+v", config)
			}
		}
	}
	if !found {
		t.Error("the set is not routed in mode kv")
	}
	for _, bad := range []string{`{"router_mode":"magic"}`, `{"router_mode":"k_v","kv_router_config":{"zzz":1}}`, `[]`} {
		r := Routing{}
		if err := r.adopt(json.RawMessage(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

// addCard registers a worker with a card of its own; nobody answers there.
func (f *fixture) addCard(change func(*card.Card)) uint64 {
	f.t.Helper()
	backend := f.store.Open(mem.Options{})
	f.backends = append(f.backends, backend)
	c := card.Card{DisplayName: "m", Slug: "m", BlockSize: 4, ModelType: card.Chat | card.Completions, ModelInput: card.TokensInput,
		WorkerType: card.AggregatedWorker, Runtime: card.DefaultRuntimeConfig()}
	change(&c)
	text, err := c.Marshal()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, record := range []discovery.Record{
		&discovery.Instance{Namespace: "n", Component: "backend", Endpoint: "generate", InstanceID: backend.InstanceID(), Transport: discovery.Transport{TCP: "127.0.0.1:1/x"}},
		&discovery.Model{Namespace: "n", Component: "backend", Endpoint: "generate", InstanceID: backend.InstanceID(), Card: text},
	} {
		if err := discovery.Publish(context.Background(), backend, record); err != nil {
			f.t.Fatal(err)
		}
	}
	return backend.InstanceID()
}

// Modes that know no caches say nothing about them, and no ranks.
func TestOtherModesDiscloseLess(t *testing.T) {
	k := startKV(t, func(r *Routing) { r.Mode = "least-loaded" })
	k.kvEngine(nil)
	k.waitReady(1)
	answer := k.ask(prefix("ann"))
	if answer.NVExt.Timing.HitRate != nil || answer.NVExt.Timing.Depth != nil || answer.NVExt.WorkerID.DecodeRank != nil || answer.NVExt.WorkerID.Decode == 0 {
		t.Errorf("disclosed %+v", answer.NVExt)
	}
	if started := k.metric("dynamo_component_router_requests_started_total"); started != 0 {
		t.Errorf("%v requests are counted by a router that does not count", started)
	}
}

// What clients see of pins that cannot be honoured, as the real frontend answers.
func TestPinsOnTheWire(t *testing.T) {
	k := startKV(t, nil)
	one, two := k.kvEngine(nil), k.kvEngine(nil)
	k.waitReady(2)
	for _, c := range []struct {
		nvext  string
		status int
		text   string
	}{
		{fmt.Sprintf(`"backend_instance_id":%d`, one), 200, fmt.Sprintf(`"decode_worker_id":%d`, one)},
		{fmt.Sprintf(`"decode_worker_id":%d,"dp_rank":0`, two), 200, fmt.Sprintf(`"decode_worker_id":%d`, two)},
		{`"backend_instance_id":77`, 400, "Invalid request"},
		{fmt.Sprintf(`"backend_instance_id":%d,"dp_rank":7`, one), 500, "Failed to generate completions"},
		{`"dp_rank":7`, 200, ""},
		{`"routing_constraints":{"required_taints":["moon"]}`, 500, "Failed to generate completions"},
	} {
		status, text := k.post("/v1/completions", fmt.Sprintf(`{"model":"m","prompt":"hello","max_tokens":2,"nvext":{"extra_fields":["worker_id"],%s}}`, c.nvext))
		if status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s: status %d, want %d: %s", c.nvext, status, c.status, text)
		}
	}
}

// The newest decisions can be asked for, one request's or all, and a question is answered without sending anything.
func TestDecisionsCanBeAskedFor(t *testing.T) {
	k := startKV(t, nil)
	k.kvEngine(nil)
	k.waitReady(1)
	status, text := k.post("/v1/completions", `{"model":"m","prompt":"where to?","max_tokens":2,"nvext":{"annotations":["query_instance_id:"]}}`)
	var answer struct{ ID string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
		t.Fatalf("status %d, %v: %s", status, err, text)
	}
	_, id, _ := strings.Cut(answer.ID, "-")
	for path, want := range map[string]int{"": 200, "/" + id: 200, "/none": 404} {
		response, err := http.Get("http://" + k.frontend.Address() + "/signalbox/decisions" + path)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Decisions []observe.DecisionRecord }
		err = json.NewDecoder(response.Body).Decode(&list)
		response.Body.Close()
		if err != nil || response.StatusCode != want || want == 200 && (len(list.Decisions) != 1 || list.Decisions[0].RequestID != id || list.Decisions[0].Decision.Mode != "kv") {
			t.Errorf("%q: status %d, %v: %+v", path, response.StatusCode, err, list)
		}
	}
}
