package frontend

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"signalbox/discovery"
	"signalbox/internal/fakeengine"
	"signalbox/model/card"
	"signalbox/preprocess/tokenizer"
	"signalbox/router/kv"
	"signalbox/upstream"
	"signalbox/worker/builtin"
)

// plainFixture is a frontend in front of imitated vLLM and SGLang servers.
type plainFixture struct {
	*fixture
	log     *lockedLog
	servers []*fakeengine.Engine
	words   *tokenizer.Tokenizer
	feeds   *keptFeeds
	folder  string
}

// keptFeeds remembers the feeds that were made.
type keptFeeds struct {
	EventPlane
	mutex sync.Mutex
	feeds []EventFeed
}

func (k *keptFeeds) Feed(target FeedTarget) (EventFeed, error) {
	feed, err := k.EventPlane.Feed(target)
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.feeds = append(k.feeds, feed)
	return feed, err
}

// batches is how many messages with events were taken.
func (k *keptFeeds) batches() (count uint64) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for _, feed := range k.feeds {
		count += feed.Stats().Batches
	}
	return count
}

// plain starts a frontend in front of servers; describe says how each is named to it.
func plain(t *testing.T, mode string, servers []*fakeengine.Engine, describe func(e *fakeengine.Engine, c *upstream.Config), change func(*Options)) *plainFixture {
	t.Helper()
	p := &plainFixture{log: &lockedLog{}, servers: servers, folder: t.TempDir()}
	if err := builtin.Write(p.folder); err != nil {
		t.Fatal(err)
	}
	loaded, err := tokenizer.LoadModel(tokenizer.ModelFiles{Tokenizer: p.folder + "/tokenizer.json"})
	if err != nil {
		t.Fatal(err)
	}
	p.words = loaded
	logger := slog.New(slog.NewTextHandler(p.log, nil))
	client := upstream.NewClient(upstream.ClientOptions{})
	roster := NewUpstream(client, discovery.NamespaceFilter{}, logger)
	p.feeds = &keptFeeds{EventPlane: roster.Events(&wires{feeds: make(map[*wire]bool)})}
	routing := Routing{Mode: mode, KV: kv.DefaultConfig(), Events: p.feeds, Logger: logger}
	var configs []upstream.Config
	for _, e := range servers {
		c := upstream.Config{URL: e.URL()}
		if describe != nil {
			describe(e, &c)
		}
		if c.Tokenizer == "here" {
			c.Tokenizer = p.folder
		}
		configs = append(configs, c)
	}
	var fleet *upstream.Fleet
	t.Cleanup(func() { // after the frontend has ended
		fleet.Close()
		client.Close()
		roster.Close()
	})
	p.fixture = start(t, func(o *Options) {
		o.Backend, o.Transport, o.Routers = roster.Backend(o.Backend), roster.Transport(o.Transport), routing.Routers()
		o.Loader = &FileLoader{Resolver: &card.Resolver{CacheDir: t.TempDir()}}
		o.Logger = logger
		o.Metrics = prometheus.NewRegistry()
		roster.Observe(o.Metrics, configs)
		if change != nil {
			change(o)
		}
	})
	fleet = upstream.Watch(client, configs, roster, upstream.FleetOptions{Every: 5 * time.Millisecond, Logger: logger})
	return p
}

func fakes(t *testing.T, kind fakeengine.Kind, count int, events bool) []*fakeengine.Engine {
	t.Helper()
	var list []*fakeengine.Engine
	for range count {
		e, err := fakeengine.Start(kind, "m", events)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		list = append(list, e)
	}
	return list
}

func withTokens(e *fakeengine.Engine, c *upstream.Config) {
	c.Tokenizer = "here"
	c.Events = e.Events()
}

// plainPrompt is a prompt of tokens, none of whose blocks another number's has.
func plainPrompt(number, length int) (ids []uint32) {
	for i := range length {
		ids = append(ids, uint32(300+number*100+i%90))
	}
	return ids
}

func completion(ids []uint32, more string) string {
	text, _ := json.Marshal(ids)
	return `{"model":"m","prompt":` + string(text) + more + `}`
}

// seen tells which of the servers have been asked the prompt, in the order of the servers.
func (p *plainFixture) seen(ids []uint32) (counts []int) {
	for _, e := range p.servers {
		count := 0
		for _, r := range e.Seen() {
			if slices.Equal(r.Prompt(), ids) {
				count++
			}
		}
		counts = append(counts, count)
	}
	return counts
}

func TestPlainServersAreRoutedByTheirOwnEvents(t *testing.T) {
	servers := fakes(t, fakeengine.VLLM, 2, true)
	p := plain(t, KVMode, servers, withTokens, nil)
	p.waitReady(2)
	waitFor(t, func() bool { return servers[0].Listeners() == 1 && servers[1].Listeners() == 1 })
	// Nobody but the servers themselves knows what they have cached.
	for number, e := range servers {
		response, err := http.Post(e.URL()+"/v1/completions", "application/json", strings.NewReader(completion(plainPrompt(number, 64), "")))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	waitFor(t, func() bool { return p.feeds.batches() >= 8 })
	for number := range servers {
		status, answer := p.post("/v1/completions", completion(append(plainPrompt(number, 64), 999), `,"max_tokens":2`))
		if status != http.StatusOK || !strings.Contains(answer, `"cached_tokens":64`) {
			t.Errorf("prompt %d: %d %s; want the 64 tokens that its server has", number, status, answer)
		}
	}
	if strings.Contains(p.log.String(), "predicted from") {
		t.Error("caches are said to be predicted where events tell of them")
	}
	servers[0].Close()
	p.waitReady(1)
	if status, answer := p.post("/v1/completions", completion(plainPrompt(0, 64), "")); status != http.StatusOK {
		t.Errorf("a server has gone, and the other one does not answer: %d %s", status, answer)
	}
}

func TestAdaptersOfPlainServers(t *testing.T) {
	servers := fakes(t, fakeengine.VLLM, 2, true)
	for _, e := range servers {
		e.Adapters = []string{"lora-a"}
	}
	p := plain(t, KVMode, servers, func(e *fakeengine.Engine, c *upstream.Config) { withTokens(e, c); c.Model = "lora-a" }, nil)
	p.waitReady(2)
	waitFor(t, func() bool { return servers[0].Listeners() == 1 && servers[1].Listeners() == 1 })
	for i, e := range servers { // the first one has the tokens with the adapter, the second one without
		body := completion(plainPrompt(1, 64), "")
		if i == 0 {
			body = strings.Replace(body, `"model":"m"`, `"model":"lora-a"`, 1)
		}
		response, err := http.Post(e.URL()+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	waitFor(t, func() bool { return p.feeds.batches() >= 8 })
	for range 2 {
		ask := strings.Replace(completion(append(plainPrompt(1, 64), 999), `,"max_tokens":2`), `"model":"m"`, `"model":"lora-a"`, 1)
		if status, answer := p.post("/v1/completions", ask); status != http.StatusOK || !strings.Contains(answer, `"cached_tokens":64`) || !strings.Contains(answer, `"model":"lora-a"`) {
			t.Errorf("%d %s; want the server that has the tokens with the adapter", status, answer)
		}
	}
	if last := servers[0].Seen(); len(last) != 3 || string(last[2].Body["model"]) != `"lora-a"` {
		t.Errorf("the server was asked %d times, for %s", len(last), last[len(last)-1].Body["model"])
	}
}

func TestRanksOfPlainServers(t *testing.T) {
	for _, kind := range []fakeengine.Kind{fakeengine.VLLM, fakeengine.SGLang} {
		e, err := fakeengine.StartRanks(kind, "m", true, 2)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		p := plain(t, KVMode, []*fakeengine.Engine{e}, func(e *fakeengine.Engine, c *upstream.Config) {
			withTokens(e, c)
			c.Ranks = 2
		}, nil)
		p.waitReady(1)
		waitFor(t, func() bool { return e.Listeners() == 2 })
		for number := range 4 {
			path, body := "/v1/completions", completion(plainPrompt(number, 64), "")
			if kind == fakeengine.SGLang {
				path, body = "/generate", strings.Replace(body, `"prompt"`, fmt.Sprintf(`"data_parallel_rank":%d,"input_ids"`, number%2), 1)
			}
			request, err := http.NewRequest(http.MethodPost, e.URL()+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("X-Data-Parallel-Rank", fmt.Sprint(number%2))
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		waitFor(t, func() bool { return p.feeds.batches() >= 16 })
		for number := range 4 {
			if status, answer := p.post("/v1/completions", completion(append(plainPrompt(number, 64), 999), `,"max_tokens":2`)); status != http.StatusOK || !strings.Contains(answer, `"cached_tokens":64`) {
				t.Errorf("%s, prompt %d: %d %s; want the rank that has its 64 tokens", kind, number, status, answer)
			}
			if seen := e.Seen(); seen[len(seen)-1].Rank != uint32(number%2) {
				t.Errorf("%s, prompt %d went to rank %d", kind, number, seen[len(seen)-1].Rank)
			}
		}
	}
}

func TestPlainServersWithoutEventsArePredicted(t *testing.T) {
	for _, kind := range []fakeengine.Kind{fakeengine.VLLM, fakeengine.SGLang} {
		p := plain(t, KVMode, fakes(t, kind, 3, false), withTokens, nil)
		p.waitReady(3)
		for number := range 6 {
			for range 3 {
				if status, answer := p.post("/v1/completions", completion(plainPrompt(number, 64), `,"max_tokens":2`)); status != http.StatusOK {
					t.Fatalf("%d %s", status, answer)
				}
			}
			if counts := p.seen(plainPrompt(number, 64)); slices.Max(counts) != 3 {
				t.Errorf("%s: prompt %d went to its servers %v; want one for all three times", kind, number, counts)
			}
		}
		if !strings.Contains(p.log.String(), "predicted from") {
			t.Error("the log does not say that caches are predicted")
		}
	}
}

func TestTokensOfPlainServersBecomeText(t *testing.T) {
	for _, kind := range []fakeengine.Kind{fakeengine.VLLM, fakeengine.SGLang} {
		t.Run(string(kind), func(t *testing.T) {
			servers := fakes(t, kind, 1, false)
			p := plain(t, KVMode, servers, withTokens, nil)
			answer := p.words.Encode(nil, "The signal is green 😀, the train goes.", false)
			end, _ := p.words.TokenToID("<|im_end|>")
			servers[0].Answer, servers[0].Stops, servers[0].End = answer, true, end
			servers[0].Incremental = true
			p.waitReady(1)
			ask := `{"model":"m","messages":[{"role":"user","content":"Where does this train go?"}],"logprobs":true,"top_logprobs":1`
			status, whole := p.post("/v1/chat/completions", ask+`}`)
			if status != http.StatusOK || !strings.Contains(whole, `"content":"The signal is green 😀, the train goes."`) || !strings.Contains(whole, `"finish_reason":"stop"`) ||
				!strings.Contains(whole, fmt.Sprintf(`"completion_tokens":%d`, len(answer)+1)) || !strings.Contains(whole, `"prompt_tokens_details":{"cached_tokens":`) || !strings.Contains(whole, `"logprob":-0.`) {
				t.Errorf("%d %s", status, whole)
			}
			if got, want := servers[0].Seen()[0].Prompt(), p.words.Encode(nil, "<|im_start|>user\nWhere does this train go?<|im_end|>\n<|im_start|>assistant\n", false); !slices.Equal(got, want) {
				t.Errorf("it was asked %v, want the rendered prompt %v", got, want)
			}
			_, stopped := p.post("/v1/chat/completions", ask+`,"stop":[" train"]}`)
			if !strings.Contains(stopped, `"content":"The signal is green 😀, the"`) {
				t.Errorf("a stop string: %s", stopped)
			}
			_, stream := p.post("/v1/chat/completions", ask+`,"stream":true,"stream_options":{"include_usage":true}}`)
			if !strings.Contains(stream, `"content":" signal"`) || !strings.HasSuffix(stream, "data: [DONE]\n\n") || !strings.Contains(stream, `"usage":{`) {
				t.Errorf("the stream is %s", stream)
			}
		})
	}
}

func TestStreamsOfPlainServersMove(t *testing.T) {
	servers := fakes(t, fakeengine.VLLM, 2, false)
	servers[0].Answer, servers[1].Answer = []uint32{401, 402, 403}, []uint32{501}
	servers[0].BreakAfter(3)
	p := plain(t, "round-robin", servers, withTokens, func(o *Options) { o.MigrationLimit = 1 })
	p.waitReady(2)
	want := map[string]int{
		p.words.Decode([]uint32{401, 402, 403, 501, 501}, false): 1, // it began at the one that breaks off
		p.words.Decode([]uint32{501, 501, 501, 501, 501}, false): 1,
	}
	got := make(map[string]int)
	for range 2 {
		status, answer := p.post("/v1/completions", completion(plainPrompt(1, 20), `,"max_tokens":5`))
		var read struct {
			Choices []struct {
				Text   string
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(answer), &read); err != nil || status != http.StatusOK || read.Choices[0].Finish != "length" {
			t.Fatalf("%d %s", status, answer)
		}
		got[read.Choices[0].Text]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if counts := p.seen(append(plainPrompt(1, 20), 401, 402, 403)); counts[1] != 1 {
		t.Errorf("the second server was not asked to go on where the first one broke off: %v", counts)
	}
	if last := servers[1].Seen(); string(last[0].Body["max_tokens"])+string(last[len(last)-1].Body["max_tokens"]) != "25" && string(last[0].Body["max_tokens"])+string(last[len(last)-1].Body["max_tokens"]) != "52" {
		t.Errorf("limits %s and %s; want what is left of five tokens, and five", last[0].Body["max_tokens"], last[len(last)-1].Body["max_tokens"])
	}
}

func TestFailuresOfPlainServers(t *testing.T) {
	for name, describe := range map[string]func(*fakeengine.Engine, *upstream.Config){"tokens": withTokens, "text": nil} {
		t.Run(name, func(t *testing.T) {
			servers := fakes(t, fakeengine.VLLM, 2, false)
			p := plain(t, "round-robin", servers, describe, nil)
			p.waitReady(2)
			ask := `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"x"}]}`
			servers[0].Refuse(-1, 500, `{"error":{"message":"out of luck"}}`)
			for range 2 {
				if status, answer := p.post("/v1/chat/completions", ask); status != http.StatusOK {
					t.Errorf("one server fails: %d %s", status, answer)
				}
			}
			if len(servers[0].Seen()) == 0 {
				t.Error("the server that fails was never asked")
			}
			servers[1].Refuse(-1, 500, `{"error":{"message":"out of luck"}}`)
			if status, answer := p.post("/v1/chat/completions", ask); status != http.StatusServiceUnavailable {
				t.Errorf("all servers fail: %d %s", status, answer)
			}
			for _, e := range servers {
				e.Refuse(-1, 400, `{"error":{"message":"max_tokens is 2, which I do not like","type":"BadRequestError"}}`)
			}
			before := len(servers[0].Seen()) + len(servers[1].Seen())
			if status, answer := p.post("/v1/chat/completions", ask); status != http.StatusBadRequest || !strings.Contains(answer, "which I do not like") {
				t.Errorf("the client's mistake: %d %s", status, answer)
			}
			if after := len(servers[0].Seen()) + len(servers[1].Seen()); after != before+1 {
				t.Errorf("the client's mistake was shown to %d servers", after-before)
			}
			for _, e := range servers {
				e.Refuse(0, 0, "")
			}
			if status, answer := p.post("/v1/chat/completions", ask); status != http.StatusOK {
				t.Errorf("no server was to be set aside: %d %s", status, answer)
			}
			for _, e := range servers {
				e.Refuse(-1, 429, `{}`)
			}
			if status, answer := p.post("/v1/chat/completions", ask); status != 529 {
				t.Errorf("all servers are full: %d %s", status, answer)
			}
		})
	}
}

func TestPlainServersAreAskedAsText(t *testing.T) {
	servers := fakes(t, fakeengine.VLLM, 3, false)
	for _, e := range servers {
		e.Answer = []uint32{7, 8}
	}
	p := plain(t, KVMode, servers, nil, nil)
	p.waitReady(3)
	talk := func(number int) string {
		return fmt.Sprintf(`{"model":"m","max_tokens":3,"temperature":0.5,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"messages":[{"role":"system","content":"%s"},{"role":"user","content":"x"}]`,
			strings.Repeat(fmt.Sprint("You are number ", number, ". "), 30))
	}
	for number := range 5 {
		for range 3 {
			if status, answer := p.post("/v1/chat/completions", talk(number)+`}`); status != http.StatusOK || !strings.Contains(answer, `"content":"t7 t8 t7 "`) || !strings.Contains(answer, `"completion_tokens":3`) {
				t.Fatalf("%d %s", status, answer)
			}
		}
	}
	// Texts that begin alike go where they began.
	where := make(map[string]map[int]bool)
	for i, e := range servers {
		for _, r := range e.Seen() {
			text := string(r.Body["messages"])
			if where[text] == nil {
				where[text] = make(map[int]bool)
			}
			where[text][i] = true
		}
	}
	if len(where) != 5 {
		t.Errorf("%d conversations arrived, want 5", len(where))
	}
	for text, at := range where {
		if len(at) != 1 {
			t.Errorf("%.60s… went to %d servers", text, len(at))
		}
	}
	r := servers[0].Seen()
	r = append(append(r, servers[1].Seen()...), servers[2].Seen()...)
	body, _ := json.Marshal(r[0].Body)
	for _, part := range []string{`"max_tokens":3`, `"temperature":0.5`, `"stream":true`, `"tools":[{"type":"function"`, `"model":"m"`, `"include_usage":true`} {
		if !bytes.Contains(body, []byte(part)) {
			t.Errorf("the server was asked %s, without %s", body, part)
		}
	}
	_, stream := p.post("/v1/chat/completions", talk(1)+`,"stream":true}`)
	if !strings.Contains(stream, `"content":"t7 "`) || !strings.HasSuffix(stream, "data: [DONE]\n\n") {
		t.Errorf("the stream is %s", stream)
	}
	if status, answer := p.post("/v1/completions", `{"model":"m","prompt":"Where","max_tokens":2}`); status != http.StatusOK || !strings.Contains(answer, `"text":"t7 t8 "`) {
		t.Errorf("a completion: %d %s", status, answer)
	}
	if status, answer := p.post("/v1/responses", `{"model":"m","input":"Where","max_output_tokens":2}`); status != http.StatusOK || !strings.Contains(answer, `"text":"t7 t8 "`) {
		t.Errorf("a response: %d %s", status, answer)
	}
	if status, answer := p.post("/v1/embeddings", `{"model":"m","input":"x"}`); status != http.StatusNotFound {
		t.Errorf("embeddings of a server that is said to make none: %d %s", status, answer)
	}
}

func TestPlainServersEmbed(t *testing.T) {
	servers := fakes(t, fakeengine.VLLM, 1, false)
	p := plain(t, KVMode, servers, func(_ *fakeengine.Engine, c *upstream.Config) { c.Serves = "embeddings" }, nil)
	p.waitReady(1)
	if status, answer := p.post("/v1/embeddings", `{"model":"m","input":"Where"}`); status != http.StatusOK || !strings.Contains(answer, `"embedding":[0.5,-0.25]`) {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := p.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`); status != http.StatusNotFound {
		t.Errorf("a conversation with a model of embeddings: %d %s", status, answer)
	}
	if seen := servers[0].Seen(); len(seen) != 1 || seen[0].Path != "/v1/embeddings" || string(seen[0].Body["input"]) != `"Where"` {
		t.Errorf("the server was asked %+v", seen)
	}
}

func TestAClientThatGoesFreesThePlainServer(t *testing.T) {
	for name, describe := range map[string]func(*fakeengine.Engine, *upstream.Config){"tokens": withTokens, "text": nil} {
		t.Run(name, func(t *testing.T) {
			servers := fakes(t, fakeengine.VLLM, 1, false)
			p := plain(t, "round-robin", servers, describe, nil)
			p.waitReady(1)
			release := servers[0].Hold()
			defer release()
			ctx, cancel := context.WithCancel(t.Context())
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.frontend.Address()+"/v1/chat/completions",
				strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			cancel()
			response.Body.Close()
			waitFor(t, func() bool { return servers[0].Left() == 1 })
		})
	}
}

func TestPlainServersStandBesideOtherWorkers(t *testing.T) {
	servers := fakes(t, fakeengine.VLLM, 1, false)
	p := plain(t, "round-robin", servers, func(_ *fakeengine.Engine, c *upstream.Config) { c.Name = "plain" }, nil)
	p.engine(nil) // a worker of discovery whose model has no files here: it is listed among the instances alone
	waitFor(t, func() bool { return len(p.frontend.manager.Instances()) == 2 && p.frontend.Ready("plain") })
	health := p.get("/health")
	if !strings.Contains(health, `"http":"`+servers[0].URL()+`"`) || !strings.Contains(health, `"tcp":"127.0.0.1:1/x"`) {
		t.Errorf("health shows %s", health)
	}
	if status, answer := p.post("/v1/chat/completions", `{"model":"plain","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`); status != http.StatusOK || !strings.Contains(answer, `"model":"plain"`) {
		t.Errorf("%d %s", status, answer)
	}
	if metrics := p.get("/metrics"); !strings.Contains(metrics, `signalbox_upstream_up{server="`+servers[0].URL()+`"} 1`) {
		t.Error("the server is not shown to scrapers")
	}
	if got := string(servers[0].Seen()[0].Body["model"]); got != `"m"` {
		t.Errorf("the server was asked for model %s, want its own name", got)
	}
	servers[0].Close()
	waitFor(t, func() bool { return len(p.frontend.manager.Instances()) == 1 })
	if metrics := p.get("/metrics"); !strings.Contains(metrics, `signalbox_upstream_up{server="`+servers[0].URL()+`"} 0`) {
		t.Error("the server that has gone is not shown to scrapers")
	}
}
