package file_test

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
	"signalbox/discovery/file"
	"signalbox/discovery/internal/contract"
	"signalbox/model/card"
)

// tinyTokenizer is the smallest tokenizer.json that the real library loads.
const tinyTokenizer = `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Whitespace"},` +
	`"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"[UNK]":0,"a":1,"b":2},"unk_token":"[UNK]"}}`

func modelDirectory(t *testing.T) string {
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

// A live mock worker of 1.6.1: its files are read without complaint, its card is the one that we would write for the same
// model, its files are found, and when it leaves its records go.
func TestRealWorkerIsSeen(t *testing.T) {
	python := os.Getenv("SIGNALBOX_PYTHON161")
	if python == "" {
		t.Skip("no real worker: set SIGNALBOX_PYTHON161 to a Python that has ai-dynamo 1.6.1")
	}
	model, root := modelDirectory(t), t.TempDir()
	backend := open(t, file.Options{Root: root, OnBadRecord: func(bad discovery.BadRecord) { t.Errorf("a real worker's record is called bad: %v", bad) }})
	watches := make(map[discovery.Bucket]<-chan discovery.Event)
	for _, bucket := range discovery.Buckets() {
		watches[bucket] = contract.Watch(t, backend, bucket, "")
		contract.Expect(t, watches[bucket], discovery.Synced, nil)
	}
	var output bytes.Buffer
	worker := exec.Command(python, "-m", "dynamo.mocker", "--model-path", model, "--model-name", "qwen3", "--num-workers", "1",
		"--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq")
	worker.Env = append(os.Environ(), "DYN_FILE_KV="+root, "HF_HUB_OFFLINE=1")
	worker.Stdout, worker.Stderr = &output, &output
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			worker.Process.Kill()
			worker.Wait()
		}
		if t.Failed() {
			t.Logf("worker's output:\n%s", output.Bytes())
		}
	}()
	next := func(bucket discovery.Bucket) discovery.Event {
		t.Helper()
		select {
		case event := <-watches[bucket]:
			return event
		case <-time.After(90 * time.Second): // Python takes its time to start
			t.Fatalf("nothing came in %s", bucket)
		}
		panic("unreachable")
	}

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

	theirs, err := card.Parse(published.Card)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := card.FromDirectory(model, "qwen3", card.Options{BlockSize: theirs.BlockSize, Runtime: &theirs.Runtime})
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

	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if event := next(discovery.Models); event.Kind != discovery.Delete || event.Key != published.Key() {
		t.Errorf("after the worker's end came %v %s", event.Kind, event.Key)
	}
	worker.Wait()
	ended = true
}
