package kube

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"signalbox/discovery"
)

// The custom resource that holds all records of one process.
var (
	metadataResource = schema.GroupVersionResource{Group: "nvidia.com", Version: "v1alpha1", Resource: "dynamoworkermetadatas"}
	endpointSlices   = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	pods             = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	metadataKind     = schema.GroupVersionKind{Group: "nvidia.com", Version: "v1alpha1", Kind: "DynamoWorkerMetadata"}
)

// enabledSelector finds the endpoint slices and pods that take part.
const enabledSelector = "nvidia.com/dynamo-discovery-enabled=true"

// members are the names of the buckets in a resource.
var members = map[discovery.Bucket]string{
	discovery.Instances:     "endpoints",
	discovery.Models:        "model_cards",
	discovery.EventChannels: "event_channels",
	discovery.EventSources:  "event_sources",
}

// records are the values of one process by bucket and key.
type records map[discovery.Bucket]map[string][]byte

// recordsOf reads a resource. A bucket that is missing or null is empty (a server-side apply makes null of an empty object);
// anything else that is not an object, or no data at all, makes the whole resource unusable.
func recordsOf(resource *unstructured.Unstructured) (records, error) {
	found := make(records)
	spec, err := object(resource.Object, "spec")
	if err != nil {
		return nil, err
	}
	data, err := object(spec, "data")
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	if data == nil {
		return nil, errors.New("spec.data is missing or null")
	}
	for bucket, member := range members {
		values, err := object(data, member)
		if err != nil {
			return nil, fmt.Errorf("spec.data: %w", err)
		}
		if len(values) == 0 {
			continue
		}
		found[bucket] = make(map[string][]byte, len(values))
		for key, value := range values {
			encoded, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("spec.data.%s: %q: %w", member, key, err)
			}
			found[bucket][key] = encoded
		}
	}
	return found, nil
}

func object(parent map[string]any, member string) (map[string]any, error) {
	switch value := parent[member].(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return value, nil
	default:
		return nil, fmt.Errorf("member %q is a %T; want an object", member, value)
	}
}

// resourceFor writes a process's resource, owned by its pod so that it goes with it.
func resourceFor(identity Identity, held records) (*unstructured.Unstructured, error) {
	data := make(map[string]any, len(members))
	for bucket, member := range members {
		values := make(map[string]any, len(held[bucket]))
		for key, encoded := range held[bucket] {
			var value map[string]any
			if err := utiljson.Unmarshal(encoded, &value); err != nil { // keeps integers as integers
				return nil, fmt.Errorf("value of %s/%s is not a JSON object: %w", bucket, key, err)
			}
			if bucket == discovery.EventChannels {
				addLegacyScope(key, value)
			}
			values[key] = value
		}
		data[member] = values
	}
	resource := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"data": data}}}
	resource.SetGroupVersionKind(metadataKind)
	resource.SetName(identity.ResourceName())
	resource.SetNamespace(identity.Namespace)
	controller := identity.Mode == PodMode || identity.Container == mainContainer
	blockOwnerDeletion := false
	resource.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Pod", Name: identity.Pod, UID: uidOf(identity), Controller: &controller, BlockOwnerDeletion: &blockOwnerDeletion,
	}})
	return resource, nil
}

// addLegacyScope adds the members by which older readers know an event channel's scope.
func addLegacyScope(key string, value map[string]any) {
	parsed, err := discovery.ParseEventKey(key)
	if err != nil {
		return
	}
	value["namespace"], value["component"] = parsed.Scope.Namespace, parsed.Scope.Component
}
