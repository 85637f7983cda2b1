package frontend

import (
	"context"
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/api/admin"
	"signalbox/api/frontdoor"
	"signalbox/api/openai"
	"signalbox/inference"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/observe"
	"signalbox/pipeline"
	"signalbox/router"
	"signalbox/transport/tcp"
)

// Frontend is a running frontend. Stop ends it.
type Frontend struct {
	options    Options
	manager    *model.Manager[*server]
	door       *frontdoor.Server
	stages     *observe.Stages
	plane      *observe.Plane
	text       *observe.Text
	canary     *observe.Canary
	routers    *observe.Routers
	requests   *observe.Frontend
	limiter    *pipeline.Limiter
	thresholds *thresholds
	holder     *holder
	reached    reached
	explainer  *explainer // nil when nobody wants to know
	onDecision func(*inference.Request, *router.Decision)
	managed    chan struct{} // closed once manager is set
	companion  Companion     // nil for none
	rl         *rlList       // nil unless asked for
}

// Start begins to serve. The listener is up when it returns, with or without workers.
func Start(ctx context.Context, options Options) (*Frontend, error) {
	if options.Metrics == nil {
		options.Metrics = prometheus.NewRegistry()
	}
	f := &Frontend{options: options, limiter: pipeline.NewLimiter(options.preprocessWorkers()), managed: make(chan struct{})}
	f.requests = observe.NewFrontend(options.Metrics, options.Prefix)
	f.requests.OnEnd = logRequest(options.Logger)
	f.stages = observe.NewStages(options.Metrics, options.Prefix)
	if options.DebugPerf {
		f.stages.OnStep = logStep(options.Logger)
	}
	f.plane = observe.NewPlane(options.Metrics, f.stages)
	traffic := func() tcp.Traffic { return tcp.Traffic{} }
	if counted, counts := options.Transport.(interface{ Traffic() tcp.Traffic }); counts {
		traffic = counted.Traffic
	}
	f.plane.Traffic(options.Metrics, func() uint64 { return traffic().Sent }, func() uint64 { return traffic().Received },
		func() uint64 { return traffic().AcceptBackoffs })
	f.text = observe.NewText(options.Metrics, f.stages)
	f.routers = observe.NewRouters(options.Metrics, options.Backend.InstanceID())
	if options.Explain {
		f.explainer = &explainer{kept: observe.NewDecisions(decisionsKept), log: logDecision(options.Logger)}
		f.onDecision = f.explainer.onDecision
	}
	f.thresholds = &thresholds{frontend: f, initial: options.Thresholds, byModel: make(map[string]admin.Thresholds)}
	f.holder = newHolder(options.Hold, func(name string) (served, bool) {
		found, _ := catalog{f}.pick(name)
		return served{found}, found != nil
	}, options.Metrics)
	manager, err := model.Start(ctx, options.Backend, f.build, model.Options{Filter: options.Filter, ModelName: options.ModelName,
		BlockSize: options.BlockSize, Logger: options.Logger, OnPeers: f.joinPeers})
	if err != nil {
		return nil, err
	}
	f.manager = manager
	close(f.managed)
	observe.NewModels(options.Metrics, options.Prefix, strconv.FormatUint(options.Backend.InstanceID(), 16), catalog{f}.facts)
	observe.NewTokenizerCaches(options.Metrics, catalog{f}.caches)
	f.door = frontdoor.NewServer(frontdoor.Config{Host: options.HTTP.Host, Port: options.HTTP.Port, CertPath: options.HTTP.CertPath,
		KeyPath: options.HTTP.KeyPath, ClientCAPath: options.HTTP.ClientCAPath, DrainTimeout: options.HTTP.DrainTimeout, Logger: options.Logger, OnLargeBody: options.HTTP.OnLargeBody})
	handler, err := f.handler()
	if err == nil {
		err = f.door.Start(handler)
	}
	if err != nil {
		manager.Close()
		return nil, err
	}
	if options.Companion != nil {
		models := catalog{f}
		f.companion, err = options.Companion(CompanionHost{Models: models, API: openai.New(models, f.requests, options.API), Observer: f.requests,
			Draining: f.door.Draining, Track: f.door.Begin})
		if err != nil {
			err = errors.Join(err, f.door.Shutdown())
			manager.Close()
			return nil, err
		}
	}
	if options.RL != nil {
		if f.rl, err = f.listRL(*options.RL); err != nil {
			err = errors.Join(err, f.door.Shutdown())
			manager.Close()
			return nil, err
		}
	}
	f.canary = observe.NewCanary(options.Metrics)
	return f, nil
}

// Address returns where the HTTP API listens.
func (f *Frontend) Address() string { return f.door.Address() }

// CompanionAddress returns where the companion listens; "" without one.
func (f *Frontend) CompanionAddress() string {
	if f.companion == nil {
		return ""
	}
	return f.companion.Address()
}

// Synced is closed once the workers that existed at the start were seen.
func (f *Frontend) Synced() <-chan struct{} { return f.manager.Synced() }

// Ready tells whether the model can be served now.
func (f *Frontend) Ready(name string) bool {
	found := catalog{f}.Find(name)
	return found != nil && found.Ready()
}

// Stop drains requests and ends everything that Start began.
func (f *Frontend) Stop() error {
	f.holder.close()
	err := f.door.Shutdown()
	if f.companion != nil {
		err = errors.Join(err, f.companion.Shutdown())
	}
	err = errors.Join(err, f.rl.close())
	f.manager.Close()
	f.canary.Close()
	return err
}

// joinPeers gives decode sets the prefill set of their model and namespace.
func (f *Frontend) joinPeers() {
	<-f.managed
	entries := f.manager.Served()
	defer f.holder.refresh(entries)
	for _, entry := range entries {
		p := entry.Server.pipeline
		if p == nil || entry.Set.Key.Role == card.PrefillWorker {
			continue
		}
		var prefill *server
		if entry.Set.Key.Role == card.DecodeWorker {
			for _, other := range entries {
				if other.Set.Key.Role == card.PrefillWorker && other.Set.Key.Model == entry.Set.Key.Model && other.Set.Key.Endpoint.Namespace == entry.Set.Key.Endpoint.Namespace {
					prefill = other.Server
				}
			}
		}
		if prefill == nil {
			p.Prefill.Store(nil)
			entry.Server.prefill.Store(nil)
			continue
		}
		entry.Server.prefill.Store(prefill)
		if current := p.Prefill.Load(); current == nil || current.Router != router.Router(prefill.placer) {
			p.Prefill.Store(prefill.hop())
		}
	}
}
