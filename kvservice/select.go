package kvservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/router/policy"
	"signalbox/router/selection"
)

// SelectOptions describe a selection service.
type SelectOptions struct {
	// Config is the configuration of the routers; blocks in use are counted whatever it says.
	Config kv.Config
	// Shards is how many threads may apply engines' events at the same time; 0 means 4.
	Shards int
	// Policies are the queue classes of the policy file; nil for none.
	Policies *policy.Config
	// NewPolicy makes the worker-selection policy of a model; nil takes the built-in one.
	NewPolicy func() (selection.Policy, string, error)
	// TrackingKey makes the identities of active blocks secret; nil leaves them public.
	TrackingKey *kvhash.TrackingKey
	// OverlapRefreshAfter is how long a request may wait before what is cached for it is looked up again; 0 never looks again.
	OverlapRefreshAfter time.Duration
	// Expiry is the age at which a reservation is forgotten whose end was not told; 0 means [kv.DefaultRequestExpiry].
	Expiry time.Duration
	// SessionTTL keeps the requests of a session on one rank until it has had no reservation for that long; 0 does not.
	SessionTTL time.Duration
	// Pending bounds the selections that may still be reserved.
	Pending PendingLimits
	// SyncAddress is where replicas may listen ("host:port"); "" keeps to itself.
	SyncAddress string
	Clock       router.Clock // nil is the machine's
	Logger      *slog.Logger
}

// Selector is a selection service: whoever sends requests to workers tells it of the workers and asks it where each request should go.
// It is an http.Handler.
type Selector struct {
	options  SelectOptions
	clock    router.Clock
	index    *Indexer
	sync     *replicas // nil without
	routes   routes
	ctx      context.Context // ends with the service
	cancel   context.CancelFunc
	wait     sync.WaitGroup
	pending  *pendingSelections
	sessions *sessionTable // nil without

	// changes makes one change of the workers at a time; it is taken before mutex.
	changes sync.Mutex

	mutex   sync.Mutex
	workers map[uint64]*workerRecord
	pools   map[pool]*selectPool
	// booked are the reservations of all pools, with those that are being made.
	booked map[string]*reservation
}

// selectPool is the workers of a model in a routing group, with their router.
type selectPool struct {
	name      pool
	blockSize int
	eagle     bool
	pool      *router.Pool
	router    *kv.Router
	space     *space
}

// reservation is a request that holds its id.
type reservation struct {
	pool *selectPool
	at   time.Duration
	// making tells that the choice is still under way.
	making bool
	remote bool
	// session is its claim on its session; nil for none.
	session *sessionHold
}

// NewSelector returns a selection service without workers. Close ends it.
func NewSelector(options SelectOptions) (*Selector, error) {
	options.Config.TrackActiveBlocks = true
	if err := options.Config.Validate(); err != nil {
		return nil, err
	}
	options.Expiry = cmp.Or(options.Expiry, kv.DefaultRequestExpiry)
	options.Pending = options.Pending.orDefault()
	if options.Clock == nil {
		options.Clock = router.SystemClock()
	}
	s := &Selector{options: options, clock: options.Clock, workers: make(map[uint64]*workerRecord), pools: make(map[pool]*selectPool),
		booked: make(map[string]*reservation), pending: newPendingSelections(options.Pending)}
	s.index = NewIndexer(IndexerOptions{Shards: options.Shards, Logger: options.Logger})
	s.index.keepEmpty = true
	if options.SessionTTL > 0 {
		s.sessions = newSessionTable(options.SessionTTL, s.clock)
	}
	if options.SyncAddress != "" {
		var err error
		if s.sync, err = newReplicas(options.SyncAddress, rand.Uint64(), s.apply, options.Logger); err != nil {
			return nil, err
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wait.Go(func() { s.expireLoop(s.ctx) })
	post, get := http.MethodPost, http.MethodGet
	s.routes = routes{
		"/health":             {get: func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, done{"ok"}) }},
		"/ready":              {get: s.ready},
		"/workers":            {get: s.listWorkers, post: s.upsertWorker},
		"/select":             {post: s.selectOnly},
		"/select_and_reserve": {post: s.selectAndReserve},
		"/reservations":       {post: s.reserve},
		"/loads":              {get: s.loads},
		"/potential_loads":    {post: s.potentialLoads},
		"/overlap_scores":     {post: s.overlapScores},
		"/dump":               {get: s.index.dump},
	}
	s.sync.mount(s.routes)
	return s, nil
}

// Close ends the service: whoever waits is answered, engines and replicas are left.
func (s *Selector) Close() {
	s.mutex.Lock()
	for _, p := range s.pools {
		p.router.Close()
	}
	s.mutex.Unlock()
	s.cancel()
	s.wait.Wait()
	s.sync.close()
	s.index.Close()
}

// Listen follows a replica of the service at its endpoint ("tcp://host:port").
func (s *Selector) Listen(endpoint string) error {
	if s.sync == nil {
		return errors.New("replica sync is disabled")
	}
	_, err := s.sync.listen(endpoint)
	return err
}

// Restore takes over what another service or indexer, at a base URL, knows of caches. It is for a fresh service.
func (s *Selector) Restore(ctx context.Context, url string) error { return s.index.Restore(ctx, url) }

// SyncPort is the port at which replicas may listen; 0 without.
func (s *Selector) SyncPort() int { return s.sync.port() }

// SyncListeners is how many replicas listen at that port.
func (s *Selector) SyncListeners() int { return s.sync.listeners() }

// ServeHTTP implements http.Handler.
func (s *Selector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler, methods := s.named(r.URL.EscapedPath()); methods != nil {
		if h := methods[r.Method]; h != nil {
			h(w, r, handler)
		} else {
			answer(w, http.StatusMethodNotAllowed, failed{Error: "method not allowed"})
		}
		return
	}
	s.routes.ServeHTTP(w, r)
}

// namedHandler answers at a path that has a name in it.
type namedHandler func(w http.ResponseWriter, r *http.Request, name string)

// named returns who answers at a path that has a name in it; nil for other paths.
func (s *Selector) named(path string) (name string, methods map[string]namedHandler) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) < 2 || parts[1] == "" {
		return "", nil
	}
	name, err := url.PathUnescape(parts[1])
	if err != nil {
		return "", nil
	}
	switch what := strings.Join(slices.Delete(parts, 1, 2), "/"); what {
	case "workers":
		return name, map[string]namedHandler{http.MethodPatch: s.patchWorker, http.MethodDelete: s.deleteWorker}
	case "reservations":
		return name, map[string]namedHandler{http.MethodDelete: s.freeReservation}
	case "reservations/prefill_complete":
		return name, map[string]namedHandler{http.MethodPost: s.prefillComplete}
	case "reservations/output_block":
		return name, map[string]namedHandler{http.MethodPost: s.outputBlock}
	}
	return "", nil
}

// open returns the pool of a worker, made when it is the first one. The caller holds s.changes.
func (s *Selector) open(record *workerRecord) (*selectPool, error) {
	name, blockSize := record.pool(), int(*record.BlockSize)
	eagle := record.Eagle != nil && *record.Eagle
	s.mutex.Lock()
	p := s.pools[name]
	s.mutex.Unlock()
	if p != nil {
		switch {
		case p.blockSize != blockSize:
			return nil, fmt.Errorf("block_size mismatch for %s: existing=%d requested=%d", name, p.blockSize, blockSize)
		case p.eagle != eagle:
			return nil, fmt.Errorf("is_eagle mismatch for %s: existing=%t requested=%t", name, p.eagle, eagle)
		}
		return p, nil
	}
	p = &selectPool{name: name, blockSize: blockSize, eagle: eagle,
		pool: router.NewPool(router.PoolOptions{Endpoint: name.String(), Clock: s.clock, Inhibited: -1})}
	var err error
	if p.space, err = s.index.ensure(name, blockSize, s.ttl()); err != nil {
		return nil, err
	}
	options := kv.Options{Config: s.options.Config, Pool: p.pool, BlockSize: blockSize, Eagle: eagle, Model: name.model, RoutingGroup: name.group,
		Index: p.space.index, Profile: s.options.Policies.Profile(name.model), OverlapRefreshAfter: s.options.OverlapRefreshAfter, RequestExpiry: s.options.Expiry}
	if p.space.predicted != nil {
		options.Recorder, options.Forget = p.space.predicted, p.space.predicted.RemoveWorker
	}
	if s.sync != nil {
		options.Replicas = &teller{s.sync, name, uint32(blockSize)}
	}
	if s.options.NewPolicy != nil {
		if options.Policy, options.PolicyName, err = s.options.NewPolicy(); err != nil {
			return nil, err
		}
	}
	if p.router, err = kv.New(options); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ctx.Err() != nil {
		return nil, errors.New("the service has ended")
	}
	s.pools[name] = p
	s.wait.Go(func() { p.router.Run(s.ctx) }) // ends with the service
	return p, nil
}

// ttl is how long predictions of caches last; 0 when engines tell what they hold.
func (s *Selector) ttl() time.Duration {
	if s.options.Config.UseKVEvents {
		return 0
	}
	return time.Duration(s.options.Config.TTLSecs * float64(time.Second))
}

// teller tells replicas what a router books.
type teller struct {
	replicas  *replicas
	pool      pool
	blockSize uint32
}

var _ kv.Replicas = (*teller)(nil)

// Booked implements kv.Replicas.
func (t *teller) Booked(event kv.Booked) {
	t.replicas.tell(t.pool, t.blockSize, &kv.Remote{Kind: kv.RemoteBooked, Booked: event})
}

// PrefillCompleted implements kv.Replicas.
func (t *teller) PrefillCompleted(event kv.Step) {
	t.replicas.tell(t.pool, t.blockSize, &kv.Remote{Kind: kv.RemotePrefillCompleted, Booked: kv.Booked{Step: event}})
}

// Freed implements kv.Replicas.
func (t *teller) Freed(event kv.Step) {
	t.replicas.tell(t.pool, t.blockSize, &kv.Remote{Kind: kv.RemoteFreed, Booked: kv.Booked{Step: event}})
}

// apply takes over what a replica tells, unless it counts in blocks of another size.
func (s *Selector) apply(name pool, blockSize uint32, event kv.Remote) {
	s.mutex.Lock()
	p := s.pools[name]
	if p == nil || p.blockSize != int(blockSize) {
		s.mutex.Unlock()
		return
	}
	known := s.booked[event.RequestID]
	switch {
	case event.Kind == kv.RemoteBooked && known == nil:
		s.booked[event.RequestID] = &reservation{pool: p, at: s.clock.Now(), remote: true}
	case event.Kind == kv.RemoteFreed && known != nil && !known.making:
		s.forgetLocked(event.RequestID)
	}
	s.mutex.Unlock()
	p.router.Apply([]kv.Remote{event})
	if event.Kind == kv.RemoteBooked && !p.router.Holds(event.RequestID) {
		s.forget(event.RequestID) // on a rank that is not known here
	}
}

// forget drops what is noted of a reservation that is not being made.
func (s *Selector) forget(id string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if r := s.booked[id]; r != nil && !r.making {
		s.forgetLocked(id)
	}
}

// forgetLocked drops what is noted of a reservation, and ends its claim on its session. The caller holds the mutex.
func (s *Selector) forgetLocked(id string) {
	if r := s.booked[id]; r != nil {
		r.session.end()
		delete(s.booked, id)
	}
}

// sweepInterval is the time between two looks for what has aged out.
const sweepInterval = time.Minute

// predictionInterval is the time between two looks for predictions that have aged out.
const predictionInterval = 100 * time.Millisecond

// expireLoop forgets what has aged out until ctx ends.
func (s *Selector) expireLoop(ctx context.Context) {
	sweep, stop := s.clock.After(sweepInterval)
	defer func() { stop() }()
	var predictions <-chan struct{}
	stopPredictions := func() {}
	defer func() { stopPredictions() }()
	if s.ttl() > 0 {
		predictions, stopPredictions = s.clock.After(predictionInterval)
	}
	for {
		select {
		case <-sweep:
			s.expire(s.clock.Now())
			sweep, stop = s.clock.After(sweepInterval)
		case <-predictions:
			for _, p := range s.allPools("", "") {
				if p.space.predicted != nil {
					p.space.predicted.Expire(s.clock.Now())
				}
			}
			predictions, stopPredictions = s.clock.After(predictionInterval)
		case <-ctx.Done():
			return
		}
	}
}

// expire forgets reservations whose end was not told, sessions that are idle, and selections that nobody reserved.
func (s *Selector) expire(now time.Duration) {
	var old []string
	s.mutex.Lock()
	for id, r := range s.booked {
		if !r.making && now-r.at >= s.options.Expiry {
			old = append(old, id)
		}
	}
	s.mutex.Unlock()
	for _, id := range old {
		s.step(id, (*kv.Router).Drop, true)
	}
	s.pending.sweep(now)
	if s.sessions != nil {
		s.sessions.sweep(now)
	}
}

// allPools returns the pools that a question's parameters choose, in order; "" chooses all.
func (s *Selector) allPools(model, group string) (list []*selectPool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for name, p := range s.pools {
		if (model == "" || model == name.model) && (group == "" || group == name.group) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *selectPool) int {
		return cmp.Or(cmp.Compare(a.name.model, b.name.model), cmp.Compare(a.name.group, b.name.group))
	})
	return list
}

// readyPool returns the pool when it has workers that take requests.
func (s *Selector) readyPool(name pool) (*selectPool, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	anywhere, here := false, false
	for _, record := range s.workers {
		if record.Lifecycle == schedulable {
			anywhere, here = true, here || record.pool() == name
		}
	}
	switch p := s.pools[name]; {
	case !anywhere:
		return nil, &failure{status: http.StatusServiceUnavailable, text: "no schedulable workers are available"}
	case !here || p == nil:
		return nil, &failure{status: http.StatusServiceUnavailable, text: "no schedulable workers for " + name.String()}
	default:
		return p, nil
	}
}

// endpoint returns where a worker of the pool takes requests.
func (s *Selector) endpoint(worker uint64, name pool) (string, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	record := s.workers[worker]
	if record == nil || record.Lifecycle != schedulable || record.pool() != name {
		return "", false
	}
	return *record.Endpoint, true
}

// owns tells whether the rank is one of the pool's.
func (p *selectPool) owns(rank inference.Rank) bool {
	snapshot := p.pool.Snapshot()
	index := snapshot.Find(rank.WorkerID)
	return index >= 0 && snapshot.Workers[index].Owns(rank.DPRank)
}

// find looks up what is held of blocks.
func (p *selectPool) find(locals []uint64) (matches kvindex.Matches) {
	if len(locals) > 0 {
		p.space.index.Find(&matches, kvindex.Query{Locals: locals})
	}
	return matches
}
