package frontend

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/inference"
	"signalbox/model/card"
)

// bodies is a transport to a worker that takes requests in the API's own shape.
type bodies struct {
	*engines
	items []string
	fail  error

	mu  sync.Mutex
	got string
}

func (b *bodies) Forward(inference.Target) Forwarder { return b }
func (b *bodies) SendRaw(_ context.Context, _ string, body []byte) (inference.Stream, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = string(body)
	return &bodyStream{items: b.items, fail: b.fail}, nil
}

type bodyStream struct {
	inference.Stream
	items []string
	fail  error
}

func (s *bodyStream) Next(context.Context) (*inference.Output, error) {
	if len(s.items) == 0 {
		if s.fail != nil {
			return nil, s.fail
		}
		return nil, io.EOF
	}
	item := s.items[0]
	s.items = s.items[1:]
	return &inference.Output{Body: []byte(item)}, nil
}
func (s *bodyStream) Close() error { return nil }

// forwarding starts a frontend over one worker of the types.
func forwarding(t *testing.T, types card.ModelType) (*fixture, *bodies) {
	t.Helper()
	transport := &bodies{}
	f := start(t, func(o *Options) {
		transport.engines = o.Transport.(*engines)
		o.Transport = transport
	})
	backend := f.store.Open(mem.Options{})
	f.backends = append(f.backends, backend)
	c := card.Card{DisplayName: "m", Slug: "m", Aliases: []string{"alias"}, ModelType: types, ModelInput: card.TextInput, WorkerType: card.AggregatedWorker, Runtime: card.DefaultRuntimeConfig()}
	text, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range []discovery.Record{
		&discovery.Instance{Namespace: "n", Component: "media", Endpoint: "generate", InstanceID: backend.InstanceID(), Transport: discovery.Transport{TCP: "127.0.0.1:1/x"}},
		&discovery.Model{Namespace: "n", Component: "media", Endpoint: "generate", InstanceID: backend.InstanceID(), Card: text},
	} {
		if err := discovery.Publish(context.Background(), backend, record); err != nil {
			t.Fatal(err)
		}
	}
	f.waitReady(1)
	return f, transport
}

func TestMediaGoToTheirWorkersAndComeBack(t *testing.T) {
	f, worker := forwarding(t, card.Images|card.Videos|card.Audios|card.Classify|card.Pooling)
	for name, test := range map[string]struct {
		path, body string
		items      []string
		fail       error
		sent       string // to the worker; "" when nothing may be
		status     int
		answer     string
	}{
		"image":         {"/v1/images/generations", `{"model":"m","prompt":"a cat","n":1}`, []string{`{"created":1,"data":[{"b64_json":"aGk="}]}`}, nil, `{"model":"m","prompt":"a cat","n":1}`, 200, `{"created":1,"data":[{"b64_json":"aGk="}]}`},
		"two items":     {"/v1/images/generations", `{"model":"m","prompt":"x"}`, []string{`{"data":[{"url":"a"}],"z":1}`, `{"data":[{"url":"b"}]}`}, nil, `{"model":"m","prompt":"x"}`, 200, `{"data":[{"url":"a"},{"url":"b"}],"z":1}`},
		"alias":         {"/v1/images/generations", `{"prompt":"x","model":"alias"}`, []string{`{"data":[]}`}, nil, `{"model":"m","prompt":"x"}`, 200, `{"data":[]}`},
		"no prompt":     {"/v1/images/generations", `{"model":"m"}`, nil, nil, "", 400, "missing field `prompt`"},
		"default model": {"/v1/images/generations", `{"prompt":"x"}`, nil, nil, "", 404, "Model not found"},
		"edit of none":  {"/v1/images/edits", `{"model":"m","prompt":"x"}`, nil, nil, "", 400, "input_reference is required for /v1/images/edits"},
		"nothing":       {"/v1/images/generations", `{"model":"m","prompt":"x"}`, nil, nil, `{"model":"m","prompt":"x"}`, 500, "Internal server error"},
		"failure":       {"/v1/images/generations", `{"model":"m","prompt":"x"}`, nil, inference.Errorf(inference.BackendInvalid, "x"), `{"model":"m","prompt":"x"}`, 400, "Invalid request"},
		"video":         {"/v1/videos/generations", `{"model":"m","prompt":"x"}`, []string{`{"id":"v","data":[]}`}, nil, `{"model":"m","prompt":"x"}`, 200, `{"id":"v","data":[]}`},
		"other path":    {"/v1/videos", `{"model":"m","prompt":"x"}`, []string{`{"id":"v","data":[]}`}, nil, `{"model":"m","prompt":"x"}`, 200, `{"id":"v","data":[]}`},
		"video stream":  {"/v1/videos/generations", `{"model":"m","prompt":"x","stream":true}`, []string{`{"id":"v"}`, `{"id":"w"}`}, nil, `{"model":"m","prompt":"x","stream":true}`, 200, "data: {\"id\":\"v\"}\n\ndata: {\"id\":\"w\"}\n\ndata: [DONE]\n\n"},
		"broken stream": {"/v1/videos/generations", `{"model":"m","prompt":"x","stream":true}`, []string{`{"id":"v"}`}, inference.Errorf(inference.BackendUnknown, "x"), `{"model":"m","prompt":"x","stream":true}`, 200, "\"internal_server_error\",\"code\":500}}\n\ndata: [DONE]\n\n"},
		"pictures":      {"/v1/videos/generations/stream", `{"model":"m","prompt":"x"}`, []string{`{"data":[{"output_format":"jpeg","b64_json":"aGk="}]}`, `{"data":[]}`}, nil, `{"model":"m","prompt":"x"}`, 200, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: 2\r\n\r\nhi\r\n"},
		"speech":        {"/v1/audio/speech", `{"input":"x"}`, []string{`{"data":[{"output_format":"mp3","b64_json":"aGk="}],"status":"completed"}`}, nil, `{"model":"m","input":"x"}`, 200, "hi"},
		"speech by URL": {"/v1/audio/speech", `{"input":"x","model":"m"}`, []string{`{"data":[{"output_format":"mp3","url":"u"}]}`}, nil, `{"input":"x","model":"m"}`, 200, `"url":"u"`},
		"failed speech": {"/v1/audio/speech", `{"input":"x","model":"m"}`, []string{`{"status":"failed","error":"e"}`}, nil, `{"input":"x","model":"m"}`, 400, `"error":"e"`},
		"classes":       {"/v1/classify", `{"model":"m","input":["a"]}`, []string{`{"data":[{"index":0}]}`}, nil, `{"model":"m","input":["a"]}`, 200, `{"data":[{"index":0}]}`},
		"empty salt":    {"/v1/classify", `{"model":"m","input":"a","cache_salt":""}`, nil, nil, "", 400, "non-empty string"},
		"rerank":        {"/v1/rerank", `{"model":"m","query":"q","documents":["a"]}`, []string{`{"results":[]}`}, nil, `{"model":"m","query":"q","documents":["a"]}`, 200, `{"results":[]}`},
		"pooled":        {"/v1/pooling", `{"model":"m","input":"a"}`, []string{`{"data":[{"index":0,"data":[0.5]}]}`}, nil, `{"model":"m","input":"a"}`, 200, `"data":[0.5]`},
		"pooled bytes":  {"/v1/pooling", `{"model":"m","input":"a","encoding_format":"bytes","embed_dtype":"float16"}`, []string{`{"data":[{"index":0,"data":"aGk=","shape":[1]}]}`}, nil, `{"model":"m","input":"a","encoding_format":"bytes","embed_dtype":"float16"}`, 200, "hi"},
		"wrong shape":   {"/v1/pooling", `{"model":"m","input":"a","encoding_format":"bytes"}`, []string{`{"data":[{"index":0,"data":"aGk=","shape":[1]}]}`}, nil, `{"model":"m","input":"a","encoding_format":"bytes"}`, 500, "Internal server error"},
		"dimensions":    {"/v1/pooling", `{"model":"m","input":"a","dimensions":3}`, nil, nil, "", 400, "dimensions is currently not supported"},
		"encoding":      {"/v1/pooling", `{"model":"m","input":"a","encoding_format":"x"}`, nil, nil, "", 400, "unknown variant `x`"},
	} {
		t.Run(name, func(t *testing.T) {
			worker.mu.Lock()
			worker.items, worker.fail, worker.got = test.items, test.fail, ""
			worker.mu.Unlock()
			status, text := f.post(test.path, test.body)
			if status != test.status || !strings.Contains(text, test.answer) || worker.got != test.sent {
				t.Errorf("%d %s; the worker got %q", status, text, worker.got)
			}
		})
	}
}

// TestBinaryVectorsAreDescribed reads the header that tells where each vector is.
func TestBinaryVectorsAreDescribed(t *testing.T) {
	f, worker := forwarding(t, card.Pooling)
	worker.items = []string{`{"id":"p","created":7,"model":"m","data":[{"index":0,"data":"AAAAAA==","shape":[1]},{"index":1,"data":"AAAAAAAAAAA=","shape":[2,1]}],"usage":{"prompt_tokens":3,"total_tokens":3}}`}
	response, err := http.Post("http://"+f.frontend.Address()+"/v1/pooling", "application/json", strings.NewReader(`{"model":"m","input":"a","encoding_format":"bytes","endianness":"little"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	var metadata struct {
		ID   string
		Data []struct {
			Start, End int
			Shape      []int
			EmbedDtype string `json:"embed_dtype"`
			Endianness string
		}
	}
	if err := json.Unmarshal([]byte(response.Header.Get("metadata")), &metadata); err != nil || len(content) != 12 || response.Header.Get("Content-Type") != "application/octet-stream" {
		t.Fatalf("%v: %d bytes, %v", err, len(content), response.Header)
	}
	if d := metadata.Data; len(d) != 2 || d[1].Start != 4 || d[1].End != 12 || d[1].EmbedDtype != "float32" || d[1].Endianness != "little" || metadata.ID != "p" {
		t.Errorf("metadata %+v", metadata)
	}
}

// TestRoutesOfKindsThatNobodyServesAreOff as existing probes expect.
func TestRoutesOfKindsThatNobodyServesAreOff(t *testing.T) {
	f, _ := forwarding(t, card.Images)
	for path, want := range map[string]int{"/v1/images/generations": 400, "/v1/videos/generations": 404, "/v1/audio/speech": 404, "/v1/rerank": 404, "/v1/chat/completions": 404} {
		if status, text := f.post(path, "{}"); status != want || want == 404 && text != "" {
			t.Errorf("%s: %d %s, want %d", path, status, text, want)
		}
	}
}
