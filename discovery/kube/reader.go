package kube

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"signalbox/discovery"
	"signalbox/discovery/internal/feed"
)

// reader keeps feeds equal to what the cluster holds. Two informers mirror the metadata resources and the objects that tell
// readiness; while the API is away the mirrors stay as they are.
type reader struct {
	own       string // name of the own resource
	metadata  cache.SharedIndexInformer
	readiness cache.SharedIndexInformer
	debounce  time.Duration
	logger    *slog.Logger
	// ownSeen is told after each reading whether the own resource exists.
	ownSeen func(bool)

	changed chan struct{} // one slot: "the mirrors have changed"
	added   chan struct{} // one slot: "there is a new feed"

	mu    sync.Mutex // guards feeds
	feeds map[discovery.Bucket]*feed.Feed

	// Only run uses it.
	good map[string]goodResource
}

// goodResource is the last usable content of a resource.
type goodResource struct {
	uid     types.UID
	version string // resource version that was read last, usable or not
	content records
}

func newReader(identity Identity, resources dynamic.Interface, debounce time.Duration, logger *slog.Logger, ownSeen func(bool)) *reader {
	r := &reader{
		own: identity.ResourceName(), debounce: debounce, logger: logger, ownSeen: ownSeen,
		changed: make(chan struct{}, 1), added: make(chan struct{}, 1),
		feeds: make(map[discovery.Bucket]*feed.Feed), good: make(map[string]goodResource),
	}
	tellsReadiness := endpointSlices
	if identity.Mode == ContainerMode {
		tellsReadiness = pods
	}
	r.metadata = newInformer(resources, metadataResource, identity.Namespace, "")
	r.readiness = newInformer(resources, tellsReadiness, identity.Namespace, enabledSelector)
	return r
}

// newInformer mirrors the objects of one kind that the label selector takes. Objects stay without a type: the typed clients and
// informers of Kubernetes bring every kind that it knows along, ten times the code of all the rest of this program.
func newInformer(resources dynamic.Interface, kind schema.GroupVersionResource, namespace, selector string) cache.SharedIndexInformer {
	objects := resources.Resource(kind).Namespace(namespace)
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return objects.Watch(ctx, options)
		},
	}, resources), &unstructured.Unstructured{}, 0, cache.Indexers{})
}

// add takes on a bucket and says whether it is the first.
func (r *reader) add(bucket discovery.Bucket, f *feed.Feed) (first bool) {
	r.mu.Lock()
	first = len(r.feeds) == 0
	r.feeds[bucket] = f
	r.mu.Unlock()
	signal(r.added)
	return first
}

func signal(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// run mirrors the cluster until ctx ends.
func (r *reader) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(r.logger.Handler())) // where client-go logs to
	var informers sync.WaitGroup
	defer informers.Wait()
	for _, informer := range []cache.SharedIndexInformer{r.metadata, r.readiness} {
		r.follow(informer)
		informers.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), r.metadata.HasSynced, r.readiness.HasSynced) {
		return
	}
	for {
		r.read()
		select {
		case <-ctx.Done():
			return
		case <-r.added:
		case <-r.changed:
			// A roll-out changes many objects at a time.
			timer := time.NewTimer(r.debounce)
			select {
			case <-timer.C:
			case <-r.added: // who begins to watch need not wait
				timer.Stop()
				signal(r.changed)
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	}
}

// follow has an informer tell of changes and of trouble. Both calls fail only on an informer that runs or has ended.
func (r *reader) follow(informer cache.SharedIndexInformer) {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal(r.changed) },
		UpdateFunc: func(any, any) { signal(r.changed) },
		DeleteFunc: func(any) { signal(r.changed) },
	})
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			r.logger.Warn("kubernetes watch is interrupted; the last known records stay in force", "error", err)
		})
	}
	if err != nil {
		r.logger.Error("kubernetes discovery can't follow the cluster", "error", err)
	}
}

// read brings all feeds to what the mirrors hold.
func (r *reader) read() {
	ready := r.readyResources()
	content := make(records)
	for bucket := range members {
		content[bucket] = make(map[string][]byte)
	}
	present := make(map[string]bool)
	for _, item := range r.metadata.GetStore().List() {
		resource, isResource := item.(*unstructured.Unstructured)
		if !isResource {
			continue
		}
		present[resource.GetName()] = true
		held := r.contentOf(resource)
		if !ready.covers(resource) {
			continue
		}
		for bucket, values := range held {
			for key, value := range values {
				content[bucket][key] = value
			}
		}
	}
	for name := range r.good {
		if !present[name] {
			delete(r.good, name)
		}
	}
	r.mu.Lock()
	feeds := make(map[discovery.Bucket]*feed.Feed, len(r.feeds))
	for bucket, f := range r.feeds {
		feeds[bucket] = f
	}
	r.mu.Unlock()
	for bucket, f := range feeds {
		f.Replace(content[bucket])
	}
	r.ownSeen(present[r.own])
}

// contentOf returns a resource's records; those of its last usable version when it can't be read.
func (r *reader) contentOf(resource *unstructured.Unstructured) records {
	name, uid, version := resource.GetName(), resource.GetUID(), resource.GetResourceVersion()
	last, known := r.good[name]
	if known && last.uid == uid && last.version == version && version != "" {
		return last.content
	}
	content, err := recordsOf(resource)
	if err != nil {
		r.logger.Error("kubernetes discovery resource is unusable; its last good content stays in force", "resource", name, "error", err)
		content = nil
		if known && last.uid == uid {
			content = last.content
		}
	}
	r.good[name] = goodResource{uid: uid, version: version, content: content}
	return content
}

// readiness tells which incarnations of which processes are ready: resource name → uids of the pod. A uid may be "", not told.
type readiness map[string][]types.UID

func (r readiness) add(resource string, pod types.UID) { r[resource] = append(r[resource], pod) }

// covers says whether a resource was written by an incarnation that is ready. The resource of a pod that was replaced by
// another of the same name stays until it is collected, and must not speak for its successor.
func (r readiness) covers(resource *unstructured.Unstructured) bool {
	pods := r[resource.GetName()]
	if len(pods) == 0 {
		return false
	}
	writer := ownerPod(resource)
	return writer == "" || slices.Contains(pods, writer) || slices.Contains(pods, "")
}

// ownerPod is the uid of the pod that a resource belongs to; "" when it does not tell.
func ownerPod(resource *unstructured.Unstructured) types.UID {
	for _, owner := range resource.GetOwnerReferences() {
		if owner.Kind == "Pod" {
			return owner.UID
		}
	}
	return ""
}

// endpointSlice is what counts of a discovery.k8s.io/v1 EndpointSlice.
type endpointSlice struct {
	Endpoints []struct {
		Conditions struct {
			Ready *bool `json:"ready"`
		} `json:"conditions"`
		TargetRef *struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"targetRef"`
	} `json:"endpoints"`
}

// podStatus is what counts of a v1 Pod.
type podStatus struct {
	Status struct {
		ContainerStatuses []struct {
			Name  string `json:"name"`
			Ready bool   `json:"ready"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// readyResources reads readiness from the mirror.
func (r *reader) readyResources() readiness {
	ready := make(readiness)
	for _, item := range r.readiness.GetStore().List() {
		object, isObject := item.(*unstructured.Unstructured)
		if !isObject {
			continue
		}
		var err error
		if object.GetKind() == "Pod" {
			err = ready.addPod(object)
		} else {
			err = ready.addSlice(object)
		}
		if err != nil {
			r.logger.Error("kubernetes object is not as its kind should be; it tells no readiness", "kind", object.GetKind(), "name", object.GetName(), "error", err)
		}
	}
	return ready
}

func (r readiness) addSlice(object *unstructured.Unstructured) error {
	var slice endpointSlice
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &slice); err != nil {
		return err
	}
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready && endpoint.TargetRef != nil {
			r.add(endpoint.TargetRef.Name, endpoint.TargetRef.UID)
		}
	}
	return nil
}

func (r readiness) addPod(object *unstructured.Unstructured) error {
	var pod podStatus
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pod); err != nil {
		return err
	}
	for _, container := range pod.Status.ContainerStatuses {
		if container.Ready {
			r.add(containerResource(object.GetName(), container.Name), object.GetUID())
		}
	}
	return nil
}
