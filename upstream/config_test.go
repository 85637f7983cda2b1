package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestServersOfWords(t *testing.T) {
	folder := t.TempDir()
	got, err := Source{Words: []string{"http://a:8000, http://b:8000/v1/?kind=vllm&model=m&name=n&tokenizer=" + folder + "&kv_events=5557&kv_replay=tcp://b:5558&ranks=2&context_length=4096&block_size=32&blocks=100",
		"https://c/base?serves=embeddings"}, Tokenizer: folder}.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := []Config{
		{URL: "http://a:8000", Tokenizer: folder},
		{URL: "http://b:8000", Kind: VLLM, Model: "m", Name: "n", Tokenizer: folder, Events: "tcp://b:5557", Replay: "tcp://b:5558", Ranks: 2, ContextLength: 4096, BlockSize: 32, Blocks: 100},
		{URL: "https://c/base", Serves: "embeddings"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if events, replay := got[1].EventsOf(1); events != "tcp://b:5558" || replay != "tcp://b:5559" {
		t.Errorf("rank 1 publishes at %s and %s", events, replay)
	}
}

func TestServersOfAFile(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "servers.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("defaults:\n  tokenizer: " + folder + "\n  kind: vllm\nservers:\n- url: http://a:1\n  kv_events: \"5557\"\n- url: http://b:1\n  kind: sglang\n  ranks: 3\n")
	got, err := Source{Words: []string{"http://c:1"}, File: name}.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := []Config{{URL: "http://c:1"}, {URL: "http://a:1", Kind: VLLM, Tokenizer: folder, Events: "tcp://a:5557"}, {URL: "http://b:1", Kind: SGLang, Tokenizer: folder, Ranks: 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for text, says := range map[string]string{
		"servers: []\n": "servers is empty",
		"servers:\n- url: http://a:1\n  port: 3\n":       "port",
		"defaults:\n  url: http://a:1\nservers:\n- {}\n": "defaults.url",
		"servers:\n- kind: vllm\n":                       "servers[0]: url is \"\"",
		"servers:\n- url: http://c:1\n":                  "named twice",
		"servers:\n- url: http://a:1\n  ranks: many\n":   "ranks",
		"nonsense": "want defaults and servers",
	} {
		write(text)
		if _, err := (Source{Words: []string{"http://c:1"}, File: name}).Read(); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v; want the file and %q", text, err, says)
		}
	}
}

func TestWrongServersAreNamed(t *testing.T) {
	for word, says := range map[string]string{
		"localhost:8000":                      "want http://host:port",
		"ftp://a":                             "want http://host:port",
		"http://user:secret@a":                "api_key_env",
		"http://a?colour=red":                 `unknown option "colour"; known are kind, model`,
		"http://a?kind=tgi":                   "want vllm, sglang, llamacpp or openai",
		"http://a?kind=vllm&kind=vllm":        "must stand there once",
		"http://a?ranks=-1":                   "want a whole number",
		"http://a?ranks=5000":                 "want at most 1024",
		"http://a?kv_events=5557":             "without a tokenizer",
		"http://a?kv_events=udp://x":          "want tcp://host:port",
		"http://a?kv_replay=5557":             "without kv_events",
		"http://a?tokenizer=/does/not/exist":  "directory",
		"http://a?tool_call_parser=hermes":    "need a tokenizer",
		"http://a?serves=poems":               "chat, completions and embeddings",
		"http://a?api_key_env=NOT_SET_ANYHOW": "not set",
		"http://a,http://a/v1":                "named twice",
		"http://a?model=m,http://a/?model=m":  "named twice",
	} {
		if _, err := (Source{Words: []string{word}}).Read(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", word, err, says)
		} else if strings.Contains(err.Error(), "secret@") && strings.Contains(err.Error(), "url is") && strings.Count(err.Error(), "secret") > 1 {
			t.Errorf("%s: the password is told: %v", word, err)
		}
	}
}

func TestOneServerMayHaveSeveralModels(t *testing.T) {
	got, err := Source{Words: []string{"http://a?model=m", "http://a?model=n"}}.Read()
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	if newServer(got[0], About{}).ID == newServer(got[1], About{}).ID {
		t.Error("two models of a server are one worker")
	}
}

func TestTokenizersAreLocated(t *testing.T) {
	folder := t.TempDir()
	source := Source{Words: []string{"http://a?tokenizer=org/model"}, Locate: func(name string) string {
		if name == "org/model" {
			return folder
		}
		return ""
	}}
	if got, err := source.Read(); err != nil || got[0].Tokenizer != folder {
		t.Errorf("%+v, %v", got, err)
	}
	source.Words = []string{"http://a?tokenizer=org/other"}
	if _, err := source.Read(); err == nil || !strings.Contains(err.Error(), "org/other") {
		t.Errorf("a tokenizer that is nowhere: %v", err)
	}
}

// The file that operators are shown is a good one.
func TestTheOperationsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Plain servers\n")
	_, text, _ = strings.Cut(text, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	folder := t.TempDir()
	name := filepath.Join(folder, "servers.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPU2_KEY", "x")
	got, err := Source{File: name, Locate: func(string) string { return folder }}.Read()
	if err != nil || len(got) != 2 || got[0].Replay != "tcp://gpu-1:5558" || got[1].Events != "tcp://gpu-2:5557" || got[1].KeyEnv != "GPU2_KEY" {
		t.Errorf("%+v, %v", got, err)
	}
}
