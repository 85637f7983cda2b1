package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// MaxValueBytes is the largest record that is read. Real cards have a few kilobytes; adapters and routing data add little.
const MaxValueBytes = 16 << 20

// Record is one of *Instance, *Model, *EventChannel and *EventSource.
type Record interface {
	// Bucket is where records of this kind are stored.
	Bucket() Bucket
	// Key is the record's key in its bucket, built from its contents.
	Key() string

	// typeName is the value of the JSON member "type".
	typeName() string
	// check finds members that are missing or wrong after decoding.
	check() error
}

// Instance is an endpoint served by one process: where to send requests. Bucket v1/instances, type Endpoint.
type Instance struct {
	Namespace  string    `json:"namespace"`
	Component  string    `json:"component"`
	Endpoint   string    `json:"endpoint"`
	InstanceID uint64    `json:"instance_id"`
	Transport  Transport `json:"transport"`
	// DeviceType is "cuda", "cpu" or "" when the worker does not say.
	DeviceType string `json:"device_type,omitempty"`
	// Codec is the body encoding that the worker wants, "msgpack" or "json". "" means a worker that knows only JSON.
	Codec string `json:"request_plane_codec,omitempty"`
}

// EndpointID returns the endpoint that the instance serves.
func (i *Instance) EndpointID() EndpointID {
	return EndpointID{Namespace: i.Namespace, Component: i.Component, Name: i.Endpoint}
}

// Bucket is Instances.
func (i *Instance) Bucket() Bucket { return Instances }

// Key is namespace/component/endpoint/id.
func (i *Instance) Key() string {
	return InstanceKey{Endpoint: i.EndpointID(), InstanceID: i.InstanceID}.String()
}

func (i *Instance) typeName() string { return "Endpoint" }

func (i *Instance) check() error {
	if err := checkEndpoint(i.EndpointID()); err != nil {
		return err
	}
	return i.Transport.check()
}

// Transport says how to reach an instance. Exactly one member is set.
type Transport struct {
	// TCP is "host:port/endpoint path"; see Split.
	TCP string `json:"tcp,omitempty"`
	// NATS is a subject.
	NATS string `json:"nats_tcp,omitempty"`
	// HTTP is the URL of an engine's own server. No Dynamo worker has it.
	HTTP string `json:"http,omitempty"`
}

// Split takes a TCP transport apart: the address to dial and the opaque endpoint path that goes into each request frame.
// The path differs between worker versions, so it is never built, only passed on.
func (t Transport) Split() (address, endpointPath string, err error) {
	address, endpointPath, found := strings.Cut(t.TCP, "/")
	if !found || address == "" || endpointPath == "" {
		return "", "", fmt.Errorf("tcp transport %q: want host:port/endpoint path", t.TCP)
	}
	return address, endpointPath, nil
}

func (t Transport) check() error {
	switch {
	case t.HTTP != "" && t.TCP+t.NATS != "":
		return errors.New(`transport has "http" and another; want one`)
	case t.HTTP != "":
		return nil
	case t.TCP != "" && t.NATS != "":
		return errors.New(`transport has both "tcp" and "nats_tcp"; want one`)
	case t.TCP != "":
		_, _, err := t.Split()
		return err
	case t.NATS != "":
		return nil
	}
	return errors.New(`transport has neither "tcp" nor "nats_tcp"`)
}

// Model is a model that one process serves at one of its endpoints. Bucket v1/mdc, type Model.
type Model struct {
	Namespace  string `json:"namespace"`
	Component  string `json:"component"`
	Endpoint   string `json:"endpoint"`
	InstanceID uint64 `json:"instance_id"`
	// Card is the model deployment card as the worker wrote it.
	Card json.RawMessage `json:"card_json"`
	// Suffix is the slug of a LoRA adapter; "" for a base model.
	Suffix string `json:"model_suffix,omitempty"`
}

// EndpointID returns the endpoint at which the model is served.
func (m *Model) EndpointID() EndpointID {
	return EndpointID{Namespace: m.Namespace, Component: m.Component, Name: m.Endpoint}
}

// Bucket is Models.
func (m *Model) Bucket() Bucket { return Models }

// Key is namespace/component/endpoint/id, with /suffix for an adapter.
func (m *Model) Key() string {
	return InstanceKey{Endpoint: m.EndpointID(), InstanceID: m.InstanceID, Suffix: m.Suffix}.String()
}

func (m *Model) typeName() string { return "Model" }

func (m *Model) check() error {
	if err := checkEndpoint(m.EndpointID()); err != nil {
		return err
	}
	if card := bytes.TrimSpace(m.Card); len(card) == 0 || card[0] != '{' {
		return errors.New(`member "card_json" is missing or not an object`)
	}
	return nil
}

func checkEndpoint(id EndpointID) error {
	for _, member := range []struct{ name, value string }{
		{"namespace", id.Namespace}, {"component", id.Component}, {"endpoint", id.Name},
	} {
		if member.value == "" {
			return fmt.Errorf("member %q is missing or empty", member.name)
		}
		if strings.Contains(member.value, "/") {
			return fmt.Errorf("member %q is %q; a name must not contain '/'", member.name, member.value)
		}
	}
	return nil
}

// Marshal writes a record as it is stored: compact JSON with its "type".
func Marshal(record Record) ([]byte, error) {
	if err := record.check(); err != nil {
		return nil, fmt.Errorf("discovery: record %s/%s: %w", record.Bucket(), record.Key(), err)
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(record); err != nil {
		return nil, fmt.Errorf("discovery: record %s/%s: %w", record.Bucket(), record.Key(), err)
	}
	// The type goes first, where a human looks for it.
	members := bytes.TrimPrefix(bytes.TrimSuffix(body.Bytes(), []byte("\n")), []byte("{"))
	value := append([]byte(`{"type":"`+record.typeName()+`",`), members...)
	return value, nil
}

// Parse decodes the value stored under bucket and key. Members that it does not know are ignored. The value must have the
// type that the bucket holds and belong under that key.
func Parse(bucket Bucket, key string, value []byte) (Record, error) {
	var record Record
	switch bucket {
	case Instances:
		record = new(Instance)
	case Models:
		record = new(Model)
	case EventChannels:
		record = new(EventChannel)
	case EventSources:
		record = new(EventSource)
	default:
		return nil, fmt.Errorf("no bucket %q", bucket)
	}
	if len(value) > MaxValueBytes {
		return nil, fmt.Errorf("value has %d bytes, more than the limit of %d", len(value), MaxValueBytes)
	}
	var tag struct {
		Type *string `json:"type"`
	}
	if err := json.Unmarshal(value, &tag); err != nil {
		return nil, fmt.Errorf("value is not a JSON object: %w", err)
	}
	if tag.Type == nil {
		return nil, fmt.Errorf(`member "type" is missing; bucket %s holds %q`, bucket, record.typeName())
	}
	if *tag.Type != record.typeName() {
		return nil, fmt.Errorf(`type is %q; bucket %s holds %q`, *tag.Type, bucket, record.typeName())
	}
	if err := json.Unmarshal(value, record); err != nil {
		return nil, err
	}
	if err := record.check(); err != nil {
		return nil, err
	}
	if own := record.Key(); own != key {
		return nil, fmt.Errorf("contents belong under key %q", own)
	}
	return record, nil
}
