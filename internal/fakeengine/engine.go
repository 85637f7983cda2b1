// Package fakeengine answers like inference servers that cannot run in tests, for they need a GPU: vLLM and SGLang. It speaks what their
// documentation says of their HTTP API and of the KV events that they publish over ZeroMQ, and generates nothing: its tokens are given.
package fakeengine

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"

	"github.com/tinylib/msgp/msgp"

	"signalbox/transport/zmq"
)

// Kind is the engine that is imitated.
type Kind string

// The kinds.
const (
	VLLM   Kind = "vllm"
	SGLang Kind = "sglang"
)

// BlockSize is the number of tokens in a block of the imitated caches.
const BlockSize = 16

// Engine is an imitated server. Its exported members may be set before requests come.
type Engine struct {
	Kind Kind
	// Model is its name in /v1/models, Length its context in tokens.
	Model  string
	Length int
	// Adapters are LoRA adapters of the model.
	Adapters []string
	// Answer are the ids that it generates, over and over; End is its end token, which comes when the Answer is used up and Stops is set.
	Answer []uint32
	End    uint32
	Stops  bool
	// Incremental makes SGLang tell new tokens alone.
	Incremental bool

	server *httptest.Server
	ranks  []*rank // one for each data-parallel rank

	mutex  sync.Mutex
	seen   []Request
	left   int // requests that the client broke off
	refuse *refusal
	breaks int           // tokens after which the next streams break off; 0 for none
	gate   chan struct{} // streams wait for it after their first token; nil for none
}

// rank is a data-parallel rank's cache.
type rank struct {
	number   uint32
	events   *zmq.Publisher // nil for none
	sequence uint64
	blocks   map[uint64]bool // by the hash of all tokens up to the block's end
}

type refusal struct {
	status int
	body   string
	left   int
}

// Request is what was asked.
type Request struct {
	Path   string
	Header http.Header
	Body   map[string]json.RawMessage
	// Cached is how many tokens of the prompt were in the cache of the Rank that it went to.
	Cached int
	Rank   uint32
}

// Prompt returns the prompt's tokens.
func (r Request) Prompt() (ids []uint32) {
	for _, name := range []string{"prompt", "input_ids"} {
		if raw := r.Body[name]; raw != nil {
			_ = json.Unmarshal(raw, &ids) // a text has none
		}
	}
	return ids
}

// Start starts an engine. With events it publishes what it stores.
func Start(kind Kind, model string, events bool) (*Engine, error) {
	return StartRanks(kind, model, events, 1)
}

// StartRanks starts an engine of several data-parallel ranks, which publish at neighbouring ports.
func StartRanks(kind Kind, model string, events bool, count int) (*Engine, error) {
	e := &Engine{Kind: kind, Model: model, Length: 4096, Answer: []uint32{300}}
	for number := range count {
		e.ranks = append(e.ranks, &rank{number: uint32(number), blocks: make(map[uint64]bool)})
	}
	if events {
		if err := e.listen(); err != nil {
			return nil, err
		}
	}
	e.server = httptest.NewServer(e.handler())
	return e, nil
}

// listen opens neighbouring ports for all ranks. A neighbour that is taken asks for another beginning.
func (e *Engine) listen() (err error) {
	for range 100 {
		port := 0
		for _, r := range e.ranks {
			if r.events, err = zmq.Listen(fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
				break
			}
			port = r.events.Port() + 1
		}
		if err == nil {
			return nil
		}
		for _, r := range e.ranks {
			if r.events != nil {
				_ = r.events.Close()
				r.events = nil
			}
		}
	}
	return err
}

func (e *Engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","created":1,"owned_by":%q,"root":%q,"parent":null,"max_model_len":%d}`, e.Model, e.Kind, e.Model, e.Length)
		for _, name := range e.Adapters {
			fmt.Fprintf(w, `,{"id":%q,"object":"model","created":1,"owned_by":%q,"root":"/adapters/x","parent":%q,"max_model_len":null}`, name, e.Kind, e.Model)
		}
		fmt.Fprint(w, `]}`)
	})
	if e.Kind == VLLM {
		mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"0.11.0"}`) })
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\nvllm:cache_config_info{block_size=\"%d\",cache_dtype=\"auto\",num_gpu_blocks=\"1000\",prefix_caching_hash_algo=\"sha256\"} 1.0\n", BlockSize)
		})
	} else {
		mux.HandleFunc("GET /get_server_info", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"version":"0.5.4","page_size":%d,"max_total_num_tokens":16000,"context_length":null,"max_running_requests":64,"internal_states":[{}]}`, BlockSize)
		})
		mux.HandleFunc("POST /generate", e.serve)
	}
	mux.HandleFunc("POST /v1/embeddings", e.embed)
	mux.HandleFunc("POST /v1/completions", e.serve)
	mux.HandleFunc("POST /v1/chat/completions", e.serve)
	return mux
}

// URL is where the engine listens, Events where it publishes.
func (e *Engine) URL() string { return e.server.URL }

// Events is where its first rank publishes its events; "" when it does not.
func (e *Engine) Events() string {
	if e.ranks[0].events == nil {
		return ""
	}
	return fmt.Sprintf("tcp://127.0.0.1:%d", e.ranks[0].events.Port())
}

// Listeners is how many follow the events of its ranks.
func (e *Engine) Listeners() (count int) {
	for _, r := range e.ranks {
		count += r.events.Subscribers()
	}
	return count
}

// Close ends the engine at once, its streams with it.
func (e *Engine) Close() {
	e.server.CloseClientConnections()
	e.server.Close()
	for _, r := range e.ranks {
		if r.events != nil {
			_ = r.events.Close()
		}
	}
}

// Refuse answers the next requests with a status and a body; a negative number refuses all.
func (e *Engine) Refuse(requests, status int, body string) {
	e.mutex.Lock()
	e.refuse = &refusal{status, body, requests}
	e.mutex.Unlock()
}

// BreakAfter breaks all further streams off after so many tokens.
func (e *Engine) BreakAfter(tokens int) {
	e.mutex.Lock()
	e.breaks = tokens
	e.mutex.Unlock()
}

// Hold lets streams wait after their first token until the returned function is called.
func (e *Engine) Hold() (release func()) {
	gate := make(chan struct{})
	e.mutex.Lock()
	e.gate = gate
	e.mutex.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

// Seen returns the requests so far.
func (e *Engine) Seen() []Request {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return append([]Request(nil), e.seen...)
}

// Left returns how many requests the client broke off.
func (e *Engine) Left() int {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.left
}

// embed answers with one vector.
func (e *Engine) embed(w http.ResponseWriter, r *http.Request) {
	request := Request{Path: r.URL.Path, Header: r.Header}
	if json.NewDecoder(r.Body).Decode(&request.Body) != nil {
		http.Error(w, `{"error":{"message":"the body is no JSON","code":400}}`, http.StatusBadRequest)
		return
	}
	e.mutex.Lock()
	e.seen = append(e.seen, request)
	e.mutex.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"object":"list","model":%q,"data":[{"object":"embedding","index":0,"embedding":[0.5,-0.25]}],"usage":{"prompt_tokens":3,"total_tokens":3}}`, e.Model)
}

func (e *Engine) serve(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	request := Request{Path: r.URL.Path, Header: r.Header}
	if err != nil || json.Unmarshal(text, &request.Body) != nil {
		http.Error(w, `{"error":{"message":"the body is no JSON","code":400}}`, http.StatusBadRequest)
		return
	}
	e.mutex.Lock()
	refuse := e.refuse
	if refuse != nil && refuse.left != 0 {
		refuse.left--
		e.seen = append(e.seen, request)
		e.mutex.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(refuse.status)
		_, _ = io.WriteString(w, refuse.body)
		return
	}
	prompt := request.Prompt()
	request.Rank = e.rankOf(request)
	request.Cached = e.ranks[request.Rank].store(prompt, e.adapterOf(request))
	e.seen = append(e.seen, request)
	breaks, gate := e.breaks, e.gate
	e.mutex.Unlock()
	s := &answer{engine: e, writer: w, request: request, prompt: len(prompt), limit: e.limit(request)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for !s.ended {
		s.step()
		w.(http.Flusher).Flush()
		if breaks > 0 && s.made >= breaks && !s.ended {
			panic(http.ErrAbortHandler)
		}
		if gate != nil {
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		}
		if r.Context().Err() != nil {
			e.mutex.Lock()
			e.left++
			e.mutex.Unlock()
			return
		}
	}
	s.finish()
}

// limit is how many tokens the answer may have: engines have a default of their own.
func (e *Engine) limit(r Request) int {
	limit := 16
	if raw := r.Body["max_tokens"]; raw != nil {
		_ = json.Unmarshal(raw, &limit)
	}
	var parameters struct {
		Most *int `json:"max_new_tokens"`
	}
	if raw := r.Body["sampling_params"]; raw != nil && json.Unmarshal(raw, &parameters) == nil && parameters.Most != nil {
		limit = *parameters.Most
	}
	return limit
}

// rankOf is the rank that a request names, as either engine lets it; the first for none.
func (e *Engine) rankOf(r Request) uint32 {
	text := r.Header.Get("X-Data-Parallel-Rank")
	if raw := r.Body["data_parallel_rank"]; raw != nil {
		text = string(raw)
	}
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil || number >= uint64(len(e.ranks)) {
		return 0
	}
	return uint32(number)
}

// adapterOf is the adapter that a request names; "" for none.
func (e *Engine) adapterOf(r Request) (name string) {
	if json.Unmarshal(r.Body["model"], &name) != nil || !slices.Contains(e.Adapters, name) {
		return ""
	}
	return name
}

// store puts the whole blocks of a prompt into the cache and publishes them. It returns how many tokens were there. The caller holds the
// engine's lock.
func (r *rank) store(prompt []uint32, adapter string) (cached int) {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, adapter)
	parent, hasParent, hit := uint64(0), false, true
	for at := 0; at+BlockSize <= len(prompt); at += BlockSize {
		block := prompt[at : at+BlockSize]
		for _, id := range block {
			_ = binary.Write(hash, binary.LittleEndian, id) // a hash never fails to write
		}
		own := hash.Sum64()
		if r.blocks[own] {
			if hit {
				cached += BlockSize
			}
		} else {
			hit = false
			r.blocks[own] = true
			r.publish(own, parent, hasParent, block, adapter)
		}
		parent, hasParent = own, true
	}
	return cached
}

// publish tells of a stored block as engines do: topic, sequence, and a batch of tuples.
func (r *rank) publish(hash, parent uint64, hasParent bool, tokens []uint32, adapter string) {
	if r.events == nil {
		return
	}
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, 1)
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendArrayHeader(b, 8)
	b = msgp.AppendString(b, "BlockStored")
	b = msgp.AppendUint64(msgp.AppendArrayHeader(b, 1), hash)
	if hasParent {
		b = msgp.AppendUint64(b, parent)
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendArrayHeader(b, uint32(len(tokens)))
	for _, id := range tokens {
		b = msgp.AppendUint32(b, id)
	}
	b = msgp.AppendInt(b, BlockSize)
	b = msgp.AppendNil(b)
	b = msgp.AppendString(b, "GPU")
	if adapter != "" {
		b = msgp.AppendString(b, adapter)
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendUint32(b, r.number)
	r.events.Publish([]byte("kv-events"), binary.BigEndian.AppendUint64(nil, r.sequence), b)
	r.sequence++
}
