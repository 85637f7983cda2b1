package file_test

import (
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/file"
	"signalbox/discovery/internal/peer"
)

func newStore(t *testing.T) (peer.Store, string) {
	root := t.TempDir()
	return peer.Store{Backend: "file", Environment: []string{"DYN_FILE_KV=" + root}}, root
}

func TestRealWorkerIsSeen(t *testing.T) {
	peer.CheckLifeOfWorker(t, func(t *testing.T) (peer.Store, func(func(discovery.BadRecord)) discovery.Backend) {
		store, root := newStore(t)
		return store, func(onBad func(discovery.BadRecord)) discovery.Backend {
			return open(t, file.Options{Root: root, OnBadRecord: onBad})
		}
	})
}

func TestRealFrontendSeesOurs(t *testing.T) {
	peer.CheckFrontendSeesOurs(t, func(t *testing.T) (peer.Store, discovery.Backend) {
		store, root := newStore(t)
		return store, open(t, file.Options{Root: root})
	})
}
