package discovery

import (
	"fmt"
	"strconv"
	"strings"
)

// Bucket is the first part of every key; each kind of record has its own.
type Bucket string

// The buckets, as every Dynamo process since 1.5 writes them.
const (
	Instances     Bucket = "v1/instances"
	Models        Bucket = "v1/mdc"
	EventChannels Bucket = "v1/event_channels"
	EventSources  Bucket = "v1/event_sources"
)

// Buckets lists all buckets.
func Buckets() []Bucket { return []Bucket{Instances, Models, EventChannels, EventSources} }

// FormatID writes an instance or publisher id as keys and endpoint paths have it: lower-case hex without leading zeros.
func FormatID(id uint64) string { return strconv.FormatUint(id, 16) }

// ParseID reads what FormatID writes and nothing else: upper-case digits, leading zeros and signs are refused, because two
// spellings of one id would be two keys.
func ParseID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || FormatID(id) != text {
		return 0, fmt.Errorf("id %q: want lower-case hex digits without leading zeros, at most 16", text)
	}
	return id, nil
}

// EndpointID names an endpoint: something that workers serve and requests are sent to.
type EndpointID struct {
	Namespace string `json:"namespace"`
	Component string `json:"component"`
	Name      string `json:"name"`
}

// String returns "namespace/component/name", which is also the key prefix of the endpoint's instances and models.
func (e EndpointID) String() string { return e.Namespace + "/" + e.Component + "/" + e.Name }

// InstanceKey is a parsed key of the Instances or the Models bucket.
type InstanceKey struct {
	Endpoint   EndpointID
	InstanceID uint64
	// Suffix is the slug of a LoRA adapter. Only in Models, and empty for a base model.
	Suffix string
}

// String returns the key as stored.
func (k InstanceKey) String() string {
	key := k.Endpoint.String() + "/" + FormatID(k.InstanceID)
	if k.Suffix != "" {
		key += "/" + k.Suffix
	}
	return key
}

// ParseInstanceKey takes a key of the Instances or Models bucket apart.
func ParseInstanceKey(key string) (InstanceKey, error) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 && len(parts) != 5 {
		return InstanceKey{}, fmt.Errorf("key %q: want namespace/component/endpoint/id, with /adapter for a LoRA model", key)
	}
	for _, part := range parts {
		if part == "" {
			return InstanceKey{}, fmt.Errorf("key %q has an empty segment", key)
		}
	}
	id, err := ParseID(parts[3])
	if err != nil {
		return InstanceKey{}, fmt.Errorf("key %q: %w", key, err)
	}
	parsed := InstanceKey{Endpoint: EndpointID{Namespace: parts[0], Component: parts[1], Name: parts[2]}, InstanceID: id}
	if len(parts) == 5 {
		parsed.Suffix = parts[4]
	}
	return parsed, nil
}

// EventKey is a parsed key of the EventChannels or the EventSources bucket.
type EventKey struct {
	Scope       EventScope
	Topic       string
	PublisherID uint64
}

// String returns the key as stored.
func (k EventKey) String() string {
	return EventPrefix(k.Scope, k.Topic) + "/" + FormatID(k.PublisherID)
}

// EventPrefix returns the key prefix under which all publishers of a topic in a scope register.
func EventPrefix(scope EventScope, topic string) string {
	return scope.path() + "/topic/" + escapeSegment(topic)
}

// ParseEventKey takes a key of one of the event buckets apart.
func ParseEventKey(key string) (EventKey, error) {
	parts := strings.Split(key, "/")
	fail := func(reason string) (EventKey, error) {
		return EventKey{}, fmt.Errorf("key %q: %s; want namespace/N[/component/C[/endpoint/E]]/topic/T/id", key, reason)
	}
	names := []string{"namespace", "component", "endpoint"}
	var segments []string
	for len(segments) < len(names) && len(parts) >= 2 && parts[0] == names[len(segments)] {
		segment, err := unescapeSegment(parts[1])
		if err != nil {
			return fail(err.Error())
		}
		segments = append(segments, segment)
		parts = parts[2:]
	}
	if len(segments) == 0 || len(parts) != 3 || parts[0] != "topic" {
		return fail("wrong shape")
	}
	topic, err := unescapeSegment(parts[1])
	if err != nil {
		return fail(err.Error())
	}
	id, err := ParseID(parts[2])
	if err != nil {
		return fail(err.Error())
	}
	scope := EventScope{Namespace: segments[0]}
	if len(segments) > 1 {
		scope.Component = segments[1]
	}
	if len(segments) > 2 {
		scope.Endpoint = segments[2]
	}
	return EventKey{Scope: scope, Topic: topic, PublisherID: id}, nil
}

const upperHex = "0123456789ABCDEF"

// escapeSegment percent-encodes one segment of an event key: letters, digits, '_' and '-' stay, every other byte becomes %XX.
func escapeSegment(segment string) string {
	return percentEncode(segment, func(c byte) bool { return isAlphanumeric(c) || c == '_' || c == '-' })
}

func unescapeSegment(segment string) (string, error) {
	text, err := percentDecode(segment)
	if err != nil {
		return "", err
	}
	if escapeSegment(text) != segment {
		return "", fmt.Errorf("segment %q is not encoded the usual way (%q)", segment, escapeSegment(text))
	}
	return text, nil
}

// EncodeFileName turns a whole key into the name of a file: every byte that is not an ASCII letter or digit becomes %XX with
// upper-case hex, the slash and the percent sign included.
func EncodeFileName(key string) string { return percentEncode(key, isAlphanumeric) }

// DecodeFileName undoes EncodeFileName. It also accepts names in which fewer characters are encoded than necessary.
func DecodeFileName(name string) (string, error) { return percentDecode(name) }

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func percentEncode(text string, keep func(byte) bool) string {
	encoded := make([]byte, 0, len(text)+16)
	for i := range len(text) {
		if c := text[i]; keep(c) {
			encoded = append(encoded, c)
		} else {
			encoded = append(encoded, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(encoded)
}

func percentDecode(text string) (string, error) {
	if !strings.Contains(text, "%") {
		return text, nil
	}
	decoded := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			decoded = append(decoded, text[i])
			continue
		}
		if i+2 >= len(text) {
			return "", fmt.Errorf("%q ends inside a percent escape", text)
		}
		value, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%q has a bad percent escape %q", text, text[i:i+3])
		}
		decoded = append(decoded, byte(value))
		i += 2
	}
	return string(decoded), nil
}

// UnderPrefix says whether key is prefix or lies below it. A prefix ends at a segment boundary: "dynamo" covers "dynamo/a",
// not "dynamo-2/a". The empty prefix covers everything.
func UnderPrefix(key, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix == "" {
		return true
	}
	return strings.HasPrefix(key, prefix) && (len(key) == len(prefix) || key[len(prefix)] == '/')
}

// NamespaceFilter limits discovery to some namespaces. The zero value lets all pass.
type NamespaceFilter struct {
	// Exact is the one namespace to serve; "" means any.
	Exact string
	// Prefix lets every namespace pass that starts with these characters ("ns" covers "ns" and "ns-abc123"). It wins over Exact.
	Prefix string
}

// Includes says whether records of the namespace are wanted.
func (f NamespaceFilter) Includes(namespace string) bool {
	if f.Prefix != "" {
		return strings.HasPrefix(namespace, f.Prefix)
	}
	return f.Exact == "" || f.Exact == namespace
}
