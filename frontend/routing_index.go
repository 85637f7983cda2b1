package frontend

import (
	"time"

	"signalbox/internal/processors"
	"signalbox/kvindex"
	"signalbox/remoteindex"
	"signalbox/router/kv"
)

// makeIndex makes what the configuration needs to know about caches: an index fed by events or by placements, and perhaps one of
// recent placements beside it.
func (k *kvRouting) makeIndex(r *Routing, set RouterSet, options *kv.Options) error {
	config := &r.KV
	if !config.UsesIndex() {
		return nil
	}
	if config.UseRemoteIndexer && r.RemoteIndexes != nil {
		return k.askRemote(r, set, options)
	}
	if err := k.makeLocalIndex(config, options); err != nil {
		return err
	}
	if !config.ServeIndexer || r.IndexServer == nil {
		return nil
	}
	served := remoteindex.Served{Index: k.index}
	if !config.UseKVEvents {
		// With events the recorder is that of a side index, which is nobody else's business.
		served.Recorder, served.Now = options.Recorder, set.Pool.Clock().Now
	}
	var err error
	k.unserve, err = r.IndexServer.Serve(set.Set.Key.Endpoint, set.Set.Key.Model, served)
	return err
}

// askRemote takes another router's index instead of one of the set's own. One of recent placements may stand beside it.
func (k *kvRouting) askRemote(r *Routing, set RouterSet, options *kv.Options) (err error) {
	config := &r.KV
	k.remote, err = r.RemoteIndexes(set.Set.Key.Endpoint, set.Set.Key.Model, k.logger)
	if err != nil {
		return err
	}
	options.Index = k.remote
	// Looking again would keep everybody waiting for the answer.
	options.OverlapRefreshAfter = 0
	if !config.UseKVEvents {
		options.Recorder = k.remote
		return nil
	}
	if ttl := config.PredictedTTLSecs; ttl != nil {
		made, err := k.predict(config, options, *ttl)
		if err != nil {
			return err
		}
		options.Predicted = made.Index()
	}
	return nil
}

// leaveIndex ends what makeIndex started.
func (k *kvRouting) leaveIndex() {
	if k.unserve != nil {
		k.unserve()
	}
	if k.remote != nil {
		k.remote.Close()
	}
}

// indexSize is the size of the indexes of a configuration. A look-up visits every shard: more of them than processors would only make it
// slower.
func indexSize(config *kv.Config) kvindex.Options {
	return kvindex.Options{Shards: min(config.EventThreads, processors.AtStart)}
}

// predict makes an index that learns from placements.
func (k *kvRouting) predict(config *kv.Config, options *kv.Options, ttl float64) (*kvindex.Predicted, error) {
	made, err := kvindex.NewTTL(indexSize(config), time.Duration(ttl*float64(time.Second)))
	if err == nil {
		k.predicted = append(k.predicted, made)
		options.Recorder, options.Forget = made, made.RemoveWorker
	}
	return made, err
}

func (k *kvRouting) makeLocalIndex(config *kv.Config, options *kv.Options) error {
	if !config.UseKVEvents && config.ApproximatePolicy == "lru" && !config.ServeIndexer {
		made, err := kvindex.NewLRU(indexSize(config), time.Duration(config.TTLSecs*float64(time.Second)))
		if err != nil {
			return err
		}
		k.lru, k.index, k.size, k.predicted = made, made.Index(), made.Stats, append(k.predicted, made)
		options.Index, options.Recorder, options.Forget = k.index, made, made.RemoveWorker
		return nil
	}
	if !config.UseKVEvents {
		made, err := k.predict(config, options, config.TTLSecs)
		if err != nil {
			return err
		}
		k.index, k.size = made.Index(), made.Stats
		options.Index = k.index
		return nil
	}
	index, err := kvindex.New(indexSize(config))
	if err != nil {
		return err
	}
	k.index, k.size, k.needsEvents, options.Index = index, index.Stats, true, index
	if ttl := config.PredictedTTLSecs; ttl != nil {
		made, err := k.predict(config, options, *ttl)
		if err != nil {
			return err
		}
		options.Predicted = made.Index()
	}
	return nil
}
