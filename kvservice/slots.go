package kvservice

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"signalbox/inference"
	"signalbox/router/kv"
	"signalbox/router/load"
)

// SlotOptions describe a slot tracker.
type SlotOptions struct {
	// Expiry is the age at which a request is forgotten whose end was not told; 0 means [kv.DefaultRequestExpiry].
	Expiry time.Duration
	// SyncAddress is where replicas may listen ("host:port"); "" keeps to itself.
	SyncAddress string
	Logger      *slog.Logger
}

// Slots is a slot tracker: whoever routes tells it of requests and asks it what every rank is busy with. It is an http.Handler.
type Slots struct {
	options SlotOptions
	routes  routes
	origin  time.Time
	sync    *replicas // nil without

	mutex sync.Mutex
	pools map[pool]*slotPool
}

// pool names the workers of a model in a routing group.
type pool struct{ model, group string }

type slotPool struct {
	blockSize uint32
	workers   map[uint64]slotWorker
	tracker   load.Tracker
	added     map[string]time.Duration // by request
	view      load.View
}

type slotWorker struct{ start, size uint32 }

// NewSlots returns an empty slot tracker. Close ends it.
func NewSlots(options SlotOptions) (*Slots, error) {
	if options.Expiry == 0 {
		options.Expiry = kv.DefaultRequestExpiry
	}
	s := &Slots{options: options, origin: time.Now(), pools: make(map[pool]*slotPool)}
	if options.SyncAddress != "" {
		var err error
		if s.sync, err = newReplicas(options.SyncAddress, rand.Uint64(), s.apply, options.Logger); err != nil {
			return nil, err
		}
	}
	post, get := http.MethodPost, http.MethodGet
	s.routes = routes{
		"/health":           {get: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }},
		"/register":         {post: s.register},
		"/unregister":       {post: s.unregister},
		"/workers":          {get: s.list},
		"/add":              {post: s.add},
		"/prefill_complete": {post: s.prefillComplete},
		"/free":             {post: s.free},
		"/loads":            {get: s.loads},
		"/potential_loads":  {post: s.potentialLoads},
	}
	s.sync.mount(s.routes)
	return s, nil
}

// SyncPort is the port at which replicas may listen; 0 without.
func (s *Slots) SyncPort() int { return s.sync.port() }

// SyncListeners is how many replicas listen at that port.
func (s *Slots) SyncListeners() int { return s.sync.listeners() }

// Close leaves the replicas.
func (s *Slots) Close() { s.sync.close() }

// ServeHTTP implements http.Handler.
func (s *Slots) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes.ServeHTTP(w, r) }

// Run forgets old requests until ctx ends. It belongs on a goroutine of the caller.
func (s *Slots) Run(ctx context.Context) {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.expire(s.now())
		case <-ctx.Done():
			return
		}
	}
}

func (s *Slots) now() time.Duration { return time.Since(s.origin) }

func (s *Slots) expire(now time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, p := range s.pools {
		for id, at := range p.added {
			if now-at >= s.options.Expiry {
				p.free(id, now)
			}
		}
	}
}

func (p *slotPool) free(id string, now time.Duration) (freed bool) {
	handle, _ := p.tracker.Lookup(id)
	delete(p.added, id)
	return p.tracker.Free(handle, now)
}

// slotBody is what requests to the tracker say. Hashes are signed on this interface.
type slotBody struct {
	Model     *string `json:"model_name"`
	Group     *string `json:"routing_group"`
	WorkerID  *uint64 `json:"worker_id"`
	BlockSize *uint32 `json:"block_size"`
	Start     uint32  `json:"dp_start"`
	Size      *uint32 `json:"dp_size"`
	RequestID *string `json:"request_id"`
	Rank      uint32  `json:"dp_rank"`
	Hashes    []int64 `json:"sequence_hashes"`
	NewTokens uint64  `json:"new_isl_tokens"`
	Expected  *uint32 `json:"expected_output_tokens"`
	Adapter   string  `json:"lora_name"`
}

func (b *slotBody) pool() pool {
	p := pool{group: defaultGroup}
	if b.Model != nil {
		p.model = *b.Model
	}
	if b.Group != nil {
		p.group = *b.Group
	}
	return p
}

func (b *slotBody) hashes() []uint64 {
	unsigned := make([]uint64, len(b.Hashes))
	for i, hash := range b.Hashes {
		unsigned[i] = uint64(hash)
	}
	return unsigned
}

// maxWorkerRanks bounds the ranks of one worker.
const maxWorkerRanks = 4096

func (s *Slots) register(w http.ResponseWriter, r *http.Request) {
	var body slotBody
	err := read(r, &body, func() string {
		return firstMissing(member{"worker_id", body.WorkerID != nil}, member{"model_name", body.Model != nil}, member{"block_size", body.BlockSize != nil})
	})
	if err == nil {
		err = s.addWorker(&body)
	}
	reply(w, http.StatusCreated, done{"ok"}, err)
}

func (s *Slots) addWorker(body *slotBody) error {
	worker := slotWorker{start: body.Start, size: 1}
	if body.Size != nil {
		worker.size = *body.Size
	}
	switch {
	case *body.BlockSize == 0:
		return &failure{status: http.StatusBadRequest, text: "block_size must be greater than 0"}
	case worker.size == 0 || worker.size > maxWorkerRanks || worker.start > ^uint32(0)-worker.size:
		return &failure{status: http.StatusBadRequest, text: fmt.Sprintf("dp_size must be from 1 to %d, and dp_start + dp_size a 32-bit number", maxWorkerRanks)}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	name := body.pool()
	p := s.pools[name]
	if p == nil {
		p = &slotPool{blockSize: *body.BlockSize, workers: make(map[uint64]slotWorker), added: make(map[string]time.Duration)}
		s.pools[name] = p
	}
	if _, twice := p.workers[*body.WorkerID]; twice {
		return &failure{status: http.StatusConflict, text: fmt.Sprintf("worker %d already registered for model=%s routing_group=%s", *body.WorkerID, name.model, name.group)}
	}
	if p.blockSize != *body.BlockSize {
		return &failure{status: http.StatusConflict, text: fmt.Sprintf("block_size mismatch for model=%s routing_group=%s: existing=%d, requested=%d", name.model, name.group, p.blockSize, *body.BlockSize)}
	}
	p.workers[*body.WorkerID] = worker
	for rank := range worker.size {
		p.tracker.Ensure(inference.Rank{WorkerID: *body.WorkerID, DPRank: worker.start + rank})
	}
	return nil
}

func (s *Slots) unregister(w http.ResponseWriter, r *http.Request) {
	var body slotBody
	err := read(r, &body, func() string {
		return firstMissing(member{"worker_id", body.WorkerID != nil}, member{"model_name", body.Model != nil})
	})
	if err == nil {
		err = s.removeWorker(&body)
	}
	reply(w, http.StatusOK, done{"ok"}, err)
}

func (s *Slots) removeWorker(body *slotBody) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	name := body.pool()
	p := s.pools[name]
	if p == nil {
		return notRegistered(*body.WorkerID, name)
	}
	worker, known := p.workers[*body.WorkerID]
	if !known {
		return notRegistered(*body.WorkerID, name)
	}
	for rank := range worker.size {
		p.tracker.Remove(inference.Rank{WorkerID: *body.WorkerID, DPRank: worker.start + rank}, s.now())
	}
	for id := range p.added {
		if _, alive := p.tracker.Lookup(id); !alive {
			delete(p.added, id)
		}
	}
	delete(p.workers, *body.WorkerID)
	if len(p.workers) == 0 {
		delete(s.pools, name)
	}
	return nil
}

func notRegistered(id uint64, name pool) error {
	return &failure{status: http.StatusNotFound, text: fmt.Sprintf("worker %d not found for model=%s routing_group=%s", id, name.model, name.group)}
}

// names returns the pools that a question's parameters choose, in order. The caller holds the mutex.
func (s *Slots) names(r *http.Request) (names []pool) {
	query := r.URL.Query()
	for name := range s.pools {
		if model := query.Get("model_name"); model != "" && model != name.model {
			continue
		}
		if group := query.Get("routing_group"); group != "" && group != name.group {
			continue
		}
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b pool) int { return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.group, b.group)) })
	return names
}

// ranks returns the ranks of the pool, in order.
func (p *slotPool) ranks() (ranks []inference.Rank) {
	for id, worker := range p.workers {
		for rank := range worker.size {
			ranks = append(ranks, inference.Rank{WorkerID: id, DPRank: worker.start + rank})
		}
	}
	slices.SortFunc(ranks, func(a, b inference.Rank) int {
		return cmp.Or(cmp.Compare(a.WorkerID, b.WorkerID), cmp.Compare(a.DPRank, b.DPRank))
	})
	return ranks
}

func (s *Slots) list(w http.ResponseWriter, r *http.Request) {
	type row struct {
		WorkerID  uint64 `json:"worker_id"`
		Model     string `json:"model_name"`
		Group     string `json:"routing_group"`
		BlockSize uint32 `json:"block_size"`
		Start     uint32 `json:"dp_start"`
		Size      uint32 `json:"dp_size"`
	}
	rows := []row{}
	s.mutex.Lock()
	for _, name := range s.names(r) {
		p := s.pools[name]
		first := len(rows)
		for id, worker := range p.workers {
			rows = append(rows, row{id, name.model, name.group, p.blockSize, worker.start, worker.size})
		}
		slices.SortFunc(rows[first:], func(a, b row) int { return cmp.Compare(a.WorkerID, b.WorkerID) })
	}
	s.mutex.Unlock()
	answer(w, http.StatusOK, rows)
}

func (s *Slots) add(w http.ResponseWriter, r *http.Request) {
	var body slotBody
	err := read(r, &body, func() string {
		return firstMissing(member{"model_name", body.Model != nil}, member{"request_id", body.RequestID != nil && *body.RequestID != ""}, member{"worker_id", body.WorkerID != nil})
	})
	if err == nil {
		booked := kv.Booked{Step: kv.Step{RequestID: *body.RequestID, Rank: inference.Rank{WorkerID: *body.WorkerID, DPRank: body.Rank}, LoRA: body.Adapter},
			Hashes: body.hashes(), PrefillTokens: body.NewTokens, ExpectedOutputTokens: body.Expected}
		err = s.book(body.pool(), booked)
	}
	reply(w, http.StatusCreated, done{"ok"}, err)
}

// book books a request and tells the replicas.
func (s *Slots) book(name pool, booked kv.Booked) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	p := s.pools[name]
	rank := fmt.Sprintf("WorkerWithDpRank { worker_id: %d, dp_rank: %d }", booked.Rank.WorkerID, booked.Rank.DPRank)
	if p == nil {
		return &failure{status: http.StatusNotFound, text: "Worker " + rank + " not found"}
	}
	if handle, exists := p.tracker.Lookup(booked.RequestID); exists {
		at, _ := p.tracker.RankOf(handle)
		return &failure{status: http.StatusConflict, text: fmt.Sprintf("Request %s already exists (assigned to worker WorkerWithDpRank { worker_id: %d, dp_rank: %d })", booked.RequestID, at.WorkerID, at.DPRank)}
	}
	if _, known := p.tracker.Row(booked.Rank); !known {
		return &failure{status: http.StatusNotFound, text: "Worker " + rank + " not found"}
	}
	now := s.now()
	if _, err := p.tracker.Add(load.Booking{ID: booked.RequestID, Rank: booked.Rank, Hashes: booked.Hashes, PrefillTokens: booked.PrefillTokens}, now); err != nil {
		return err
	}
	p.added[booked.RequestID] = now
	s.sync.tell(name, p.blockSize, &kv.Remote{Kind: kv.RemoteBooked, Booked: booked})
	return nil
}

func (s *Slots) prefillComplete(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, done{"ok"}, s.step(r, kv.RemotePrefillCompleted))
}

func (s *Slots) free(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, done{"ok"}, s.step(r, kv.RemoteFreed))
}

// step ends a request's prefill, or the request. Ending one that is not there is no error.
func (s *Slots) step(r *http.Request, kind kv.RemoteKind) error {
	var body slotBody
	if err := read(r, &body, func() string {
		return firstMissing(member{"model_name", body.Model != nil}, member{"request_id", body.RequestID != nil})
	}); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	name := body.pool()
	p := s.pools[name]
	var rank inference.Rank
	known := false
	if p != nil {
		var handle load.Handle
		if handle, known = p.tracker.Lookup(*body.RequestID); known {
			rank, _ = p.tracker.RankOf(handle)
		}
	}
	if !known {
		if kind == kv.RemoteFreed {
			return nil
		}
		return &failure{status: http.StatusNotFound, text: "Request " + *body.RequestID + " not found"}
	}
	p.advance(*body.RequestID, kind, s.now())
	s.sync.tell(name, p.blockSize, &kv.Remote{Kind: kind, Booked: kv.Booked{Step: kv.Step{RequestID: *body.RequestID, Rank: rank}}})
	return nil
}

// advance takes a request that is there one step on.
func (p *slotPool) advance(id string, kind kv.RemoteKind, now time.Duration) {
	if kind == kv.RemoteFreed {
		p.free(id, now)
		return
	}
	handle, _ := p.tracker.Lookup(id)
	_ = p.tracker.PrefillComplete(handle, now) // it is there
}

// apply takes over what a replica tells. Workers and requests that are not known here are left out, and so is what counts in blocks of
// another size.
func (s *Slots) apply(name pool, blockSize uint32, event kv.Remote) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	p := s.pools[name]
	if p == nil || p.blockSize != blockSize {
		return
	}
	now := s.now()
	if event.Kind != kv.RemoteBooked {
		p.advance(event.RequestID, event.Kind, now)
		return
	}
	if _, known := p.tracker.Row(event.Rank); !known {
		return
	}
	p.free(event.RequestID, now)
	if _, err := p.tracker.Add(load.Booking{ID: event.RequestID, Rank: event.Rank, Hashes: event.Hashes, PrefillTokens: event.PrefillTokens}, now); err == nil {
		p.added[event.RequestID] = now
	}
}

func (s *Slots) loads(w http.ResponseWriter, r *http.Request) {
	type row struct {
		Model    string `json:"model_name"`
		Group    string `json:"routing_group"`
		WorkerID uint64 `json:"worker_id"`
		Rank     uint32 `json:"dp_rank"`
		Prefill  uint64 `json:"active_prefill_tokens"`
		Decode   uint64 `json:"active_decode_blocks"`
	}
	rows := []row{}
	s.mutex.Lock()
	for _, name := range s.names(r) {
		p := s.pools[name]
		p.tracker.Project(&p.view, nil, s.now())
		for _, rank := range p.ranks() {
			at, _ := p.tracker.Row(rank)
			now := p.view.At(at)
			rows = append(rows, row{name.model, name.group, rank.WorkerID, rank.DPRank, now.ActivePrefillTokens, now.ActiveDecodeBlocks})
		}
	}
	s.mutex.Unlock()
	answer(w, http.StatusOK, rows)
}

// potentialLoad is what a rank would be busy with if it took one more request.
type potentialLoad struct {
	WorkerID uint64 `json:"worker_id"`
	Rank     uint32 `json:"dp_rank"`
	Prefill  uint64 `json:"potential_prefill_tokens"`
	Decode   uint64 `json:"potential_decode_blocks"`
	Requests uint64 `json:"active_requests"`
}

func (s *Slots) potentialLoads(w http.ResponseWriter, r *http.Request) {
	var body slotBody
	if err := read(r, &body, func() string { return firstMissing(member{"model_name", body.Model != nil}) }); err != nil {
		reply(w, 0, nil, err)
		return
	}
	rows := []potentialLoad{}
	s.mutex.Lock()
	if p := s.pools[body.pool()]; p != nil {
		p.tracker.Project(&p.view, body.hashes(), s.now())
		for _, rank := range p.ranks() {
			at, _ := p.tracker.Row(rank)
			now := p.view.At(at)
			rows = append(rows, potentialLoad{rank.WorkerID, rank.DPRank, now.ActivePrefillTokens + body.NewTokens, now.ActiveDecodeBlocks + now.AdditionalActiveBlocks, now.ActiveRequests})
		}
	}
	s.mutex.Unlock()
	answer(w, http.StatusOK, rows)
}
