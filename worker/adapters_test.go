package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/transport/tcp"
	"signalbox/transport/wire"
)

// held is an engine whose answers end when they are closed.
type held struct{ begun chan string }

// Generate implements Engine.
func (h *held) Generate(_ context.Context, request *inference.Request) (inference.Stream, error) {
	h.begun <- request.Routing.LoRAName
	return heldAnswer{}, nil
}

type heldAnswer struct{}

func (heldAnswer) Next(ctx context.Context) (*inference.Output, error) {
	<-ctx.Done()
	return nil, io.EOF
}
func (heldAnswer) Buffered() bool { return false }
func (heldAnswer) Close() error   { return nil }

// adapterStage is a worker that loads adapters, with its status server, and a frontend's side.
type adapterStage struct {
	t        *testing.T
	worker   *Worker
	status   *Status
	frontend *mem.Backend
	client   *tcp.Client
	engine   *held
}

func newAdapterStage(t *testing.T, slots int, loaded ...string) *adapterStage {
	t.Helper()
	var store mem.Store
	backend := store.Open(mem.Options{})
	s := &adapterStage{t: t, frontend: store.Open(mem.Options{}), engine: &held{make(chan string, 8)}}
	quiet := slog.New(slog.DiscardHandler)
	server, err := tcp.NewServer(tcp.Options{Host: "127.0.0.1"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if s.client, err = tcp.NewClient(tcp.Options{Host: "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	base := &card.Card{DisplayName: "m", Slug: "m", BlockSize: 4, ModelType: card.Chat, ModelInput: card.TokensInput,
		WorkerType: card.AggregatedWorker, Runtime: card.DefaultRuntimeConfig()}
	s.worker, err = Start(t.Context(), Options{Backend: backend, Endpoint: endpoint, Card: base, Engine: s.engine, Server: server,
		Adapters: loaded, LoadsAdapters: true, AdapterSlots: slots, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if s.status, err = StartStatus(StatusOptions{Address: "127.0.0.1:0", Adapters: true, Logger: quiet}, []*Worker{s.worker}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		_ = s.status.Close()
		_ = s.client.Close()
		if err := s.worker.Stop(ctx); err != nil {
			t.Error(err)
		}
		if left := s.cards(); len(left) != 0 {
			t.Errorf("%v are left in discovery", left)
		}
		_ = server.Close()
		_ = backend.Close(ctx)
		_ = s.frontend.Close(ctx)
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// records are those in the bucket.
func (s *adapterStage) records(bucket discovery.Bucket) (list []discovery.Record) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events, err := s.frontend.Watch(ctx, bucket, "")
	if err != nil {
		s.t.Fatal(err)
	}
	for event := range events { // closed by the cancel
		switch event.Kind {
		case discovery.Put:
			list = append(list, event.Record)
		case discovery.Synced:
			cancel()
		}
	}
	cancel()
	return list
}

// cards are the models in discovery, by name.
func (s *adapterStage) cards() map[string]*card.Card {
	s.t.Helper()
	list := make(map[string]*card.Card)
	for _, entry := range s.records(discovery.Models) {
		parsed, err := card.Parse(entry.(*discovery.Model).Card)
		if err != nil {
			s.t.Fatal(err)
		}
		list[parsed.DisplayName] = parsed
	}
	return list
}

// call asks the status server.
func (s *adapterStage) call(method, path, body string) (int, adapterAnswer) {
	s.t.Helper()
	request, err := http.NewRequest(method, "http://"+s.status.Address()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var parsed adapterAnswer
	_ = json.Unmarshal(text, &parsed) // what is not understood is told in words
	return response.StatusCode, parsed
}

func loadBody(name string) string {
	return `{"lora_name":"` + name + `","source":{"uri":"file:///adapters/` + name + `"}}`
}

func TestAdaptersAreLoadedAndUnloadedByTheStatusServer(t *testing.T) {
	s := newAdapterStage(t, 2, "first")
	if base := s.cards()["m"]; base.Runtime.MaxGPULoRACount == nil || *base.Runtime.MaxGPULoRACount != 2 {
		t.Error("the base model's card does not tell how many adapters there may be")
	}
	status, answer := s.call(http.MethodPost, "/v1/loras", loadBody("org/poet"))
	if status != 200 || answer.Status != "success" || answer.Name != "org/poet" || answer.ID != AdapterID("org/poet") {
		t.Errorf("load: %d, %+v", status, answer)
	}
	adapter := s.cards()["org/poet"]
	if adapter == nil || adapter.LoRA == nil || adapter.LoRA.Name != "org/poet" || *adapter.LoRA.MaxGPUCount != 2 {
		t.Fatalf("the card in discovery: %+v", adapter)
	}
	if status, answer = s.call(http.MethodPost, "/v1/loras", loadBody("org/poet")); status != 200 || !strings.Contains(answer.Message, "already loaded") {
		t.Errorf("load again: %d, %+v", status, answer)
	}
	if status, answer = s.call(http.MethodPost, "/v1/loras", loadBody("third")); status != 500 || !strings.Contains(answer.Message, "at most 2") {
		t.Errorf("one too many: %d, %+v", status, answer)
	}
	status, answer = s.call(http.MethodGet, "/v1/loras", "")
	if status != 200 || *answer.Count != 2 || answer.Loaded["first"] != AdapterID("first") || answer.Loaded["org/poet"] != AdapterID("org/poet") {
		t.Errorf("list: %d, %+v", status, answer)
	}
	if status, answer = s.call(http.MethodDelete, "/v1/loras/org/poet", ""); status != 200 || answer.Status != "success" {
		t.Errorf("unload: %d, %+v", status, answer)
	}
	if s.cards()["org/poet"] != nil {
		t.Error("the unloaded adapter is still registered")
	}
	if status, answer = s.call(http.MethodDelete, "/v1/loras/org/poet", ""); status != 500 || !strings.Contains(answer.Message, "not found. Available LoRAs: [first]") {
		t.Errorf("unload again: %d, %+v", status, answer)
	}
	for _, body := range []string{`{`, `{}`, `{"lora_name":"x"}`, `{"lora_name":"","source":{"uri":"u"}}`, `{"lora_name":"x","source":{}}`} {
		if status, _ := s.call(http.MethodPost, "/v1/loras", body); status != 422 {
			t.Errorf("%s: status %d, want 422", body, status)
		}
	}
	if status, answer := s.call(http.MethodGet, "/health", ""); status != 200 || answer.Status != "ready" {
		t.Errorf("health: %d, %+v", status, answer)
	}
}

// TestAdaptersAreLoadedOverTheRequestPlane: the endpoints are beside the worker's own, in both codecs.
func TestAdaptersAreLoadedOverTheRequestPlane(t *testing.T) {
	s := newAdapterStage(t, 0)
	call := func(endpoint, body string, codec inference.Codec) (answer adapterAnswer) {
		t.Helper()
		for _, entry := range s.records(discovery.Instances) {
			instance := entry.(*discovery.Instance)
			if instance.Endpoint != endpoint {
				continue
			}
			value, err := []byte(body), error(nil)
			if codec == inference.MessagePack {
				if value, err = wire.AppendMessagePack(nil, value); err != nil {
					t.Fatal(err)
				}
			}
			stream, err := s.client.SendValue(t.Context(), inference.Target{WorkerID: instance.InstanceID, Address: instance.Transport.TCP, Codec: codec}, "id", value)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			output, err := stream.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			value = output.Body
			if codec == inference.MessagePack {
				if value, err = wire.AppendJSON(nil, value); err != nil {
					t.Fatal(err)
				}
			}
			if err := json.Unmarshal(value, &answer); err != nil {
				t.Fatalf("%v: %s", err, value)
			}
			return answer
		}
		t.Fatalf("nobody serves %s", endpoint)
		return answer
	}
	for _, codec := range []inference.Codec{inference.JSON, inference.MessagePack} {
		if answer := call("load_lora", loadBody("poet"), codec); answer.Status != "success" || s.cards()["poet"] == nil {
			t.Errorf("load: %+v", answer)
		}
		if answer := call("list_loras", `{}`, codec); answer.Loaded["poet"] == 0 || *answer.Count != 1 {
			t.Errorf("list: %+v", answer)
		}
		if answer := call("load_lora", `{"lora_name":"x"}`, codec); answer.Status != "error" || !strings.Contains(answer.Message, "'source'") {
			t.Errorf("a mistake: %+v", answer)
		}
		if answer := call("unload_lora", `{"lora_name":"poet"}`, codec); answer.Status != "success" || s.cards()["poet"] != nil {
			t.Errorf("unload: %+v", answer)
		}
	}
}

// TestUnloadingWaitsForRequests: an adapter leaves discovery at once, and the engine after its last request.
func TestUnloadingWaitsForRequests(t *testing.T) {
	s := newAdapterStage(t, 0, "poet")
	use := func() (inference.Stream, error) {
		request := &inference.Request{Model: "poet"}
		request.Routing.LoRAName = "poet"
		return s.worker.generate(t.Context(), request)
	}
	running, err := use()
	if err != nil || <-s.engine.begun != "poet" {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	var mistake *AdapterError
	if err := s.worker.UnloadAdapter(impatient, "poet"); !errors.As(err, &mistake) && !errors.Is(err, context.Canceled) {
		t.Errorf("an unload that nobody waits for: %v", err)
	}
	unloaded := make(chan error, 1)
	go func() { unloaded <- s.worker.UnloadAdapter(t.Context(), "poet") }()
	eventually(t, "the adapter has left discovery", func() bool { return s.cards()["poet"] == nil })
	late, err := use() // from a frontend that has not heard of it
	if err != nil {
		t.Fatal(err)
	}
	_ = late.Close()
	select {
	case err := <-unloaded:
		t.Fatalf("unloaded under a running request: %v", err)
	default:
	}
	_ = running.Close()
	_ = running.Close() // counts once
	if err := <-unloaded; err != nil {
		t.Error(err)
	}
	var refused *inference.Error
	if _, err := use(); !errors.As(err, &refused) || refused.Kind != inference.InvalidArgument || !strings.Contains(refused.Message, "'poet'") {
		t.Errorf("a request for what is not loaded: %v", err)
	}
	if _, err := s.worker.generate(t.Context(), &inference.Request{Model: "poet"}); !errors.As(err, &refused) {
		t.Errorf("a request that names it as its model: %v", err)
	}
	if stream, err := s.worker.generate(t.Context(), &inference.Request{Model: "m"}); err != nil {
		t.Errorf("the base model: %v", err)
	} else {
		_ = stream.Close()
	}
	if _, err := s.worker.LoadAdapter(t.Context(), "!!"); err == nil {
		t.Error("a name without letter or digit is loaded")
	}
}
