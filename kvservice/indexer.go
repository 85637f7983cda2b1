package kvservice

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"signalbox/kvevents/enginefeed"
	"signalbox/kvhash"
	"signalbox/kvindex"
)

// IndexerOptions describe an indexer.
type IndexerOptions struct {
	// Shards is how many threads may apply events at the same time; 0 means 4.
	Shards int
	Logger *slog.Logger
}

// Indexer knows which worker holds which prefix, from the engines' own events, with an index for each model and routing group. It is an
// http.Handler.
type Indexer struct {
	options IndexerOptions
	wait    sync.WaitGroup
	// keepEmpty keeps spaces in which nobody is registered any more.
	keepEmpty bool

	mutex     sync.Mutex
	spaces    map[pool]*space
	instances map[uint64]pool
	peers     map[string]bool
}

// space is the workers of one model in a routing group.
type space struct {
	blockSize int
	index     *kvindex.Index
	predicted *kvindex.Predicted // behind index, where it learns from placements; else nil
	listeners map[kvindex.Rank]*listener
}

// listener follows the events of one rank.
type listener struct {
	*enginefeed.Follower
	cancel context.CancelFunc
	done   chan struct{} // closed once it has ended
}

// NewIndexer returns an indexer that listens to nobody yet. Close ends it.
func NewIndexer(options IndexerOptions) *Indexer {
	return &Indexer{options: options, spaces: make(map[pool]*space), instances: make(map[uint64]pool), peers: make(map[string]bool)}
}

// Close stops listening.
func (x *Indexer) Close() {
	x.mutex.Lock()
	for _, s := range x.spaces {
		for _, l := range s.listeners {
			l.cancel()
		}
	}
	x.mutex.Unlock()
	x.wait.Wait()
}

// ServeHTTP implements http.Handler. Unlike the other services it answers what is not there, and bodies that cannot be read, without JSON.
func (x *Indexer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handlers := map[string]http.HandlerFunc{
		"GET /health": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, "GET /workers": x.list, "GET /dump": x.dump, "GET /peers": x.listPeers,
		"POST /register": x.register, "POST /unregister": x.unregister, "POST /query": x.query, "POST /query_by_hash": x.queryByHash,
		"POST /register_peer": x.registerPeer, "POST /deregister_peer": x.deregisterPeer,
		"POST /reopen_logs": func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, done{"ok"}) },
	}
	if handler := handlers[r.Method+" "+r.URL.Path]; handler != nil {
		handler(w, r)
		return
	}
	status := http.StatusNotFound
	if handlers["GET "+r.URL.Path] != nil || handlers["POST "+r.URL.Path] != nil {
		status = http.StatusMethodNotAllowed
	}
	w.WriteHeader(status)
}

// respond is reply with this service's form of bodies that cannot be read.
func respond(w http.ResponseWriter, status int, value any, err error) {
	if known, is := err.(*failure); is && known.parse {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(known.status)
		_, _ = w.Write([]byte(known.text)) // whoever asked may have gone
		return
	}
	reply(w, status, value, err)
}

// indexerBody is what requests to the indexer say.
type indexerBody struct {
	InstanceID *uint64   `json:"instance_id"`
	Endpoint   *string   `json:"endpoint"`
	Model      *string   `json:"model_name"`
	BlockSize  *int      `json:"block_size"`
	Group      *string   `json:"routing_group"`
	Rank       *uint32   `json:"dp_rank"`
	Replay     string    `json:"replay_endpoint"`
	Tokens     *[]uint32 `json:"token_ids"`
	Hashes     *[]int64  `json:"block_hashes"`
	Adapter    string    `json:"lora_name"`
	Salt       *string   `json:"cache_salt"`
	URL        *string   `json:"url"`
}

func (b *indexerBody) pool() pool {
	p := pool{group: defaultGroup}
	if b.Model != nil {
		p.model = *b.Model
	}
	if b.Group != nil {
		p.group = *b.Group
	}
	return p
}

func (x *Indexer) register(w http.ResponseWriter, r *http.Request) {
	var body indexerBody
	err := read(r, &body, func() string {
		return firstMissing(member{"endpoint", body.Endpoint != nil}, member{"instance_id", body.InstanceID != nil}, member{"model_name", body.Model != nil}, member{"block_size", body.BlockSize != nil})
	})
	if err == nil {
		rank := kvindex.Rank{WorkerID: *body.InstanceID}
		if body.Rank != nil {
			rank.DPRank = *body.Rank
		}
		err = x.Register(Source{Rank: rank, Model: *body.Model, Group: body.pool().group, BlockSize: *body.BlockSize, Endpoint: *body.Endpoint, ReplayEndpoint: body.Replay})
	}
	respond(w, http.StatusCreated, done{"ok"}, err)
}

// Source is where an engine tells what one of its ranks holds.
type Source struct {
	Rank         kvindex.Rank
	Model, Group string
	BlockSize    int
	// Endpoint is where it publishes its events, over ZMQ ("tcp://host:port").
	Endpoint string
	// ReplayEndpoint is where it tells again what was lost; "" where it does not.
	ReplayEndpoint string
}

// checkEndpoint tells what is wrong with an endpoint.
func checkEndpoint(endpoint string) error {
	if scheme, address, found := strings.Cut(endpoint, "://"); !found {
		return badRequest("invalid ZMQ endpoint `%s`: missing scheme", endpoint)
	} else if scheme != "tcp" || !strings.Contains(address, ":") {
		return badRequest("invalid ZMQ endpoint `%s`: tcp://host:port is needed", endpoint)
	}
	return nil
}

// Register begins to follow the events of a rank.
func (x *Indexer) Register(source Source) error {
	name, rank := pool{source.Model, source.Group}, source.Rank
	x.mutex.Lock()
	defer x.mutex.Unlock()
	if other, known := x.instances[rank.WorkerID]; known && other != name {
		return &failure{status: http.StatusConflict, text: fmt.Sprintf("instance %d is already registered for %s", rank.WorkerID, other)}
	}
	s := x.spaces[name]
	if s != nil && s.listeners[rank] != nil {
		return &failure{status: http.StatusConflict, text: fmt.Sprintf("instance %d dp_rank %d already registered", rank.WorkerID, rank.DPRank)}
	}
	if s != nil && s.blockSize != source.BlockSize {
		return &failure{status: http.StatusConflict, text: fmt.Sprintf("block_size mismatch for %s: existing=%d, requested=%d", name, s.blockSize, source.BlockSize)}
	}
	if err := checkEndpoint(source.Endpoint); err != nil {
		return err
	}
	if source.ReplayEndpoint != "" {
		if err := checkEndpoint(source.ReplayEndpoint); err != nil {
			return err
		}
	}
	var err error
	if s == nil {
		if s, err = x.newSpace(source.BlockSize, 0); err != nil {
			return err
		}
	}
	follower, err := enginefeed.New(enginefeed.Source{Rank: rank, BlockSize: source.BlockSize, Endpoint: source.Endpoint, ReplayEndpoint: source.ReplayEndpoint},
		s.index, x.options.Logger.With("instance", rank.WorkerID, "dp_rank", rank.DPRank, "endpoint", source.Endpoint))
	if err != nil {
		return badRequest("%v", err)
	}
	x.spaces[name] = s
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{Follower: follower, cancel: cancel, done: make(chan struct{})}
	s.listeners[rank] = l
	x.instances[rank.WorkerID] = name
	x.wait.Go(func() { // ends when the rank is unregistered
		defer close(l.done)
		l.Follow(ctx)
	})
	return nil
}

// ensure returns the space of a pool, made when it is not there. With a time to live it learns from placements, for as long.
func (x *Indexer) ensure(name pool, blockSize int, ttl time.Duration) (*space, error) {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	s := x.spaces[name]
	if s == nil {
		var err error
		if s, err = x.newSpace(blockSize, ttl); err != nil {
			return nil, err
		}
		x.spaces[name] = s
	}
	if s.blockSize != blockSize {
		return nil, fmt.Errorf("block_size mismatch for %s: existing=%d requested=%d", name, s.blockSize, blockSize)
	}
	return s, nil
}

func (x *Indexer) newSpace(blockSize int, ttl time.Duration) (*space, error) {
	s := &space{blockSize: blockSize, listeners: make(map[kvindex.Rank]*listener)}
	options := kvindex.Options{Shards: cmp.Or(x.options.Shards, 4), Replay: true}
	var err error
	if ttl > 0 {
		if s.predicted, err = kvindex.NewTTL(options, ttl); err != nil {
			return nil, err
		}
		s.index = s.predicted.Index()
		return s, nil
	}
	s.index, err = kvindex.New(options)
	return s, err
}

func (x *Indexer) unregister(w http.ResponseWriter, r *http.Request) {
	var body indexerBody
	err := read(r, &body, func() string {
		return firstMissing(member{"instance_id", body.InstanceID != nil}, member{"model_name", body.Model != nil})
	})
	if err == nil {
		err = x.remove(*body.InstanceID, body.pool(), body.Rank)
	}
	respond(w, http.StatusOK, done{"ok"}, err)
}

// remove forgets an instance, or one rank of it.
func (x *Indexer) remove(id uint64, name pool, only *uint32) error {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	s := x.spaces[name]
	removed, left := 0, 0
	if s != nil {
		for rank, l := range s.listeners {
			switch {
			case rank.WorkerID != id:
			case only != nil && *only != rank.DPRank:
				left++
			default:
				removed++
				l.cancel()
				<-l.done
				delete(s.listeners, rank)
				s.index.RemoveRank(rank)
			}
		}
	}
	if removed == 0 {
		return &failure{status: http.StatusNotFound, text: fmt.Sprintf("instance %d not found", id)}
	}
	if left == 0 {
		delete(x.instances, id)
	}
	if len(s.listeners) == 0 && !x.keepEmpty {
		delete(x.spaces, name)
	}
	return nil
}

func (x *Indexer) list(w http.ResponseWriter, r *http.Request) {
	type state struct {
		Endpoint string `json:"endpoint"`
		Status   string `json:"status"`
	}
	type row struct {
		InstanceID uint64            `json:"instance_id"`
		Source     string            `json:"source"`
		Status     string            `json:"status"`
		Model      string            `json:"model_name"`
		Group      string            `json:"routing_group"`
		BlockSize  int               `json:"block_size"`
		Endpoints  map[string]string `json:"endpoints"`
		Listeners  map[string]state  `json:"listeners"`
	}
	query := r.URL.Query()
	byID := make(map[uint64]*row)
	x.mutex.Lock()
	for name, s := range x.spaces {
		if model := query.Get("model_name"); model != "" && model != name.model {
			continue
		}
		if group := query.Get("routing_group"); group != "" && group != name.group {
			continue
		}
		for rank, l := range s.listeners {
			at := byID[rank.WorkerID]
			if at == nil {
				at = &row{InstanceID: rank.WorkerID, Source: "zmq", Status: "active", Model: name.model, Group: name.group, BlockSize: s.blockSize,
					Endpoints: make(map[string]string), Listeners: make(map[string]state)}
				byID[rank.WorkerID] = at
			}
			status := "pending"
			if l.Active() {
				status = "active"
			} else {
				at.Status = status
			}
			key := strconv.FormatUint(uint64(rank.DPRank), 10)
			at.Endpoints[key], at.Listeners[key] = l.Source().Endpoint, state{l.Source().Endpoint, status}
		}
	}
	x.mutex.Unlock()
	rows := make([]*row, 0, len(byID))
	for _, at := range byID {
		rows = append(rows, at)
	}
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.InstanceID, b.InstanceID) })
	answer(w, http.StatusOK, rows)
}

// held is what an instance holds of a prompt, in tokens.
type held struct {
	Longest uint64            `json:"longest_matched"`
	Device  uint64            `json:"gpu"`
	Ranks   map[string]uint64 `json:"dp"`
	Host    uint64            `json:"cpu"`
	Disk    uint64            `json:"disk"`
}

// scores is the answer to a question.
type scores struct {
	Scores      map[string]map[string]uint64 `json:"scores"`
	Frequencies []uint64                     `json:"frequencies"`
	Instances   map[string]*held             `json:"instances"`
}

func (x *Indexer) query(w http.ResponseWriter, r *http.Request) {
	var body indexerBody
	err := read(r, &body, func() string {
		return firstMissing(member{"token_ids", body.Tokens != nil}, member{"model_name", body.Model != nil})
	})
	var found scores
	if err == nil {
		found, err = x.find(body.pool(), func(blockSize int) ([]uint64, error) {
			scope := kvhash.Scope{BlockSize: blockSize, LoRA: body.Adapter}
			if body.Salt != nil {
				scope.CacheNamespace = *body.Salt
			}
			hasher, err := kvhash.New(scope)
			if err != nil {
				return nil, &failure{status: http.StatusBadRequest, text: err.Error()}
			}
			return hasher.AppendBlocks(nil, *body.Tokens), nil
		})
	}
	respond(w, http.StatusOK, found, err)
}

func (x *Indexer) queryByHash(w http.ResponseWriter, r *http.Request) {
	var body indexerBody
	err := read(r, &body, func() string {
		return firstMissing(member{"block_hashes", body.Hashes != nil}, member{"model_name", body.Model != nil})
	})
	if err == nil && body.Salt != nil {
		err = &failure{status: http.StatusBadRequest, text: "cache_salt is not accepted by /query_by_hash; block_hashes must already include the intended cache salt"}
	}
	var found scores
	if err == nil {
		found, err = x.find(body.pool(), func(int) ([]uint64, error) {
			locals := make([]uint64, len(*body.Hashes))
			for i, hash := range *body.Hashes {
				locals[i] = uint64(hash)
			}
			return locals, nil
		})
	}
	respond(w, http.StatusOK, found, err)
}

// find answers what is held of the blocks that hash returns.
func (x *Indexer) find(name pool, hash func(blockSize int) ([]uint64, error)) (scores, error) {
	x.mutex.Lock()
	s := x.spaces[name]
	x.mutex.Unlock()
	if s == nil {
		return scores{}, &failure{status: http.StatusNotFound, text: fmt.Sprintf("no indexer for model=%s routing_group=%s", name.model, name.group)}
	}
	locals, err := hash(s.blockSize)
	if err != nil {
		return scores{}, err
	}
	found := scores{Scores: map[string]map[string]uint64{}, Frequencies: []uint64{}, Instances: map[string]*held{}}
	var matches kvindex.Matches
	s.index.Find(&matches, kvindex.Query{Locals: locals})
	for i := range matches.Ranks {
		match := &matches.Ranks[i]
		id, rank := strconv.FormatUint(match.Rank.WorkerID, 10), strconv.FormatUint(uint64(match.Rank.DPRank), 10)
		tokens := func(blocks uint32) uint64 { return uint64(blocks) * uint64(s.blockSize) }
		device := tokens(match.Blocks[kvindex.Device])
		host := device + tokens(match.Blocks[kvindex.HostPinned])
		disk := host + tokens(match.Blocks[kvindex.Disk]+match.Blocks[kvindex.External])
		at := found.Instances[id]
		if at == nil {
			at = &held{Ranks: map[string]uint64{}}
			found.Instances[id] = at
		}
		at.Longest, at.Device, at.Host, at.Disk = max(at.Longest, disk), max(at.Device, device), max(at.Host, host), max(at.Disk, disk)
		if device == 0 {
			continue
		}
		at.Ranks[rank] = device
		if found.Scores[id] == nil {
			found.Scores[id] = map[string]uint64{}
		}
		found.Scores[id][rank] = device
	}
	return found, nil
}

func (x *Indexer) registerPeer(w http.ResponseWriter, r *http.Request) {
	var body indexerBody
	err := read(r, &body, func() string { return firstMissing(member{"url", body.URL != nil}) })
	if err == nil {
		x.mutex.Lock()
		if len(x.peers) < maxPeers {
			x.peers[*body.URL] = true
		} else {
			err = &failure{status: http.StatusConflict, text: fmt.Sprintf("more than %d peers", maxPeers)}
		}
		x.mutex.Unlock()
	}
	respond(w, http.StatusCreated, done{"ok"}, err)
}

func (x *Indexer) deregisterPeer(w http.ResponseWriter, r *http.Request) {
	var body indexerBody
	err := read(r, &body, func() string { return firstMissing(member{"url", body.URL != nil}) })
	if err == nil {
		x.mutex.Lock()
		if !x.peers[*body.URL] {
			err = &failure{status: http.StatusNotFound, text: "peer not found"}
		}
		delete(x.peers, *body.URL)
		x.mutex.Unlock()
	}
	respond(w, http.StatusOK, done{"ok"}, err)
}

func (x *Indexer) listPeers(w http.ResponseWriter, _ *http.Request) {
	list := []string{}
	x.mutex.Lock()
	for url := range x.peers {
		list = append(list, url)
	}
	x.mutex.Unlock()
	slices.Sort(list)
	answer(w, http.StatusOK, list)
}
