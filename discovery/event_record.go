package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
)

// EventScope is what an event publisher speaks for: a namespace, a component in it, or an endpoint of the component.
type EventScope struct {
	Namespace string
	// Component is "" for a namespace scope.
	Component string
	// Endpoint is "" for a namespace or component scope.
	Endpoint string
}

// NamespaceScope is the scope of a whole namespace.
func NamespaceScope(namespace string) EventScope { return EventScope{Namespace: namespace} }

// ComponentScope is the scope of a component.
func ComponentScope(namespace, component string) EventScope {
	return EventScope{Namespace: namespace, Component: component}
}

// EndpointScope is the scope of an endpoint.
func EndpointScope(id EndpointID) EventScope {
	return EventScope{Namespace: id.Namespace, Component: id.Component, Endpoint: id.Name}
}

func (s EventScope) path() string {
	path := "namespace/" + escapeSegment(s.Namespace)
	if s.Component != "" {
		path += "/component/" + escapeSegment(s.Component)
	}
	if s.Endpoint != "" {
		path += "/endpoint/" + escapeSegment(s.Endpoint)
	}
	return path
}

// SubjectPrefix returns the dotted form that NATS subjects start with: "namespace.N.component.C.endpoint.E".
func (s EventScope) SubjectPrefix() string {
	prefix := "namespace." + s.Namespace
	if s.Component != "" {
		prefix += ".component." + s.Component
	}
	if s.Endpoint != "" {
		prefix += ".endpoint." + s.Endpoint
	}
	return prefix
}

// Subject returns the NATS subject of a topic in the scope: prefix and topic, each segment percent-encoded.
func (s EventScope) Subject(topic string) string {
	scope := EventScope{Namespace: escapeSegment(s.Namespace), Component: escapeSegment(s.Component), Endpoint: escapeSegment(s.Endpoint)}
	return scope.SubjectPrefix() + "." + escapeSegment(topic)
}

func (s EventScope) check() error {
	if s.Namespace == "" {
		return errors.New("scope has no namespace")
	}
	if s.Endpoint != "" && s.Component == "" {
		return errors.New("scope has an endpoint but no component")
	}
	return nil
}

// wireScope is the JSON form: the members depend on kind.
type wireScope struct {
	Kind      string      `json:"kind"`
	Name      string      `json:"name,omitempty"`
	Namespace string      `json:"namespace,omitempty"`
	Component string      `json:"component,omitempty"`
	Endpoint  *EndpointID `json:"endpoint,omitempty"`
}

// MarshalJSON writes the tagged form.
func (s EventScope) MarshalJSON() ([]byte, error) {
	switch {
	case s.Endpoint != "":
		return json.Marshal(wireScope{Kind: "endpoint", Endpoint: &EndpointID{s.Namespace, s.Component, s.Endpoint}})
	case s.Component != "":
		return json.Marshal(wireScope{Kind: "component", Namespace: s.Namespace, Component: s.Component})
	}
	return json.Marshal(wireScope{Kind: "namespace", Name: s.Namespace})
}

// UnmarshalJSON reads the tagged form.
func (s *EventScope) UnmarshalJSON(data []byte) error {
	var wire wireScope
	if err := json.Unmarshal(data, &wire); err != nil {
		return fmt.Errorf("scope: %w", err)
	}
	switch wire.Kind {
	case "namespace":
		*s = NamespaceScope(wire.Name)
	case "component":
		*s = ComponentScope(wire.Namespace, wire.Component)
	case "endpoint":
		if wire.Endpoint == nil {
			return errors.New(`scope of kind "endpoint" has no member "endpoint"`)
		}
		*s = EndpointScope(*wire.Endpoint)
	default:
		return fmt.Errorf(`scope kind %q: want "namespace", "component" or "endpoint"`, wire.Kind)
	}
	return nil
}

// EventChannel says where the events of a topic can be subscribed to. Bucket v1/event_channels.
type EventChannel struct {
	Scope EventScope `json:"scope"`
	Topic string     `json:"topic"`
	// PublisherID is fresh for each publisher and at most 2^53-1. It is not the instance id of the process.
	PublisherID uint64         `json:"instance_id"`
	Transport   EventTransport `json:"transport"`
}

// Bucket is EventChannels.
func (c *EventChannel) Bucket() Bucket { return EventChannels }

// Key is the scope's path, the topic and the publisher id.
func (c *EventChannel) Key() string {
	return EventKey{Scope: c.Scope, Topic: c.Topic, PublisherID: c.PublisherID}.String()
}

func (c *EventChannel) typeName() string { return "EventChannel" }

func (c *EventChannel) check() error {
	if err := c.Scope.check(); err != nil {
		return err
	}
	if c.Topic == "" {
		return errors.New(`member "topic" is missing or empty`)
	}
	return c.Transport.check()
}

// UnmarshalJSON also accepts values without a scope that name only "namespace" and "component", as older workers write them.
func (c *EventChannel) UnmarshalJSON(data []byte) error {
	type plain EventChannel
	wire := struct {
		plain
		Scope     *EventScope `json:"scope"`
		Namespace string      `json:"namespace"`
		Component string      `json:"component"`
	}{}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*c = EventChannel(wire.plain)
	if wire.Scope != nil {
		c.Scope = *wire.Scope
	} else {
		c.Scope = ComponentScope(wire.Namespace, wire.Component)
	}
	return nil
}

// EventTransport says how to subscribe. Exactly one of the three forms is filled.
type EventTransport struct {
	// ZMQ is the publisher's own endpoint, such as "tcp://192.0.2.2:45513".
	ZMQ string
	// NATSSubjectPrefix is what the subjects of the topic start with.
	NATSSubjectPrefix string
	// BrokerXSUB and BrokerXPUB are the endpoints of a ZeroMQ broker: publishers connect to the first, subscribers to the second.
	BrokerXSUB, BrokerXPUB []string
}

type wireEventTransport struct {
	Kind   string          `json:"kind"`
	Config json.RawMessage `json:"config"`
}

type wireBroker struct {
	XSUB []string `json:"xsub_endpoints"`
	XPUB []string `json:"xpub_endpoints"`
}

// MarshalJSON writes the tagged form.
func (t EventTransport) MarshalJSON() ([]byte, error) {
	kind, config := "Zmq", any(map[string]string{"endpoint": t.ZMQ})
	switch {
	case t.NATSSubjectPrefix != "":
		kind, config = "Nats", map[string]string{"subject_prefix": t.NATSSubjectPrefix}
	case len(t.BrokerXPUB) > 0:
		kind, config = "ZmqBroker", wireBroker{XSUB: t.BrokerXSUB, XPUB: t.BrokerXPUB}
	}
	return json.Marshal(struct {
		Kind   string `json:"kind"`
		Config any    `json:"config"`
	}{kind, config})
}

// UnmarshalJSON reads the tagged form.
func (t *EventTransport) UnmarshalJSON(data []byte) error {
	var wire wireEventTransport
	if err := json.Unmarshal(data, &wire); err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	*t = EventTransport{}
	var config struct {
		Endpoint      string `json:"endpoint"`
		SubjectPrefix string `json:"subject_prefix"`
		wireBroker
	}
	if len(wire.Config) > 0 {
		if err := json.Unmarshal(wire.Config, &config); err != nil {
			return fmt.Errorf("transport config of kind %q: %w", wire.Kind, err)
		}
	}
	switch wire.Kind {
	case "Zmq":
		t.ZMQ = config.Endpoint
	case "Nats":
		t.NATSSubjectPrefix = config.SubjectPrefix
	case "ZmqBroker":
		t.BrokerXSUB, t.BrokerXPUB = config.XSUB, config.XPUB
	default:
		return fmt.Errorf(`transport kind %q: want "Zmq", "Nats" or "ZmqBroker"`, wire.Kind)
	}
	return nil
}

func (t EventTransport) check() error {
	filled := 0
	for _, set := range []bool{t.ZMQ != "", t.NATSSubjectPrefix != "", len(t.BrokerXPUB) > 0} {
		if set {
			filled++
		}
	}
	if filled != 1 {
		return fmt.Errorf("event transport names %d ways to subscribe; want exactly one", filled)
	}
	return nil
}

// EventSource ties a publisher to the data-parallel rank that it speaks for. Bucket v1/event_sources.
type EventSource struct {
	Scope       EventScope     `json:"scope"`
	Topic       string         `json:"topic"`
	PublisherID uint64         `json:"publisher_id"`
	Metadata    SourceMetadata `json:"metadata"`
}

// SourceMetadata says whose KV-cache events a publisher sends and where missed ones can be asked for.
type SourceMetadata struct {
	// KVStateEndpoint is the endpoint under which the events are published.
	KVStateEndpoint EndpointID   `json:"kv_state_endpoint"`
	Worker          SourceWorker `json:"worker"`
	PublisherID     uint64       `json:"publisher_id"`
	// RecoveryTarget is the instance that answers recovery queries; nil where there is none.
	RecoveryTarget *Instance `json:"recovery_target,omitempty"`
}

// SourceWorker is one data-parallel rank of a worker.
type SourceWorker struct {
	WorkerID uint64 `json:"worker_id"`
	Rank     uint32 `json:"dp_rank"`
}

// Bucket is EventSources.
func (s *EventSource) Bucket() Bucket { return EventSources }

// Key is the scope's path, the topic and the publisher id.
func (s *EventSource) Key() string {
	return EventKey{Scope: s.Scope, Topic: s.Topic, PublisherID: s.PublisherID}.String()
}

func (s *EventSource) typeName() string { return "EventSource" }

func (s *EventSource) check() error {
	if err := s.Scope.check(); err != nil {
		return err
	}
	if s.Topic == "" {
		return errors.New(`member "topic" is missing or empty`)
	}
	if target := s.Metadata.RecoveryTarget; target != nil {
		if err := target.check(); err != nil {
			return fmt.Errorf("recovery_target: %w", err)
		}
	}
	return nil
}
