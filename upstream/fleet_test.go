package upstream

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/fakeengine"
)

// notes is a roster that notes who comes and goes.
type notes struct {
	mutex  sync.Mutex
	events []string
	refuse error
}

func (n *notes) Join(s *Server) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.refuse != nil {
		return n.refuse
	}
	n.events = append(n.events, "join "+s.About.Model)
	return nil
}

func (n *notes) Leave(s *Server) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.events = append(n.events, "leave "+s.About.Model)
}

func (n *notes) String() string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return strings.Join(n.events, ", ")
}

func watch(t *testing.T, url string, roster Roster, options FleetOptions) *Fleet {
	t.Helper()
	client := NewClient(ClientOptions{})
	options.Every, options.Logger = 2*time.Millisecond, slog.New(slog.DiscardHandler)
	fleet := Watch(client, []Config{{URL: url}}, roster, options)
	t.Cleanup(func() { fleet.Close(); client.Close() })
	return fleet
}

// server is one that can be ill, and that serves another model when it is told to.
type server struct {
	mutex  sync.Mutex
	status int
	models string
	slow   chan struct{} // looks at its health wait for it; nil for none
	missed int           // looks that waited in vain
}

func (s *server) set(change func()) {
	s.mutex.Lock()
	change()
	s.mutex.Unlock()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	status, models, slow := s.status, s.models, s.slow
	s.mutex.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-r.Context().Done():
			s.set(func() { s.missed++ })
		}
	}
	if r.URL.Path == "/health" {
		w.WriteHeader(status)
		return
	}
	_, _ = w.Write([]byte(models))
}

func TestServersComeAndGo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	n := &notes{}
	fleet := watch(t, "http://"+address, n, FleetOptions{Anew: time.Nanosecond})
	eventually(t, "the look at a server that is not there", func() bool { return fleet.State("http://"+address).Problem != "" })

	s := &server{status: 503, models: `{"data":[{"id":"one"}]}`}
	serve := func() *httptest.Server {
		if listener, err = net.Listen("tcp", address); err != nil {
			t.Fatal(err)
		}
		h := httptest.NewUnstartedServer(s)
		h.Listener.Close()
		h.Listener = listener
		h.Start()
		return h
	}
	running := serve()
	eventually(t, "the look at a server that loads", func() bool { return strings.Contains(fleet.State("http://"+address).Problem, "503") })
	s.set(func() { s.status = 200 })
	eventually(t, "the server joins", func() bool { return n.String() == "join one" })
	joined := fleet.State("http://" + address).Server
	s.set(func() { s.models = `{"data":[{"id":"two"}]}` })
	eventually(t, "another model", func() bool { return n.String() == "join one, leave one, join two" })
	if joined.gone.Err() == nil {
		t.Error("streams of the former model go on")
	}
	running.Close()
	eventually(t, "the server is gone", func() bool { return n.String() == "join one, leave one, join two, leave two" })
	running = serve()
	defer running.Close()
	eventually(t, "the server is back", func() bool { return n.String() == "join one, leave one, join two, leave two, join two" })
	fleet.Close()
	if got := n.String(); !strings.HasSuffix(got, "join two, leave two") {
		t.Errorf("at the end: %s", got)
	}
}

func TestOneMissIsForgiven(t *testing.T) {
	s := &server{status: 200, models: `{"data":[{"id":"one"}]}`}
	running := httptest.NewServer(s)
	defer running.Close()
	n := &notes{}
	watch(t, running.URL, n, FleetOptions{Misses: 1 << 30, Patience: 20 * time.Millisecond})
	eventually(t, "the server joins", func() bool { return n.String() == "join one" })
	slow := make(chan struct{})
	s.set(func() { s.slow = slow })
	eventually(t, "misses", func() bool { s.mutex.Lock(); defer s.mutex.Unlock(); return s.missed >= 3 })
	close(slow)
	if got := n.String(); got != "join one" {
		t.Errorf("%s; want a server that stays", got)
	}

	patient := &notes{}
	s.set(func() { s.slow = nil })
	watch(t, running.URL, patient, FleetOptions{Misses: 2, Patience: 20 * time.Millisecond})
	eventually(t, "the server joins", func() bool { return patient.String() == "join one" })
	slow = make(chan struct{})
	defer close(slow)
	s.set(func() { s.slow = slow })
	eventually(t, "the server hangs for long", func() bool { return patient.String() == "join one, leave one" })
}

func TestAServerThatCannotBeUsedIsTriedAgain(t *testing.T) {
	e, err := fakeengine.Start(fakeengine.VLLM, "m", false)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	n := &notes{refuse: errors.New("no card")}
	fleet := watch(t, e.URL(), n, FleetOptions{})
	eventually(t, "the refusal", func() bool { return strings.Contains(fleet.State(e.URL()).Problem, "no card") })
	n.mutex.Lock()
	n.refuse = nil
	n.mutex.Unlock()
	eventually(t, "the server joins", func() bool { return n.String() == "join m" })
}
