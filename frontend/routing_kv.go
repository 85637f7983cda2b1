package frontend

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/discovery"
	"signalbox/kvindex"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/observe"
	"signalbox/peers"
	"signalbox/remoteindex"
	"signalbox/router"
	"signalbox/router/busy"
	"signalbox/router/kv"
	"signalbox/router/sharedcache"
)

// kvRouting is a KV router with all that keeps its index current.
type kvRouting struct {
	*kv.Router
	logger *slog.Logger
	pool   *router.Pool
	// needsEvents tells that the index is fed by events, so that workers have to publish them.
	needsEvents bool
	index       *kvindex.Index // nil without one
	size        func() kvindex.Stats
	predicted   []interface{ Expire(now time.Duration) }
	lru         *kvindex.LRU // nil without one
	feed        EventFeed
	remote      *remoteindex.Client       // nil when the index is here
	unserve     func()                    // nil when others cannot ask the index
	shared      *sharedcache.Cache        // nil without one
	peers       *peers.Sequences          // nil when nobody is told of bookings
	heard       atomic.Pointer[kv.Router] // who is told of others'
	stopWatch   func()
	cancel      context.CancelFunc
	wait        sync.WaitGroup

	mutex sync.Mutex
	known map[uint64]bool // workers that Members has seen; true for those whose cards say that they publish no events
}

// startKV makes the router of a set in mode kv, and starts what feeds and tends its index. close ends all of it.
func (r *Routing) startKV(set RouterSet, logger *slog.Logger) (made router.Router, end func(), err error) {
	c := set.Set.Card
	if c.BlockSize == 0 {
		return nil, nil, fmt.Errorf("the model card has kv_cache_block_size 0: mode kv needs the size of a block (--kv-cache-block-size)")
	}
	if r.KV.SessionPrefixIndex {
		logger.Info("enable_session_prefix_index has no effect: no routing decision depends on an index of sessions, so none is kept")
	}
	k := &kvRouting{logger: logger, pool: set.Pool, known: make(map[uint64]bool)}
	options := kv.Options{
		Config: r.KV, Pool: set.Pool, BlockSize: int(c.BlockSize), Eagle: c.Runtime.Eagle, Model: set.Set.Key.Model,
		PrefillPool: set.Set.Key.Role == card.PrefillWorker, TrackingKey: r.TrackingKey, RequestExpiry: r.RequestExpiry,
		Profile: r.Policies.Profile(set.Set.Key.Model), OverlapRefreshAfter: r.OverlapRefreshAfter,
	}
	if options.Policy, options.PolicyName, err = r.selector(stageOf(set.Set.Key.Role)); err != nil {
		return nil, nil, err
	}
	if options.Shadow, err = r.shadow(); err != nil {
		return nil, nil, err
	}
	if r.KV.PrefillLoadModel != "none" {
		options.Predictor = r.Predictor
	}
	if set.Metrics != nil {
		options.Observer = set.Metrics
	}
	if err := k.makeIndex(r, set, &options); err != nil {
		return nil, nil, err
	}
	if err := k.joinPeers(r, set, &options); err != nil {
		k.leaveIndex()
		return nil, nil, err
	}
	k.joinShared(r, set, &options)
	if k.Router, err = kv.New(options); err != nil {
		k.leaveIndex()
		k.leaveShared()
		k.leavePeers()
		return nil, nil, err
	}
	k.heard.Store(k.Router)
	if set.Busy != nil {
		set.Busy.BookedBy(k.appendBooked)
	}
	if set.Queues != nil {
		*set.Queues = len(k.AppendClasses(nil)) > 0
	}
	if k.needsEvents && r.Events != nil {
		target := FeedTarget{Endpoint: set.Set.Key.Endpoint, Index: k.index, Threads: r.KV.EventThreads,
			Logger: r.Logger.With("model", set.Set.Key.Model)} // the feed names its endpoint, which may be another
		if other := c.Runtime.EventEndpoint; other != nil {
			target.Endpoint = discovery.EndpointID{Namespace: other.Namespace, Component: other.Component, Name: other.Name}
		}
		if k.feed, err = r.Events.Feed(target); err != nil {
			k.leaveIndex()
			k.leaveShared()
			k.leavePeers()
			return nil, nil, fmt.Errorf("KV events: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.wait.Go(func() { k.Run(ctx) }) // ends with ctx
	if len(k.predicted) > 0 {
		k.wait.Go(func() { k.expire(ctx) }) // ends with ctx
	}
	k.observe(set.Metrics, options.PolicyName, r.Shadow, &r.KV)
	k.Members(set.Set)
	k.awaitFeed()
	if set.Set.Card.LoRA != nil {
		return k, k.stop, nil
	}
	key := workersOf(set.Set)
	r.bases.set(key, k, nil)
	return k, func() { r.bases.set(key, nil, k); k.stop() }, nil
}

// appendBooked appends what is booked on every rank.
func (k *kvRouting) appendBooked(list []busy.Booked) []busy.Booked {
	for _, rank := range k.AppendLoads(nil) {
		list = append(list, busy.Booked{Rank: rank.Rank, DecodeBlocks: rank.ActiveDecodeBlocks, PrefillTokens: rank.ActivePrefillTokens})
	}
	return list
}

// syncPatience is how long a router waits to learn what workers hold before it serves.
const syncPatience = 3 * time.Second

// awaitFeed waits for the first picture of the caches, so that the first requests already follow them. A worker that does not
// answer delays the start by [syncPatience] at most.
func (k *kvRouting) awaitFeed() {
	if k.feed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), syncPatience)
	defer cancel()
	if err := k.feed.WaitSynced(ctx); err != nil {
		k.logger.Warn("not all workers have told what they hold; requests are placed with what is known", "waited", syncPatience)
	}
}

// expire drops predictions that have aged out.
func (k *kvRouting) expire(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for _, p := range k.predicted {
				p.Expire(k.pool.Clock().Now())
			}
		case <-ctx.Done():
			return
		}
	}
}

// observe shows the router's numbers to scrapers.
func (k *kvRouting) observe(metrics *observe.Router, policyName, shadowName string, config *kv.Config) {
	if metrics == nil {
		return
	}
	probe := observe.Probe{Loads: k.AppendLoads, Stats: k.Stats, Classes: k.AppendClasses, Mismatch: k.mismatch, Peers: k.peerStats,
		ConfiguredPrediction: config.ApproximatePolicy, EffectivePrediction: config.ApproximatePolicy}
	if k.lru != nil {
		probe.LRU = k.lru.Counts
	}
	if shadowName != "" {
		probe.Shadow, probe.Policy, probe.ShadowPolicy = k.Shadow, policyName, shadowName
	}
	if k.index != nil {
		probe.Index = k.size
	}
	if k.remote != nil {
		probe.RemoteFailures = k.remote.Failures
	}
	if k.feed != nil {
		probe.Events = k.feed.Stats
	}
	k.stopWatch = metrics.Watch(probe)
}

// peerStats tells how other routers are heard, if anybody listens.
func (k *kvRouting) peerStats() observe.PeerStats {
	if k.peers == nil {
		return observe.PeerStats{}
	}
	c := k.peers.Counters()
	return observe.PeerStats{Sources: c.Sources, Replacements: c.Replacements, Messages: c.Messages, Events: c.Events, Missing: c.Missing, Late: c.Late,
		BadEnvelopes: c.BadEnvelopes, BadPayloads: c.BadPayloads, Reconnects: c.Lost}
}

// Members takes note of who is in the set. A worker whose card says that it publishes no KV events is named at once; the others
// are expected to.
func (k *kvRouting) Members(set *model.Set) {
	k.tellShared(set)
	if k.lru != nil {
		k.tellCapacities(set)
	}
	if !k.needsEvents {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	present := make(map[uint64]bool, len(set.Members))
	var silent []uint64
	for _, member := range set.Members {
		id, c := member.Instance.InstanceID, &member.Card.Runtime
		present[id] = true
		if _, known := k.known[id]; known {
			continue
		}
		mute := c.PublishesEvents != nil && !*c.PublishesEvents
		k.known[id] = mute && set.Key.Role != card.DecodeWorker // those are chosen by load: nobody misses their events
		if k.known[id] {
			silent = append(silent, id)
		} else if k.feed != nil && !mute {
			for rank := range max(1, c.Ranks) {
				k.feed.Expect(id, c.RankStart+rank)
			}
		}
	}
	for id := range k.known {
		if !present[id] {
			delete(k.known, id)
			if k.feed != nil {
				k.feed.Leave(id)
			}
		}
	}
	if len(silent) > 0 {
		k.logger.Error("workers publish no KV events, so that nothing is known of their caches and they are chosen by load alone: "+
			"switch the events on at the workers, or predict caches with --no-router-kv-events", "workers", silent)
	}
}

// tellCapacities tells the predicted caches how large the real ones are.
func (k *kvRouting) tellCapacities(set *model.Set) {
	for _, member := range set.Members {
		c, blocks := &member.Card.Runtime, 0
		if c.TotalBlocks != nil {
			blocks = int(*c.TotalBlocks)
		}
		for rank := range max(1, c.Ranks) {
			k.lru.SetCapacity(kvindex.Rank{WorkerID: member.Instance.InstanceID, DPRank: c.RankStart + rank}, blocks)
		}
	}
}

// mismatch counts the workers and ranks whose caches are not known because they tell nothing.
func (k *kvRouting) mismatch() int {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	count := 0
	for _, silent := range k.known {
		if silent {
			count++
		}
	}
	if k.feed != nil {
		count += k.feed.Silent()
	}
	return count
}

// joinPeers shares the load of the set with other routers of it, when the configuration says so.
func (k *kvRouting) joinPeers(r *Routing, set RouterSet, options *kv.Options) (err error) {
	if !r.KV.ReplicaSync || r.Peers == nil {
		return nil
	}
	k.peers, err = r.Peers.Sequences(set.Set.Key.Endpoint, func(reports []kv.Remote) {
		if router := k.heard.Load(); router != nil {
			router.Apply(reports)
		}
	})
	if err != nil {
		return err
	}
	options.Replicas = k.peers
	return nil
}

func (k *kvRouting) leavePeers() {
	if k.peers != nil {
		k.peers.Close()
	}
}

// stop ends what startKV started.
func (k *kvRouting) stop() {
	k.leaveIndex()
	k.leaveShared()
	k.leavePeers()
	if k.stopWatch != nil {
		k.stopWatch()
	}
	if k.feed != nil {
		k.feed.Close()
	}
	k.cancel()
	k.wait.Wait()
}
