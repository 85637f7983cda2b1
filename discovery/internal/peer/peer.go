// Package peer starts live mock workers and frontends of the real system for tests of discovery backends.
package peer

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"signalbox/discovery"
	"signalbox/discovery/internal/contract"
	"signalbox/model/card"
)

// patience is how long a test waits for a worker, whose interpreter takes its time to start.
const patience = 90 * time.Second

// tinyTokenizer is the smallest tokenizer.json that the real library loads.
const tinyTokenizer = `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Whitespace"},` +
	`"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"[UNK]":0,"a":1,"b":2},"unk_token":"[UNK]"}}`

// ModelDirectory makes a model that a mock worker can serve.
func ModelDirectory(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	for name, content := range map[string]string{
		"config.json": `{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","vocab_size":3,"eos_token_id":2,"bos_token_id":1,` +
			`"max_position_embeddings":40960,"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,` +
			`"intermediate_size":128,"torch_dtype":"bfloat16"}`,
		"tokenizer.json":         tinyTokenizer,
		"tokenizer_config.json":  `{"tokenizer_class":"PreTrainedTokenizerFast","eos_token":"b"}`,
		"generation_config.json": `{"eos_token_id":[2]}`,
		"chat_template.jinja":    `{{ messages[0].content }}`,
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// process is a running program of the real system.
type process struct {
	command *exec.Cmd
	ended   bool
}

// release is a version of the real system.
type release struct {
	name     string
	variable string // environment variable that names a Python interpreter which has it
	// servedName is the model's name; "" leaves it out, and the model is served by its path.
	servedName string
}

var releases = []release{
	{"1.6.1", "SIGNALBOX_PYTHON161", "qwen3"},
	{"1.6.1 without a name", "SIGNALBOX_PYTHON161", ""},
	// This release's worker names files that do not exist when name and path differ.
	{"1.5.1", "SIGNALBOX_PYTHON151", ""},
}

// eachRelease runs a test with each version that is here.
func eachRelease(t *testing.T, test func(*testing.T, release)) {
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			if os.Getenv(r.variable) == "" {
				t.Skipf("no real system: set %s to a Python that has ai-dynamo %s", r.variable, r.name)
			}
			test(t, r)
		})
	}
}

// start runs a module until the test ends.
func (r release) start(t *testing.T, module string, arguments, environment []string) *process {
	t.Helper()
	output := new(bytes.Buffer)
	p := &process{command: exec.Command(os.Getenv(r.variable), append([]string{"-m", module}, arguments...)...)}
	p.command.Env = append(append(os.Environ(), "HF_HUB_OFFLINE=1"), environment...)
	p.command.Stdout, p.command.Stderr = output, output
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.ended {
			p.command.Process.Kill()
			p.command.Wait()
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", module, output)
		}
	})
	return p
}

// Store is where processes of the real system find each other in a test.
type Store struct {
	// Backend is the name that they know it by.
	Backend string
	// Environment tells them where it is.
	Environment []string
	// WorkerEnded does what the surroundings do when a worker's process has ended; nil: nothing.
	WorkerEnded func()
}

// planes are the flags that worker and frontend have in common.
func (s Store) planes() []string {
	return []string{"--discovery-backend", s.Backend, "--request-plane", "tcp", "--event-plane", "zmq"}
}

// CheckLifeOfWorker starts a mock worker on a discovery backend and follows it with ours: its records are understood, its card
// is the one that we would write for the same model, and when it leaves its records go. newStore makes a store; open connects our
// backend to it, with the hook that a bad record has to be reported to.
func CheckLifeOfWorker(t *testing.T, newStore func(t *testing.T) (store Store, open func(onBad func(discovery.BadRecord)) discovery.Backend)) {
	eachRelease(t, func(t *testing.T, r release) {
		store, open := newStore(t)
		checkLifeOfWorker(t, r, store, open(func(bad discovery.BadRecord) { t.Errorf("a real worker's record is called bad: %v", bad) }))
	})
}

func checkLifeOfWorker(t *testing.T, r release, store Store, backend discovery.Backend) {
	t.Helper()
	model := ModelDirectory(t)
	watches := make(map[discovery.Bucket]<-chan discovery.Event)
	for _, bucket := range discovery.Buckets() {
		watches[bucket] = contract.Watch(t, backend, bucket, "")
		contract.Expect(t, watches[bucket], discovery.Synced, nil)
	}
	next := func(bucket discovery.Bucket) discovery.Event {
		t.Helper()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case event := <-watches[bucket]:
			return event
		case <-timer.C:
			t.Fatalf("nothing came in %s", bucket)
		}
		panic("unreachable")
	}
	arguments := append(store.planes(), "--model-path", model, "--num-workers", "1")
	if r.servedName != "" {
		arguments = append(arguments, "--model-name", r.servedName)
	}
	w := r.start(t, "dynamo.mocker", arguments, store.Environment)

	published := next(discovery.Models).Record.(*discovery.Model)
	instances := make(map[string]*discovery.Instance)
	for len(instances) < 2 {
		instance := next(discovery.Instances).Record.(*discovery.Instance)
		instances[strings.SplitN(instance.Endpoint, "_source", 2)[0]] = instance
	}
	if instances["generate"] == nil || instances["generate"].InstanceID != published.InstanceID || instances["worker_kv_query"] == nil {
		t.Errorf("instances %v", instances)
	}
	source := next(discovery.EventSources).Record.(*discovery.EventSource)
	if source.Metadata.Worker.WorkerID != published.InstanceID || source.Metadata.RecoveryTarget == nil {
		t.Errorf("event source %+v", source)
	}
	if channel := next(discovery.EventChannels).Record.(*discovery.EventChannel); channel.Transport.ZMQ == "" {
		t.Errorf("event channel %+v", channel)
	}
	checkCard(t, r, model, published)

	if err := w.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.command.Wait()
	w.ended = true
	if store.WorkerEnded != nil {
		store.WorkerEnded()
	}
	if event := next(discovery.Models); event.Kind != discovery.Delete || event.Key != published.Key() {
		t.Errorf("after the worker's end came %v %s", event.Kind, event.Key)
	}
}

func checkCard(t *testing.T, r release, model string, published *discovery.Model) {
	t.Helper()
	theirs, err := card.Parse(published.Card)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := card.FromDirectory(model, r.servedName, card.Options{BlockSize: theirs.BlockSize, Runtime: &theirs.Runtime})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(theirs, ours, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the card that we make differs (-theirs +ours):\n%s", diff)
	}
	if theirs.Checksum() != ours.Checksum() {
		t.Error("the cards' checksums differ")
	}
	if _, err := new(card.Resolver).Resolve(t.Context(), theirs); err != nil {
		t.Error(err)
	}
}
