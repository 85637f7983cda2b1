package frontend

import (
	"context"
	"net/http"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/api/admin"
	"signalbox/api/anthropic"
	"signalbox/api/body"
	"signalbox/api/frontdoor"
	"signalbox/api/openai"
	"signalbox/inference"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/observe"
	"signalbox/pipeline"
	"signalbox/router"
)

// Frontend is a running frontend. Stop ends it.
type Frontend struct {
	options    Options
	manager    *model.Manager[*server]
	door       *frontdoor.Server
	stages     *observe.Stages
	routers    *observe.Routers
	requests   *observe.Frontend
	limiter    *pipeline.Limiter
	thresholds *thresholds
	explainer  *explainer // nil when nobody wants to know
	onDecision func(*inference.Request, *router.Decision)
	managed    chan struct{} // closed once manager is set
}

// Start begins to serve. The listener is up when it returns, with or without workers.
func Start(ctx context.Context, options Options) (*Frontend, error) {
	if options.Metrics == nil {
		options.Metrics = prometheus.NewRegistry()
	}
	f := &Frontend{options: options, limiter: pipeline.NewLimiter(max(1, runtime.GOMAXPROCS(0)-1)), managed: make(chan struct{})}
	f.requests = observe.NewFrontend(options.Metrics, options.Prefix)
	f.requests.OnEnd = logRequest(options.Logger)
	f.stages = observe.NewStages(options.Metrics, options.Prefix)
	f.routers = observe.NewRouters(options.Metrics, options.Backend.InstanceID())
	if options.Explain {
		f.explainer = &explainer{kept: observe.NewDecisions(decisionsKept), log: logDecision(options.Logger)}
		f.onDecision = f.explainer.onDecision
	}
	f.thresholds = &thresholds{frontend: f, byModel: make(map[string]admin.Thresholds)}
	manager, err := model.Start(ctx, options.Backend, f.build, model.Options{Filter: options.Filter, ModelName: options.ModelName,
		BlockSize: options.BlockSize, Logger: options.Logger, OnPeers: f.joinPeers})
	if err != nil {
		return nil, err
	}
	f.manager = manager
	close(f.managed)
	f.door = frontdoor.NewServer(frontdoor.Config{Host: options.HTTP.Host, Port: options.HTTP.Port, CertPath: options.HTTP.CertPath,
		KeyPath: options.HTTP.KeyPath, ClientCAPath: options.HTTP.ClientCAPath, DrainTimeout: options.HTTP.DrainTimeout, Logger: options.Logger})
	if err := f.door.Start(f.handler()); err != nil {
		manager.Close()
		return nil, err
	}
	return f, nil
}

// Address returns where the HTTP API listens.
func (f *Frontend) Address() string { return f.door.Address() }

// Synced is closed once the workers that existed at the start were seen.
func (f *Frontend) Synced() <-chan struct{} { return f.manager.Synced() }

// Ready tells whether the model can be served now.
func (f *Frontend) Ready(name string) bool {
	found := catalog{f}.Find(name)
	return found != nil && found.Ready()
}

// Stop drains requests and ends everything that Start began.
func (f *Frontend) Stop() error {
	err := f.door.Shutdown()
	f.manager.Close()
	return err
}

// joinPeers gives decode sets the prefill set of their model and namespace.
func (f *Frontend) joinPeers() {
	<-f.managed
	entries := f.manager.Served()
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
			continue
		}
		if current := p.Prefill.Load(); current == nil || current.Router != prefill.router {
			p.Prefill.Store(prefill.hop())
		}
	}
}

// handler mounts every route.
func (f *Frontend) handler() http.Handler {
	o := f.options
	apiOptions := o.API
	apiOptions.Draining = f.door.Draining
	apiOptions.AnthropicListing = o.HTTP.EnableAnthropic
	models := catalog{f}
	api := openai.New(models, f.requests, apiOptions)
	health := &admin.Health{Fleet: models, Draining: f.door.Draining, Stopping: f.door.Stopping}
	post, get := []string{http.MethodPost}, []string{http.MethodGet}
	on := func(kind openai.Kind) func() bool { return func() bool { return models.Any(kind) } }
	e := o.Endpoint
	routes := []frontdoor.Route{
		{Path: e.Chat, Methods: post, Handler: f.door.Track(api.Chat), On: on(openai.Chat), Summary: "Chat completions, whole or streamed"},
		{Path: e.Completions, Methods: post, Handler: f.door.Track(api.Completions), On: on(openai.Completions), Summary: "Text completions, whole or streamed"},
		{Path: e.Embeddings, Methods: post, Handler: f.door.Track(api.Embed), Summary: "Text embeddings"},
		{Path: e.Responses, Methods: post, Handler: f.door.Track(api.Responses), Summary: "Responses API, whole or streamed"},
		{Path: e.Responses + "/input_tokens", Methods: post, Handler: http.HandlerFunc(api.InputTokens), Summary: "Estimates the input tokens of a response"},
		{Path: e.Models, Methods: get, Handler: http.HandlerFunc(api.ListModels), Summary: "Models that can serve now"},
		{Path: e.Models + "/", Prefix: true, Methods: get, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := strings.TrimPrefix(r.URL.Path, e.Models+"/")
			api.RetrieveModel(w, r, id)
		}), Summary: "One model"},
		{Path: e.Health, Methods: get, Handler: http.HandlerFunc(health.ServeHealth), Summary: "Health and the discovered instances"},
		{Path: e.Live, Methods: get, Handler: http.HandlerFunc(health.ServeLive), Summary: "Liveness"},
		{Path: e.Metrics, Methods: get, Handler: observe.Handler(o.Metrics), Summary: "Prometheus metrics"},
	}
	// Routes of kinds that no model here can have: they exist and are off, which is how clients learn that.
	never := func() bool { return false }
	for _, path := range []string{"/v1/images/generations", "/v1/images/edits", "/v1/videos", "/v1/videos/stream", "/v1/videos/generations",
		"/v1/videos/generations/stream", "/v1/audio/speech", "/v1/classify", "/v1/pooling", "/v1/rerank"} {
		routes = append(routes, frontdoor.Route{Path: path, Methods: post, Handler: http.NotFoundHandler(), On: never})
	}
	routes = append(routes, frontdoor.Route{Path: "/v1/realtime", Methods: get, Handler: http.NotFoundHandler(), On: never})
	if o.HTTP.EnableAnthropic {
		messages := anthropic.New(models, f.requests, anthropic.Options{BodyLimitMB: o.API.BodyLimitMB, DisableExtensions: o.API.DisableExtensions,
			MetadataPrefix: o.API.MetadataPrefix, WriteTimeout: o.API.WriteTimeout, OverloadStatus: o.API.OverloadStatus,
			StripPreamble: o.HTTP.StripAnthropicPreamble, Draining: f.door.Draining})
		routes = append(routes,
			frontdoor.Route{Path: e.Anthropic, Methods: post, Handler: f.door.Track(messages.Messages), Summary: "Anthropic Messages API, whole or streamed"},
			frontdoor.Route{Path: e.Anthropic + "/count_tokens", Methods: post, Handler: http.HandlerFunc(messages.CountTokens), Summary: "Estimates the input tokens of a message"})
	}
	if !o.HTTP.DisableAdmin {
		busy := &admin.BusyThresholds{Store: f.thresholds, Reader: body.NewReader(o.API.BodyLimitMB)}
		routes = append(routes, frontdoor.Route{Path: "/busy_threshold", Methods: []string{http.MethodPost, http.MethodGet}, Handler: busy, Summary: "Read or set the thresholds beyond which workers count as busy"})
	}
	if f.explainer != nil && !o.HTTP.DisableAdmin {
		routes = append(routes, f.explainer.routes()...)
	}
	routes = append(routes, f.describe(routes)...)
	mux := frontdoor.NewRouter(routes)
	if o.HTTP.EnableAnthropic {
		mux.AnthropicPath = e.Anthropic
	}
	return mux
}

// describe returns the routes that describe the others.
func (f *Frontend) describe(routes []frontdoor.Route) []frontdoor.Route {
	description := &admin.Description{Title: "signalbox", Version: f.options.Version}
	add := func(route frontdoor.Route) {
		if route.Summary == "" {
			return // off: nothing to describe
		}
		path := route.Path
		if route.Prefix {
			path += "{id}"
		}
		for _, method := range route.Methods {
			description.Operations = append(description.Operations, admin.Operation{Method: method, Path: path, Summary: route.Summary})
		}
	}
	get := []string{http.MethodGet}
	extra := []frontdoor.Route{
		{Path: "/openapi.json", Methods: get, Handler: http.HandlerFunc(description.ServeJSON), Summary: "This API's description"},
		{Path: "/docs", Methods: get, Handler: http.HandlerFunc(admin.RedirectToPage), Summary: "Redirects to the description page"},
		{Path: "/docs/", Methods: get, Handler: http.HandlerFunc(description.ServePage), Summary: "The description as a page"},
	}
	for _, route := range append(append([]frontdoor.Route(nil), routes...), extra...) {
		add(route)
	}
	return extra
}
