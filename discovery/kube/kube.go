// Package kube is discovery through the API of a Kubernetes cluster, with the resources, labels and readiness rules of Dynamo's
// kubernetes backend.
//
// Each process keeps all its records in one DynamoWorkerMetadata resource named after its pod. They count while the pod (or, in container
// mode, the container) is ready; there are no leases, for the cluster itself tells who is alive. The names of resources
// are the identities: the instance id is a hash of the resource's name.
package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"signalbox/discovery"
	"signalbox/discovery/internal/feed"
)

// DefaultDebounce is how long changes are collected before they are passed on.
const DefaultDebounce = 500 * time.Millisecond

// Options say where the cluster is and who this process is in it.
type Options struct {
	Identity Identity
	// Config is the connection to the API; nil means the service account of the pod, else the user's kubeconfig.
	Config *rest.Config
	// Debounce is how long changes are collected; 0 means DefaultDebounce.
	Debounce time.Duration
	// OnBadRecord is told of each unusable record once; it must not call the backend. nil: it is logged.
	OnBadRecord func(discovery.BadRecord)
	// Logger takes warnings, and what OnBadRecord does not; nil means slog.Default.
	Logger *slog.Logger
}

// Backend is this process's connection to the cluster.
type Backend struct {
	identity Identity
	metadata dynamic.ResourceInterface
	logger   *slog.Logger
	set      *feed.Set
	reader   *reader

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	done sync.WaitGroup

	// writing holds a token while nobody writes the own resource.
	writing chan struct{}
	restore chan struct{} // one slot: "the own resource is gone, write it again"

	mu      sync.Mutex // guards all below
	owned   records
	written bool // the own resource may exist
	closed  bool
}

var _ discovery.Backend = (*Backend)(nil)

// Open connects to the cluster's API. In container mode it first removes what an earlier run of the container has left.
func Open(ctx context.Context, options Options) (*Backend, error) {
	if options.Config == nil {
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("kubernetes discovery: neither a service account nor a kubeconfig: %w", err)
		}
		options.Config = config
	}
	resources, err := dynamic.NewForConfig(options.Config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes discovery: %w", err)
	}
	return open(ctx, options, resources)
}

func open(ctx context.Context, options Options, resources dynamic.Interface) (*Backend, error) {
	identity, err := options.Identity.complete()
	if err != nil {
		return nil, err
	}
	if options.Debounce == 0 {
		options.Debounce = DefaultDebounce
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	b := &Backend{
		identity: identity, metadata: resources.Resource(metadataResource).Namespace(identity.Namespace), logger: options.Logger,
		writing: make(chan struct{}, 1), restore: make(chan struct{}, 1), owned: make(records),
	}
	if identity.Mode == ContainerMode {
		if err := b.deleteResource(ctx); err != nil {
			return nil, fmt.Errorf("kubernetes discovery: resource %s of an earlier run can't be removed: %w", identity.ResourceName(), err)
		}
	}
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.reader = newReader(identity, resources, options.Debounce, options.Logger, b.ownResourceSeen)
	b.set = feed.NewSet(options.OnBadRecord, options.Logger, b.startBucket)
	b.writing <- struct{}{}
	b.done.Go(b.restoreResource)
	return b, nil
}

// InstanceID is the hash of the own resource's name.
func (b *Backend) InstanceID() uint64 { return InstanceID(b.identity.ResourceName()) }

// Watch delivers a bucket's records and their changes. The first watch starts reading from the cluster.
func (b *Backend) Watch(ctx context.Context, bucket discovery.Bucket, prefix string) (<-chan discovery.Event, error) {
	return b.set.Watch(ctx, bucket, prefix)
}

func (b *Backend) startBucket(bucket discovery.Bucket, f *feed.Feed) {
	if first := b.reader.add(bucket, f); first {
		b.done.Go(func() { b.reader.run(b.ctx) })
	}
}

// Close removes the own resource and ends the watches. When the API is away the resource goes with the pod.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	written := b.written
	b.mu.Unlock()
	b.set.Close()
	b.stop()
	b.done.Wait()
	<-b.writing // the last write has ended: nothing brings the resource back
	if !written {
		return nil
	}
	if err := b.deleteResource(ctx); err != nil {
		return fmt.Errorf("kubernetes discovery: resource %s can't be removed and stays until the pod goes: %w", b.identity.ResourceName(), err)
	}
	return nil
}

func (b *Backend) deleteResource(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := b.metadata.Delete(ctx, b.identity.ResourceName(), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func uidOf(identity Identity) types.UID { return types.UID(identity.PodUID) }

var errTooLong = errors.New("the API did not answer in time")
