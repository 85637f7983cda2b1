package sharedcache

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"

	"signalbox/router/cost"
	"signalbox/transport/zmq"
)

// Options describe a cache.
type Options struct {
	// BlockSize is the router's, in tokens.
	BlockSize int
	// Endpoint is where the master publishes ("tcp://host:port"), instead of where the workers say; "" follows the workers.
	Endpoint string
	// Failed is told of every failure to hear the master: a connection that cannot be made or broke, a message that cannot be read. nil
	// tells nobody.
	Failed func()
	Logger *slog.Logger
}

// Cache follows a fleet's shared cache. It is safe for concurrent use; look-ups do not wait for the network.
type Cache struct {
	options Options
	index   index

	mutex    sync.Mutex // guards what follows
	layout   *Layout    // nil as long as nothing is looked up
	endpoint string
	last     string // problem that was logged last
	stop     func() // ends the subscription; nil without one
	closed   bool

	reading sync.RWMutex // guards shown
	shown   *Layout      // layout, for look-ups
	scratch sync.Pool    // of *[]Page
}

// New returns a cache that knows no workers yet.
func New(options Options) *Cache {
	c := &Cache{options: options}
	c.scratch.New = func() any { return new([]Page) }
	return c
}

// Worker is what a worker's card says: its runtime data under [RuntimeKey], nil for none.
type Worker struct {
	ID   uint64
	Data json.RawMessage
}

// SetWorkers tells the cache whose storage it is. It follows the layout and the master that all of them name; as long as they do not agree
// nothing is found.
func (c *Cache) SetWorkers(workers []Worker) {
	layout, endpoint, err := c.agree(workers)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.closed {
		return
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != c.last {
		c.options.Logger.Warn("the shared cache is not looked at", "error", problem)
	}
	c.last = problem
	switch {
	case layout == nil && c.layout == nil, layout != nil && c.layout != nil && *layout == *c.layout && endpoint == c.endpoint:
		return
	case layout != nil && c.layout != nil && *layout != *c.layout:
		c.options.Logger.Warn("the layout of the shared cache has changed: what was known of it is forgotten")
	}
	c.leave()
	c.layout, c.endpoint = layout, endpoint
	if layout != nil {
		c.index.reset(int(layout.Parts()))
		c.follow(*layout, endpoint)
	}
	c.reading.Lock()
	c.shown = layout
	c.reading.Unlock()
}

// agree returns what all workers say that say anything; no layout without any, or with an error where they cannot be followed.
func (c *Cache) agree(workers []Worker) (agreed *Layout, endpoint string, err error) {
	endpoint = c.options.Endpoint
	for _, worker := range workers {
		if worker.Data == nil || string(worker.Data) == "null" {
			continue
		}
		layout, named, problem := ParseLayout(worker.Data)
		if problem != nil {
			c.options.Logger.Warn("what a worker says of its shared cache cannot be read", "worker", worker.ID, "error", problem)
			continue
		}
		if agreed != nil && layout != *agreed {
			return nil, "", errors.New("the workers lay the shared cache out in different ways")
		}
		agreed = &layout
		if c.options.Endpoint != "" || named == "" {
			continue
		}
		if endpoint != "" && endpoint != named {
			return nil, "", errors.New("the workers name different places of the shared cache's events (kv_events_endpoint)")
		}
		endpoint = named
	}
	if agreed == nil {
		return nil, "", nil
	}
	if err := agreed.check(c.options.BlockSize); err != nil {
		return nil, "", err
	}
	if endpoint == "" {
		return nil, "", errors.New("no worker says where the shared cache's events are (kv_events_endpoint)")
	}
	return agreed, endpoint, nil
}

// follow begins to apply the master's events. The caller holds the mutex.
func (c *Cache) follow(layout Layout, endpoint string) {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	c.stop = func() { cancel(); wait.Wait() }
	f := &follower{index: &c.index, layout: layout, limit: maxObjects, failed: c.options.Failed, logger: c.options.Logger.With("master", endpoint)}
	wait.Go(func() { // ends with ctx
		err := zmq.Subscribe(ctx, endpoint, "", zmq.Events{Connected: f.connected, Message: f.message, Lost: f.lost})
		if err != nil {
			f.fail("events of the shared cache cannot be received", err)
		}
	})
}

// leave ends the subscription and forgets what it brought. The caller holds the mutex.
func (c *Cache) leave() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
	c.index.clear()
}

// Close ends the subscription. Nothing is found from then on.
func (c *Cache) Close() {
	c.SetWorkers(nil)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.closed = true
}

// AppendRuns appends the runs of a prompt's blocks that the cache holds, in ascending order. There may be gaps between them.
func (c *Cache) AppendRuns(list []cost.Range, tokens []uint32) []cost.Range {
	c.reading.RLock()
	layout := c.shown
	c.reading.RUnlock()
	if layout == nil {
		return list
	}
	pages := c.scratch.Get().(*[]Page)
	defer c.scratch.Put(pages)
	*pages = AppendPages((*pages)[:0], tokens, int(layout.PageSize), layout.Eagle)
	first := len(list)
	c.index.mutex.RLock()
	defer c.index.mutex.RUnlock()
	for i, page := range *pages {
		if !c.index.complete(page) {
			continue
		}
		at := uint32(i)
		if last := len(list) - 1; last >= first && list[last].End == at {
			list[last].End++
		} else {
			list = append(list, cost.Range{Start: at, End: at + 1})
		}
	}
	return list
}

// Objects returns how many objects the cache knows.
func (c *Cache) Objects() int {
	c.index.mutex.RLock()
	defer c.index.mutex.RUnlock()
	return c.index.objects
}

// follower applies the events of one master. Its methods are called by one goroutine.
type follower struct {
	index    *index
	layout   Layout
	limit    int
	failed   func()
	logger   *slog.Logger
	sequence uint64
	begun    bool
	changes  []change
}

func (f *follower) connected() {
	f.logger.Info("following the shared cache")
	f.forget()
}

// lost forgets everything: what is removed meanwhile nobody will tell.
func (f *follower) lost(err error) {
	f.fail("the events of the shared cache are not heard", err)
	f.forget()
}

func (f *follower) fail(text string, err error) {
	f.logger.Warn(text, "error", err)
	if f.failed != nil {
		f.failed()
	}
}

func (f *follower) forget() {
	f.begun = false
	f.index.clear()
}

func (f *follower) message(parts [][]byte) {
	sequence, changes, err := parseBatch(f.changes[:0], parts)
	if err != nil {
		f.fail("a message about the shared cache cannot be read", err)
		return
	}
	f.changes = changes
	f.apply(sequence, changes)
}

// apply takes a batch in. One that comes twice changes nothing; after one that is missing, what is known may no longer be there.
func (f *follower) apply(sequence uint64, changes []change) {
	if f.begun && sequence == f.sequence {
		return
	}
	f.index.mutex.Lock()
	defer f.index.mutex.Unlock()
	if f.begun && sequence != f.sequence+1 {
		f.logger.Warn("events of the shared cache are missing: what was known of it is forgotten", "previous", f.sequence, "sequence", sequence)
		f.index.empty()
	}
	f.begun, f.sequence = true, sequence
	for _, change := range changes {
		page, part, ok := f.layout.Part(string(change.key))
		switch {
		case !ok: // somebody else's
		case change.removed:
			f.index.removed(page, part)
		default:
			f.index.stored(page, part)
		}
	}
	if f.index.objects > f.limit {
		f.logger.Warn("the shared cache holds more objects than are followed: what was known of it is forgotten", "objects", f.index.objects, "limit", f.limit)
		f.index.empty()
		f.begun = false
	}
}
