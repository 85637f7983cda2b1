package etcd_test

import (
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/etcd"
	"signalbox/discovery/internal/peer"
)

func TestRealWorkerIsSeen(t *testing.T) {
	s := newServer(t, nil).start(t)
	store := peer.Store{Backend: "etcd", Environment: []string{"ETCD_ENDPOINTS=" + s.endpoint()}}
	peer.CheckLifeOfWorker(t, store, func(onBad func(discovery.BadRecord)) discovery.Backend {
		return s.open(t, func(options *etcd.Options) { options.OnBadRecord = onBad })
	})
}

func TestRealFrontendSeesOurs(t *testing.T) {
	s := newServer(t, nil).start(t)
	store := peer.Store{Backend: "etcd", Environment: []string{"ETCD_ENDPOINTS=" + s.endpoint()}}
	peer.CheckFrontendSeesOurs(t, store, s.open(t, nil))
}
