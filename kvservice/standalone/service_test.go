package standalone

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/transport/tcp"
	"signalbox/transport/wire"
	"signalbox/worker"
	"signalbox/worker/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quiet   = slog.New(slog.NewTextHandler(io.Discard, nil))
	workers = discovery.EndpointID{Namespace: "ns", Component: "backend", Name: "generate"}
)

const blockSize = 4

// plain reaches workers over TCP.
type plain struct{ *tcp.Client }

func (p plain) Target(instance *discovery.Instance) (inference.Target, bool) {
	target := inference.Target{WorkerID: instance.InstanceID, Address: instance.Transport.TCP}
	if instance.Codec == inference.MessagePack.String() {
		target.Codec = inference.MessagePack
	}
	return target, target.Address != ""
}

// fleet is a standalone router with its store.
type fleet struct {
	store   *mem.Store
	service *Service
	routed  *kv.Router
	index   *kvindex.Index
	client  *tcp.Client
	targets map[string]inference.Target // of the router's endpoints, by name
}

// join registers a worker that answers with the handler and wants bodies in the codec; leave takes it away.
func join(t *testing.T, store *mem.Store, codec inference.Codec, handler tcp.Handler) (id uint64, leave func()) {
	t.Helper()
	directory := t.TempDir()
	if err := builtin.Write(directory); err != nil {
		t.Fatal(err)
	}
	runtime := card.DefaultRuntimeConfig()
	made, err := card.FromDirectory(directory, "m", card.Options{BlockSize: blockSize, ModelType: card.Chat, WorkerType: card.AggregatedWorker, Runtime: &runtime})
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	server, err := tcp.NewServer(tcp.Options{Host: "127.0.0.1"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	backend := store.Open(mem.Options{})
	transport, stop, err := worker.OnTCP(server).Serve(backend.InstanceID(), workers, handler)
	if err != nil {
		t.Fatal(err)
	}
	id = backend.InstanceID()
	instance := &discovery.Instance{Namespace: workers.Namespace, Component: workers.Component, Endpoint: workers.Name, InstanceID: id, Transport: transport}
	if codec == inference.MessagePack {
		instance.Codec = codec.String()
	}
	for _, record := range []discovery.Record{instance,
		&discovery.Model{Namespace: workers.Namespace, Component: workers.Component, Endpoint: workers.Name, InstanceID: id, Card: text}} {
		if err := discovery.Publish(t.Context(), backend, record); err != nil {
			t.Fatal(err)
		}
	}
	left := false
	leave = func() {
		if left {
			return
		}
		left = true
		if err := backend.Close(context.Background()); err != nil {
			t.Error(err)
		}
		stop()
		_ = server.Close()
	}
	t.Cleanup(leave)
	return id, leave
}

// newFleet starts a router on a store that has a worker.
func newFleet(t *testing.T, store *mem.Store) *fleet {
	t.Helper()
	f := &fleet{store: store, targets: make(map[string]inference.Target)}
	var err error
	if f.client, err = tcp.NewClient(tcp.Options{Host: "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.client.Close() })
	if f.index, err = kvindex.New(kvindex.Options{}); err != nil {
		t.Fatal(err)
	}
	server, err := tcp.NewServer(tcp.Options{Host: "127.0.0.1"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	backend := store.Open(mem.Options{})
	t.Cleanup(func() { _ = backend.Close(context.Background()) })
	f.service, err = Start(t.Context(), Options{Backend: backend, Plane: worker.OnTCP(server), Workers: plain{f.client}, Endpoint: workers, Namespace: "mine",
		BlockSize: blockSize, Logger: quiet, WorkerOf: func(m model.Member) router.Worker {
			return router.Worker{ID: m.Instance.InstanceID, DataParallelStart: 3}
		},
		Route: func(pool *router.Pool, set *model.Set) (router.Router, func(), error) {
			if set.Key.Model != "m" || set.Card.BlockSize != blockSize {
				t.Errorf("the router is made for %q with blocks of %d", set.Key.Model, set.Card.BlockSize)
			}
			f.routed, err = kv.New(kv.Options{Config: kv.DefaultConfig(), Pool: pool, BlockSize: blockSize, Index: f.index})
			return f.routed, nil, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.service.Close)
	watch, err := backend.Watch(t.Context(), discovery.Instances, "mine/router")
	if err != nil {
		t.Fatal(err)
	}
	for event := range watch {
		if event.Kind == discovery.Synced {
			break
		}
		instance := event.Record.(*discovery.Instance)
		f.targets[instance.Endpoint], _ = plain{}.Target(instance)
	}
	if len(f.targets) != 3 {
		t.Fatalf("the endpoints are %v", f.targets)
	}
	return f
}

// ask asks an endpoint of the router, with JSON on both sides whatever is on the wire.
func (f *fleet) ask(t *testing.T, ctx context.Context, endpoint string, codec inference.Codec, request string, each func(item string)) error {
	t.Helper()
	target := f.targets[endpoint]
	target.Codec = codec
	body := []byte(request)
	if codec == inference.MessagePack {
		var err error
		if body, err = wire.AppendMessagePack(nil, body); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := f.client.SendValue(ctx, target, "request-1", body)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		output, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		item := output.Body
		if codec == inference.MessagePack {
			if item, err = wire.AppendJSON(nil, item); err != nil {
				t.Fatal(err)
			}
		}
		each(string(item))
		var failure struct{ Error any }
		if json.Unmarshal(item, &failure) == nil && failure.Error != nil {
			return errors.New(string(item))
		}
	}
}

// idle waits until nothing is booked.
func (f *fleet) idle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); f.routed.Stats().ActiveRequests > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("requests stay booked")
		}
	}
}

const request = `{"model":"m","token_ids":[1,2,3,4,5,6,7,8,9],"stop_conditions":{"max_tokens":2,"unknown":[1,{"a":null}]},"unknown":18446744073709551615,"routing":{"dp_rank":7,"hint":"x"}}`

// Everything but the rank is as it came, in all combinations of encodings; the first and the last item say more than the worker did.
func TestRequestsAndAnswersAreWhole(t *testing.T) {
	for _, worker := range []inference.Codec{inference.MessagePack, inference.JSON} {
		for _, caller := range []inference.Codec{inference.MessagePack, inference.JSON} {
			store := &mem.Store{}
			bodies := make(chan string, 1)
			id, _ := join(t, store, worker, func(_ context.Context, call *tcp.Call) error {
				text := call.Body
				if call.Codec == inference.MessagePack {
					text, _ = wire.AppendJSON(nil, call.Body)
				}
				bodies <- call.ID + " " + string(text)
				for _, item := range []string{`{"data":{"token_ids":[5],"mystery":{"k":[1.5,null]}}}`, `{"event":"note","comments":["c"]}`, `{"data":{"token_ids":[6,7],"finish_reason":"length"}}`} {
					value := []byte(item)
					if call.Codec == inference.MessagePack {
						value, _ = wire.AppendMessagePack(nil, value)
					}
					call.EmitValue(value)
				}
				return call.Flush()
			})
			f := newFleet(t, store)
			var items []string
			if err := f.ask(t, t.Context(), "generate", caller, request, func(item string) { items = append(items, item) }); err != nil {
				t.Fatal(err)
			}
			var sent struct {
				Unknown  json.Number
				Stop     json.RawMessage `json:"stop_conditions"`
				Sampling json.RawMessage `json:"sampling_options"`
				Routing  struct {
					Rank int `json:"dp_rank"`
					Hint string
				}
			}
			body, named := strings.CutPrefix(<-bodies, "request-1 ")
			if err := json.Unmarshal([]byte(body), &sent); err != nil || !named {
				t.Fatalf("%v: %s", err, body)
			}
			if sent.Unknown != "18446744073709551615" || string(sent.Stop) != `{"max_tokens":2,"unknown":[1,{"a":null}]}` || string(sent.Sampling) != `{}` || sent.Routing.Rank != 3 || sent.Routing.Hint != "x" {
				t.Errorf("the worker got %s", body)
			}
			if len(items) != 3 || !strings.Contains(items[0], `"mystery":{"k":[1.5,null]}`) || !strings.Contains(items[1], `"c"`) {
				t.Fatalf("the caller got %q", items)
			}
			var first, last struct {
				Data struct {
					Routing struct {
						Worker *struct {
							ID   uint64 `json:"decode_worker_id"`
							Rank int    `json:"prefill_dp_rank"`
						} `json:"worker_id"`
						Timing map[string]float64
					} `json:"routing_data"`
				}
			}
			if json.Unmarshal([]byte(items[0]), &first) != nil || first.Data.Routing.Worker == nil || first.Data.Routing.Worker.ID != id || first.Data.Routing.Worker.Rank != 3 {
				t.Errorf("the first item is %s", items[0])
			}
			if json.Unmarshal([]byte(items[2]), &last) != nil || len(last.Data.Routing.Timing) != 7 || last.Data.Routing.Timing["total_time_ms"] < last.Data.Routing.Timing["ttft_ms"] {
				t.Errorf("the last item is %s", items[2])
			}
			f.idle(t)
		}
	}
}

func TestQuestions(t *testing.T) {
	store := &mem.Store{}
	nothing := func(context.Context, *tcp.Call) error { return nil }
	first, leave := join(t, store, inference.MessagePack, nothing)
	f := newFleet(t, store)
	second, _ := join(t, store, inference.MessagePack, nothing)
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: blockSize})
	if err != nil {
		t.Fatal(err)
	}
	locals := hasher.AppendBlocks(nil, []uint32{1, 2, 3, 4, 5, 6, 7, 8})
	if err := f.index.Apply(kvindex.Event{Rank: kvindex.Rank{WorkerID: second, DPRank: 3}, Op: kvindex.Stored,
		Blocks: []kvindex.Block{{Hash: 1, Local: locals[0]}, {Hash: 2, Local: locals[1]}}}); err != nil {
		t.Fatal(err)
	}
	one := func(endpoint, question string) (item string, err error) {
		err = f.ask(t, t.Context(), endpoint, inference.MessagePack, question, func(got string) { item += got })
		return item, err
	}
	var scores struct {
		Data struct {
			Blocks  int `json:"num_blocks"`
			Workers []struct {
				ID     uint64 `json:"worker_id"`
				Rank   int    `json:"dp_rank"`
				Device int    `json:"device_blocks"`
			}
		}
	}
	for deadline := time.Now().Add(10 * time.Second); len(scores.Data.Workers) != 2; {
		item, err := one("get_overlap_scores", `{"token_ids":[1,2,3,4,5,6,7,8,9]}`)
		if err != nil || json.Unmarshal([]byte(item), &scores) != nil || time.Now().After(deadline) {
			t.Fatal(item, err)
		}
	}
	for _, row := range scores.Data.Workers {
		if want := map[uint64]int{first: 0, second: 2}[row.ID]; row.Device != want || row.Rank != 3 || scores.Data.Blocks != 2 {
			t.Errorf("%+v", scores)
		}
	}
	item, err := one("best_worker_id", `[1,2,3,4,5,6,7,8,9]`)
	var best struct{ Data json.Number }
	if err != nil || json.Unmarshal([]byte(item), &best) != nil || best.Data.String() != string(appendUint(second)) {
		t.Errorf("the best worker is %s, %v; want %d", item, err, second)
	}
	if f.routed.Stats().ActiveRequests != 0 {
		t.Error("a question is booked")
	}
	for _, c := range []struct{ endpoint, question string }{{"best_worker_id", `{}`}, {"best_worker_id", `[-1]`}, {"get_overlap_scores", `{}`},
		{"get_overlap_scores", `{"token_ids":"x"}`}, {"generate", `[]`}, {"generate", `{"token_ids":{}}`}} {
		if _, err := one(c.endpoint, c.question); err == nil || !strings.Contains(err.Error(), "Invalid") {
			t.Errorf("%s %s: %v", c.endpoint, c.question, err)
		}
	}
	leave()
	for deadline := time.Now().Add(10 * time.Second); len(f.service.pool.Snapshot().Workers) != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a worker that left is still there")
		}
	}
}

func appendUint(value uint64) []byte {
	text, _ := json.Marshal(value)
	return text
}

// Failures of every kind reach the caller, and nothing stays booked.
func TestFailures(t *testing.T) {
	store := &mem.Store{}
	running := make(chan context.Context, 1)
	_, leave := join(t, store, inference.MessagePack, func(ctx context.Context, call *tcp.Call) error {
		request, err := wire.DecodeRequest(call.Body, call.Codec)
		if err != nil {
			return err
		}
		switch request.TokenIDs[0] {
		case 1:
			return inference.Errorf(inference.InvalidArgument, "the worker refuses")
		case 2:
			value, _ := wire.AppendMessagePack(nil, []byte(`{"event":"error","comments":["it broke"]}`))
			call.EmitValue(value)
			return call.Flush()
		case 5:
			return inference.Errorf(inference.EngineShutdown, "the engine ends")
		case 3:
			value := msgp.AppendString(nil, "no item")
			call.EmitValue(value)
			return call.Flush()
		}
		running <- ctx
		<-ctx.Done()
		return nil
	})
	f := newFleet(t, store)
	nothing := func(string) {}
	if err := f.ask(t, t.Context(), "generate", inference.MessagePack, `{"token_ids":[1]}`, nothing); err == nil || !strings.Contains(err.Error(), "the worker refuses") {
		t.Errorf("a refusal: %v", err)
	}
	item := ""
	if err := f.ask(t, t.Context(), "generate", inference.MessagePack, `{"token_ids":[2]}`, func(got string) { item = got }); err != nil || !strings.Contains(item, "it broke") {
		t.Errorf("an error in an item: %s, %v", item, err)
	}
	if err := f.ask(t, t.Context(), "generate", inference.MessagePack, `{"token_ids":[3]}`, nothing); err == nil {
		t.Error("an item that is none passes")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.ask(t, ctx, "generate", inference.MessagePack, `{"token_ids":[4]}`, nothing) }()
	work := <-running
	cancel()
	<-work.Done() // or the test never ends
	if err := <-done; err == nil {
		t.Error("a request that was given up ended well")
	}
	f.idle(t)
	if err := f.ask(t, t.Context(), "generate", inference.MessagePack, `{"token_ids":[5]}`, nothing); err == nil || len(f.service.pool.Snapshot().Routable()) != 0 {
		t.Errorf("a worker whose engine ends, with %v, gets more requests", err)
	}
	leave()
	for len(f.service.pool.Snapshot().Workers) > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := f.ask(t, t.Context(), "generate", inference.MessagePack, `{"token_ids":[1]}`, nothing); err == nil {
		t.Error("a request without any worker is answered")
	}
}

func TestStartGivesUp(t *testing.T) {
	backend := (&mem.Store{}).Open(mem.Options{})
	defer backend.Close(context.Background())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{Backend: backend, Endpoint: workers, Logger: quiet}); !errors.Is(err, context.Canceled) {
		t.Errorf("without a worker: %v", err)
	}
}

// What workers and callers send is read or refused, whatever it is.
func FuzzBodies(f *testing.F) {
	for _, text := range []string{request, `{"data":{"token_ids":[1],"finish_reason":"x"}}`, `{"data":{"token_ids":1}}`, `[]`} {
		value, err := wire.AppendMessagePack(nil, []byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		placement := router.NewPlacement(router.Pin{WorkerID: 1, Rank: 2, HasRank: true}, nil)
		if body, err := addressed(data, placement); err == nil {
			if rest, err := msgp.Skip(body); err != nil || len(rest) > 0 {
				t.Errorf("%x becomes %x: %v", data, body, err)
			}
		}
		p := passing{placement: placement}
		if item, err := p.take(data); err == nil {
			if rest, err := msgp.Skip(item); err != nil || len(rest) > 0 && !bytes.Equal(item, data) {
				t.Errorf("%x becomes %x: %v", data, item, err)
			}
		}
	})
}
