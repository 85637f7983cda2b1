package etcd_test

import (
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/etcd"
	"signalbox/discovery/internal/peer"
)

func newStore(t *testing.T) (peer.Store, *server) {
	s := newServer(t, nil).start(t)
	return peer.Store{Backend: "etcd", Environment: []string{"ETCD_ENDPOINTS=" + s.endpoint()}}, s
}

func TestRealWorkerIsSeen(t *testing.T) {
	peer.CheckLifeOfWorker(t, func(t *testing.T) (peer.Store, func(func(discovery.BadRecord)) discovery.Backend) {
		store, s := newStore(t)
		return store, func(onBad func(discovery.BadRecord)) discovery.Backend {
			return s.open(t, func(options *etcd.Options) { options.OnBadRecord = onBad })
		}
	})
}

func TestRealFrontendSeesOurs(t *testing.T) {
	peer.CheckFrontendSeesOurs(t, func(t *testing.T) (peer.Store, discovery.Backend) {
		store, s := newStore(t)
		return store, s.open(t, nil)
	})
}
