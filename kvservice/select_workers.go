package kvservice

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"signalbox/kvindex"
	"signalbox/router"
)

// The states of a worker in the catalog. A worker is draining while a change of it is under way, and unschedulable once it was removed.
const (
	incomplete    = "incomplete"
	schedulable   = "schedulable"
	draining      = "draining"
	unschedulable = "unschedulable"
)

// workerRecord is a worker as the catalog has it: what was told of it, and whether that is enough to send it requests.
type workerRecord struct {
	WorkerID          uint64            `json:"worker_id"`
	Model             string            `json:"model_name"`
	Group             string            `json:"routing_group"`
	Lifecycle         string            `json:"lifecycle"`
	Endpoint          *string           `json:"endpoint"`
	Events            *string           `json:"kv_events_endpoint"`
	EventsByRank      map[uint32]string `json:"kv_events_endpoints,omitempty"`
	Replay            *string           `json:"replay_endpoint"`
	BlockSize         *uint32           `json:"block_size"`
	RankStart         *uint32           `json:"data_parallel_start_rank"`
	Ranks             *uint32           `json:"data_parallel_size"`
	MaxBatchedTokens  *uint64           `json:"max_num_batched_tokens"`
	TotalBlocks       *uint64           `json:"total_kv_blocks"`
	StableID          *string           `json:"stable_routing_id"`
	Eagle             *bool             `json:"is_eagle"`
	Taints            []string          `json:"taints"`
	Topology          map[string]string `json:"topology_domains"`
	TransferDomain    *string           `json:"kv_transfer_domain"`
	TransferRule      *string           `json:"kv_transfer_enforcement"`
	TransferPreferred *float32          `json:"kv_transfer_preferred_weight"`
	// Reasons say why the worker gets no requests.
	Reasons []string `json:"not_schedulable_reasons,omitempty"`
}

// workerBody is what is told of a worker. What is nil was not told.
type workerBody struct {
	WorkerID          *uint64           `json:"worker_id"`
	Model             *string           `json:"model_name"`
	Group             *string           `json:"routing_group"`
	Endpoint          *string           `json:"endpoint"`
	Events            *string           `json:"kv_events_endpoint"`
	EventsByRank      map[uint32]string `json:"kv_events_endpoints"`
	Replay            *string           `json:"replay_endpoint"`
	BlockSize         *uint32           `json:"block_size"`
	RankStart         *uint32           `json:"data_parallel_start_rank"`
	Ranks             *uint32           `json:"data_parallel_size"`
	MaxBatchedTokens  *uint64           `json:"max_num_batched_tokens"`
	TotalBlocks       *uint64           `json:"total_kv_blocks"`
	StableID          *string           `json:"stable_routing_id"`
	Eagle             *bool             `json:"is_eagle"`
	Taints            []string          `json:"taints"`
	Topology          map[string]string `json:"topology_domains"`
	TransferDomain    *string           `json:"kv_transfer_domain"`
	TransferRule      *string           `json:"kv_transfer_enforcement"`
	TransferPreferred *float32          `json:"kv_transfer_preferred_weight"`
}

// defaultModel is the model of whoever names none.
const defaultModel = "default"

// poolOf returns the pool that a body names.
func poolOf(model, group *string) pool {
	p := pool{defaultModel, defaultGroup}
	if model != nil {
		p.model = *model
	}
	if group != nil {
		p.group = *group
	}
	return p
}

// String returns the pool as messages name it.
func (p pool) String() string { return "model=" + p.model + " routing_group=" + p.group }

func (w *workerRecord) pool() pool { return pool{w.Model, w.Group} }

// take changes what was told; the rest stays.
func (w *workerRecord) take(b *workerBody) {
	set(&w.Endpoint, b.Endpoint)
	set(&w.Events, b.Events)
	if b.EventsByRank != nil {
		w.EventsByRank = b.EventsByRank
	}
	set(&w.Replay, b.Replay)
	set(&w.BlockSize, b.BlockSize)
	set(&w.RankStart, b.RankStart)
	set(&w.Ranks, b.Ranks)
	set(&w.MaxBatchedTokens, b.MaxBatchedTokens)
	set(&w.TotalBlocks, b.TotalBlocks)
	set(&w.StableID, b.StableID)
	set(&w.Eagle, b.Eagle)
	if b.Taints != nil {
		w.Taints = append([]string{}, slices.Compact(slices.Sorted(slices.Values(b.Taints)))...)
	}
	if b.Topology != nil {
		w.Topology = b.Topology
	}
	set(&w.TransferDomain, b.TransferDomain)
	set(&w.TransferRule, b.TransferRule)
	set(&w.TransferPreferred, b.TransferPreferred)
}

// set replaces a value by one that was told.
func set[T any](to **T, told *T) {
	if told != nil {
		*to = told
	}
}

// check tells what is wrong with a body beyond its types.
func (b *workerBody) check() error {
	if rule := b.TransferRule; rule != nil && *rule != "required" && *rule != "preferred" {
		return cannotDeserialize(fmt.Sprintf("kv_transfer_enforcement: unknown variant `%s`, expected `required` or `preferred`", *rule))
	}
	start, size := uint32(0), uint32(1)
	if b.RankStart != nil {
		start = *b.RankStart
	}
	if b.Ranks != nil {
		size = *b.Ranks
	}
	if size > maxWorkerRanks || start > ^uint32(0)-size {
		return &failure{status: http.StatusBadRequest, text: fmt.Sprintf("data_parallel_size must be at most %d, and the last rank a 32-bit number", maxWorkerRanks)}
	}
	return nil
}

// ranks returns the half-open range of the worker's ranks.
func (w *workerRecord) ranks() (start, end uint32) {
	size := uint32(1)
	if w.Ranks != nil {
		size = *w.Ranks
	}
	if w.RankStart != nil {
		start = *w.RankStart
	}
	if start > ^uint32(0)-size {
		return start, start // a patch may have moved one without the other
	}
	return start, start + min(size, maxWorkerRanks)
}

// listeners returns where the ranks publish their events.
func (w *workerRecord) listeners() map[uint32]string {
	if len(w.EventsByRank) > 0 {
		return w.EventsByRank
	}
	start, end := w.ranks()
	if w.Events == nil || end-start != 1 {
		return nil
	}
	return map[uint32]string{start: *w.Events}
}

// missing lists what has to be told of the worker before it can get requests.
func (w *workerRecord) missing(queueing, events bool) (reasons []string) {
	start, end := w.ranks()
	if w.Endpoint == nil || *w.Endpoint == "" {
		reasons = append(reasons, "endpoint is required")
	}
	if w.BlockSize == nil || *w.BlockSize == 0 {
		reasons = append(reasons, "block_size must be greater than 0")
	}
	if start == end {
		reasons = append(reasons, "data_parallel_size must be greater than 0")
	}
	if queueing && w.MaxBatchedTokens == nil {
		reasons = append(reasons, "max_num_batched_tokens is required while queueing is enabled")
	}
	if !events {
		return reasons
	}
	listeners := w.listeners()
	for rank := start; rank < end; rank++ {
		if listeners[rank] == "" {
			reasons = append(reasons, fmt.Sprintf("kv_events endpoint is required for dp_rank %d", rank))
		}
	}
	return reasons
}

// worker returns the worker as routing sees it.
func (w *workerRecord) worker() router.Worker {
	start, end := w.ranks()
	made := router.Worker{ID: w.WorkerID, DataParallelStart: start, DataParallelSize: end - start, Taints: w.Taints}
	made.Topology.Domains = w.Topology
	if w.TotalBlocks != nil {
		made.TotalKVBlocks = *w.TotalBlocks
	}
	if w.MaxBatchedTokens != nil {
		made.MaxNumBatchedTokens = *w.MaxBatchedTokens
	}
	if w.TransferDomain != nil {
		made.Topology.TransferDomain = *w.TransferDomain
	}
	if w.TransferRule != nil {
		made.Topology.Enforcement = *w.TransferRule
	}
	made.Topology.PreferredWeight = w.TransferPreferred
	return made
}

func (s *Selector) upsertWorker(w http.ResponseWriter, r *http.Request) {
	var body workerBody
	err := read(r, &body, func() string { return firstMissing(member{"worker_id", body.WorkerID != nil}) })
	if err == nil {
		err = body.check()
	}
	if err != nil {
		reply(w, 0, nil, err)
		return
	}
	name := poolOf(body.Model, body.Group)
	record := &workerRecord{WorkerID: *body.WorkerID, Model: name.model, Group: name.group, Taints: []string{}, Topology: map[string]string{}}
	record.take(&body)
	s.changes.Lock()
	defer s.changes.Unlock()
	s.withdraw(record.WorkerID)
	answer(w, http.StatusCreated, s.admit(record))
}

// parseWorkerID reads the id in a path.
func parseWorkerID(w http.ResponseWriter, text string) (uint64, bool) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, "Invalid URL: Cannot parse `%s` to a `u64`", text) // whoever asked may have gone
		return 0, false
	}
	return id, true
}

func notFound(id uint64) error {
	return &failure{status: http.StatusNotFound, text: fmt.Sprintf("worker %d not found", id)}
}

func (s *Selector) patchWorker(w http.ResponseWriter, r *http.Request, name string) {
	id, ok := parseWorkerID(w, name)
	if !ok {
		return
	}
	var body workerBody
	err := read(r, &body, func() string { return "" })
	if err == nil {
		err = body.check()
	}
	s.changes.Lock()
	defer s.changes.Unlock()
	known := s.record(id)
	if err == nil && known == nil {
		err = notFound(id)
	}
	if err != nil {
		reply(w, 0, nil, err)
		return
	}
	record := *known
	record.take(&body)
	s.withdraw(id)
	answer(w, http.StatusOK, s.admit(&record))
}

func (s *Selector) deleteWorker(w http.ResponseWriter, _ *http.Request, name string) {
	id, ok := parseWorkerID(w, name)
	if !ok {
		return
	}
	s.changes.Lock()
	defer s.changes.Unlock()
	known := s.record(id)
	if known == nil {
		reply(w, 0, nil, notFound(id))
		return
	}
	s.withdraw(id)
	s.mutex.Lock()
	delete(s.workers, id)
	s.mutex.Unlock()
	record := *known
	record.Lifecycle, record.Reasons = unschedulable, nil
	answer(w, http.StatusOK, &record)
}

// record returns what the catalog has of a worker; nil for nothing. Records are never changed in place.
func (s *Selector) record(id uint64) *workerRecord {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.workers[id]
}

// store puts a record into the catalog and tells its pool.
func (s *Selector) store(record *workerRecord) {
	s.mutex.Lock()
	s.workers[record.WorkerID] = record
	s.mutex.Unlock()
	s.tellPool(record.pool())
}

// tellPool tells a pool who its workers are.
func (s *Selector) tellPool(name pool) {
	var workers []router.Worker
	s.mutex.Lock()
	p := s.pools[name]
	for _, record := range s.workers {
		if record.Lifecycle == schedulable && record.pool() == name {
			workers = append(workers, record.worker())
		}
	}
	s.mutex.Unlock()
	if p != nil {
		p.pool.SetWorkers(workers)
		s.forgetGone(p)
	}
}

// forgetGone forgets reservations that went away with their ranks.
func (s *Selector) forgetGone(p *selectPool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for id, r := range s.booked {
		if r.pool == p && !r.making && !p.router.Holds(id) {
			s.forgetLocked(id)
		}
	}
}

// withdraw lets a worker get no more requests, and its engine no more listeners.
func (s *Selector) withdraw(id uint64) {
	known := s.record(id)
	if known == nil || known.Lifecycle != schedulable {
		return
	}
	record := *known
	record.Lifecycle = draining
	s.store(&record)
	if s.options.Config.UseKVEvents {
		_ = s.index.remove(id, record.pool(), nil) // it may have had no listener
	}
}

// admit puts a worker into the catalog. It gets requests when all that is needed was told of it.
func (s *Selector) admit(record *workerRecord) *workerRecord {
	record.Lifecycle = schedulable
	record.Reasons = record.missing(s.options.queueing(record.Model), s.options.Config.UseKVEvents)
	if len(record.Reasons) == 0 {
		if err := s.attach(record); err != nil {
			record.Reasons = []string{"reconciliation failed: " + err.Error()}
		}
	}
	if len(record.Reasons) > 0 {
		record.Lifecycle = incomplete
	}
	s.store(record)
	return record
}

// queueing tells whether requests for the model can wait.
func (o *SelectOptions) queueing(model string) bool {
	if profile := o.Policies.Profile(model); profile != nil {
		return profile.Waits()
	}
	return o.Config.QueueThreshold != nil
}

// attach makes the worker's pool and listens to its engine.
func (s *Selector) attach(record *workerRecord) error {
	p, err := s.open(record)
	if err != nil || !s.options.Config.UseKVEvents {
		return err
	}
	replay := ""
	if record.Replay != nil {
		replay = *record.Replay
	}
	if replay != "" {
		if err := checkEndpoint(replay); err != nil {
			return fmt.Errorf("invalid replay endpoint for worker %d: %w", record.WorkerID, err)
		}
	}
	listeners := record.listeners()
	for _, rank := range slices.Sorted(maps.Keys(listeners)) {
		if err = checkEndpoint(listeners[rank]); err != nil {
			err = fmt.Errorf("invalid kv_events endpoint for worker %d dp_rank %d: %w", record.WorkerID, rank, err)
		} else {
			source := Source{Rank: kvindex.Rank{WorkerID: record.WorkerID, DPRank: rank}, Model: record.Model, Group: record.Group,
				BlockSize: p.blockSize, Endpoint: listeners[rank], ReplayEndpoint: replay}
			err = s.index.Register(source)
		}
		if err != nil {
			_ = s.index.remove(record.WorkerID, record.pool(), nil) // no listener may be there yet
			return err
		}
	}
	return nil
}

// records returns the catalog in order, of the pools that the parameters choose.
func (s *Selector) records(model, group string) []*workerRecord {
	list := []*workerRecord{}
	s.mutex.Lock()
	for _, record := range s.workers {
		if (model == "" || model == record.Model) && (group == "" || group == record.Group) {
			list = append(list, record)
		}
	}
	s.mutex.Unlock()
	slices.SortFunc(list, func(a, b *workerRecord) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Group, b.Group), cmp.Compare(a.WorkerID, b.WorkerID))
	})
	return list
}

func (s *Selector) listWorkers(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	answer(w, http.StatusOK, s.records(query.Get("model_name"), query.Get("routing_group")))
}

func (s *Selector) ready(w http.ResponseWriter, _ *http.Request) {
	var body struct {
		Ready       bool            `json:"ready"`
		Schedulable int             `json:"schedulable_workers"`
		Workers     []*workerRecord `json:"workers"`
	}
	body.Workers = s.records("", "")
	for _, record := range body.Workers {
		if record.Lifecycle == schedulable {
			body.Schedulable++
		}
	}
	status := http.StatusServiceUnavailable
	if body.Ready = body.Schedulable > 0 && s.ctx.Err() == nil; body.Ready {
		status = http.StatusOK
	}
	answer(w, status, body)
}
