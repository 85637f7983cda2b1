package discovery_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/discovery"
)

var generate = discovery.EndpointID{Namespace: "dynamo", Component: "backend", Name: "generate"}

// Values and keys as live workers write them, and what they mean.
var live = []struct {
	name  string
	key   string
	value string
	want  discovery.Record
}{
	{
		"instance of 1.6.1", "dynamo/backend/generate/14d21cc576669f5d",
		`{"type":"Endpoint","component":"backend","endpoint":"generate","namespace":"dynamo","instance_id":1500293260288368477,` +
			`"transport":{"tcp":"192.0.2.2:35359/14d21cc576669f5d/dynamo/backend/generate"},"device_type":"cuda","request_plane_codec":"msgpack"}`,
		&discovery.Instance{
			Namespace: "dynamo", Component: "backend", Endpoint: "generate", InstanceID: 1500293260288368477,
			Transport:  discovery.Transport{TCP: "192.0.2.2:35359/14d21cc576669f5d/dynamo/backend/generate"},
			DeviceType: "cuda", Codec: "msgpack",
		},
	},
	{
		"instance of 1.5.1 with an id above 2^63", "dynamo/backend/generate/82a146b48e5bfffa",
		`{"type":"Endpoint","component":"backend","endpoint":"generate","namespace":"dynamo","instance_id":9412882437477498874,` +
			`"transport":{"tcp":"[2001:db8::1]:37573/82a146b48e5bfffa/generate"},"tomorrow":[1]}`,
		&discovery.Instance{
			Namespace: "dynamo", Component: "backend", Endpoint: "generate", InstanceID: 9412882437477498874,
			Transport: discovery.Transport{TCP: "[2001:db8::1]:37573/82a146b48e5bfffa/generate"},
		},
	},
	{
		"instance on NATS", "dynamo/backend/generate/a",
		`{"type":"Endpoint","component":"backend","endpoint":"generate","namespace":"dynamo","instance_id":10,"transport":{"nats_tcp":"dynamo_backend.generate-a"}}`,
		&discovery.Instance{
			Namespace: "dynamo", Component: "backend", Endpoint: "generate", InstanceID: 10,
			Transport: discovery.Transport{NATS: "dynamo_backend.generate-a"},
		},
	},
	{
		"adapter", "dynamo/backend/generate/a/my-adapter",
		`{"type":"Model","namespace":"dynamo","component":"backend","endpoint":"generate","instance_id":10,"card_json":{"display_name":"x"},"model_suffix":"my-adapter"}`,
		&discovery.Model{
			Namespace: "dynamo", Component: "backend", Endpoint: "generate", InstanceID: 10,
			Card: json.RawMessage(`{"display_name":"x"}`), Suffix: "my-adapter",
		},
	},
	{
		"event channel", "namespace/dynamo/component/backend/endpoint/generate/topic/kv-events/120b992f48e91b",
		`{"type":"EventChannel","scope":{"kind":"endpoint","endpoint":{"namespace":"dynamo","component":"backend","name":"generate"}},` +
			`"topic":"kv-events","instance_id":5079302132001051,"transport":{"kind":"Zmq","config":{"endpoint":"tcp://192.0.2.2:45513"}}}`,
		&discovery.EventChannel{
			Scope: discovery.EndpointScope(generate), Topic: "kv-events", PublisherID: 5079302132001051,
			Transport: discovery.EventTransport{ZMQ: "tcp://192.0.2.2:45513"},
		},
	},
	{
		"event channel of a namespace on NATS", "namespace/my%2Ens/topic/t%2F1/5",
		`{"type":"EventChannel","scope":{"kind":"namespace","name":"my.ns"},"topic":"t/1","instance_id":5,` +
			`"transport":{"kind":"Nats","config":{"subject_prefix":"namespace.my.ns"}}}`,
		&discovery.EventChannel{
			Scope: discovery.NamespaceScope("my.ns"), Topic: "t/1", PublisherID: 5,
			Transport: discovery.EventTransport{NATSSubjectPrefix: "namespace.my.ns"},
		},
	},
	{
		"event channel of a broker", "namespace/dynamo/component/zmq_broker/topic/kv-events/5",
		`{"type":"EventChannel","scope":{"kind":"component","namespace":"dynamo","component":"zmq_broker"},"topic":"kv-events","instance_id":5,` +
			`"transport":{"kind":"ZmqBroker","config":{"xsub_endpoints":["tcp://a:1"],"xpub_endpoints":["tcp://a:2"]}}}`,
		&discovery.EventChannel{
			Scope: discovery.ComponentScope("dynamo", "zmq_broker"), Topic: "kv-events", PublisherID: 5,
			Transport: discovery.EventTransport{BrokerXSUB: []string{"tcp://a:1"}, BrokerXPUB: []string{"tcp://a:2"}},
		},
	},
	{
		"event channel without a scope", "namespace/dynamo/component/backend/topic/kv-events/5",
		`{"type":"EventChannel","namespace":"dynamo","component":"backend","topic":"kv-events","instance_id":5,"transport":{"kind":"Zmq","config":{"endpoint":"tcp://a:1"}}}`,
		&discovery.EventChannel{
			Scope: discovery.ComponentScope("dynamo", "backend"), Topic: "kv-events", PublisherID: 5,
			Transport: discovery.EventTransport{ZMQ: "tcp://a:1"},
		},
	},
	{
		"event source", "namespace/dynamo/component/backend/endpoint/generate/topic/kv-events/120b992f48e91b",
		`{"type":"EventSource","scope":{"kind":"endpoint","endpoint":{"namespace":"dynamo","component":"backend","name":"generate"}},"topic":"kv-events",` +
			`"publisher_id":5079302132001051,"metadata":{"kv_state_endpoint":{"namespace":"dynamo","component":"backend","name":"generate"},` +
			`"worker":{"worker_id":17247701367785102768,"dp_rank":3},"publisher_id":5079302132001051,"recovery_target":{"component":"backend",` +
			`"endpoint":"worker_kv_query_source_120b992f48e91b","namespace":"dynamo","instance_id":17247701367785102768,"transport":{"tcp":"192.0.2.2:1/p"}}}}`,
		&discovery.EventSource{
			Scope: discovery.EndpointScope(generate), Topic: "kv-events", PublisherID: 5079302132001051,
			Metadata: discovery.SourceMetadata{
				KVStateEndpoint: generate, Worker: discovery.SourceWorker{WorkerID: 17247701367785102768, Rank: 3}, PublisherID: 5079302132001051,
				RecoveryTarget: &discovery.Instance{
					Namespace: "dynamo", Component: "backend", Endpoint: "worker_kv_query_source_120b992f48e91b",
					InstanceID: 17247701367785102768, Transport: discovery.Transport{TCP: "192.0.2.2:1/p"},
				},
			},
		},
	},
}

func TestLiveRecordsAreUnderstood(t *testing.T) {
	for _, test := range live {
		t.Run(test.name, func(t *testing.T) {
			got, err := discovery.Parse(test.want.Bucket(), test.key, []byte(test.value))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("wrong contents (-want +got):\n%s", diff)
			}
		})
	}
}

// What we write has to mean the same as what the live worker wrote: same members, same values.
func TestWrittenRecordsHaveTheLiveMembers(t *testing.T) {
	for _, test := range live {
		if strings.Contains(test.name, "without a scope") {
			continue // only older workers write that
		}
		t.Run(test.name, func(t *testing.T) {
			written, err := discovery.Marshal(test.want)
			if err != nil {
				t.Fatal(err)
			}
			got, want := members(t, written), members(t, []byte(test.value))
			delete(want, "tomorrow")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-live +written):\n%s", diff)
			}
		})
	}
}

func members(t *testing.T, value []byte) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber() // ids don't fit a float64
	var all map[string]any
	if err := decoder.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	const key = "dynamo/backend/generate/a"
	instance := func(members string) string {
		return `{"type":"Endpoint","namespace":"dynamo","component":"backend","endpoint":"generate","instance_id":10` + members + `}`
	}
	const tcp = `,"transport":{"tcp":"h:1/p"}`
	if _, err := discovery.Parse(discovery.Instances, key, []byte(instance(tcp))); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ bucket, key, value, complaint string }{
		{"v1/instances", key, instance(""), "transport has neither"},
		{"v1/instances", key, instance(`,"transport":{"tcp":"h:1/p","nats_tcp":"s"}`), "transport has both"},
		{"v1/instances", key, instance(`,"transport":{"tcp":"h:1"}`), "want host:port/endpoint path"},
		{"v1/instances", key, instance(tcp + `,"namespace":"a/b"`), "must not contain '/'"},
		{"v1/instances", key, instance(tcp + `,"namespace":""`), `"namespace" is missing`},
		{"v1/instances", key, instance(tcp + `,"instance_id":-1`), "instance_id"},
		{"v1/instances", key, instance(tcp + `,"instance_id":1e3`), "instance_id"},
		{"v1/instances", "dynamo/backend/generate/A", instance(tcp), "belong under key"},
		{"v1/instances", key, `{}`, `"type" is missing`},
		{"v1/mdc", key, instance(tcp), `holds "Model"`},
		{"v1/mdc", key, `{"type":"Model","namespace":"dynamo","component":"backend","endpoint":"generate","instance_id":10}`, `"card_json" is missing`},
		{"v1/mdc", key, `{"type":"Model","namespace":"dynamo","component":"backend","endpoint":"generate","instance_id":10,"card_json":"x"}`, `"card_json" is missing or not an object`},
		{"v1/event_channels", "x", `{"type":"EventChannel","scope":{"kind":"galaxy"}}`, `"galaxy"`},
		{"v1/event_channels", "x", `{"type":"EventChannel","scope":{"kind":"endpoint"}}`, `no member "endpoint"`},
		{"v1/event_channels", "x", `{"type":"EventChannel","scope":{"kind":"namespace","name":"n"},"topic":"t","transport":{"kind":"Pigeon"}}`, `"Pigeon"`},
		{"v1/event_channels", "x", `{"type":"EventChannel","scope":{"kind":"namespace","name":"n"},"topic":"t"}`, "0 ways to subscribe"},
		{"v1/event_channels", "x", `{"type":"EventChannel","topic":"t"}`, "scope has no namespace"},
		{"v1/event_sources", "x", `{"type":"EventSource","scope":{"kind":"namespace","name":"n"}}`, `"topic" is missing`},
		{"v1/other", "x", `{}`, `no bucket "v1/other"`},
	} {
		_, err := discovery.Parse(discovery.Bucket(test.bucket), test.key, []byte(test.value))
		if err == nil || !strings.Contains(err.Error(), test.complaint) {
			t.Errorf("%s: got %v, want an error with %q", test.value, err, test.complaint)
		}
	}
}

func TestFileNames(t *testing.T) {
	for key, name := range map[string]string{
		"dynamo/backend/generate/14d21cc576669f5d":                                          "dynamo%2Fbackend%2Fgenerate%2F14d21cc576669f5d",
		"dynamo/backend/worker_kv_query_source_120b992f48e91b/14d21cc576669f5d":             "dynamo%2Fbackend%2Fworker%5Fkv%5Fquery%5Fsource%5F120b992f48e91b%2F14d21cc576669f5d",
		"namespace/dynamo/component/backend/endpoint/generate/topic/kv-events/120b992f48e9": "namespace%2Fdynamo%2Fcomponent%2Fbackend%2Fendpoint%2Fgenerate%2Ftopic%2Fkv%2Devents%2F120b992f48e9",
		"namespace/my%2Ens/topic/t/5":                                                       "namespace%2Fmy%252Ens%2Ftopic%2Ft%2F5", // encoded twice
		"é":                                                                                 "%C3%A9",
	} {
		if got := discovery.EncodeFileName(key); got != name {
			t.Errorf("file name of %q is %q, want %q", key, got, name)
		}
		if got, err := discovery.DecodeFileName(name); err != nil || got != key {
			t.Errorf("key of %q is %q, %v; want %q", name, got, err, key)
		}
	}
	for _, name := range []string{"%", "%2", "a%zz"} {
		if key, err := discovery.DecodeFileName(name); err == nil {
			t.Errorf("%q became %q; want an error", name, key)
		}
	}
}

func TestKeysComeBackTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.StringMatching(`[a-zA-Z0-9._~é %-]{1,9}`)
		id := rapid.Uint64().Draw(t, "id")
		endpoint := discovery.EndpointID{Namespace: segment.Draw(t, "namespace"), Component: segment.Draw(t, "component"), Name: segment.Draw(t, "name")}
		instance := discovery.InstanceKey{Endpoint: endpoint, InstanceID: id}
		if rapid.Bool().Draw(t, "adapter") {
			instance.Suffix = segment.Draw(t, "suffix")
		}
		if got, err := discovery.ParseInstanceKey(instance.String()); err != nil || got != instance {
			t.Fatalf("%v became %v, %v", instance, got, err)
		}
		scope := discovery.EndpointScope(endpoint)
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			scope.Endpoint = ""
		case 1:
			scope.Component, scope.Endpoint = "", ""
		}
		event := discovery.EventKey{Scope: scope, Topic: rapid.StringN(1, 9, -1).Draw(t, "topic"), PublisherID: id}
		if got, err := discovery.ParseEventKey(event.String()); err != nil || got != event {
			t.Fatalf("%v became %v, %v", event, got, err)
		}
		if !discovery.UnderPrefix(event.String(), discovery.EventPrefix(event.Scope, event.Topic)) {
			t.Fatal("the key is not under its prefix")
		}
	})
}

func TestBadKeysAreRefused(t *testing.T) {
	for _, key := range []string{
		"", "a/b/c", "a/b/c/d/e/f", "a//c/1", "a/b/c/01", "a/b/c/A", "a/b/c/+1", "a/b/c/0x1", "a/b/c/10000000000000000", "a/b/c/1/",
	} {
		if got, err := discovery.ParseInstanceKey(key); err == nil {
			t.Errorf("instance key %q became %v", key, got)
		}
	}
	for _, key := range []string{
		"", "namespace/n", "namespace/n/topic/t", "namespace/n/topic/t/A", "component/c/topic/t/1", "namespace/n/endpoint/e/topic/t/1",
		"namespace/n/topic/t.x/1", "namespace/n/topic/t%2ex/1", "namespace/n%/topic/t/1", "namespace/n/topic/t/1/2",
	} {
		if got, err := discovery.ParseEventKey(key); err == nil {
			t.Errorf("event key %q became %v", key, got)
		}
	}
}

func TestPrefixEndsAtASegment(t *testing.T) {
	for _, test := range []struct {
		key, prefix string
		want        bool
	}{
		{"dynamo/a", "", true}, {"dynamo/a", "dynamo", true}, {"dynamo/a", "dynamo/", true}, {"dynamo", "dynamo", true},
		{"dynamo-2/a", "dynamo", false}, {"dynamo/a", "dynamo/ab", false}, {"dynamo/ab", "dynamo/a", false}, {"a", "dynamo", false},
	} {
		if got := discovery.UnderPrefix(test.key, test.prefix); got != test.want {
			t.Errorf("UnderPrefix(%q, %q) = %v", test.key, test.prefix, got)
		}
	}
}

func TestNamespaceFilter(t *testing.T) {
	for _, test := range []struct {
		filter    discovery.NamespaceFilter
		namespace string
		want      bool
	}{
		{discovery.NamespaceFilter{}, "any", true},
		{discovery.NamespaceFilter{Exact: "ns"}, "ns", true},
		{discovery.NamespaceFilter{Exact: "ns"}, "ns-abc123", false},
		{discovery.NamespaceFilter{Prefix: "ns"}, "ns-abc123", true},
		{discovery.NamespaceFilter{Prefix: "ns"}, "ns", true},
		{discovery.NamespaceFilter{Prefix: "ns"}, "other", false},
		{discovery.NamespaceFilter{Exact: "other", Prefix: "ns"}, "other", false},
	} {
		if got := test.filter.Includes(test.namespace); got != test.want {
			t.Errorf("%+v includes %q: %v", test.filter, test.namespace, got)
		}
	}
}

// A record in the store must not be able to stop the frontend, and what is accepted has to mean the same when written again.
func FuzzParse(f *testing.F) {
	for _, test := range live {
		f.Add(string(test.want.Bucket()), test.key, []byte(test.value))
	}
	f.Fuzz(func(t *testing.T, bucket, key string, value []byte) {
		record, err := discovery.Parse(discovery.Bucket(bucket), key, value)
		if err != nil {
			return
		}
		written, err := discovery.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		again, err := discovery.Parse(record.Bucket(), record.Key(), written)
		if err != nil {
			t.Fatalf("%s became %s: %v", value, written, err)
		}
		if _, isModel := record.(*discovery.Model); !isModel && !cmp.Equal(record, again) {
			t.Fatalf("%s became %s", value, written)
		}
		switch bucket {
		case string(discovery.Instances), string(discovery.Models):
			_, err = discovery.ParseInstanceKey(key)
		default:
			_, err = discovery.ParseEventKey(key)
		}
		if err != nil && record.Key() == key && !strings.Contains(err.Error(), "empty segment") {
			t.Fatalf("a record's own key %q is refused: %v", key, err)
		}
	})
}
