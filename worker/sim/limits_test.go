package sim

import (
	"context"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"signalbox/inference"
)

// TestConfigurationsThatCannotWork names what is wrong.
func TestConfigurationsThatCannotWork(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"block size": func(c *Config) { c.BlockSize = 0 }, "capacity": func(c *Config) { c.Blocks = 0 }, "sequences": func(c *Config) { c.MaxSequences = 0 },
		"batch": func(c *Config) { c.MaxBatchedTokens = 0 }, "ranks": func(c *Config) { c.Ranks = 0 }, "speed": func(c *Config) { c.SpeedupRatio = -1 },
		"vocabulary": func(c *Config) { c.Vocabulary = [2]uint32{5, 5} },
	} {
		config := instant()
		change(&config)
		if e, err := New(config, nil); err == nil {
			e.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestRequestsThatCannotBeServed are refused with a kind that says whose mistake it is, and the engine goes on.
func TestRequestsThatCannotBeServed(t *testing.T) {
	config := instant()
	config.Blocks = 4
	e, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for name, test := range map[string]struct {
		request *inference.Request
		want    inference.Kind
	}{
		"no tokens":      {request(5), inference.InvalidArgument},
		"beyond the KV":  {request(5, prompt(100, 0)...), inference.ResourceExhausted},
		"outgrows it":    {request(100, prompt(8, 0)...), inference.ResourceExhausted},
		"no such rank":   {func() *inference.Request { r := request(5, 1); r.Routing.DPRank = ptr(^uint32(0)); return r }(), inference.InvalidArgument},
		"no such length": {func() *inference.Request { r := request(5, 1); r.Stop.MaxTokens = nil; return r }(), inference.InvalidArgument},
	} {
		stream, err := e.Generate(t.Context(), test.request)
		for err == nil {
			_, err = stream.Next(t.Context())
		}
		if inference.KindOf(err) != test.want {
			t.Errorf("%s: %v, want kind %s", name, err, test.want)
		}
	}
	if got := generate(t, e, request(3, prompt(5, 0)...)); len(got.tokens) != 3 {
		t.Errorf("after the refusals: %+v", got)
	}
}

// TestAFullQueueIsOverloaded holds the engine still and fills its queue.
func TestAFullQueueIsOverloaded(t *testing.T) {
	config := instant()
	config.SpeedupRatio, config.MaxSequences, config.QueueLimit = 1e-9, 1, 2
	e, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	refused := 0
	for range 10 {
		stream, err := e.Generate(t.Context(), request(5, prompt(5, 0)...))
		switch {
		case err == nil:
			defer stream.Close()
		case inference.KindOf(err) == inference.WorkerOverloaded:
			refused++
		default:
			t.Error(err)
		}
	}
	if refused < 10-config.QueueLimit-1 || refused > 10-config.QueueLimit {
		t.Errorf("%d of 10 requests were refused with room for 1 and %d", refused, config.QueueLimit)
	}
}

// TestAProbeNeedsNoLength answers the body that probes send.
func TestAProbeNeedsNoLength(t *testing.T) {
	e, err := New(instant(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	probe := &inference.Request{TokenIDs: []uint32{1}, HealthCheck: true}
	if got := generate(t, e, probe); len(got.tokens) != 1 || got.finish != inference.FinishLength {
		t.Errorf("%+v", got)
	}
}

// TestAPrefillWorkerHandsOver answers one token and the parameters, whatever length is asked for.
func TestAPrefillWorkerHandsOver(t *testing.T) {
	config := instant()
	config.Prefill = true
	e, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	stream, err := e.Send(t.Context(), inference.Target{}, request(50, prompt(9, 0)...))
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Next(t.Context())
	if err != nil || len(first.TokenIDs) != 1 || first.DisaggregatedParams.IsZero() {
		t.Fatalf("%+v, %v", first, err)
	}
	if rest := read(t, stream); len(rest.tokens) != 0 || rest.finish != inference.FinishLength {
		t.Errorf("%+v", rest)
	}
}

// TestRanksTakeTurnsAndCacheApart: requests that name no rank go round, and each rank has a cache of its own.
func TestRanksTakeTurnsAndCacheApart(t *testing.T) {
	config := instant()
	config.Ranks = 2
	e, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i, want := range []uint32{0, 0, 8, 8} {
		if got := generate(t, e, request(1, prompt(9, 0)...)); got.cached != want {
			t.Errorf("request %d: %d tokens in the cache, want %d", i, got.cached, want)
		}
	}
	r := request(1, prompt(9, 5)...)
	for i, rank := range []uint32{1, 0, 1} {
		r.Routing.DPRank = ptr(rank)
		if got := generate(t, e, r); (got.cached == 8) != (i == 2) {
			t.Errorf("request %d on rank %d: %d tokens in the cache", i, rank, got.cached)
		}
	}
}

// TestWithoutPrefixCachingNothingIsKept checks the switch.
func TestWithoutPrefixCachingNothingIsKept(t *testing.T) {
	config := instant()
	config.PrefixCaching = false
	m := &mirror{held: make(map[uint64]uint64)}
	e, err := New(config, m)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := generate(t, e, request(5, prompt(9, 0)...)); got.cached != 0 {
			t.Errorf("%d tokens in the cache", got.cached)
		}
	}
	e.Close()
	if len(m.held) != 0 || m.fault != "" {
		t.Errorf("%d blocks are said to be held; %s", len(m.held), m.fault)
	}
}

// TestWhatIsAskedComesWhateverTheLoad sends random requests, some of which leave early, to engines of random size: every one
// that stays gets the tokens that a lone engine gives it, none is forgotten, and nothing is held in the end.
func TestWhatIsAskedComesWhateverTheLoad(t *testing.T) {
	lone, err := New(instant(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lone.Close()
	rapid.Check(t, func(t *rapid.T) {
		config := instant()
		config.Blocks = rapid.IntRange(12, 40).Draw(t, "blocks")
		config.MaxSequences = rapid.IntRange(1, 6).Draw(t, "sequences")
		config.MaxBatchedTokens = rapid.IntRange(1, 40).Draw(t, "batch")
		config.ChunkedPrefill = rapid.Bool().Draw(t, "chunked")
		config.PrefixCaching = rapid.Bool().Draw(t, "caching")
		m := &mirror{held: make(map[uint64]uint64)}
		e, err := New(config, m)
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		for i := range rapid.IntRange(1, 12).Draw(t, "requests") {
			r := request(uint32(rapid.IntRange(1, 12).Draw(t, "output")), prompt(rapid.IntRange(1, 30).Draw(t, "prompt"), uint32(i%3))...)
			leaves := rapid.IntRange(0, 20).Draw(t, "leaves after")
			wait.Go(func() {
				got, ended := readSome(e, r, leaves)
				want, _ := readSome(lone, r, leaves)
				if !ended || !slices.Equal(got, want) {
					t.Errorf("request %d: %v, want %v", i, got, want)
				}
			})
		}
		wait.Wait()
		// One more step, so that the engine notices who has left.
		if _, ok := readSome(e, request(1, prompt(3, 99)...), 100); !ok {
			t.Error("the engine does not go on")
		}
		e.Close()
		cache := e.ranks[0].cache
		if cache.private != 0 || cache.inUse() != 0 || m.fault != "" || len(m.held) != len(cache.blocks) || len(cache.blocks) > config.Blocks {
			t.Errorf("%d private, %d in use, %d held of %d, events say %d; %s", cache.private, cache.inUse(), len(cache.blocks), config.Blocks, len(m.held), m.fault)
		}
	})
}

// readSome reads at most so many items and leaves; false when the answer broke.
func readSome(e *Engine, r *inference.Request, items int) (tokens []uint32, ok bool) {
	stream, err := e.Generate(context.Background(), r)
	if err != nil {
		return nil, false
	}
	defer stream.Close()
	for range items {
		item, err := stream.Next(context.Background())
		if err == errEnd {
			return tokens, true
		}
		if err != nil {
			return tokens, false
		}
		tokens = append(tokens, item.TokenIDs...)
	}
	return tokens, true
}
