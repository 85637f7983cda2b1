package frontend

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/inference"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/transport/tcp"
	"signalbox/upstream"
)

// upstreamComponent is the component under which plain servers stand. Its endpoints tell how they are asked: one set of workers must be
// asked in one way, and feed its router's index in one way.
const (
	upstreamComponent = "upstream"
	tokenEndpoint     = "tokens"    // with tokens, and they publish KV events
	predictEndpoint   = "predicted" // with tokens, and nothing is told of their caches
	textEndpoint      = "text"      // with the conversation as it is
)

// Upstream lets plain servers be workers beside those of discovery: they are members of the same kind of sets, found in the same
// catalog, placed by the same routers. It implements [upstream.Roster].
type Upstream struct {
	client    *upstream.Client
	logger    *slog.Logger
	namespace string
	store     mem.Store
	view      *mem.Backend // the store as the frontend sees it

	mutex   sync.RWMutex
	members map[uint64]*upstreamMember
}

type upstreamMember struct {
	server  *upstream.Server
	backend *mem.Backend // holds its records; they go with it
}

// NewUpstream returns a roster without servers. namespace is the one that its workers are in. Close ends it after the frontend and the
// fleet that reports to it.
func NewUpstream(client *upstream.Client, filter discovery.NamespaceFilter, logger *slog.Logger) *Upstream {
	u := &Upstream{client: client, logger: logger, namespace: cmp.Or(filter.Prefix, filter.Exact, "signalbox"), members: make(map[uint64]*upstreamMember)}
	u.view = u.store.Open(mem.Options{Logger: logger})
	return u
}

// Close ends the roster.
func (u *Upstream) Close() {
	_ = u.view.Close(context.Background()) // it ends no connection
}

// Join implements [upstream.Roster].
func (u *Upstream) Join(s *upstream.Server) error {
	made, endpoint, err := upstreamCard(s)
	if err != nil {
		return err
	}
	text, err := made.Marshal()
	if err != nil {
		return err
	}
	u.mutex.RLock()
	other := u.members[s.ID]
	u.mutex.RUnlock()
	if other != nil {
		return fmt.Errorf("worker %s is taken by %s", discovery.FormatID(s.ID), other.server.URL)
	}
	member := &upstreamMember{server: s, backend: u.store.Open(mem.Options{InstanceID: s.ID, Logger: u.logger})}
	u.mutex.Lock()
	u.members[s.ID] = member
	u.mutex.Unlock()
	for _, record := range []discovery.Record{
		&discovery.Instance{Namespace: u.namespace, Component: upstreamComponent, Endpoint: endpoint, InstanceID: s.ID, Transport: discovery.Transport{HTTP: s.URL}},
		&discovery.Model{Namespace: u.namespace, Component: upstreamComponent, Endpoint: endpoint, InstanceID: s.ID, Card: text, Suffix: suffixOf(made)},
	} {
		if err := discovery.Publish(context.Background(), member.backend, record); err != nil {
			u.Leave(s)
			return err
		}
	}
	return nil
}

// Leave implements [upstream.Roster].
func (u *Upstream) Leave(s *upstream.Server) {
	u.mutex.Lock()
	member := u.members[s.ID]
	delete(u.members, s.ID)
	u.mutex.Unlock()
	if member != nil {
		_ = member.backend.Close(context.Background()) // it takes its records along
	}
}

// Observe shows scrapers which of the configured servers are workers now.
func (u *Upstream) Observe(registry prometheus.Registerer, servers []upstream.Config) {
	for _, c := range servers {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "signalbox_upstream_up", Help: "Whether a plain server is a worker now",
			ConstLabels: prometheus.Labels{"server": c.Key()}}, func() float64 {
			if s := u.server(upstream.Identity(c.Key())); s != nil {
				return 1
			}
			return 0
		}))
	}
}

// server returns the server that is a worker; nil for any other worker.
func (u *Upstream) server(workerID uint64) *upstream.Server {
	u.mutex.RLock()
	defer u.mutex.RUnlock()
	if member := u.members[workerID]; member != nil {
		return member.server
	}
	return nil
}

// upstreamCard makes the card of a server, and says at which endpoint its set is.
func upstreamCard(s *upstream.Server) (made *card.Card, endpoint string, err error) {
	runtime := card.DefaultRuntimeConfig()
	publishes := s.Events != ""
	runtime.PublishesEvents, runtime.LocalIndexer, runtime.Ranks = &publishes, false, s.RankCount()
	if length := s.About.ContextLength; length > 0 {
		runtime.ContextLength = &length
	}
	if blocks := s.About.Blocks; blocks > 0 {
		runtime.TotalBlocks = &blocks
	}
	if slots := s.About.Slots; slots > 0 {
		runtime.MaxSequences = &slots
	}
	if s.ToolParser != "" {
		runtime.ToolCallParser = &s.ToolParser
	}
	if s.ReasoningParser != "" {
		runtime.ReasoningParser = &s.ReasoningParser
	}
	var kinds card.ModelType
	for use, flag := range map[string]card.ModelType{upstream.Chat: card.Chat, upstream.Completions: card.Completions, upstream.Embeddings: card.Embedding} {
		if s.Does(use) {
			kinds |= flag
		}
	}
	if s.TakesTokens() {
		endpoint = predictEndpoint
		if publishes {
			endpoint = tokenEndpoint
		}
		made, err = card.FromDirectory(s.Tokenizer, s.ServedName(), card.Options{BlockSize: s.About.BlockSize, ModelType: kinds, Runtime: &runtime, ChatTemplate: s.Template})
		if err == nil && s.About.Adapter {
			if s.About.Kind != upstream.VLLM {
				return nil, "", fmt.Errorf("%s is an adapter of another model, which %s can only be asked for as text: leave out the tokenizer", s.About.Model, s.About.Kind)
			}
			made.LoRA = &card.LoRA{Name: s.About.Model} // blocks of the same tokens are others with an adapter
		}
		return made, endpoint, err
	}
	return &card.Card{DisplayName: s.ServedName(), Slug: card.Slug(s.ServedName()), BlockSize: s.About.BlockSize, ModelType: kinds, ModelInput: card.TextInput,
		WorkerType: card.AggregatedWorker, ContextLength: s.About.ContextLength, Runtime: runtime}, textEndpoint, nil
}

// suffixOf tells the record of an adapter from that of its base model.
func suffixOf(c *card.Card) string {
	if c.LoRA == nil {
		return ""
	}
	return c.Slug
}

// predicted tells whether nothing is told of the caches of a set of plain servers, so that its router has to predict them.
func predicted(set *model.Set) bool {
	if len(set.Members) == 0 || set.Members[0].Instance.Transport.HTTP == "" {
		return false
	}
	publishes := set.Card.Runtime.PublishesEvents
	return publishes == nil || !*publishes
}

// Backend returns discovery that finds the servers beside the workers of another one.
func (u *Upstream) Backend(others discovery.Backend) discovery.Backend {
	return joinedBackend{others, u.view}
}

// joinedBackend is two stores in one. What is put goes to the first.
type joinedBackend struct {
	discovery.Backend
	more discovery.Backend
}

// Watch implements discovery.Backend.
func (j joinedBackend) Watch(ctx context.Context, bucket discovery.Bucket, prefix string) (<-chan discovery.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	first, err := j.Backend.Watch(ctx, bucket, prefix)
	if err != nil {
		cancel()
		return nil, err
	}
	second, err := j.more.Watch(ctx, bucket, prefix)
	if err != nil {
		cancel()
		for range first { // it ends soon
		}
		return nil, err
	}
	joined := make(chan discovery.Event)
	go func() { // ends when both watches have ended
		defer cancel()
		defer close(joined)
		synced := 0
		for first != nil || second != nil {
			var event discovery.Event
			var ok bool
			select {
			case event, ok = <-first:
				if !ok {
					first = nil
				}
			case event, ok = <-second:
				if !ok {
					second = nil
				}
			}
			if !ok {
				continue
			}
			if event.Kind == discovery.Synced {
				if synced++; synced < 2 {
					continue
				}
			}
			joined <- event
		}
	}()
	return joined, nil
}

// Transport returns a transport that reaches the servers beside the workers of another one.
func (u *Upstream) Transport(others Transport) Transport { return joinedTransport{others, u} }

type joinedTransport struct {
	Transport
	upstream *Upstream
}

// Send implements inference.Sender.
func (j joinedTransport) Send(ctx context.Context, target inference.Target, r *inference.Request) (inference.Stream, error) {
	if s := j.upstream.server(target.WorkerID); s != nil {
		return j.upstream.client.Send(ctx, s, r)
	}
	if strings.Contains(target.Address, "://") {
		return nil, &inference.Error{Kind: inference.CannotConnect, WorkerID: target.WorkerID, Message: "server " + target.Address + " has left"}
	}
	return j.Transport.Send(ctx, target, r)
}

// Forward implements Transport.
func (j joinedTransport) Forward(target inference.Target) Forwarder {
	if s := j.upstream.server(target.WorkerID); s != nil {
		return upstreamForwarder{j.upstream.client, s}
	}
	if strings.Contains(target.Address, "://") {
		return upstreamForwarder{}
	}
	return j.Transport.Forward(target)
}

// Target implements Transport.
func (j joinedTransport) Target(instance *discovery.Instance) (inference.Target, bool) {
	if url := instance.Transport.HTTP; url != "" {
		return inference.Target{WorkerID: instance.InstanceID, Address: url}, true
	}
	return j.Transport.Target(instance)
}

// Gone implements Transport. The streams of servers end with the servers.
func (j joinedTransport) Gone(workerID uint64) { j.Transport.Gone(workerID) }

// Traffic shows the others' traffic to metrics.
func (j joinedTransport) Traffic() tcp.Traffic {
	if counted, counts := j.Transport.(interface{ Traffic() tcp.Traffic }); counts {
		return counted.Traffic()
	}
	return tcp.Traffic{}
}

type upstreamForwarder struct {
	client *upstream.Client
	server *upstream.Server // nil when it has left
}

// SendRaw implements Forwarder.
func (f upstreamForwarder) SendRaw(ctx context.Context, id string, body []byte) (inference.Stream, error) {
	if f.server == nil {
		return nil, inference.Errorf(inference.CannotConnect, "the server has left")
	}
	return f.client.Forward(ctx, f.server, id, body)
}
