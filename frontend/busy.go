package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"signalbox/api/admin"
	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/kvevents"
	"signalbox/router"
	"signalbox/router/busy"
)

// LoadReports knows what workers report of their own load.
type LoadReports interface {
	// FollowLoad hands on the reports of an endpoint's workers until ctx ends, from several goroutines.
	FollowLoad(ctx context.Context, endpoint discovery.EndpointID, report func(kvevents.Load))
}

// rejection keeps the busy workers of a set passed over, and refuses requests while all are.
type rejection struct {
	monitor *busy.Monitor
	server  *server
	// queues tells that requests may wait for room: then the router alone refuses.
	queues bool
	// advertised are the thresholds of the set's card; nil when the frontend's hold.
	advertised *admin.Thresholds

	begin  sync.Once // starts what only matters with thresholds
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

func newRejection(s *server, advertised json.RawMessage) (*rejection, error) {
	r := &rejection{monitor: busy.New(s.pool), server: s}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if len(advertised) == 0 {
		return r, nil
	}
	// A set that advertises a configuration has all of it from there; what it leaves out is off.
	var config struct {
		Thresholds *admin.Thresholds `json:"load_threshold_config"`
	}
	if err := json.Unmarshal(advertised, &config); err != nil {
		return nil, fmt.Errorf("router_config of the model card: load_threshold_config: %w", err)
	}
	r.advertised = config.Thresholds
	if r.advertised == nil {
		r.advertised = &admin.Thresholds{}
	}
	return r, nil
}

// set applies thresholds; the first that are any begin to follow what workers report.
func (r *rejection) set(t admin.Thresholds) {
	thresholds := busy.Thresholds{DecodeBlocks: t.ActiveDecodeBlocks, PrefillTokens: t.ActivePrefillTokens, PrefillFraction: t.ActivePrefillTokensFraction}
	r.monitor.Set(thresholds)
	if !thresholds.Any() {
		return
	}
	r.begin.Do(func() {
		r.wait.Go(func() { r.monitor.Run(r.ctx) }) // ends with close
		if loads := r.server.frontend.options.Loads; loads != nil {
			r.wait.Go(func() { loads.FollowLoad(r.ctx, r.server.key.Endpoint, r.report) }) // ends with close
		}
	})
}

// report takes the worker's own count. What other routers have booked is in their reports too; it is not a worker's word, and one
// that has died would be believed for ever.
func (r *rejection) report(load kvevents.Load) {
	if load.UsedBlocks.Known {
		r.monitor.Report(inference.Rank{WorkerID: load.Rank.WorkerID, DPRank: load.Rank.DPRank}, load.UsedBlocks.Value)
	}
}

// refuse returns the failure of a request that no worker would take now; nil when one might. It is asked before the prompt is
// tokenised: while a fleet is full, refusing must cost next to nothing.
func (r *rejection) refuse() error {
	if r.monitor.Active() && !r.queues && r.monitor.AllBusy() {
		return router.AllEligibleOverloaded()
	}
	return nil
}

func (r *rejection) close() {
	r.cancel()
	r.wait.Wait()
}

// placing looks at the load before it places.
type placing struct {
	router.Router
	monitor *busy.Monitor
}

// Place implements router.Router.
func (p placing) Place(ctx context.Context, request *inference.Request, attempt router.Attempt) (*router.Placement, error) {
	p.monitor.Refresh()
	return p.Router.Place(ctx, request, attempt)
}

// refuse tells whether the set, and the prefill workers that it needs, would take a request now.
func (s *server) refuse() error {
	if err := s.rejection.refuse(); err != nil {
		return err
	}
	if prefill := s.prefill.Load(); prefill != nil {
		return prefill.rejection.refuse()
	}
	return nil
}

// thresholdsOf returns the thresholds of a set: what an operator has set for its model, else what its card advertises, else the
// frontend's.
func (t *thresholds) of(s *server) admin.Thresholds {
	t.mu.Lock()
	defer t.mu.Unlock()
	if set, ok := t.byModel[s.card.DisplayName]; ok {
		return set
	}
	if s.rejection.advertised != nil {
		return *s.rejection.advertised
	}
	return t.initial
}

// spread gives all sets of a model their thresholds.
func (t *thresholds) spread(name string) {
	for _, entry := range t.frontend.manager.Served() {
		if entry.Server.card.DisplayName == name {
			entry.Server.rejection.set(t.of(entry.Server))
		}
	}
}
