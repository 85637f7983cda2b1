package frontend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"signalbox/api/openai"
	"signalbox/inference"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/observe"
	"signalbox/pipeline"
	"signalbox/pipeline/passthrough"
	"signalbox/router"
	plane "signalbox/transport/wire"
)

// Forwarder sends bodies in an API's own shape to one worker.
type Forwarder interface {
	SendRaw(ctx context.Context, id string, body []byte) (inference.Stream, error)
}

// server serves one worker set. The model room updates it; requests read it.
type server struct {
	frontend *Frontend
	key      model.Key
	card     *card.Card
	pool     *router.Pool
	router   router.Router
	close    func()
	pipeline *pipeline.Pipeline // nil for workers that take no tokens
	line     *passthrough.Line  // of workers that take text; nil for others
	// remembers is the tokenizer where it keeps count of what it remembers; nil else.
	remembers remembers
	targets   atomic.Pointer[map[uint64]member]

	rejection *rejection
	placer    router.Router          // router, with a look at the load before, and a span where those are wanted
	prefill   atomic.Pointer[server] // the set that prefills for this one; nil for none
}

// member is one worker of the set, ready to be sent to.
type member struct {
	target    inference.Target
	bootstrap *card.Bootstrap
	ranks     uint32
}

// build prepares a set: its files, tokenizer and template, its pool and router.
func (f *Frontend) build(ctx context.Context, set *model.Set) (made *server, err error) {
	s := &server{frontend: f, key: set.Key, card: set.Card}
	s.pool = router.NewPool(router.PoolOptions{Endpoint: set.Key.Endpoint.String(), Inhibited: f.options.Inhibited})
	s.targets.Store(&map[uint64]member{})
	s.update(set)
	defer func() {
		if err != nil {
			s.forgetWorkers()
		}
	}()
	if f.options.MinInitialWorkers > 0 {
		if err := s.pool.WaitForWorkers(ctx, f.options.MinInitialWorkers); err != nil {
			return nil, err
		}
	}
	metrics := f.routers.Pool(poolLabels(set))
	if s.rejection, err = newRejection(s, set.Card.RouterConfig); err != nil {
		return nil, err
	}
	r, closeRouter, err := f.options.Routers(RouterSet{Pool: s.pool, Set: set, Metrics: metrics, Busy: s.rejection.monitor, Queues: &s.rejection.queues})
	if err != nil {
		s.rejection.close()
		return nil, fmt.Errorf("router of %s: %w", set.Key.Model, err)
	}
	s.router, s.close, s.placer = r, closeRouter, observe.TracedRouter(f.options.Tracer, placing{r, s.rejection.monitor})
	s.rejection.set(f.thresholds.of(s))
	if set.Card.ModelInput == card.TextInput {
		s.line = &passthrough.Line{Model: set.Card.DisplayName, Router: s.placer, Send: s.sendText, Observer: f.stages, OnDecision: f.onDecision}
	}
	if set.Card.ModelInput != card.TokensInput {
		return s, nil
	}
	loaded, err := f.options.Loader.Load(ctx, set.Card)
	if err != nil {
		s.closeRouter()
		return nil, err
	}
	s.remembers, _ = loaded.Tokenizer.(remembers)
	loaded.Tokenizer = f.text.Tokenizer(loaded.Tokenizer)
	s.pipeline = &pipeline.Pipeline{
		Model:              *loaded,
		Decode:             pipeline.Hop{Router: s.placer, Sender: f.sender(), Target: s.target, Bootstrap: s.bootstrap},
		NeedsPrefill:       needsPrefill(set.Card),
		DecodeFallback:     f.options.DecodeFallback,
		MigrationLimit:     f.options.MigrationLimit,
		MigrationMaxLength: f.options.MigrationMaxLength,
		Observer:           f.stages,
		Limiter:            f.limiter,
		OnDecision:         f.onDecision,
		OpaqueJSON:         opaqueJSON,
	}
	if f.options.MigrationLimit == 0 {
		s.pipeline.MigrationLimit = int(set.Card.MigrationLimit)
	}
	s.pipeline.Disaggregate = s.conditional()
	return s, nil
}

// sender reaches workers, measured and traced.
func (f *Frontend) sender() inference.Sender {
	return f.plane.Sender(observe.TracedSender(f.options.Tracer, f.options.Transport))
}

// poolLabels name the set in metrics. Every pool that is not one of prefill workers counts as decode.
func poolLabels(set *model.Set) observe.PoolLabels {
	labels := observe.PoolLabels{Namespace: set.Key.Endpoint.Namespace, Component: set.Key.Endpoint.Component, Endpoint: set.Key.Endpoint.Name,
		Model: set.Key.Model, WorkerType: "decode", Phase: string(set.Key.Role)}
	if set.Key.Role == card.PrefillWorker {
		labels.WorkerType = "prefill"
	}
	return labels
}

// opaqueJSON implements pipeline.Pipeline's OpaqueJSON for what the request plane carries.
func opaqueJSON(value inference.Opaque) ([]byte, error) {
	return plane.AppendOpaque(nil, value, inference.JSON)
}

func needsPrefill(c *card.Card) bool {
	for _, pool := range c.Needs {
		for _, part := range pool {
			if part == card.PrefillWorker {
				return true
			}
		}
	}
	return false
}

func (s *server) closeRouter() {
	s.rejection.close()
	s.router.Close()
	if s.close != nil {
		s.close()
	}
}

// Update implements model.Server.
func (s *server) Update(set *model.Set) {
	s.update(set)
	if watcher, ok := s.router.(watchMembers); ok {
		watcher.Members(set)
	}
}

func (s *server) update(set *model.Set) {
	old := *s.targets.Load()
	targets := make(map[uint64]member, len(set.Members))
	workers := make([]router.Worker, 0, len(set.Members))
	for _, m := range set.Members {
		target, ok := s.frontend.options.Transport.Target(m.Instance)
		if !ok {
			s.frontend.options.Logger.Error("a worker is registered for a request plane that this frontend does not use (--request-plane)",
				"worker", m.Instance.InstanceID, "endpoint", m.Instance.EndpointID().String())
			continue
		}
		if _, known := old[m.Instance.InstanceID]; !known {
			s.frontend.reached.enter(m.Instance.InstanceID)
		}
		targets[m.Instance.InstanceID] = member{target: target, bootstrap: m.Card.Runtime.Bootstrap, ranks: m.Card.Runtime.Ranks}
		workers = append(workers, routerWorker(m))
	}
	s.targets.Store(&targets)
	s.pool.SetWorkers(workers)
	for id := range old {
		if _, still := targets[id]; !still {
			s.frontend.forget(id)
		}
	}
}

func routerWorker(m model.Member) router.Worker {
	runtime := &m.Card.Runtime
	w := router.Worker{ID: m.Instance.InstanceID, DeviceType: m.Instance.DeviceType, DataParallelStart: runtime.RankStart,
		DataParallelSize: runtime.Ranks, Taints: runtime.Taints,
		Topology: router.Topology{Domains: runtime.TopologyDomains}}
	if runtime.TotalBlocks != nil {
		w.TotalKVBlocks = *runtime.TotalBlocks
	}
	if runtime.MaxBatchedTokens != nil {
		w.MaxNumBatchedTokens = *runtime.MaxBatchedTokens
	}
	if runtime.TransferDomain != nil {
		w.Topology.TransferDomain = *runtime.TransferDomain
	}
	if runtime.TransferEnforcement != nil {
		w.Topology.Enforcement = *runtime.TransferEnforcement
	}
	if weight := runtime.TransferPreferredWeight; weight != nil {
		narrow := float32(*weight)
		w.Topology.PreferredWeight = &narrow
	}
	return w
}

// Close implements model.Server.
func (s *server) Close() {
	s.closeRouter()
	s.forgetWorkers()
	s.pool.SetWorkers(nil)
}

func (s *server) forgetWorkers() {
	for id := range *s.targets.Swap(&map[uint64]member{}) {
		s.frontend.forget(id)
	}
}

func (s *server) target(workerID uint64) (inference.Target, bool) {
	m, ok := (*s.targets.Load())[workerID]
	return m.target, ok
}

func (s *server) bootstrap(workerID uint64) (host string, port uint16, ranks uint32, ok bool) {
	m := (*s.targets.Load())[workerID]
	if m.bootstrap == nil || m.bootstrap.Host == nil || m.bootstrap.Port == nil {
		return "", 0, 0, false
	}
	return *m.bootstrap.Host, *m.bootstrap.Port, m.ranks, true
}

// hop returns the set as a hop of other pipelines.
func (s *server) hop() *pipeline.Hop {
	return &pipeline.Hop{Router: s.placer, Sender: s.frontend.sender(), Target: s.target, Bootstrap: s.bootstrap, Constrain: s.constrainTransfer}
}

// ready tells whether somebody can be sent to now, and the parts that the set needs are there.
func (s *server) ready() bool {
	if len(s.pool.Snapshot().Routable()) == 0 {
		return false
	}
	if s.pipeline != nil && s.pipeline.NeedsPrefill && !s.pipeline.DecodeFallback && s.pipeline.Prefill.Load() == nil {
		return false
	}
	return true
}

// kinds says what a card's model type lets clients ask for.
var kinds = map[openai.Kind]card.ModelType{openai.Chat: card.Chat, openai.Completions: card.Completions, openai.Embeddings: card.Embedding,
	openai.Images: card.Images, openai.Videos: card.Videos, openai.Audios: card.Audios, openai.Classify: card.Classify, openai.Pooling: card.Pooling,
	openai.Realtime: card.Realtime, openai.Tensor: card.TensorBased}

// capabilities are the members of a card's runtime data by which workers offer the routes of their engine.
var capabilities = map[openai.Kind]string{openai.VLLMGenerate: "vllm_inference_v1_generate", openai.SGLangGenerate: "sglang_generate"}

func (s *server) serves(kind openai.Kind) bool {
	if capability := capabilities[kind]; capability != "" {
		return s.pipeline != nil && string(bytes.TrimSpace(s.card.Runtime.RuntimeData[capability])) == "true"
	}
	flag, known := kinds[kind]
	return known && s.card.ModelType.Has(flag)
}

// frontable tells whether clients reach the set by its name: prefill and encode pools only serve others.
func (s *server) frontable() bool {
	return s.key.Role != card.PrefillWorker && s.key.Role != card.EncodeWorker && strings.TrimSpace(s.key.Type) != ""
}

// served is a set as the APIs see it.
type served struct{ *server }

// Name implements openai.Model.
func (s served) Name() string { return s.card.DisplayName }

// Ready implements openai.Model.
func (s served) Ready() bool { return s.ready() }

// Serves implements openai.Model.
func (s served) Serves(kind openai.Kind) bool { return s.serves(kind) }

// Generate implements openai.Model.
func (s served) Generate(ctx context.Context, job *pipeline.Job) (openai.Generation, error) {
	if s.line != nil {
		return s.generateText(ctx, job)
	}
	if s.pipeline == nil {
		return nil, &pipeline.PromptError{Param: "model", Message: "model " + s.card.DisplayName + " takes tensors, not tokens; this route cannot reach it"}
	}
	if s.card.LoRA != nil {
		job.Request.Routing.LoRAName = s.card.LoRA.Name
	}
	if err := s.refuse(); err != nil {
		return nil, err
	}
	run, err := s.pipeline.Generate(ctx, job)
	if err != nil {
		return nil, err
	}
	return run, nil
}

// generateText starts a generation of a worker that takes text.
func (s served) generateText(ctx context.Context, job *pipeline.Job) (openai.Generation, error) {
	if job.Verbatim {
		return nil, &pipeline.PromptError{Param: "model", Message: "model " + s.card.DisplayName + " takes text, not tokens; this route cannot reach it"}
	}
	if err := s.refuse(); err != nil {
		return nil, err
	}
	run, err := s.line.Generate(ctx, job)
	if err != nil {
		return nil, err
	}
	return run, nil
}

// sendText gives a body to a worker that takes text.
func (s *server) sendText(ctx context.Context, workerID uint64, id string, body []byte) (inference.Stream, error) {
	target, ok := s.target(workerID)
	if !ok {
		return nil, &inference.Error{Kind: inference.CannotConnect, Message: "the worker vanished before the request was sent", WorkerID: workerID}
	}
	return s.frontend.options.Transport.Forward(target).SendRaw(ctx, id, body)
}

// Forward implements openai.Model.
func (s served) Forward(ctx context.Context, id string, body []byte) (inference.Stream, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	request := &inference.Request{ID: id, Model: s.card.DisplayName}
	var tried router.Attempt
	for {
		placement, err := s.placer.Place(ctx, request, tried)
		if err != nil {
			return nil, err
		}
		target, ok := s.target(placement.WorkerID)
		if !ok {
			err = inference.Errorf(inference.CannotConnect, "the worker vanished before the request was sent")
		} else {
			var stream inference.Stream
			stream, err = s.frontend.options.Transport.Forward(target).SendRaw(ctx, id, body)
			if err == nil {
				placement.Dispatched()
				return &leased{Stream: stream, placement: placement}, nil
			}
		}
		placement.End(err)
		if ctx.Err() != nil || !inference.KindOf(err).Migratable() || len(tried.Tried) >= maxForwardRetries {
			return nil, err
		}
		tried.Tried, tried.LastError = append(tried.Tried, placement.WorkerID), err
	}
}

const maxForwardRetries = 8

// leased is a stream that returns its placement when it ends.
type leased struct {
	inference.Stream
	placement *router.Placement
}

// Next implements inference.Stream.
func (l *leased) Next(ctx context.Context) (*inference.Output, error) {
	item, err := l.Stream.Next(ctx)
	if err != nil {
		var failure *inference.Error
		if errors.As(err, &failure) {
			l.placement.End(failure)
		} else {
			l.placement.End(nil)
		}
	}
	return item, err
}

// Close implements inference.Stream.
func (l *leased) Close() error {
	l.placement.End(nil)
	return l.Stream.Close()
}
