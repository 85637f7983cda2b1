package peers

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/kvevents"
	"signalbox/router"
	"signalbox/router/affinity"
	"signalbox/router/kv"
	"signalbox/transport/nats"
	"signalbox/worker"
)

// natsServer starts a real NATS server and returns its port; 0 lets the system choose one.
func natsServer(t *testing.T, port int) (s *server.Server, at int) {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start() // ends with Shutdown
	t.Cleanup(func() { stopServer(s) })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("NATS did not become ready")
	}
	return s, s.Addr().(*net.TCPAddr).Port
}

func stopServer(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// Two routers on a real NATS server hear each other's bookings and sessions, and again after the server was away.
func TestOverNATS(t *testing.T) {
	bus, port := natsServer(t, 0)
	planes := two(t)
	reports, bindings := make(chan kv.Remote, 4096), make(chan affinity.Binding, 4096)
	var sequences [2]*Sequences
	var sessions [2]*Sessions
	for i, plane := range planes {
		connection, err := nats.Connect(t.Context(), nats.Options{Server: bus.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		plane.Receive = kvevents.Planes{NATS: kvevents.NewNATS(connection)}
		plane.Open = func(scope discovery.EventScope, topic string) (Outlet, discovery.EventTransport, error) {
			return worker.EventsOn(connection).Open(scope, topic)
		}
		sequences[i], err = plane.Sequences(endpoint, func(list []kv.Remote) {
			for _, report := range list {
				if report.Rank.DPRank == uint32(i) {
					t.Error("a router heard itself")
				}
				reports <- report
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sequences[i].Close)
		sessions[i], err = plane.Sessions(endpoint, func(b affinity.Binding) {
			if b.Target.Rank == uint32(i) {
				t.Error("a router heard itself")
			}
			bindings <- b
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sessions[i].Close)
	}
	exchange := func(when string) {
		t.Helper()
		for i := range planes {
			// What is told before the other one listens is lost: it is told until it is heard.
			n, rank := 0, uint32(i)
			eventually(t, when+" bookings are heard", func() bool {
				n++
				step := kv.Step{RequestID: fmt.Sprint(when, i, "-", n), Rank: inference.Rank{WorkerID: 7, DPRank: rank}}
				sequences[i].Booked(kv.Booked{Step: step, Hashes: []uint64{1, 2}, PrefillTokens: 9})
				sequences[i].Freed(step)
				for {
					select {
					case got := <-reports:
						if got.Rank == step.Rank && got.Kind == kv.RemoteBooked && len(got.Hashes) == 2 && got.PrefillTokens == 9 && strings.HasPrefix(got.RequestID, when) {
							return true
						}
					default:
						return false
					}
				}
			})
			eventually(t, when+" sessions are heard", func() bool {
				n++
				told := affinity.Binding{SessionID: fmt.Sprint(when, i, "-", n), Target: router.Pin{WorkerID: 7, Rank: rank, HasRank: true}, Version: uint64(n), Writer: 2}
				sessions[i].Publish(told)
				for {
					select {
					case got := <-bindings:
						if got.Target == told.Target && strings.HasPrefix(got.SessionID, when) {
							return true
						}
					default:
						return false
					}
				}
			})
		}
	}
	exchange("at first")
	stopServer(bus)
	// What is told meanwhile is not waited for.
	sequences[0].Freed(kv.Step{RequestID: "meanwhile", Rank: inference.Rank{WorkerID: 7}})
	sessions[0].Publish(affinity.Binding{SessionID: "meanwhile", Target: router.Pin{WorkerID: 7, HasRank: true}})
	natsServer(t, port)
	exchange("afterwards")
}
