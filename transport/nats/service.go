package nats

import (
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	client "github.com/nats-io/nats.go"
)

// service answers the questions of NATS's service protocol ($SRV.PING, INFO and STATS) for what a connection serves under one name, so
// that the tools of NATS list workers of all makes. See ADR-32 of NATS.
type service struct {
	name, id, version, description string
	started                        time.Time

	mu            sync.Mutex
	endpoints     []*endpointStats // guarded by mu, as are their counts
	subscriptions []*client.Subscription
}

// endpointStats is what is told of one subject.
type endpointStats struct {
	service       *service
	name, subject string
	requests      int64
	busy          time.Duration // spent on taking requests
}

// split returns the names of the service and of the endpoint that a subject belongs to: what is before its first dot names the service.
func split(subject string) (service, endpoint string) {
	service, _, _ = strings.Cut(subject, ".")
	return service, strings.ReplaceAll(subject, ".", "-")
}

// announce lists the subject under its service, which begins to answer with its first subject. withdraw takes it away again. A server
// that does not let us answer is no reason not to serve.
func (c *Conn) announce(subject, description string) (stats *endpointStats, withdraw func()) {
	name, endpoint := split(subject)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.services[name]
	if s == nil {
		s = &service{name: name, id: rand.Text(), version: c.options.Version, description: description, started: time.Now()}
		c.services[name] = s
		s.listen(c.nc, func(err error) {
			c.options.Logger.Debug("the service is not listed at NATS", "service", name, "error", err)
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stats = &endpointStats{service: s, name: endpoint, subject: subject}
	s.endpoints = append(s.endpoints, stats)
	return stats, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.remove(stats) == 0 && c.services[name] == s {
			delete(c.services, name)
			s.stop()
		}
	}
}

// remove takes an endpoint away and returns how many are left.
func (s *service) remove(stats *endpointStats) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = slices.DeleteFunc(s.endpoints, func(e *endpointStats) bool { return e == stats })
	return len(s.endpoints)
}

// listen subscribes to the questions to all services, to those of this name, and to this one.
func (s *service) listen(nc *client.Conn, failed func(error)) {
	for verb, answer := range map[string]func() any{"PING": s.ping, "INFO": s.info, "STATS": s.stats} {
		for _, subject := range []string{"$SRV." + verb, "$SRV." + verb + "." + s.name, "$SRV." + verb + "." + s.name + "." + s.id} {
			subscription, err := nc.Subscribe(subject, func(question *client.Msg) {
				if text, err := json.Marshal(answer()); err == nil {
					_ = question.Respond(text)
				}
			})
			if err != nil {
				failed(err)
				continue
			}
			s.subscriptions = append(s.subscriptions, subscription)
		}
	}
}

func (s *service) stop() {
	for _, subscription := range s.subscriptions {
		_ = subscription.Unsubscribe()
	}
}

// count notes a request of the endpoint.
func (e *endpointStats) count(took time.Duration) {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	e.requests++
	e.busy += took
}

// identity begins every answer.
type identity struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	ID      string `json:"id"`
	Version string `json:"version"`
}

func (s *service) identity(kind string) identity {
	return identity{"io.nats.micro.v1." + kind + "_response", s.name, s.id, s.version}
}

func (s *service) ping() any {
	return struct {
		identity
		Metadata struct{} `json:"metadata"`
	}{identity: s.identity("ping")}
}

func (s *service) info() any {
	type endpoint struct {
		Name     string   `json:"name"`
		Subject  string   `json:"subject"`
		Queue    string   `json:"queue_group"`
		Metadata struct{} `json:"metadata"`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]endpoint, 0, len(s.endpoints))
	for _, e := range s.endpoints {
		list = append(list, endpoint{Name: e.name, Subject: e.subject, Queue: queueGroup})
	}
	return struct {
		identity
		Description string     `json:"description"`
		Metadata    struct{}   `json:"metadata"`
		Endpoints   []endpoint `json:"endpoints"`
	}{identity: s.identity("info"), Description: s.description, Endpoints: list}
}

func (s *service) stats() any {
	type endpoint struct {
		Name      string        `json:"name"`
		Subject   string        `json:"subject"`
		Requests  int64         `json:"num_requests"`
		Errors    int64         `json:"num_errors"` // always 0: a request that fails is told so where its answer goes
		Busy      time.Duration `json:"processing_time"`
		Average   time.Duration `json:"average_processing_time"`
		LastError string        `json:"last_error"`
		Queue     string        `json:"queue_group"`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]endpoint, 0, len(s.endpoints))
	for _, e := range s.endpoints {
		list = append(list, endpoint{Name: e.name, Subject: e.subject, Requests: e.requests, Busy: e.busy, Average: e.busy / time.Duration(max(e.requests, 1)), Queue: queueGroup})
	}
	return struct {
		identity
		Started   time.Time  `json:"started"`
		Endpoints []endpoint `json:"endpoints"`
	}{s.identity("stats"), s.started.UTC(), list}
}
