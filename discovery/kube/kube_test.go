package kube

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"signalbox/discovery"
	"signalbox/discovery/internal/contract"
)

func TestContract(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Fleet {
		c := newCluster(t)
		return contract.Fleet{
			Open: func(t *testing.T, onBad func(discovery.BadRecord)) discovery.Backend {
				return c.openReady(t, onBad)
			},
			KeysPerProcess: true,
		}
	})
}

// jsonObject turns a record into what a resource holds.
func jsonObject(t *testing.T, record discovery.Record) map[string]any {
	t.Helper()
	value, err := discovery.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(value, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// data is a resource's spec with some instances.
func data(t *testing.T, instances ...*discovery.Instance) map[string]any {
	t.Helper()
	endpoints := make(map[string]any)
	for _, instance := range instances {
		endpoints[instance.Key()] = jsonObject(t, instance)
	}
	return map[string]any{"data": map[string]any{"endpoints": endpoints, "model_cards": nil}}
}

// A real frontend looks for exactly this.
func TestLayout(t *testing.T) {
	c := newCluster(t)
	backend := c.openReady(t, nil)
	name := backend.identity.Pod
	if backend.InstanceID() != InstanceID(name) {
		t.Errorf("instance id %d, want the hash of %q", backend.InstanceID(), name)
	}
	instance := contract.Instance("ns", backend.InstanceID())
	channel := &discovery.EventChannel{
		Scope: discovery.NamespaceScope("ns"), Topic: "kv-events", PublisherID: 5, Transport: discovery.EventTransport{ZMQ: "tcp://192.0.2.1:9"},
	}
	contract.Publish(t, backend, instance)
	contract.Publish(t, backend, channel)
	resource := c.read(t, name)
	owners := resource.GetOwnerReferences()
	if len(owners) != 1 || owners[0].Kind != "Pod" || owners[0].APIVersion != "v1" || owners[0].Name != name || owners[0].UID != uidOf(backend.identity) ||
		!*owners[0].Controller || *owners[0].BlockOwnerDeletion {
		t.Errorf("owners %+v, want the pod as controller", owners)
	}
	held, err := recordsOf(resource)
	if err != nil {
		t.Fatal(err)
	}
	record, err := discovery.Parse(discovery.Instances, instance.Key(), held[discovery.Instances][instance.Key()])
	if err != nil || record.(*discovery.Instance).InstanceID != backend.InstanceID() {
		t.Errorf("the resource holds %v, %v", record, err)
	}
	var legacy struct{ Namespace, Component *string }
	if err := json.Unmarshal(held[discovery.EventChannels][channel.Key()], &legacy); err != nil || legacy.Namespace == nil || *legacy.Namespace != "ns" || legacy.Component == nil || *legacy.Component != "" {
		t.Errorf("event channel %s lacks the members that older readers need", held[discovery.EventChannels][channel.Key()])
	}
	if err := backend.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := c.list(t); len(left) != 0 {
		t.Errorf("a clean exit leaves %v", left)
	}
}

// A process that only reads has nothing to write.
func TestReaderWritesNothing(t *testing.T) {
	c := newCluster(t)
	backend := c.openReady(t, nil)
	contract.Expect(t, contract.Watch(t, backend, discovery.Instances, ""), discovery.Synced, nil)
	if left := c.list(t); len(left) != 0 {
		t.Errorf("a reader has written %v", left)
	}
}

func TestRecordsCountWhileThePodIsReady(t *testing.T) {
	c := newCluster(t)
	worker := c.open(t, c.identity(PodMode, ""), nil)
	frontend := c.openReady(t, nil)
	record := contract.Instance("ns", worker.InstanceID())
	contract.Publish(t, worker, record)
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Synced, nil)
	c.setReady(t, worker.identity, true)
	contract.Expect(t, events, discovery.Put, record)
	c.setReady(t, worker.identity, false)
	contract.Expect(t, events, discovery.Delete, record)
}

// A stateful set gives a new pod the name of the old one, whose resource is still there for a while.
func TestResourceOfAnEarlierPodDoesNotCount(t *testing.T) {
	c := newCluster(t)
	old := c.open(t, c.identity(PodMode, ""), nil)
	stale, last := contract.Instance("stale", old.InstanceID()), contract.Instance("ns", 1)
	contract.Publish(t, old, stale)
	successor := old.identity
	successor.PodUID = "another"
	c.setReady(t, successor, true)
	frontend := c.openReady(t, nil)
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Synced, nil)
	contract.Publish(t, frontend, last)
	contract.Expect(t, events, discovery.Put, last)
	fresh := contract.Instance("ns", old.InstanceID())
	contract.Publish(t, c.open(t, successor, nil), fresh) // takes the resource over
	contract.Expect(t, events, discovery.Put, fresh)
}

func TestContainerMode(t *testing.T) {
	c := newCluster(t)
	identity := c.identity(ContainerMode, "engine-0")
	c.setContainers(t, &identity, map[string]bool{"main": true, "engine-0": false})
	name := identity.Pod + "-engine-0"
	c.write(t, name, data(t, contract.Instance("stale", InstanceID(name))))
	worker := c.open(t, identity, nil)
	if left := c.list(t); len(left) != 0 {
		t.Errorf("after the start of a container its earlier resource is still there: %v", left)
	}
	record := contract.Instance("ns", worker.InstanceID())
	contract.Publish(t, worker, record)
	if owner := c.read(t, name).GetOwnerReferences()[0]; *owner.Controller {
		t.Error("an extra container's resource must not name the pod as controller")
	}
	frontend := c.open(t, c.identity(ContainerMode, "main"), nil)
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Synced, nil)

	c.setContainers(t, &identity, map[string]bool{"main": true, "engine-0": true})
	contract.Expect(t, events, discovery.Put, record)
	c.setContainers(t, &identity, map[string]bool{"main": true, "engine-0": false})
	contract.Expect(t, events, discovery.Delete, record)
}

// setContainers writes a pod with its containers' readiness, and gives the identity the pod's uid.
func (c *cluster) setContainers(t *testing.T, identity *Identity, ready map[string]bool) {
	t.Helper()
	objects := c.resources.Resource(pods).Namespace(c.namespace)
	found, err := objects.Get(t.Context(), identity.Pod, metav1.GetOptions{})
	if err != nil {
		pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: identity.Pod, UID: types.UID(identity.PodUID), Labels: discoveryLabels}}
		for container := range ready {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container, Image: "none"})
		}
		if found, err = objects.Create(t.Context(), untyped(t, pod), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pod := new(corev1.Pod)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, pod); err != nil {
		t.Fatal(err)
	}
	identity.PodUID = string(pod.UID)
	pod.Status.ContainerStatuses = nil
	for container, isReady := range ready {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: container, Image: "none", Ready: isReady})
	}
	if _, err := objects.UpdateStatus(t.Context(), untyped(t, pod), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) list(t *testing.T) (names []string) {
	t.Helper()
	found, err := c.resources.Resource(metadataResource).Namespace(c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range found.Items {
		names = append(names, resource.GetName())
	}
	return names
}

func TestBadRecordsAndResources(t *testing.T) {
	c := newCluster(t)
	var mu sync.Mutex
	var reports []string
	reported := make(chan struct{}, 10)
	frontend := c.openReady(t, func(bad discovery.BadRecord) {
		mu.Lock()
		reports = append(reports, bad.Error())
		mu.Unlock()
		reported <- struct{}{}
	})
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Synced, nil)
	for _, pod := range []string{"broken", "mixed", "last"} {
		c.setReady(t, Identity{Pod: pod}, true)
	}
	good, last := contract.Instance("ns", 1), contract.Instance("ns", 2)

	// One bad record beside a good one.
	spec := data(t, good)
	spec["data"].(map[string]any)["endpoints"].(map[string]any)["ns/backend/generate/9"] = map[string]any{"type": "Model"}
	c.write(t, "mixed", spec)
	contract.Expect(t, events, discovery.Put, good)
	<-reported
	mu.Lock()
	if len(reports) != 1 || !strings.Contains(reports[0], "v1/instances/ns/backend/generate/9") {
		t.Errorf("reports %q", reports)
	}
	mu.Unlock()

	// Nor does a resource without data, or one without any sense: it stops nobody, and does not take its last good content along.
	c.write(t, "broken", map[string]any{"data": "nonsense"})
	c.write(t, "mixed", map[string]any{"data": map[string]any{"endpoints": "nonsense"}})
	c.write(t, "last", data(t, last))
	contract.Expect(t, events, discovery.Put, last)
	// A new object of the same name has no claim to it.
	c.remove(t, "mixed")
	contract.Expect(t, events, discovery.Delete, good)
}

func TestNullAndMissingMapsAreEmpty(t *testing.T) {
	c := newCluster(t)
	frontend := c.openReady(t, nil)
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Synced, nil)
	c.setReady(t, Identity{Pod: "worker"}, true)
	record := contract.Instance("ns", 1)
	c.write(t, "worker", data(t, record)) // "model_cards" is null, the event maps are missing
	contract.Expect(t, events, discovery.Put, record)
	c.write(t, "worker", map[string]any{"data": map[string]any{"endpoints": map[string]any{}}}) // a real server makes null of it
	contract.Expect(t, events, discovery.Delete, record)
}

func TestRemovedResourceIsWrittenAgain(t *testing.T) {
	c := newCluster(t)
	worker := c.openReady(t, nil)
	record := contract.Instance("ns", worker.InstanceID())
	contract.Publish(t, worker, record)
	events := contract.Watch(t, worker, discovery.Instances, "")
	contract.Expect(t, events, discovery.Put, record)
	contract.Expect(t, events, discovery.Synced, nil)
	before := c.read(t, worker.identity.Pod).GetUID()
	c.remove(t, worker.identity.Pod)
	for event := contract.Next(t, events); event.Kind != discovery.Put; event = contract.Next(t, events) {
	}
	if after := c.read(t, worker.identity.Pod).GetUID(); after == before {
		t.Error("the resource was not removed")
	}
}

func TestPutEndsWithItsContext(t *testing.T) {
	c := newCluster(t)
	backend := c.openReady(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	record := contract.Instance("ns", 1)
	if err := discovery.Publish(ctx, backend, record); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	contract.Publish(t, backend, record) // a failed put leaves the key free
	if err := backend.Put(t.Context(), "v1/other", "x", []byte(`{}`)); err == nil || !strings.Contains(err.Error(), `no bucket "v1/other"`) {
		t.Errorf("unknown bucket: %v", err)
	}
	if err := backend.Put(t.Context(), discovery.Models, "x", []byte(`[`)); err == nil || !strings.Contains(err.Error(), "not a JSON object") {
		t.Errorf("no JSON: %v", err)
	}
	contract.Publish(t, backend, contract.Model("ns", 1, `{}`)) // and the refused value is not in the way
}

func TestOpenRefusesAnIncompleteIdentity(t *testing.T) {
	c := newCluster(t)
	_, err := open(t.Context(), Options{Identity: Identity{Pod: "a"}, Logger: slog.New(slog.DiscardHandler)}, c.resources)
	if err == nil || !strings.Contains(err.Error(), "POD_UID") {
		t.Errorf("got %v", err)
	}
}

// The rights of the manifest that we ship are enough, and the ones of a bare account are not.
func TestManifestGivesTheRightsThatAreNeeded(t *testing.T) {
	if shared == nil {
		t.Skip("no real API server: set SIGNALBOX_KUBE_APISERVER to the kube-apiserver program")
	}
	for _, mode := range []Mode{PodMode, ContainerMode} {
		t.Run(string(mode), func(t *testing.T) {
			c := newCluster(t)
			config := rest.CopyConfig(shared.admin)
			config.Impersonate.UserName = "system:serviceaccount:" + c.namespace + ":signalbox"
			account := &cluster{namespace: c.namespace}
			var err error
			if account.resources, err = dynamic.NewForConfig(config); err != nil {
				t.Fatal(err)
			}
			if mode == PodMode { // in container mode even the start needs rights
				bare := account.open(t, c.identity(mode, "main"), nil)
				if err := discovery.Publish(t.Context(), bare, contract.Instance("ns", 1)); !apierrors.IsForbidden(err) {
					t.Errorf("without rights: %v, want it forbidden at once", err)
				}
			}
			c.applyRBAC(t)
			identity := c.identity(mode, "main")
			if err := shared.eventually(func(context.Context) error { // rights take a moment to become known
				_, err := account.resources.Resource(metadataResource).Namespace(c.namespace).List(t.Context(), metav1.ListOptions{})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if mode == PodMode {
				c.setReady(t, identity, true)
			} else {
				c.setContainers(t, &identity, map[string]bool{"main": true})
			}
			backend := account.open(t, identity, nil)
			record := contract.Instance("ns", backend.InstanceID())
			contract.Publish(t, backend, record)
			events := contract.Watch(t, backend, discovery.Instances, "")
			contract.Expect(t, events, discovery.Put, record)
			if err := backend.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// applyRBAC installs the shipped manifest in the cluster's namespace.
func (c *cluster) applyRBAC(t *testing.T) {
	t.Helper()
	documents, err := manifests(filepath.Join("..", "..", "deploy", "kubernetes", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	plural := map[string]schema.GroupVersionResource{
		"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
		"Role":           {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
		"RoleBinding":    {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	}
	for _, document := range documents {
		if document.GetKind() == "RoleBinding" { // subjects of another namespace have to name it
			subjects, _, _ := unstructured.NestedSlice(document.Object, "subjects")
			subjects[0].(map[string]any)["namespace"] = c.namespace
			if err := unstructured.SetNestedSlice(document.Object, subjects, "subjects"); err != nil {
				t.Fatal(err)
			}
		}
		_, err := c.resources.Resource(plural[document.GetKind()]).Namespace(c.namespace).
			Apply(t.Context(), document.GetName(), document, metav1.ApplyOptions{FieldManager: "test", Force: true})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The API away must not take the workers away.
func TestOutage(t *testing.T) {
	if shared == nil {
		t.Skip("no real API server: set SIGNALBOX_KUBE_APISERVER to the kube-apiserver program")
	}
	c := newCluster(t)
	worker, frontend := c.openReady(t, nil), c.openReady(t, nil)
	before, late := contract.Instance("ns", worker.InstanceID()), contract.Instance("other", worker.InstanceID())
	contract.Publish(t, worker, before)
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Put, before)
	contract.Expect(t, events, discovery.Synced, nil)

	shared.kill()
	again := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, again, discovery.Put, before)
	contract.Expect(t, again, discovery.Synced, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := discovery.Publish(ctx, worker, late); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put without the API: %v, want it to end with its context", err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- discovery.Publish(t.Context(), worker, late) }()
	if err := shared.startProcess(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("put that waited for the API: %v", err)
	}
	contract.Expect(t, events, discovery.Put, late) // and no Delete before it
}
