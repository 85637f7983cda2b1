package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.etcd.io/etcd/server/v3/embed"

	"signalbox/worker/builtin"
)

// The chaos test runs for SIGNALBOX_CHAOS_SECONDS, 20 without it, and does what the seed SIGNALBOX_CHAOS_SEED says; with an even
// seed requests go over NATS. With
// SIGNALBOX_CHAOS_PEER set it does the same to real frontends and only counts what becomes of the requests.
const (
	chaosWorkers = 4
	chaosClients = 8
	// chaosSteady is how many workers are never touched at one time: there is always another worker to go to.
	chaosSteady = 2
)

// chaos is a fleet of frontends and workers on a store and a bus that come and go.
type chaos struct {
	t      *testing.T
	random *rand.Rand
	words  []uint32
	model  string
	common []string // environment of all

	requestPlane string

	etcdDirectory      string
	etcdClient, etcdMe string // URLs
	etcd               *embed.Etcd
	natsPort           int
	nats               *server.Server

	frontends []*chaosFrontend
	workers   []*child // the ones that serve, by place
	actions   map[string]int

	requests, retried, failed atomic.Int64

	peer     bool // the frontends are real ones: what fails is counted by kind
	mu       sync.Mutex
	problems map[string]int
}

// chaosFrontend is a frontend at a fixed address. While down is set, its requests may fail.
type chaosFrontend struct {
	url   string
	port  int
	args  []string
	child *child
	down  atomic.Bool
}

func chaosNumber(variable string, fallback int) int {
	if value, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return value
	}
	return fallback
}

// TestChaos kills, pauses and restarts workers, rolls rivals with another model card in and out, stops and starts etcd and NATS, and
// restarts frontends, all under constant load. No request may fail that had another worker to go to, no token may be lost or doubled,
// and at the end nothing is booked and no goroutine is left.
func TestChaos(t *testing.T) {
	seed := chaosNumber("SIGNALBOX_CHAOS_SEED", 1)
	duration := time.Duration(chaosNumber("SIGNALBOX_CHAOS_SECONDS", 20)) * time.Second
	t.Logf("seed %d, %v", seed, duration)
	c := newChaos(t, uint64(seed))
	baseline := c.measure()
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for client := range chaosClients {
		wait.Go(func() { c.load(client, stop) })
	}
	for end := time.Now().Add(duration); time.Now().Before(end); {
		c.act()
		c.pause(300, 900)
		c.revive()
	}
	close(stop)
	wait.Wait()
	t.Logf("%d requests, %d retried at the other frontend, %d failed; done: %v", c.requests.Load(), c.retried.Load(), c.failed.Load(), c.actions)
	if c.requests.Load() == 0 {
		t.Error("no request was sent: the test tests nothing")
	}
	if c.peer {
		t.Logf("failed: %v", c.problems)
		return
	}
	c.settle(baseline)
}

// TestTheStoreIsAwayForLongerThanALease stops etcd under load: not one request fails. It is away for SIGNALBOX_ETCD_AWAY_SECONDS, 13
// without it; leases last 10.
func TestTheStoreIsAwayForLongerThanALease(t *testing.T) {
	c := newChaos(t, 1)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for client := range chaosClients {
		wait.Go(func() { c.load(client, stop) })
	}
	c.pause(500, 501)
	c.stopEtcd()
	away := chaosNumber("SIGNALBOX_ETCD_AWAY_SECONDS", 13)
	c.pause(1000*away, 1000*away+1)
	c.startEtcd()
	c.pause(3000, 3001)
	close(stop)
	wait.Wait()
	t.Logf("etcd was away for %d s: %d requests, %d failed", away, c.requests.Load(), c.failed.Load())
	for _, f := range c.frontends {
		eventually(t, "all workers are there", workers(&frontend{url: f.url}, "chaos", chaosWorkers))
	}
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{t: t, random: rand.New(rand.NewPCG(seed, 0)), model: modelDirectory(t), actions: map[string]int{}, problems: map[string]int{},
		peer: os.Getenv("SIGNALBOX_CHAOS_PEER") != "", requestPlane: "tcp"}
	if seed%2 == 0 {
		c.requestPlane = "nats"
	}
	text, err := os.ReadFile(filepath.Join(c.model, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if c.words, err = builtin.Words(text); err != nil {
		t.Fatal(err)
	}
	c.etcdDirectory = t.TempDir()
	c.etcdClient, c.etcdMe = fmt.Sprintf("http://127.0.0.1:%d", freePort(t)), fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	c.startEtcd()
	c.natsPort = freePort(t)
	c.startNATS()
	t.Cleanup(func() {
		c.stopEtcd()
		c.stopNATS()
	})
	c.common = []string{"ETCD_ENDPOINTS=" + c.etcdClient, fmt.Sprintf("NATS_SERVER=nats://127.0.0.1:%d", c.natsPort), "ETCD_LEASE_TTL=10", "DYN_LOG=error",
		"DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS=3", "DYN_TCP_REQUEST_TIMEOUT=2"}
	for range chaosWorkers {
		c.workers = append(c.workers, c.startWorker("--number-tokens"))
	}
	for _, mode := range []string{"kv", "round-robin"} {
		f := &chaosFrontend{port: freePort(t), args: []string{"--router-mode", mode, "--migration-limit", "20"}}
		f.url = fmt.Sprintf("http://127.0.0.1:%d", f.port)
		c.startFrontend(f)
		c.frontends = append(c.frontends, f)
	}
	for _, f := range c.frontends {
		if c.peer {
			(&frontend{url: f.url}).serve(t)
			continue
		}
		eventually(t, "all workers are known", workers(&frontend{url: f.url}, "chaos", chaosWorkers))
	}
	return c
}

func (c *chaos) planes() []string {
	return []string{"--discovery-backend", "etcd", "--request-plane", c.requestPlane, "--event-plane", "nats"}
}

func (c *chaos) startWorker(args ...string) *child {
	all := append([]string{"worker", "--model-name", "chaos", "--model-path", c.model, "--speedup-ratio", "4", "--num-gpu-blocks-override", "2000"}, c.planes()...)
	if !contains(args, "--block-size") {
		all = append(all, "--block-size", "16")
	}
	return start(c.t, append([]string{"DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS=1"}, c.common...), program, append(all, args...)...)
}

func contains(list []string, text string) bool {
	for _, member := range list {
		if member == text {
			return true
		}
	}
	return false
}

func (c *chaos) startFrontend(f *chaosFrontend) {
	args := append([]string{"--http-host", "127.0.0.1", "--http-port", strconv.Itoa(f.port)}, append(c.planes(), f.args...)...)
	if c.peer {
		f.child = start(c.t, c.common, releases(c.t)[0].python, append([]string{"-m", "dynamo.frontend"}, args...)...)
		return
	}
	f.child = start(c.t, c.common, program, append([]string{"frontend"}, args...)...)
}

func (c *chaos) startEtcd() {
	config := embed.NewConfig()
	config.Dir, config.LogLevel = c.etcdDirectory, "fatal"
	local := func(address string) []url.URL {
		parsed, _ := url.Parse(address)
		return []url.URL{*parsed}
	}
	config.ListenClientUrls, config.ListenPeerUrls = local(c.etcdClient), local(c.etcdMe)
	config.AdvertiseClientUrls, config.AdvertisePeerUrls = local(c.etcdClient), local(c.etcdMe)
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	started, err := embed.StartEtcd(config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.etcd = started
	select {
	case <-started.Server.ReadyNotify():
	case <-time.After(patience):
		c.t.Fatal("etcd did not become ready")
	}
}

func (c *chaos) stopEtcd() { c.etcd.Close() }

func (c *chaos) startNATS() {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: c.natsPort, NoSigs: true, NoLog: true})
	if err != nil {
		c.t.Fatal(err)
	}
	go s.Start() // ends with Shutdown
	if !s.ReadyForConnections(patience) {
		c.t.Fatal("NATS did not become ready")
	}
	c.nats = s
}

func (c *chaos) stopNATS() {
	c.nats.Shutdown()
	c.nats.WaitForShutdown()
}

// pause lets the fleet live with what has just happened, for a number of milliseconds.
func (c *chaos) pause(from, to int) {
	time.Sleep(time.Duration(from+c.random.IntN(to-from)) * time.Millisecond)
}

// act does one thing to the fleet, and waits until it is whole again where that is part of it.
func (c *chaos) act() {
	place := c.random.IntN(chaosWorkers - chaosSteady) // the others are never touched
	actions := []struct {
		name string
		do   func()
	}{
		{"kill a worker", func() {
			c.end(place, syscall.SIGKILL)
			c.pause(100, 1500)
			c.workers[place] = c.startWorker("--number-tokens")
		}},
		{"restart a worker", func() {
			c.end(place, syscall.SIGTERM)
			c.workers[place] = c.startWorker("--number-tokens")
		}},
		{"pause a worker", func() {
			c.workers[place].signal(syscall.SIGSTOP)
			c.pause(500, 5000)
			c.workers[place].signal(syscall.SIGCONT)
		}},
		{"a rival comes and goes", func() {
			// Its card is another one and its tokens are not numbered: one request there would be seen.
			rival := c.startWorker("--block-size", "32")
			c.pause(1000, 2500)
			rival.signal(syscall.SIGKILL)
			<-rival.done
		}},
		{"etcd is away", func() {
			c.stopEtcd()
			c.pause(500, 4000)
			c.startEtcd()
		}},
		{"NATS is away", func() {
			c.stopNATS()
			c.pause(500, 4000)
			c.startNATS()
			c.whole()
		}},
		{"NATS is away again and again", func() {
			// Who has just come back finds it gone once more, in the middle of what it does to be whole.
			// All of it is shorter than the ten seconds that a request waits for a bus.
			for range 2 + c.random.IntN(2) {
				c.stopNATS()
				c.pause(200, 1500)
				c.startNATS()
				c.pause(50, 1000)
			}
			c.whole()
		}},
		{"a frontend is killed while NATS is away", func() {
			c.stopNATS()
			c.replace(c.frontends[c.random.IntN(len(c.frontends))], syscall.SIGKILL, func() {
				c.pause(200, 2000)
				c.startNATS()
			})
			c.whole()
		}},
		{"restart a frontend", func() {
			c.replace(c.frontends[c.random.IntN(len(c.frontends))], syscall.SIGTERM, func() {})
		}},
		{"kill a frontend", func() {
			c.replace(c.frontends[c.random.IntN(len(c.frontends))], syscall.SIGKILL, func() {})
		}},
	}
	action := actions[c.random.IntN(len(actions))]
	c.actions[action.name]++
	action.do()
}

// replace ends a frontend and starts it again; meanwhile runs while it starts. Its clients go to the other one until it serves.
func (c *chaos) replace(f *chaosFrontend, how syscall.Signal, meanwhile func()) {
	f.down.Store(true)
	f.child.signal(how)
	<-f.child.done
	c.startFrontend(f)
	meanwhile()
	c.serves(f)
	f.down.Store(false)
}

// serves waits until a frontend serves.
func (c *chaos) serves(f *chaosFrontend) {
	eventually(c.t, "the frontend serves", func() bool {
		status, _, err := (&frontend{url: f.url}).post("/v1/completions", `{"model":"chaos","prompt":[5,6,7],"max_tokens":1}`)
		return err == nil && status == 200
	})
}

// whole waits until both frontends serve, so that two outages of the bus are not one.
func (c *chaos) whole() {
	for _, f := range c.frontends {
		c.serves(f)
	}
}

// revive starts frontends again that ended by themselves, as whoever runs a fleet would. Ours must not.
func (c *chaos) revive() {
	for _, f := range c.frontends {
		select {
		case <-f.child.done:
		default:
			continue
		}
		if !c.peer {
			c.t.Error("a frontend ended by itself")
		}
		c.actions["a frontend ended by itself"]++
		c.startFrontend(f)
	}
}

func (c *chaos) end(place int, how syscall.Signal) {
	c.workers[place].signal(how)
	<-c.workers[place].done
}

// load is one client: it sends one request after the other, each to the next frontend, and checks every token.
func (c *chaos) load(client int, stop <-chan struct{}) {
	random := rand.New(rand.NewPCG(uint64(client), 7))
	for i := client; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		prompt := make([]string, 20+random.IntN(200))
		for j := range prompt {
			prompt[j] = strconv.Itoa(300 + (client*31+j)%1000) // a client's prompts begin alike
		}
		tokens := 20 + random.IntN(120)
		body := fmt.Sprintf(`{"model":"chaos","prompt":[%s],"max_tokens":%d,"stream":true,"stream_options":{"include_usage":true},"nvext":{"extra_fields":["completion_token_ids"]}}`,
			strings.Join(prompt, ","), tokens)
		c.requests.Add(1)
		for try := 0; ; try++ {
			f := c.frontends[(i+try)%len(c.frontends)]
			before := f.down.Load()
			problem := c.ask(f, body, len(prompt), tokens)
			if problem == "" {
				break
			}
			if before || f.down.Load() { // a frontend that ends takes its requests with it: the client goes to the other one
				c.retried.Add(1)
				if try < 50 {
					continue
				}
			}
			c.failed.Add(1)
			c.report(client, i, problem)
			if strings.Contains(problem, "refused") {
				time.Sleep(100 * time.Millisecond) // nobody is there: do not count the same again and again
			}
			break
		}
	}
}

// report takes down a request that failed.
func (c *chaos) report(client, request int, problem string) {
	if !c.peer {
		c.t.Errorf("client %d, request %d: %s", client, request, problem)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems[regexp.MustCompile(`\d+`).ReplaceAllString(problem, "N")]++
}

// ask sends one request and returns what is wrong with the answer; "" for nothing.
func (c *chaos) ask(f *chaosFrontend, body string, prompt, tokens int) string {
	began := time.Now()
	response, err := http.Post(f.url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Sprintf("%s after %v: %s", response.Status, time.Since(began).Round(time.Millisecond), text)
	}
	var got []uint32
	finish, usage, ended := "", 0, false
	scanner := bufio.NewScanner(response.Body)
	for scanner.Scan() {
		data, ok := strings.CutPrefix(scanner.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			ended = true
			continue
		}
		var chunk struct {
			Error   json.RawMessage
			Choices []struct {
				FinishReason string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			NVExt struct {
				IDs []uint32 `json:"completion_token_ids"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return err.Error()
		}
		if chunk.Error != nil {
			return string(chunk.Error)
		}
		got = append(got, chunk.NVExt.IDs...)
		for _, choice := range chunk.Choices {
			finish += choice.FinishReason
		}
		if chunk.Usage != nil {
			if usage = chunk.Usage.Completion; chunk.Usage.Prompt != prompt && !c.peer { // the real one counts replayed tokens as prompt
				return fmt.Sprintf("usage says %d prompt tokens of %d", chunk.Usage.Prompt, prompt)
			}
		}
	}
	if err := scanner.Err(); err != nil {
		return err.Error()
	}
	for i, id := range got {
		if want := c.words[(prompt+i)%len(c.words)]; id != want {
			return fmt.Sprintf("token %d of %d is %d, want %d: one is lost or doubled", i, tokens, id, want)
		}
	}
	if len(got) != tokens || usage != tokens || finish != "length" || !ended {
		return fmt.Sprintf("%d tokens of %d, usage %d, finish %q, ended %v", len(got), tokens, usage, finish, ended)
	}
	return ""
}

// gauges are what a frontend holds: open files stand for connections.
type gauges struct{ goroutines, memory, booked float64 }

var gaugeLines = regexp.MustCompile(`(?m)^(go_goroutines|process_resident_memory_bytes|\w+_worker_active_decode_blocks\{[^}]*\}|\w+_worker_active_prefill_tokens\{[^}]*\}) (\S+)$`)

func (c *chaos) measure() []gauges {
	list := make([]gauges, len(c.frontends))
	for i, f := range c.frontends {
		_, text, _ := get(f.url + "/metrics")
		for _, found := range gaugeLines.FindAllStringSubmatch(text, -1) {
			value, _ := strconv.ParseFloat(found[2], 64)
			switch found[1] {
			case "go_goroutines":
				list[i].goroutines = value
			case "process_resident_memory_bytes":
				list[i].memory = value
			default:
				list[i].booked += value
			}
		}
	}
	return list
}

// settle waits until nothing is left of the load. What a frontend keeps for its four workers and for connections is some goroutines
// each, so that a leak of one for each of the many requests would be seen.
func (c *chaos) settle(baseline []gauges) {
	const spare, memory = 60, 200 << 20
	http.DefaultClient.CloseIdleConnections()
	for _, f := range c.frontends {
		eventually(c.t, "the fleet is whole", workers(&frontend{url: f.url}, "chaos", chaosWorkers))
	}
	eventually(c.t, "nothing is booked and no goroutine is left", func() bool {
		http.DefaultClient.CloseIdleConnections()
		now := c.measure()
		for i := range now {
			if now[i].goroutines == 0 || now[i].goroutines > baseline[i].goroutines+spare || now[i].booked > 0 {
				return false
			}
		}
		return true
	})
	for i, now := range c.measure() {
		c.t.Logf("frontend %d: %.0f goroutines (%.0f at the start), %.0f MiB (%.0f)", i, now.goroutines, baseline[i].goroutines, now.memory/(1<<20), baseline[i].memory/(1<<20))
		if now.memory > baseline[i].memory+memory {
			c.t.Errorf("frontend %d has grown from %.0f to %.0f MiB", i, baseline[i].memory/(1<<20), now.memory/(1<<20))
		}
	}
}
