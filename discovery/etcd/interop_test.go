package etcd_test

import (
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/etcd"
	"signalbox/discovery/internal/peer"
)

func TestRealWorkerIsSeen(t *testing.T) {
	s := newServer(t, nil).start(t)
	peer.CheckLifeOfWorker(t, func(onBad func(discovery.BadRecord)) discovery.Backend {
		return s.open(t, func(options *etcd.Options) { options.OnBadRecord = onBad })
	}, "etcd", "ETCD_ENDPOINTS="+s.endpoint())
}

func TestRealFrontendSeesOurs(t *testing.T) {
	s := newServer(t, nil).start(t)
	peer.CheckFrontendSeesOurs(t, s.open(t, nil), "etcd", "ETCD_ENDPOINTS="+s.endpoint())
}
