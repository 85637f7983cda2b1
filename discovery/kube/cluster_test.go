package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"signalbox/discovery"
)

// shared is the real API server of all tests, nil where there is none; see TestMain.
var shared *apiServer

func TestMain(m *testing.M) {
	code := func() int {
		binary := os.Getenv("SIGNALBOX_KUBE_APISERVER")
		if binary == "" {
			return m.Run()
		}
		server, err := startAPIServer(binary)
		if err != nil {
			fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
			return 1
		}
		defer server.stop()
		shared = server
		return m.Run()
	}()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// cluster is a namespace of its own in the real API server, or in client-go's fake. The fake knows neither conflicts of
// field managers nor watches that break.
type cluster struct {
	resources dynamic.Interface
	namespace string
	pods      atomic.Int64
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	if shared != nil {
		return shared.newCluster(t)
	}
	resources := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{metadataResource: metadataKind.Kind + "List", endpointSlices: "EndpointSliceList", pods: "PodList"})
	resources.PrependReactor("patch", metadataResource.Resource, applyReaction(resources.Tracker()))
	return &cluster{resources: resources, namespace: "default"}
}

// applyReaction lets the fake create by apply, and gives objects the uid and version that a real server gives.
func applyReaction(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	var version atomic.Int64
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		object := new(unstructured.Unstructured)
		if err := json.Unmarshal(patch.GetPatch(), &object.Object); err != nil {
			return true, nil, err
		}
		object.SetResourceVersion(strconv.FormatInt(version.Add(1), 10))
		existing, err := tracker.Get(metadataResource, patch.GetNamespace(), patch.GetName())
		if apierrors.IsNotFound(err) {
			object.SetUID(types.UID("uid-" + object.GetResourceVersion()))
			return true, object, tracker.Create(metadataResource, object, patch.GetNamespace())
		}
		if err != nil {
			return true, nil, err
		}
		object.SetUID(existing.(*unstructured.Unstructured).GetUID())
		return true, object, tracker.Update(metadataResource, object, patch.GetNamespace())
	}
}

// identity returns the next pod's.
func (c *cluster) identity(mode Mode, container string) Identity {
	name := fmt.Sprintf("worker-%d", c.pods.Add(1))
	return Identity{Pod: name, PodUID: "uid-of-" + name, Namespace: c.namespace, Mode: mode, Container: container}
}

func (c *cluster) open(t *testing.T, identity Identity, onBad func(discovery.BadRecord)) *Backend {
	t.Helper()
	backend, err := open(t.Context(), Options{
		Identity: identity, Debounce: 5 * time.Millisecond, OnBadRecord: onBad, Logger: slog.New(slog.DiscardHandler),
	}, c.resources)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Close(context.Background()) })
	return backend
}

// openReady opens the backend of a pod that is ready.
func (c *cluster) openReady(t *testing.T, onBad func(discovery.BadRecord)) *Backend {
	t.Helper()
	identity := c.identity(PodMode, "")
	c.setReady(t, identity, true)
	return c.open(t, identity, onBad)
}

// discoveryLabels are on the objects that tell readiness. We ask for the first only.
var discoveryLabels = map[string]string{"nvidia.com/dynamo-discovery-enabled": "true", "nvidia.com/dynamo-discovery-backend": "kubernetes"}

// setReady writes the endpoint slice of a pod.
func (c *cluster) setReady(t *testing.T, identity Identity, ready bool) {
	t.Helper()
	pod := identity.Pod
	port, portName := int32(8000), "http"
	slice := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Name: "slice-" + pod, Labels: discoveryLabels},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod, UID: types.UID(identity.PodUID)},
		}},
	}
	objects := c.resources.Resource(endpointSlices).Namespace(c.namespace)
	_, err := objects.Create(t.Context(), untyped(t, slice), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = objects.Update(t.Context(), untyped(t, slice), metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// untyped is a typed object as the dynamic client takes it.
func untyped(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	members, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: members}
}

// write puts a resource as a foreign process might; spec may be anything.
func (c *cluster) write(t *testing.T, name string, spec any) {
	t.Helper()
	resource := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	resource.SetGroupVersionKind(metadataKind)
	resource.SetName(name)
	resource.SetNamespace(c.namespace)
	_, err := c.resources.Resource(metadataResource).Namespace(c.namespace).Apply(t.Context(), name, resource, metav1.ApplyOptions{FieldManager: "foreign", Force: true})
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) read(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	resource, err := c.resources.Resource(metadataResource).Namespace(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return resource
}

func (c *cluster) remove(t *testing.T, name string) {
	t.Helper()
	if err := c.resources.Resource(metadataResource).Namespace(c.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
