package sim

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"signalbox/inference"
	"signalbox/kvhash"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func instant() Config {
	config := DefaultConfig()
	config.BlockSize, config.SpeedupRatio = 4, 0
	return config
}

func request(maxTokens uint32, tokens ...uint32) *inference.Request {
	return &inference.Request{ID: "r", TokenIDs: tokens, Stop: inference.StopConditions{MaxTokens: &maxTokens}}
}

func prompt(n int, salt uint32) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(i)*7 + salt
	}
	return tokens
}

type answer struct {
	tokens []uint32
	finish inference.FinishReason
	cached uint32
}

func read(t *testing.T, stream inference.Stream) answer {
	t.Helper()
	var a answer
	for {
		item, err := stream.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			t.Fatal(err)
		}
		a.tokens = append(a.tokens, item.TokenIDs...)
		if item.Finish != inference.FinishNone {
			a.finish = item.Finish
		}
		if item.Usage != nil {
			a.cached = *item.Usage.CachedTokens
		}
	}
}

func generate(t *testing.T, e *Engine, r *inference.Request) answer {
	t.Helper()
	stream, err := e.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, stream)
}

// mirror replays events into the set of hashes that the cache must hold.
type mirror struct {
	mu    sync.Mutex
	held  map[uint64]uint64 // hash to local hash
	fault string
}

func (m *mirror) Stored(_ int, parent uint64, hasParent bool, blocks []Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if hasParent {
		if _, ok := m.held[parent]; !ok {
			m.fault = "a block was stored under a parent that is not held"
		}
	}
	for _, block := range blocks {
		if _, ok := m.held[block.Hash]; ok {
			m.fault = "a block was stored twice"
		}
		m.held[block.Hash] = block.Local
	}
}

func (m *mirror) Removed(_ int, hashes []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, hash := range hashes {
		if _, ok := m.held[hash]; !ok {
			m.fault = "a block was removed that is not held"
		}
		delete(m.held, hash)
	}
}

func (m *mirror) Load(int, int) {}

func TestSamePromptGivesSameTextAndIsFoundInTheCache(t *testing.T) {
	e, err := New(instant(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	first := generate(t, e, request(10, prompt(18, 1)...))
	second := generate(t, e, request(10, prompt(18, 1)...))
	if !slices.Equal(first.tokens, second.tokens) || len(first.tokens) != 10 || first.finish != inference.FinishLength {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if first.cached != 0 || second.cached != 16 {
		t.Errorf("cached %d then %d, want 0 then 16", first.cached, second.cached)
	}
}

func TestEventsMirrorTheCacheUnderEviction(t *testing.T) {
	config := instant()
	config.Blocks, config.MaxSequences = 40, 8
	m := &mirror{held: make(map[uint64]uint64)}
	e, err := New(config, m)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var wait sync.WaitGroup
	for range 200 {
		r := request(uint32(1+random.IntN(30)), prompt(1+random.IntN(60), uint32(random.IntN(3)))...)
		wait.Go(func() {
			stream, err := e.Generate(context.Background(), r)
			if err != nil {
				t.Error(err)
				return
			}
			read(t, stream)
		})
	}
	wait.Wait()
	status := e.Status()
	e.Close()
	if m.fault != "" {
		t.Error(m.fault)
	}
	cache := e.ranks[0].cache
	if len(m.held) != len(cache.blocks) || cache.private != 0 || cache.inUse() != 0 {
		t.Errorf("events say %d blocks, the cache holds %d, %d private, %d in use", len(m.held), len(cache.blocks), cache.private, cache.inUse())
	}
	if len(cache.blocks) > config.Blocks {
		t.Errorf("%d blocks in a cache of %d", len(cache.blocks), config.Blocks)
	}
	if status.Waiting != 0 {
		t.Errorf("status %+v", status)
	}
	hasher, _ := kvhash.New(kvhash.Scope{BlockSize: 4})
	locals := hasher.AppendBlocks(nil, prompt(8, 0))
	for i, hash := range hasher.AppendSequence(nil, locals) {
		if local, ok := m.held[hash]; ok && local != locals[i] {
			t.Errorf("block %d has local hash %d, want %d", i, local, locals[i])
		}
	}
}

func TestRefusals(t *testing.T) {
	config := instant()
	config.MaxModelLength = 20
	e, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r := request(5, prompt(8, 0)...)
	r.Stop.MaxTokens = nil
	if _, err := e.Generate(t.Context(), r); inference.KindOf(err) != inference.InvalidArgument {
		t.Errorf("no max_tokens: %v", err)
	}
	rank := uint32(3)
	r = request(5, prompt(8, 0)...)
	r.Routing.DPRank = &rank
	if _, err := e.Generate(t.Context(), r); inference.KindOf(err) != inference.InvalidArgument {
		t.Errorf("rank 3 of 1: %v", err)
	}
	if _, err := e.Generate(t.Context(), request(5, prompt(20, 0)...)); err == nil {
		t.Error("a prompt as long as the model was accepted")
	}
	if got := generate(t, e, request(50, prompt(15, 0)...)); len(got.tokens) != 5 {
		t.Errorf("%d tokens within a model length of 20 after 15", len(got.tokens))
	}
}

func TestClosedStreamFreesItsBlocks(t *testing.T) {
	config := instant()
	config.SpeedupRatio = 1
	e, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	stream, err := e.Generate(t.Context(), request(100000, prompt(8, 0)...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	if got := generate(t, e, request(1, prompt(4, 9)...)); len(got.tokens) != 1 { // a step after the close
		t.Fatalf("%+v", got)
	}
	if status := e.Status(); status.Running > 1 {
		t.Errorf("the closed stream still runs: %+v", status)
	}
}

func TestAShutdownTellsReaders(t *testing.T) {
	config := instant()
	config.SpeedupRatio = 0.001
	e, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := e.Generate(t.Context(), request(10, prompt(8, 0)...))
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	if _, err := stream.Next(t.Context()); inference.KindOf(err) != inference.EngineShutdown {
		t.Errorf("after Close: %v", err)
	}
}

func TestMigratedRequestCostsOnlyItsRest(t *testing.T) {
	e, err := New(instant(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	generate(t, e, request(4, prompt(16, 0)...))
	got := generate(t, e, request(4, append(prompt(16, 0), 5, 6)...))
	if got.cached != 16 {
		t.Errorf("cached %d of a prompt whose first 16 tokens are known", got.cached)
	}
}
