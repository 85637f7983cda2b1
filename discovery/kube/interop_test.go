package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/internal/peer"
)

// environment is what a real process needs to act as a pod of the cluster.
func (c *cluster) environment(t *testing.T, identity Identity) []string {
	t.Helper()
	if shared == nil {
		t.Skip("no real API server: set SIGNALBOX_KUBE_APISERVER to the kube-apiserver program")
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: admin, namespace: %s}}]
clusters: [{name: test, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: %s}}]
`, c.namespace, shared.admin.Host, shared.admin.BearerToken)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"KUBECONFIG=" + path, "POD_NAME=" + identity.Pod, "POD_UID=" + identity.PodUID, "POD_NAMESPACE=" + identity.Namespace}
}

func newStore(t *testing.T) (peer.Store, *cluster) {
	c := newCluster(t)
	identity := c.identity(PodMode, "")
	store := peer.Store{
		Backend: "kubernetes", Environment: c.environment(t, identity),
		WorkerEnded: func() { c.setReady(t, identity, false) }, // the worker leaves its resource to the cluster
	}
	c.setReady(t, identity, true)
	return store, c
}

func TestRealWorkerIsSeen(t *testing.T) {
	peer.CheckLifeOfWorker(t, func(t *testing.T) (peer.Store, func(func(discovery.BadRecord)) discovery.Backend) {
		store, c := newStore(t)
		return store, func(onBad func(discovery.BadRecord)) discovery.Backend { return c.openReady(t, onBad) }
	})
}

func TestRealFrontendSeesOurs(t *testing.T) {
	peer.CheckFrontendSeesOurs(t, func(t *testing.T) (peer.Store, discovery.Backend) {
		store, c := newStore(t)
		return store, c.openReady(t, nil)
	})
}
