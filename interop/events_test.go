package interop

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/file"
	"signalbox/kvevents"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/transport/tcp"
)

// leaky is the event plane with messages lost on purpose: every third one.
type leaky struct {
	kvevents.Plane
	lost *atomic.Int64
}

func (l leaky) Receive(ctx context.Context, channel *discovery.EventChannel, receiver kvevents.Receiver) error {
	count := 0
	take := receiver.Message
	receiver.Message = func(envelope kvevents.Envelope) {
		if count++; count%3 == 0 {
			l.lost.Add(1)
			return
		}
		take(envelope)
	}
	return l.Plane.Receive(ctx, channel, receiver)
}

// listener follows the events of the mock workers with an index of its own.
type listener struct {
	*kvevents.Subscriber
	index *kvindex.Index
}

func listen(t *testing.T, s store, plane kvevents.Plane, load func(kvevents.Load)) *listener {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	backend, err := file.Open(file.Options{Root: strings.TrimPrefix(s.variable, "DYN_FILE_KV="), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close(context.Background()) })
	client, err := tcp.NewClient(tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	index, err := kvindex.New(kvindex.Options{})
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := kvevents.Start(t.Context(), kvevents.Options{Backend: backend, Plane: plane, Queries: client, Sink: index, Load: load, Logger: quiet,
		Endpoint: discovery.EndpointID{Namespace: "dynamo", Component: "backend", Name: "generate"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(subscriber.Close)
	return &listener{subscriber, index}
}

// held returns how many leading blocks of the prompt all ranks together hold on the device, and how many ranks hold any.
func (l *listener) held(locals []uint64) (blocks, ranks int) {
	var matches kvindex.Matches
	l.index.Find(&matches, kvindex.Query{Locals: locals})
	for _, match := range matches.Ranks {
		blocks += int(match.Blocks[kvindex.Device])
	}
	return blocks, len(matches.Ranks)
}

const eventBlockSize = 16

// prompt is a random prompt of whole blocks that begins with the given one, as JSON, with its local block hashes.
func prompt(t *testing.T, random *rand.Rand, before []uint32, blocks int) (tokens []uint32, locals []uint64) {
	t.Helper()
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: eventBlockSize})
	if err != nil {
		t.Fatal(err)
	}
	tokens = append(tokens, before...)
	for range blocks * eventBlockSize {
		tokens = append(tokens, uint32(300+random.IntN(3000)))
	}
	return tokens, hasher.AppendBlocks(nil, tokens)
}

// complete sends a prompt and returns how many of its tokens were cached.
func complete(t *testing.T, f *frontend, model string, tokens []uint32) int {
	t.Helper()
	text := strings.Join(strings.Fields(fmt.Sprint(tokens)), ",")
	status, answer, err := f.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":2}`, model, text))
	if err != nil || status != 200 {
		t.Fatalf("status %d, %v: %s", status, err, answer)
	}
	cached := 0
	if found := regexp.MustCompile(`"cached_tokens":(\d+)`).FindStringSubmatch(answer); found != nil {
		cached, _ = strconv.Atoi(found[1])
	}
	return cached
}

// TestTheirEventsReachOurIndex sends prompts to two real mock workers and looks them up in indexes that follow the workers' events:
// one from the start, one that loses every third message and asks for them, and one that joins at the end and is told all at once.
func TestTheirEventsReachOurIndex(t *testing.T) {
	for _, r := range releases(t) {
		t.Run(r.name, func(t *testing.T) {
			s := fileStore(t)
			model := modelDirectory(t)
			var lost atomic.Int64
			var loads atomic.Int64 // that tell the blocks in use
			early := listen(t, s, nil, func(load kvevents.Load) {
				if load.UsedBlocks.Known && load.Rank.WorkerID != 0 {
					loads.Add(1)
				}
			})
			holey := listen(t, s, leaky{kvevents.ZMQ{}, &lost}, nil)
			args := []string{"--speedup-ratio", "100", "--block-size", strconv.Itoa(eventBlockSize), "--num-gpu-blocks-override", "128"}
			first := startMocker(t, r, s, model, args...)
			ours := startOurs(t, s)
			name := ours.serve(t)
			startMocker(t, r, s, model, args...)
			eventually(t, "both workers' sources are known", func() bool {
				live := 0
				for _, status := range early.Status() {
					if status.State == kvevents.Live {
						live++
					}
				}
				return live == 2
			})
			random := rand.New(rand.NewPCG(1, 2))
			common, _ := prompt(t, random, nil, 3)
			var last []uint64
			for range 60 { // far more than 128 blocks: there are evictions
				var tokens []uint32
				tokens, last = prompt(t, random, common, 5)
				complete(t, ours, name, tokens)
			}
			// The last prompt is wholly on one worker; its beginning is on both.
			eventually(t, "the last prompt is found", func() bool {
				blocks, ranks := early.held(last)
				return blocks >= 8+3 && ranks == 2
			})
			late := listen(t, s, nil, nil)
			eventually(t, "all indexes hold the same", func() bool {
				if early.index.Stats().Total() < 100 || !same(early.index, late.index) {
					return false
				}
				if same(early.index, holey.index) {
					return true
				}
				tokens, _ := prompt(t, random, common, 5) // the last message may be lost: only another one tells
				complete(t, ours, name, tokens)
				return false
			})
			c, h := early.Counters(), holey.Counters()
			if c.Removed == 0 || c.Gaps != 0 || c.Malformed != 0 || c.UnknownParent+c.UnknownBlock+c.InvalidEvent+c.Unusable > 0 || loads.Load() == 0 {
				t.Errorf("followed: %+v, %d load reports", c, loads.Load())
			}
			if lost.Load() == 0 || h.Gaps == 0 || h.Ranges == 0 || h.FailedQueries > 0 || h.UnknownParent+h.UnknownBlock > 0 {
				t.Errorf("lost %d messages: %+v", lost.Load(), h)
			}
			eventually(t, "both workers have confirmed that nothing is missing", func() bool { return late.Counters().Unneeded == 2 })
			if l := late.Counters(); l.Dumps != 2 || l.FailedQueries > 0 || l.UnknownParent+l.UnknownBlock > 0 {
				t.Errorf("late: %+v", l)
			}
			first.signal(syscall.SIGTERM)
			eventually(t, "the first worker is forgotten", func() bool { return len(early.index.Ranks()) == 1 && len(early.Status()) == 1 })
		})
	}
}

// TestTheirRanksAndTiersReachOurIndex does the same with a worker of two data-parallel ranks, and, where the release has it, a second
// tier of blocks in host memory.
func TestTheirRanksAndTiersReachOurIndex(t *testing.T) {
	for _, r := range releases(t) {
		t.Run(r.name, func(t *testing.T) {
			s := fileStore(t)
			var lost atomic.Int64
			early, holey := listen(t, s, nil, nil), listen(t, s, leaky{kvevents.ZMQ{}, &lost}, nil)
			args := []string{"--speedup-ratio", "100", "--block-size", strconv.Itoa(eventBlockSize), "--num-gpu-blocks-override", "64", "--data-parallel-size", "2"}
			hostTier := r.name != "1.5.1"
			if hostTier {
				args = append(args, "--num-host-blocks", "96", "--kv-bytes-per-token", "1024")
			}
			startMocker(t, r, s, modelDirectory(t), args...)
			ours := startOurs(t, s)
			name := ours.serve(t)
			random := rand.New(rand.NewPCG(5, 6))
			common, _ := prompt(t, random, nil, 2)
			send := func() {
				tokens, _ := prompt(t, random, common, 5)
				complete(t, ours, name, tokens)
			}
			for range 80 {
				send()
			}
			late := listen(t, s, nil, nil)
			eventually(t, "all indexes hold the same", func() bool {
				if len(early.index.Ranks()) == 2 && same(early.index, late.index) && same(early.index, holey.index) {
					return true
				}
				send()
				return false
			})
			stats := early.index.Stats()
			if stats.Blocks[kvindex.Device] == 0 || hostTier != (stats.Blocks[kvindex.HostPinned] > 0) {
				t.Errorf("blocks by tier: %v", stats.Blocks)
			}
			for kind, l := range map[string]*listener{"early": early, "holey": holey, "late": late} {
				if c := l.Counters(); c.Malformed+c.Unusable+c.Foreign+c.UnknownParent+c.UnknownBlock+c.InvalidEvent+c.FailedQueries > 0 {
					t.Errorf("%s: %+v", kind, c)
				}
			}
		})
	}
}

// same tells whether two indexes hold the same blocks of the same ranks.
func same(a, b *kvindex.Index) bool {
	return fmt.Sprint(contents(a)) == fmt.Sprint(contents(b))
}

// contents maps every rank to its blocks and their parents.
func contents(index *kvindex.Index) map[kvindex.Rank]map[uint64]string {
	all := make(map[kvindex.Rank]map[uint64]string)
	for _, rank := range index.Ranks() {
		all[rank] = make(map[uint64]string)
		for event := range index.Events(rank) {
			parent := fmt.Sprint(event.HasParent, event.Parent)
			for _, block := range event.Blocks {
				all[rank][block.Hash] = fmt.Sprint(parent, block.Local, event.Tier)
				parent = fmt.Sprint(true, block.Hash)
			}
		}
	}
	return all
}

// hitRate returns the sum of the hit rates that a frontend's router has seen.
func hitRate(t *testing.T, f *frontend) float64 {
	t.Helper()
	_, text, _ := get(f.url + "/metrics")
	found := regexp.MustCompile(`(?m)^dynamo_component_router_kv_hit_rate_sum\S* (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no hit rate among the metrics:\n%s", text)
	}
	value, _ := strconv.ParseFloat(found[1], 64)
	return value
}

// follow checks that a frontend in KV mode sends prompts to the one of four workers that holds them: those that were sent by the
// other frontend before it was there, and those that are sent by the other one meanwhile.
func follow(t *testing.T, other *frontend, name string, startKV func() *frontend) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	const count, blocks = 8, 20
	spread := func() (prompts [][]uint32) {
		for range count {
			tokens, _ := prompt(t, random, nil, blocks)
			prompts = append(prompts, tokens)
			complete(t, other, name, tokens)
		}
		return prompts
	}
	least := (blocks - 1) * eventBlockSize // an engine computes the last block again
	prompts := spread()
	router := startKV()
	router.serve(t)
	eventually(t, "the router has read what the workers hold", func() bool { return complete(t, router, name, prompts[0]) >= least })
	hits := func(kind string) {
		t.Helper()
		for i, tokens := range prompts {
			if cached := complete(t, router, name, tokens); cached < least {
				t.Errorf("prompt %d that was sent %s: %d of %d tokens were cached", i, kind, cached, len(tokens))
			}
		}
	}
	hits("before")
	prompts = spread()
	before := hitRate(t, router)
	hits("meanwhile")
	if grown := hitRate(t, router) - before; grown < count-1 {
		t.Errorf("the router saw a sum of hit rates of %.2f in %d requests", grown, count)
	}
}

func TestTheirRouterFollowsOurEvents(t *testing.T) {
	for _, r := range releases(t) {
		for _, plane := range []string{"zmq", "nats"} {
			t.Run(r.name+"/"+plane, func(t *testing.T) {
				s := fileStore(t).over(t, map[string]string{"zmq": "tcp", "nats": "nats"}[plane], plane)
				args := append([]string{"worker", "--model-name", "interop", "--model-path", modelDirectory(t), "--speedup-ratio", "100", "--num-workers", "4",
					"--block-size", strconv.Itoa(eventBlockSize)}, s.flags()...)
				start(t, s.environment(), program, args...)
				ours := startOurs(t, s, "--router-mode", "round-robin")
				follow(t, ours, ours.serve(t), func() *frontend { return startTheirs(t, r, s, "--router-mode", "kv") })
			})
		}
	}
}

func TestOurRouterFollowsTheirEvents(t *testing.T) {
	for _, r := range releases(t) {
		for _, plane := range []string{"zmq", "nats"} {
			t.Run(r.name+"/"+plane, func(t *testing.T) {
				s := fileStore(t).over(t, map[string]string{"zmq": "tcp", "nats": "nats"}[plane], plane)
				startMocker(t, r, s, modelDirectory(t), "--speedup-ratio", "100", "--num-workers", "4", "--block-size", strconv.Itoa(eventBlockSize))
				other := startOurs(t, s, "--router-mode", "round-robin")
				follow(t, other, other.serve(t), func() *frontend { return startOurs(t, s, "--router-mode", "kv") })
			})
		}
	}
}
