package frontend

import (
	"encoding/json"
	"slices"
	"sync"

	"signalbox/api/admin"
	"signalbox/api/openai"
	"signalbox/model"
	"signalbox/model/card"
)

// catalog shows the served sets to the APIs.
type catalog struct{ frontend *Frontend }

// Find implements openai.Models.
func (c catalog) Find(name string) openai.Model {
	found, any := c.pick(name)
	if found != nil {
		return c.frontend.holder.holding(served{found})
	}
	if held := c.frontend.holder.model(name); held != nil {
		return held
	}
	if any != nil {
		return served{any}
	}
	if c.frontend.manager.Known(name) {
		return pending(name)
	}
	return nil
}

// pick chooses among the sets of a name that can serve now. any is one of the others when there is none.
func (c catalog) pick(name string) (found, any *server) {
	entries := c.frontend.manager.Find(name)
	ready := make([]model.Entry[*server], 0, len(entries))
	for _, entry := range entries {
		if !entry.Server.frontable() {
			continue
		}
		any = entry.Server
		if entry.Server.ready() {
			ready = append(ready, entry)
		}
	}
	if len(ready) > 1 { // a set that would refuse is not the one to choose
		if taking := slices.DeleteFunc(slices.Clone(ready), func(entry model.Entry[*server]) bool { return entry.Server.refuse() != nil }); len(taking) > 0 {
			ready = taking
		}
	}
	if entry, ok := model.Pick(ready); ok {
		return entry.Server, any
	}
	return nil, any
}

// Card implements CompanionModels: the card of the newest set that clients reach under the name.
func (c catalog) Card(name string) *card.Card {
	for _, entry := range c.frontend.manager.Find(name) {
		if entry.Server.frontable() {
			return entry.Set.Card
		}
	}
	return nil
}

// AnyReady implements CompanionModels.
func (c catalog) AnyReady() bool {
	return slices.ContainsFunc(c.frontend.manager.Served(), func(entry model.Entry[*server]) bool {
		return entry.Server.frontable() && entry.Server.ready()
	})
}

// Any implements openai.Models.
func (c catalog) Any(kind openai.Kind) bool {
	return slices.ContainsFunc(c.frontend.manager.Served(), func(entry model.Entry[*server]) bool {
		return entry.Server.frontable() && entry.Server.serves(kind)
	}) || c.frontend.holder.serves(kind)
}

// Names implements openai.Models.
func (c catalog) Names(kind openai.Kind) []string {
	var names []string
	for _, entry := range c.frontend.manager.Served() {
		if name := entry.Set.Card.DisplayName; entry.Server.frontable() && entry.Server.serves(kind) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// List implements openai.Models.
func (c catalog) List() []openai.Listing {
	list := []openai.Listing{}
	seen := make(map[string]bool)
	for _, entry := range c.frontend.manager.Served() {
		name := entry.Set.Card.DisplayName
		if !entry.Server.frontable() || !entry.Server.ready() || seen[name] {
			continue
		}
		seen[name] = true
		list = append(list, openai.Listing{Name: name, ContextWindow: int(entry.Set.Card.EffectiveContextLength())})
	}
	for _, kept := range c.frontend.holder.listings() {
		if !seen[kept.Name] {
			list = append(list, kept)
		}
	}
	return list
}

type workerState struct {
	Workers int               `json:"workers"`
	Needs   []card.WorkerPool `json:"needs"`
}

type namespaceState struct {
	Ready       bool                    `json:"ready"`
	WorkerTypes map[string]*workerState `json:"worker_types"`
	Present     []string                `json:"present"`
	Missing     []string                `json:"missing_worker_types"`
}

// Readiness implements openai.Models.
func (c catalog) Readiness(name string) []byte {
	namespaces := make(map[string]*namespaceState)
	ready := false
	for _, entry := range c.frontend.manager.Find(name) {
		state := namespaces[entry.Set.Key.Endpoint.Namespace]
		if state == nil {
			state = &namespaceState{WorkerTypes: make(map[string]*workerState), Present: []string{}, Missing: []string{}}
			namespaces[entry.Set.Key.Endpoint.Namespace] = state
		}
		role := string(entry.Set.Key.Role)
		worker := state.WorkerTypes[role]
		if worker == nil {
			needs := entry.Set.Card.Needs
			if needs == nil {
				needs = []card.WorkerPool{}
			}
			worker = &workerState{Needs: needs}
			state.WorkerTypes[role] = worker
			state.Present = append(state.Present, role)
		}
		worker.Workers += len(entry.Set.Members)
		if entry.Server.frontable() && entry.Server.ready() {
			state.Ready, ready = true, true
		}
	}
	if len(namespaces) == 0 {
		return nil
	}
	for _, state := range namespaces {
		for _, worker := range state.WorkerTypes {
			for _, pool := range worker.Needs {
				for _, part := range pool {
					if !slices.Contains(state.Present, string(part)) && !slices.Contains(state.Missing, string(part)) {
						state.Missing = append(state.Missing, string(part))
					}
				}
			}
		}
		slices.Sort(state.Present)
	}
	text, err := json.Marshal(struct {
		Model      string                     `json:"model"`
		Ready      bool                       `json:"ready"`
		Namespaces map[string]*namespaceState `json:"namespaces"`
	}{name, ready, namespaces})
	if err != nil {
		return nil
	}
	return text
}

// Endpoints implements admin.Fleet.
func (c catalog) Endpoints() []string {
	var list []string
	for _, instance := range c.frontend.manager.Instances() {
		list = append(list, "dyn://"+instance.Namespace+"."+instance.Component+"."+instance.Endpoint)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Instances implements admin.Fleet.
func (c catalog) Instances() []json.RawMessage {
	var list []json.RawMessage
	for _, instance := range c.frontend.manager.Instances() {
		if text, err := json.Marshal(instance); err == nil {
			list = append(list, text)
		}
	}
	return list
}

// thresholds keeps the busy thresholds of the models that operators have set.
type thresholds struct {
	frontend *Frontend
	initial  admin.Thresholds
	mu       sync.Mutex
	byModel  map[string]admin.Thresholds
}

// Thresholds implements admin.ThresholdStore.
func (t *thresholds) Thresholds(name string) (admin.Thresholds, bool) {
	if !t.frontend.manager.Known(name) {
		return admin.Thresholds{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if set, ok := t.byModel[name]; ok {
		return set, true
	}
	return t.initial, true
}

// Update implements admin.ThresholdStore.
func (t *thresholds) Update(name string, change admin.Thresholds) admin.Thresholds {
	t.mu.Lock()
	defer t.mu.Unlock()
	current, ok := t.byModel[name]
	if !ok {
		current = t.initial
	}
	if change.ActiveDecodeBlocks != nil {
		current.ActiveDecodeBlocks = change.ActiveDecodeBlocks
	}
	if change.ActivePrefillTokens != nil {
		current.ActivePrefillTokens = change.ActivePrefillTokens
	}
	if change.ActivePrefillTokensFraction != nil {
		current.ActivePrefillTokensFraction = change.ActivePrefillTokensFraction
	}
	t.byModel[name] = current
	t.mu.Unlock()
	t.spread(name)
	t.mu.Lock()
	return current
}

// Models implements admin.ThresholdStore.
func (t *thresholds) Models() []string {
	var list []string
	for _, entry := range t.frontend.manager.Served() {
		if entry.Server.frontable() {
			list = append(list, entry.Set.Card.DisplayName)
		}
	}
	return slices.Compact(list)
}
