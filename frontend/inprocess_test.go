package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"signalbox/api/openai"
	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/pipeline"
	"signalbox/preprocess/piece"
	"signalbox/router"
	"signalbox/router/mode"
	"signalbox/worker/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bytesLoader is a model of one token per byte with the last message as its prompt: no files are needed.
type bytesLoader struct{ contextLength int }

func (l bytesLoader) Load(_ context.Context, c *card.Card) (*pipeline.Model, error) {
	return &pipeline.Model{Name: c.DisplayName, Checksum: c.Checksum(), EOSTokenIDs: []uint32{256}, ContextLength: l.contextLength,
		Renderer: lastMessage{}, Tokenizer: bytesTokenizer{}}, nil
}

type lastMessage struct{}

func (lastMessage) Render(_ context.Context, chat *pipeline.Chat) (piece.Prompt, error) {
	var messages []struct{ Content string }
	if err := json.Unmarshal(chat.Messages, &messages); err != nil {
		return piece.Prompt{}, &pipeline.PromptError{Param: "messages", Message: err.Error()}
	}
	return piece.Prompt{Text: messages[len(messages)-1].Content}, nil
}

type bytesTokenizer struct{}

func (bytesTokenizer) Encode(dst []uint32, text string, _ bool) []uint32 {
	for _, b := range []byte(text) {
		dst = append(dst, uint32(b))
	}
	return dst
}
func (t bytesTokenizer) EncodePieces(dst []uint32, prompt piece.Prompt) []uint32 {
	return t.Encode(dst, prompt.Text, false)
}
func (bytesTokenizer) VocabSize() int         { return 257 }
func (bytesTokenizer) Token(id uint32) string { return string([]byte{byte(id)}) }
func (bytesTokenizer) NewDecoder([]uint32, bool) pipeline.Decoder {
	return &bytesDecoder{}
}

type bytesDecoder struct{}

func (*bytesDecoder) Step(id uint32) string { return string([]byte{byte(id)}) }
func (*bytesDecoder) Flush() string         { return "" }

// engines is a transport to engines in this process. A fake in place of sockets: what is tested here is everything above them.
type engines struct {
	byID   map[uint64]inference.Sender
	refuse map[uint64]bool
}

func (e *engines) Send(ctx context.Context, target inference.Target, r *inference.Request) (inference.Stream, error) {
	if e.refuse[target.WorkerID] {
		return nil, inference.Errorf(inference.CannotConnect, "connection refused")
	}
	return e.byID[target.WorkerID].Send(ctx, target, r)
}
func (e *engines) Forward(inference.Target) Forwarder { return nil }
func (e *engines) Target(i *discovery.Instance) (inference.Target, bool) {
	return inference.Target{WorkerID: i.InstanceID}, true
}
func (e *engines) Gone(uint64) {}

type fixture struct {
	t        *testing.T
	frontend *Frontend
	store    *mem.Store
	engines  *engines
	backends []*mem.Backend
	records  logs // what the frontend's discovery complains about
}

func start(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, store: &mem.Store{}, engines: &engines{byID: map[uint64]inference.Sender{}, refuse: map[uint64]bool{}}}
	backend := f.store.Open(mem.Options{Logger: slog.New(slog.NewTextHandler(&f.records, nil))})
	options := Options{Backend: backend, Transport: f.engines, Loader: bytesLoader{}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		HTTP: HTTPOptions{Host: "127.0.0.1", DrainTimeout: 2 * time.Second}, API: openai.Options{BodyLimitMB: 1}, Endpoint: DefaultEndpoints(),
		Routers: func(set RouterSet) (router.Router, func(), error) {
			r, err := mode.New(mode.Options{Mode: mode.RoundRobin, Pool: set.Pool})
			return r, nil, err
		}}
	if change != nil {
		change(&options)
	}
	frontend, err := Start(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	f.frontend = frontend
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := frontend.Stop(); err != nil {
			t.Error(err)
		}
		for _, b := range f.backends {
			b.Close(context.Background())
		}
		backend.Close(context.Background())
	})
	return f
}

// addWorker registers a worker that the sender plays.
func (f *fixture) addWorker(sender inference.Sender, change ...func(*card.Card)) uint64 {
	f.t.Helper()
	backend := f.store.Open(mem.Options{})
	f.backends = append(f.backends, backend)
	id := backend.InstanceID()
	f.engines.byID[id] = sender
	runtime := card.DefaultRuntimeConfig()
	c := card.Card{DisplayName: "m", Slug: "m", BlockSize: 4, ModelType: card.Chat | card.Completions, ModelInput: card.TokensInput,
		WorkerType: card.AggregatedWorker, Runtime: runtime}
	for _, change := range change {
		change(&c)
	}
	text, err := c.Marshal()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, record := range []discovery.Record{
		&discovery.Instance{Namespace: "n", Component: "backend", Endpoint: "generate", InstanceID: id, Transport: discovery.Transport{TCP: "127.0.0.1:1/x"}},
		&discovery.Model{Namespace: "n", Component: "backend", Endpoint: "generate", InstanceID: id, Card: text},
	} {
		if err := discovery.Publish(context.Background(), backend, record); err != nil {
			f.t.Fatal(err)
		}
	}
	return id
}

// engine adds a simulated engine that answers at once.
func (f *fixture) engine(change func(*sim.Config)) uint64 {
	f.t.Helper()
	config := sim.DefaultConfig()
	config.BlockSize, config.SpeedupRatio, config.Vocabulary = 4, 0, [2]uint32{'a', 'z' + 1}
	if change != nil {
		change(&config)
	}
	e, err := sim.New(config, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(e.Close)
	return f.addWorker(e)
}

func (f *fixture) waitReady(workers int) {
	f.t.Helper()
	waitFor(f.t, func() bool {
		for _, entry := range f.frontend.manager.Served() {
			if len(entry.Set.Members) == workers && entry.Server.ready() {
				return true
			}
		}
		return false
	})
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come true in time")
		}
		time.Sleep(time.Millisecond)
	}
}

func (f *fixture) post(path, body string) (int, string) {
	f.t.Helper()
	response, err := http.Post("http://"+f.frontend.Address()+path, "application/json", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

const chatBody = `{"model":"m","messages":[{"role":"user","content":"hello there"}],"max_tokens":5%s}`

func TestChatAnswersWholeAndStreamed(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	status, whole := f.post("/v1/chat/completions", fmt.Sprintf(chatBody, ""))
	var answer struct {
		Choices []struct {
			Message      struct{ Content string }
			FinishReason string `json:"finish_reason"`
		}
		Usage struct {
			PromptTokens     int `json:"prompt_tokens"`
			CompletionTokens int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(whole), &answer); err != nil || status != 200 {
		t.Fatalf("status %d, %v: %s", status, err, whole)
	}
	if len(answer.Choices) != 1 || len(answer.Choices[0].Message.Content) != 5 || answer.Choices[0].FinishReason != "length" || answer.Usage.PromptTokens != 11 || answer.Usage.CompletionTokens != 5 {
		t.Errorf("answer %s", whole)
	}
	_, stream := f.post("/v1/chat/completions", fmt.Sprintf(chatBody, `,"stream":true,"stream_options":{"include_usage":true}`))
	var text strings.Builder
	events := strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n")
	for _, event := range events[:len(events)-1] {
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &chunk); err != nil {
			t.Fatalf("%v in %q", err, event)
		}
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
	if text.String() != answer.Choices[0].Message.Content {
		t.Errorf("streamed %q, whole %q", text.String(), answer.Choices[0].Message.Content)
	}
	if events[len(events)-1] != "data: [DONE]" || strings.Count(stream, `"finish_reason":"length"`) != 1 {
		t.Errorf("stream ends wrongly: %s", stream)
	}
}

func TestCompletionsOfSeveralPrompts(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	status, text := f.post("/v1/completions", `{"model":"m","prompt":["ab","cd",[101,102]][0:0]}`)
	if status != 400 {
		t.Errorf("bad JSON: status %d, %s", status, text)
	}
	status, text = f.post("/v1/completions", `{"model":"m","prompt":["ab","cd"],"max_tokens":3}`)
	if status != 200 || strings.Count(text, `"finish_reason":"length"`) != 2 || !strings.Contains(text, `"prompt_tokens":4,"completion_tokens":6`) {
		t.Errorf("status %d, %s", status, text)
	}
	status, text = f.post("/v1/completions", `{"model":"m","prompt":["ab","cd"],"max_tokens":3,"stream":true}`)
	if status != 200 || strings.Count(text, `"finish_reason":"length"`) != 2 || !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("status %d, %s", status, text)
	}
}

func TestErrorsNameTheField(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	for name, c := range map[string]struct {
		body   string
		status int
		param  string
	}{
		"temperature":    {`{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":3}`, 400, "temperature"},
		"model":          {`{"model":"other","messages":[{"role":"user","content":"x"}]}`, 404, "model"},
		"unknown":        {`{"model":"m","messages":[{"role":"user","content":"x"}],"foo":1}`, 400, "foo"},
		"type":           {`{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":"a"}`, 400, "max_tokens"},
		"nvext":          {`{"model":"m","messages":[{"role":"user","content":"x"}],"nvext":{"agent_hints":{"osl":"x"}}}`, 400, "nvext.agent_hints.osl"},
		"token too high": {`{"model":"m","messages":[{"role":"user","content":"x"}],"nvext":{"token_data":[999]}}`, 400, "prompt"},
	} {
		status, text := f.post("/v1/chat/completions", c.body)
		var body struct {
			Message string
			Code    int
			Error   struct{ Message, Param string }
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Fatalf("%s: %v: %s", name, err, text)
		}
		if status != c.status || body.Code != c.status || body.Error.Param != c.param || body.Message == "" || body.Error.Message == "" {
			t.Errorf("%s: status %d, %s", name, status, text)
		}
	}
}

func TestARefusingWorkerCostsTheClientNothing(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	dead := f.engine(nil)
	f.waitReady(2)
	f.engines.refuse[dead] = true
	for range 10 {
		if status, text := f.post("/v1/chat/completions", fmt.Sprintf(chatBody, "")); status != 200 {
			t.Fatalf("status %d, %s", status, text)
		}
	}
}

// breaking is a worker whose stream breaks after some tokens.
type breaking struct {
	inner inference.Sender
	after int
}

func (b *breaking) Send(ctx context.Context, target inference.Target, r *inference.Request) (inference.Stream, error) {
	stream, err := b.inner.Send(ctx, target, r)
	return &breakingStream{Stream: stream, left: b.after}, err
}

type breakingStream struct {
	inference.Stream
	left int
}

func (b *breakingStream) Next(ctx context.Context) (*inference.Output, error) {
	if b.left--; b.left < 0 {
		_ = b.Stream.Close()
		return nil, inference.Errorf(inference.Disconnected, "the worker died")
	}
	return b.Stream.Next(ctx)
}

func TestABrokenStreamMovesOnWithinTheLimit(t *testing.T) {
	for _, limit := range []int{0, 1} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			f := start(t, func(o *Options) { o.MigrationLimit = limit })
			config := sim.DefaultConfig()
			config.SpeedupRatio, config.Vocabulary = 0, [2]uint32{'a', 'z' + 1}
			e, err := sim.New(config, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(e.Close)
			f.addWorker(&breaking{inner: e, after: 3})
			f.engine(nil)
			f.waitReady(2)
			broken := 0
			for range 4 {
				status, text := f.post("/v1/completions", `{"model":"m","prompt":"ab","max_tokens":8}`)
				switch {
				case status == 200 && strings.Contains(text, `"prompt_tokens":2,"completion_tokens":8`):
				case status == 503:
					broken++
				default:
					t.Errorf("status %d, %s", status, text)
				}
			}
			if limit == 0 && broken == 0 || limit == 1 && broken > 0 {
				t.Errorf("%d of 4 requests failed with a limit of %d", broken, limit)
			}
		})
	}
}

func TestModelsComeAndGo(t *testing.T) {
	f := start(t, nil)
	if status, text := f.post("/v1/chat/completions", fmt.Sprintf(chatBody, "")); status != 404 || text != "" {
		t.Errorf("before any model: status %d, %q", status, text)
	}
	f.engine(nil)
	f.waitReady(1)
	response, err := http.Get("http://" + f.frontend.Address() + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	list, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if !strings.Contains(string(list), `"id":"m"`) {
		t.Errorf("models: %s", list)
	}
	f.backends[0].Close(context.Background())
	waitFor(t, func() bool { return len(f.frontend.manager.Served()) == 0 })
	if status, _ := f.post("/v1/chat/completions", fmt.Sprintf(chatBody, "")); status != 404 {
		t.Errorf("after the last worker: status %d", status)
	}
}

func TestAClientThatLeavesCancelsTheWork(t *testing.T) {
	f := start(t, nil)
	e, err := sim.New(func() sim.Config {
		c := sim.DefaultConfig()
		c.Vocabulary = [2]uint32{'a', 'z' + 1}
		return c
	}(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	f.addWorker(e)
	f.waitReady(1)
	ctx, cancel := context.WithCancel(context.Background())
	request, _ := http.NewRequestWithContext(ctx, "POST", "http://"+f.frontend.Address()+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(strings.Replace(chatBody, "5", "100000", 1), `,"stream":true`)))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(response.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	response.Body.Close()
	waitFor(t, func() bool { return e.Status().Running == 0 })
}
