package frontend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/api/openai"
	"signalbox/inference"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/pipeline"
)

// HoldOptions say what becomes of requests for models that no worker serves at the moment.
type HoldOptions struct {
	// Patience is how long a request waits for a worker; 0 refuses it at once, and lists no model without workers.
	Patience time.Duration
	// Limit bounds the requests that wait; more are refused as overload.
	Limit int
	// Models are listed from the start, whether or not a worker has ever served them. Models that were served once stay listed anyway.
	Models []string
}

// holder keeps models listed that have no worker, so that a fleet may scale to none, and their requests waiting until one comes.
type holder struct {
	options HoldOptions
	find    func(name string) (served, bool) // a set that can serve now

	mu      sync.Mutex
	kept    map[string]keptModel
	waiting int
	changed chan struct{} // closed when what is served changes
	closed  bool
}

// keptModel is what is remembered of a model without workers.
type keptModel struct {
	listing openai.Listing
	names   []string       // it and its aliases
	kinds   card.ModelType // 0 when it was never seen: any kind may come
}

func newHolder(options HoldOptions, find func(name string) (served, bool), registry prometheus.Registerer) *holder {
	h := &holder{options: options, find: find, kept: make(map[string]keptModel), changed: make(chan struct{})}
	for _, name := range options.Models {
		h.kept[name] = keptModel{listing: openai.Listing{Name: name}, names: []string{name}}
	}
	if options.Patience > 0 {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "signalbox_held_requests", Help: "Requests that wait for a worker of their model"},
			func() float64 {
				h.mu.Lock()
				defer h.mu.Unlock()
				return float64(h.waiting)
			}))
	}
	return h
}

// refresh remembers what is served now and wakes who waits.
func (h *holder) refresh(entries []model.Entry[*server]) {
	if h.options.Patience <= 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, entry := range entries {
		if c := entry.Set.Card; entry.Server.frontable() {
			h.kept[c.DisplayName] = keptModel{openai.Listing{Name: c.DisplayName, ContextWindow: int(c.EffectiveContextLength())}, c.Names(), c.ModelType}
		}
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// model returns the kept model of a name or alias; nil when there is none.
func (h *holder) model(name string) openai.Model {
	if h.options.Patience <= 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kept := range h.kept {
		if slices.Contains(kept.names, name) {
			return heldModel{h, kept}
		}
	}
	return nil
}

// listings returns all kept models.
func (h *holder) listings() []openai.Listing {
	if h.options.Patience <= 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]openai.Listing, 0, len(h.kept))
	for _, kept := range h.kept {
		list = append(list, kept.listing)
	}
	slices.SortFunc(list, func(a, b openai.Listing) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}

// serves tells whether some kept model serves the kind.
func (h *holder) serves(kind openai.Kind) bool {
	if h.options.Patience <= 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kept := range h.kept {
		if kept.serves(kind) {
			return true
		}
	}
	return false
}

func (k keptModel) serves(kind openai.Kind) bool {
	if k.kinds == 0 {
		return true
	}
	return (&server{card: &card.Card{ModelType: k.kinds}}).serves(kind)
}

// lookAgain is how often who waits looks by himself: a set may become ready without any news, when a worker's time aside is over.
const lookAgain = 100 * time.Millisecond

// await returns a set that can serve the model, as soon as there is one.
func (h *holder) await(ctx context.Context, name string) (served, error) {
	h.mu.Lock()
	if h.waiting >= h.options.Limit {
		h.mu.Unlock()
		return served{}, inference.Errorf(inference.ResourceExhausted, "%d requests wait for workers already; more are not held (SIGNALBOX_HOLD_REQUESTS)", h.options.Limit)
	}
	h.waiting++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.waiting--
		h.mu.Unlock()
	}()
	patience := time.NewTimer(h.options.Patience)
	defer patience.Stop()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		h.mu.Lock()
		changed, closed := h.changed, h.closed
		h.mu.Unlock()
		if found, ok := h.find(name); ok {
			return found, nil
		}
		if closed {
			return served{}, pipeline.ErrNoWorkers
		}
		select {
		case <-changed:
		case <-again.C:
		case <-patience.C:
			return served{}, pipeline.ErrNoWorkers
		case <-ctx.Done():
			return served{}, &inference.Error{Kind: inference.Cancelled, Message: "the client went away before a worker came", Cause: ctx.Err()}
		}
	}
}

// close refuses who waits and who would.
func (h *holder) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// heldModel is a kept model as the APIs see it.
type heldModel struct {
	holder *holder
	kept   keptModel
}

// Name implements openai.Model.
func (m heldModel) Name() string { return m.kept.listing.Name }

// Ready implements openai.Model: it takes requests.
func (m heldModel) Ready() bool { return true }

// Serves implements openai.Model.
func (m heldModel) Serves(kind openai.Kind) bool { return m.kept.serves(kind) }

// Forward implements openai.Model.
func (m heldModel) Forward(ctx context.Context, id string, body []byte) (inference.Stream, error) {
	found, err := m.holder.await(ctx, m.kept.listing.Name)
	if err != nil {
		return nil, err
	}
	return found.Forward(ctx, id, body)
}
