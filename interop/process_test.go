package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"signalbox/worker/builtin"
)

// program is the built product; TestMain makes it.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		directory, err := os.MkdirTemp("", "signalbox-interop-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(directory)
		program = filepath.Join(directory, "signalbox")
		build := exec.Command("go", "build", "-o", program, "signalbox/cmd/signalbox")
		if output, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, output)
			return 1
		}
		return m.Run()
	}())
}

// patience bounds every wait: an interpreter with the peers takes seconds to start.
const patience = 90 * time.Second

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-ticker.C {
		if condition() {
			return
		}
	}
	t.Fatalf("it did not happen in %v: %s", patience, what)
}

// lockedBuffer collects what a process prints.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// child is a program under test, ended with the test.
type child struct {
	command *exec.Cmd
	output  *lockedBuffer
	done    chan struct{}
}

func start(t *testing.T, environment []string, name string, args ...string) *child {
	t.Helper()
	c := &child{command: exec.Command(name, args...), output: &lockedBuffer{}, done: make(chan struct{})}
	c.command.Env = append(os.Environ(), append([]string{"HF_HUB_OFFLINE=1", "DYN_LOG=warn"}, environment...)...)
	c.command.Stdout, c.command.Stderr = c.output, c.output
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(c.done)
		_ = c.command.Wait()
	}()
	t.Cleanup(func() {
		c.signal(syscall.SIGTERM)
		select {
		case <-c.done:
		case <-time.After(15 * time.Second):
			c.signal(syscall.SIGKILL)
			<-c.done
		}
		if t.Failed() {
			text := c.output.String()
			t.Logf("%s %s:\n%s", filepath.Base(name), strings.Join(args[:min(2, len(args))], " "), text[max(0, len(text)-3000):])
		}
	})
	return c
}

func (c *child) signal(s os.Signal) { _ = c.command.Process.Signal(s) }

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// release is a version of the peers.
type release struct {
	name, python string
	// servedName is the name that workers are given; "" serves the model by its path, which is all that 1.5.1 can do.
	servedName string
}

// releases returns the peers that are here.
func releases(t *testing.T) []release {
	t.Helper()
	var list []release
	if python := os.Getenv("SIGNALBOX_PYTHON161"); python != "" {
		list = append(list, release{"1.6.1", python, "interop"})
	}
	if python := os.Getenv("SIGNALBOX_PYTHON151"); python != "" {
		list = append(list, release{"1.5.1", python, ""})
	}
	if len(list) == 0 {
		t.Skip("no Dynamo peers: set SIGNALBOX_PYTHON161 and SIGNALBOX_PYTHON151, or run make test")
	}
	return list
}

// modelDirectory holds the built-in model.
func modelDirectory(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	if err := builtin.Write(directory); err != nil {
		t.Fatal(err)
	}
	writeConfig(t, directory, 4099, 4098, 4096)
	return directory
}

// writeConfig makes a directory a model's. A mock worker sizes its engine by the model's configuration: any small model will do.
func writeConfig(t *testing.T, directory string, vocabulary, eos, bos int) {
	t.Helper()
	config := fmt.Sprintf(`{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","vocab_size":%d,"eos_token_id":%d,"bos_token_id":%d,"max_position_embeddings":40960,
		"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"intermediate_size":128,"torch_dtype":"bfloat16"}`,
		vocabulary, eos, bos)
	if err := os.WriteFile(filepath.Join(directory, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
}

// frontend is a running frontend, ours or theirs.
type frontend struct {
	*child
	url string
}

func startOurs(t *testing.T, store store, args ...string) *frontend {
	t.Helper()
	port := freePort(t)
	args = append([]string{"frontend", "--http-host", "127.0.0.1", "--http-port", strconv.Itoa(port)}, append(store.flags(), args...)...)
	return &frontend{start(t, store.environment(), program, args...), fmt.Sprintf("http://127.0.0.1:%d", port)}
}

func startTheirs(t *testing.T, r release, store store, args ...string) *frontend {
	t.Helper()
	port := freePort(t)
	args = append([]string{"-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", strconv.Itoa(port)}, append(store.flags(), args...)...)
	// On two processors its two threads can wait for each other while it registers with NATS, before it has answered anything.
	environment := append(store.environment(), "DYN_RUNTIME_NUM_WORKER_THREADS=8")
	return &frontend{start(t, environment, r.python, args...), fmt.Sprintf("http://127.0.0.1:%d", port)}
}

// startMocker starts the real mock worker.
func startMocker(t *testing.T, r release, store store, model string, args ...string) *child {
	t.Helper()
	all := append([]string{"-m", "dynamo.mocker", "--model-path", model}, store.flags()...)
	if r.servedName != "" {
		all = append(all, "--model-name", r.servedName)
	}
	return start(t, store.environment(), r.python, append(all, args...)...)
}

// models lists what the frontend serves.
func (f *frontend) models() []string {
	client := http.Client{Timeout: patience / 3}
	response, err := client.Get(f.url + "/v1/models")
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	var list struct{ Data []struct{ ID string } }
	if json.NewDecoder(response.Body).Decode(&list) != nil {
		return nil
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names
}

// post sends a request; err is set when there was no answer at all.
func (f *frontend) post(path, body string) (status int, text string, err error) {
	return f.postWithin(patience, path, body)
}

// postWithin sends a request whose answer may take no longer than that.
func (f *frontend) postWithin(limit time.Duration, path, body string) (status int, text string, err error) {
	return postWithin(limit, f.url+path, body)
}

func postWithin(limit time.Duration, url, body string) (status int, text string, err error) {
	client := http.Client{Timeout: limit}
	response, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// serve waits until the model answers, and returns its name.
func (f *frontend) serve(t *testing.T) string {
	t.Helper()
	name := ""
	eventually(t, "a model answers", func() bool {
		names := f.models()
		if len(names) == 0 {
			return false
		}
		name = names[0]
		status, _, err := f.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"ready","max_tokens":1}`, name))
		return err == nil && status == http.StatusOK
	})
	return name
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
