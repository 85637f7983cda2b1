package frontend

import (
	"signalbox/model"
	"signalbox/router/kv"
	"signalbox/router/sharedcache"
)

// joinShared follows the fleet's shared cache, when the configuration says so.
func (k *kvRouting) joinShared(r *Routing, set RouterSet, options *kv.Options) {
	if r.KV.SharedCacheType == "none" {
		return
	}
	var failed func()
	if set.Metrics != nil {
		failed = set.Metrics.SharedFailed
	}
	k.shared = sharedcache.New(sharedcache.Options{BlockSize: options.BlockSize, Endpoint: r.SharedEvents, Failed: failed, Logger: k.logger})
	options.Shared = k.shared
	k.tellShared(set.Set)
}

// tellShared tells the shared cache how the members of the set store in it.
func (k *kvRouting) tellShared(set *model.Set) {
	if k.shared == nil {
		return
	}
	workers := make([]sharedcache.Worker, 0, len(set.Members))
	for _, member := range set.Members {
		workers = append(workers, sharedcache.Worker{ID: member.Instance.InstanceID, Data: member.Card.Runtime.RuntimeData[sharedcache.RuntimeKey]})
	}
	k.shared.SetWorkers(workers)
}

func (k *kvRouting) leaveShared() {
	if k.shared != nil {
		k.shared.Close()
	}
}
