package interop

import (
	"cmp"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.etcd.io/etcd/server/v3/embed"
)

// store is a discovery store that peers share, with the planes that they use.
type store struct {
	kind     string
	variable string // its environment entry
	// bus is the environment entry of the NATS server; "" when no plane uses one.
	bus              string
	requests, events string   // "" for tcp and zmq
	extra            []string // further entries
}

func (s store) flags() []string {
	return []string{"--discovery-backend", s.kind, "--request-plane", cmp.Or(s.requests, "tcp"), "--event-plane", cmp.Or(s.events, "zmq")}
}

func (s store) environment() []string {
	list := append([]string{s.variable}, s.extra...)
	if s.bus != "" {
		list = append(list, s.bus)
	}
	return list
}

func fileStore(t *testing.T) store {
	return store{kind: "file", variable: "DYN_FILE_KV=" + t.TempDir()}
}

// over puts planes on a NATS server of the test's own.
func (s store) over(t *testing.T, requests, events string) store {
	t.Helper()
	s.requests, s.events = requests, events
	if requests == "nats" || events == "nats" {
		s.bus = "NATS_SERVER=" + natsServer(t, 0).ClientURL()
	}
	return s
}

// natsServer starts a real NATS server on the port; 0 lets the system choose.
func natsServer(t *testing.T, port int) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start() // ends with Shutdown
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("NATS did not become ready")
	}
	return s
}

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
	return store{kind: "etcd", variable: "ETCD_ENDPOINTS=http://" + server.Clients[0].Addr().String()}
}

// stores are the kinds that every pairing is tested on: each store and each plane at least once, all combinations of them when
// SIGNALBOX_INTEROP_ALL is set.
func stores() map[string]func(t *testing.T) store {
	list := make(map[string]func(t *testing.T) store)
	for kind, open := range map[string]func(t *testing.T) store{"file": fileStore, "etcd": etcdStore} {
		for _, requests := range []string{"tcp", "nats"} {
			for _, events := range []string{"zmq", "nats"} {
				usual := (requests == "tcp" && events == "zmq") || (kind == "file" && requests == "nats" && events == "nats")
				if usual || os.Getenv("SIGNALBOX_INTEROP_ALL") != "" {
					list[kind+"-"+requests+"-"+events] = func(t *testing.T) store { return open(t).over(t, requests, events) }
				}
			}
		}
	}
	return list
}
