package interop

import (
	"net/url"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// store is a discovery store that peers share.
type store struct {
	kind     string
	variable string // its environment entry
}

func (s store) flags() []string {
	return []string{"--discovery-backend", s.kind, "--request-plane", "tcp", "--event-plane", "zmq"}
}

func (s store) environment() []string { return []string{s.variable} }

func fileStore(t *testing.T) store { return store{"file", "DYN_FILE_KV=" + t.TempDir()} }

// etcdStore starts a real etcd server.
func etcdStore(t *testing.T) store {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.LogLevel = "error"
	local := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.ListenPeerUrls = local, local
	config.AdvertiseClientUrls, config.AdvertisePeerUrls = local, local
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(patience):
		t.Fatal("etcd did not become ready")
	}
	return store{"etcd", "ETCD_ENDPOINTS=http://" + server.Clients[0].Addr().String()}
}

// stores are the kinds that every pairing is tested on.
var stores = map[string]func(t *testing.T) store{"file": fileStore, "etcd": etcdStore}
