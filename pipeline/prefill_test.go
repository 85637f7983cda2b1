package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/inference"
	"signalbox/router"
)

// handOver is a prefill worker's first item.
func handOver(params string) *inference.Output {
	item := say("p")
	item.DisaggregatedParams = inference.Opaque{Codec: inference.JSON, Bytes: []byte(params)}
	item.Usage = &inference.Usage{PromptTokens: 6, CachedTokens: ptr(uint32(4))}
	return item
}

// disaggregated makes a pipeline whose workers from 1 on decode and whose workers from 1+len(decode) on prefill.
func disaggregated(decode, prefill []*script) (*bench, *ledger) {
	b := newBench(decode...)
	pool := &ledger{}
	b.add(pool, prefill...)
	hop := b.hop(pool)
	b.Prefill.Store(&hop)
	b.NeedsPrefill = true
	return b, pool
}

// TestPrefillHandsOver walks the ways of a request with a prefill worker, and checks that both placements are given back.
func TestPrefillHandsOver(t *testing.T) {
	decoding := func() []*script {
		return []*script{{items: []*inference.Output{say("ab"), finish(inference.FinishLength)}}}
	}
	refusal := inference.Errorf(inference.CannotConnect, "x")
	for name, test := range map[string]struct {
		decode, prefill []*script
		change          func(*bench, *Job)
		text            string
		err             inference.Kind
		decodes         []string
		prefills        []string
	}{
		"handed over":           {decode: decoding(), prefill: []*script{{items: []*inference.Output{handOver(`"dummy"`), finish(inference.FinishLength)}}}, text: "ab", decodes: []string{"1 "}, prefills: []string{"2 "}},
		"handed over, finished": {decode: decoding(), prefill: []*script{{items: []*inference.Output{func() *inference.Output { o := handOver(`"dummy"`); o.Finish = inference.FinishLength; return o }()}}}, text: "ab", decodes: []string{"1 "}, prefills: []string{"2 "}},
		"met at a bootstrap": {decode: decoding(), prefill: []*script{{items: []*inference.Output{say("p")}}}, change: func(b *bench, _ *Job) {
			b.Prefill.Load().Bootstrap = func(uint64) (string, uint16, uint32, bool) { return "h", 7, 1, true }
		}, text: "ab", decodes: []string{"1 "}, prefills: []string{"2 *"}},
		"met at an address in the parameters": {decode: decoding(), prefill: []*script{{items: []*inference.Output{handOver(`{"bootstrap_host":"h","bootstrap_port":7,"bootstrap_room":9}`)}}}, text: "ab", decodes: []string{"1 "}, prefills: []string{"2 *"}},
		"complete with the first token":       {decode: decoding(), prefill: []*script{{items: []*inference.Output{{TokenIDs: []uint32{'x', 256}, Finish: inference.FinishEOS}}}}, text: "x", prefills: []string{"2 "}},
		"refused, another takes it":           {decode: decoding(), prefill: []*script{{refuse: refusal}, {items: []*inference.Output{handOver(`"d"`)}}}, text: "ab", decodes: []string{"1 "}, prefills: []string{"2 CannotConnect", "3 "}},
		"lost, another takes it":              {decode: decoding(), prefill: []*script{{fail: lost()}, {items: []*inference.Output{handOver(`"d"`)}}}, text: "ab", decodes: []string{"1 "}, prefills: []string{"2 Disconnected", "3 "}},
		"lost after the hand-over":            {decode: decoding(), prefill: []*script{{items: []*inference.Output{handOver(`"d"`)}, fail: lost()}, {items: []*inference.Output{handOver(`"e"`)}}}, text: "ab", decodes: []string{"1 "}, prefills: []string{"2 Disconnected", "3 "}},
		"lost by all":                         {decode: decoding(), prefill: []*script{{fail: lost()}, {fail: lost()}}, err: inference.Disconnected, prefills: []string{"2 Disconnected", "3 Disconnected"}},
		"nothing handed over":                 {decode: decoding(), prefill: []*script{{items: []*inference.Output{say("p")}}}, err: inference.Unknown, prefills: []string{"2 Unknown"}},
		"nothing answered":                    {decode: decoding(), prefill: []*script{{}}, err: inference.Unknown, prefills: []string{"2 Unknown"}},
		"the engine reports an error":         {decode: decoding(), prefill: []*script{{items: []*inference.Output{{Finish: inference.FinishError, FinishMessage: "x"}}}}, err: inference.BackendUnknown, prefills: []string{"2 BackendUnknown"}},
		"decode refused by all": {decode: []*script{{refuse: refusal}}, prefill: []*script{{items: []*inference.Output{handOver(`"d"`)}}},
			err: inference.CannotConnect, decodes: []string{"1 CannotConnect"}, prefills: []string{"2 "}},
		"decode refused, prefill under way": {decode: []*script{{refuse: refusal}}, prefill: []*script{{hang: true}}, change: func(b *bench, _ *Job) {
			b.Prefill.Load().Bootstrap = func(uint64) (string, uint16, uint32, bool) { return "h", 7, 1, true }
		}, err: inference.CannotConnect, decodes: []string{"1 CannotConnect"}, prefills: []string{"2 Cancelled"}},
		"decode done, prefill under way": {decode: decoding(), prefill: []*script{{hang: true}}, change: func(b *bench, _ *Job) {
			b.Prefill.Load().Bootstrap = func(uint64) (string, uint16, uint32, bool) { return "h", 7, 1, true }
		}, text: "ab", decodes: []string{"1 "}, prefills: []string{"2 Cancelled"}},
		"constrained away": {decode: decoding(), prefill: []*script{{items: []*inference.Output{handOver(`"d"`)}, hang: true}}, change: func(b *bench, _ *Job) {
			b.Prefill.Load().Constrain = func(uint64, *inference.Request) error {
				return inference.Errorf(inference.Unavailable, "no room there")
			}
		}, err: inference.Unavailable, prefills: []string{"2 Unavailable"}},
		"no prefill worker, none needed": {decode: decoding(), change: func(b *bench, _ *Job) { b.Prefill.Store(nil); b.NeedsPrefill = false }, text: "ab", decodes: []string{"1 "}},
		"no prefill worker, fallback":    {decode: decoding(), change: func(b *bench, _ *Job) { b.Prefill.Store(nil); b.DecodeFallback = true }, text: "ab", decodes: []string{"1 "}},
		"a question":                     {decode: decoding(), prefill: []*script{{}}, change: func(_ *bench, j *Job) { j.Request.Routing.QueryOnly = true }},
		"bypassed": {decode: decoding(), prefill: []*script{{}}, change: func(b *bench, _ *Job) {
			b.Disaggregate = func(context.Context, *inference.Request) *router.Pin { return &router.Pin{WorkerID: 1} }
		}, text: "ab", decodes: []string{"1 "}},
	} {
		t.Run(name, func(t *testing.T) {
			b, pool := disaggregated(test.decode, test.prefill)
			j := job(nil)
			if test.change != nil {
				test.change(b, j)
			}
			got := b.run(t, j)
			if got.text != test.text || kindOf(got.err) != test.err {
				t.Errorf("text %q, error %v; want %q and %q", got.text, got.err, test.text, test.err)
			}
			b.ledger.settled(t, test.decodes...)
			pool.settled(t, test.prefills...)
			eventually(t, "all streams are closed", func() bool { return b.workers.streams() == 0 })
		})
	}
	b, _ := disaggregated(decoding(), nil)
	b.Prefill.Store(nil)
	if got := b.run(t, job(nil)); !errors.Is(got.err, ErrNoWorkers) {
		t.Errorf("no prefill worker: %v", got.err)
	}
}

// TestBothLegsOfAHandOver checks what the two workers are sent.
func TestBothLegsOfAHandOver(t *testing.T) {
	b, pool := disaggregated([]*script{{items: []*inference.Output{say("ab"), finish(inference.FinishLength)}}},
		[]*script{{refuse: inference.Errorf(inference.CannotConnect, "x")}, {items: []*inference.Output{handOver(`{"kv":12345678901234567890}`)}}})
	pool.rank = func(uint64) (uint32, bool) { return 3, true }
	b.ledger.rank = func(uint64) (uint32, bool) { return 1, true }
	if got := b.run(t, job(nil)); got.err != nil {
		t.Fatal(got.err)
	}
	prefill, decode := b.workers.requests[1], b.workers.requests[2]
	if *prefill.Stop.MaxTokens != 1 || *prefill.Routing.PrefillWorkerID != 3 || *prefill.Routing.DPRank != 3 || *prefill.Routing.PrefillDPRank != 3 {
		t.Errorf("prefill: %+v, %+v", prefill.Stop, prefill.Routing)
	}
	if *decode.Stop.MaxTokens != 100 || *decode.Routing.PrefillWorkerID != 3 || *decode.Routing.DPRank != 1 || decode.Routing.PrefillDPRank != nil {
		t.Errorf("decode: %+v, %+v", decode.Stop, decode.Routing)
	}
	want := &inference.PrefillResult{DisaggregatedParams: inference.Opaque{Codec: inference.JSON, Bytes: []byte(`{"kv":12345678901234567890}`)}, CachedTokens: ptr(uint32(4))}
	if diff := cmp.Diff(want, decode.PrefillResult); diff != "" || decode.Bootstrap != nil {
		t.Errorf("handed over (-want +got):\n%s", diff)
	}
	override := &inference.RouterOverride{OverlapScoreCredit: ptr(0.0), AssumeKVReuse: ptr(false), TrackPrefillTokens: ptr(false)}
	if diff := cmp.Diff(override, decode.RouterOverride); diff != "" {
		t.Errorf("routed by (-want +got):\n%s", diff)
	}
	if !slices.Equal(pool.attempts[1].Tried, []uint64{2}) || pool.requests[1].PrefillWorkerID != nil || b.ledger.attempts[0].Phase != router.Decode || !b.ledger.attempts[0].Untracked {
		t.Errorf("attempts: %+v, %+v", pool.attempts, b.ledger.attempts)
	}
}

// TestBothLegsMeet checks that both workers of a bootstrapped request are told the same place.
func TestBothLegsMeet(t *testing.T) {
	b, pool := disaggregated([]*script{{items: []*inference.Output{say("ab"), finish(inference.FinishLength)}}}, []*script{{items: []*inference.Output{say("p")}}})
	const ranks = 4
	pool.rank = func(uint64) (uint32, bool) { return 3, true }
	b.Prefill.Load().Bootstrap = func(uint64) (string, uint16, uint32, bool) { return "10.0.0.1", 8998, ranks, true }
	if got := b.run(t, job(nil)); got.err != nil {
		t.Fatal(got.err)
	}
	prefill, decode := b.workers.requests[0], b.workers.requests[1]
	if diff := cmp.Diff(prefill.Bootstrap, decode.Bootstrap); diff != "" || prefill.Bootstrap == nil {
		t.Fatalf("they do not meet: %s", diff)
	}
	if prefill.Bootstrap.Room%ranks != 3 || prefill.Bootstrap.Room >= 1<<63 || *decode.Routing.PrefillDPRank != 3 {
		t.Errorf("room %d, rank %v", prefill.Bootstrap.Room, decode.Routing.PrefillDPRank)
	}
	pool.settled(t, "2 *") // the answer may be complete before the prefill stream is drained
}

// TestAnAddressInOtherEncodingsIsFound: what the plane carries need not be JSON.
func TestAnAddressInOtherEncodingsIsFound(t *testing.T) {
	item := handOver("ignored")
	item.DisaggregatedParams = inference.Opaque{Codec: inference.MessagePack, Bytes: []byte("packed")}
	b, _ := disaggregated([]*script{{items: []*inference.Output{finish(inference.FinishLength)}}}, []*script{{items: []*inference.Output{item}}})
	b.OpaqueJSON = func(value inference.Opaque) ([]byte, error) {
		return json.Marshal(map[string]any{"bootstrap_host": string(value.Bytes), "bootstrap_port": 1, "bootstrap_room": 2})
	}
	if got := b.run(t, job(nil)); got.err != nil {
		t.Fatal(got.err)
	}
	if decode := b.workers.requests[1]; decode.Bootstrap == nil || decode.Bootstrap.Host != "packed" || decode.PrefillResult != nil {
		t.Errorf("decode was sent %+v and %+v", decode.Bootstrap, decode.PrefillResult)
	}
}

// TestACancelledRequestIsFetchedFromThePrefillWorker cancels between the two legs: the decode worker must hear of the request
// all the same, or the prefill worker would keep the prompt's blocks.
func TestACancelledRequestIsFetchedFromThePrefillWorker(t *testing.T) {
	b, pool := disaggregated([]*script{{hang: true}}, []*script{{items: []*inference.Output{handOver(`"d"`)}}})
	ctx, cancel := context.WithCancel(t.Context())
	b.ledger.onPlace = cancel
	if _, err := b.Generate(ctx, job(nil)); inference.KindOf(err) != inference.Cancelled {
		t.Fatal(err)
	}
	eventually(t, "the decode worker is asked", func() bool {
		b.workers.mu.Lock()
		defer b.workers.mu.Unlock()
		return len(b.workers.requests) == 2 && b.workers.requests[1].PrefillResult != nil
	})
	eventually(t, "and told to stop", func() bool {
		b.ledger.mu.Lock()
		defer b.ledger.mu.Unlock()
		return len(b.ledger.ends) == 1
	})
	b.ledger.settled(t, "1 Cancelled")
	pool.settled(t, "2 ")
	eventually(t, "all streams are closed", func() bool { return b.workers.streams() == 0 })
}

// reuseNotes collects what workers report of their caches.
type reuseNotes struct {
	mu     sync.Mutex
	tokens []int
}

func (n *reuseNotes) Reused(tokens int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tokens = append(n.tokens, tokens)
}

// What an engine reports of its cache at the end of an answer reaches the router, once; other data of its own does not.
func TestReportsOfReuseReachTheRouter(t *testing.T) {
	notes := &reuseNotes{}
	placement := router.NewPlacement(router.Pin{WorkerID: 1}, nil)
	placement.Reuse = notes
	a := &attempt{placement: placement}
	for _, data := range []string{"", `{"x":1}`, `[]`, `{"kv_cache_hit":null}`, `{"kv_cache_hit":{"prompt_tokens":9,"reused_tokens":4}}`, `{"kv_cache_hit":{"reused_tokens":5}}`} {
		output := &inference.Output{}
		if data != "" {
			output.EngineData = []byte(data)
		}
		a.noteReuse(output)
	}
	if !slices.Equal(notes.tokens, []int{4}) {
		t.Errorf("told %v, want 4 once", notes.tokens)
	}
}
