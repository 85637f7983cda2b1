package card_test

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"lukechampine.com/blake3"

	"signalbox/model/card"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func checksum(content string) string {
	sum := blake3.Sum256([]byte(content))
	return "blake3:" + hex.EncodeToString(sum[:])
}

func put(t *testing.T, content string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// where returns the path that a file resolves to.
func where(t *testing.T, resolver *card.Resolver, file card.File) string {
	t.Helper()
	found, err := resolver.ResolveFile(t.Context(), &card.Card{DisplayName: "org/m"}, file, false)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func offline(cache string) card.Hub { return card.Hub{Cache: cache, Offline: true} }

func TestLocalFilesAreUsedInPlace(t *testing.T) {
	name := put(t, "abc", t.TempDir(), "with space %20", "config.json")
	resolver := &card.Resolver{Hub: offline(t.TempDir()), CacheDir: t.TempDir()}
	if got := where(t, resolver, card.File{Path: name, Checksum: checksum("abc")}); got != name {
		t.Errorf("resolved to %q, want %q", got, name)
	}
	plain := put(t, "abc", t.TempDir(), "config.json")
	if got := where(t, resolver, card.File{Path: "file://" + plain, Checksum: checksum("abc")}); got != plain {
		t.Errorf("resolved to %q, want %q", got, plain)
	}
}

func TestModelPathStandsInForMissingFiles(t *testing.T) {
	directory := t.TempDir()
	name := put(t, "abc", directory, "config.json")
	resolver := &card.Resolver{ModelPath: directory, Hub: offline(t.TempDir())}
	for _, path := range []string{"/not/here/config.json", "hf://org/m/config.json"} {
		if got := where(t, resolver, card.File{Path: path, Checksum: checksum("abc")}); got != name {
			t.Errorf("%s resolved to %q, want %q", path, got, name)
		}
	}
}

func TestHubCache(t *testing.T) {
	cache := t.TempDir()
	old := put(t, "old", cache, "models--org--m", "snapshots", "aaa", "config.json")
	current := put(t, "new", cache, "models--org--m", "snapshots", "bbb", "config.json")
	put(t, "bbb\n", cache, "models--org--m", "refs", "main")
	resolver := &card.Resolver{Hub: offline(cache)}
	if got := where(t, resolver, card.File{Path: "hf://org/m/config.json", Checksum: checksum("new")}); got != current {
		t.Errorf("resolved to %q, want the commit of the main branch", got)
	}
	// A path that only the worker's machine has falls back to the repository that the card names.
	if got := where(t, resolver, card.File{Path: "/not/here/config.json", Checksum: checksum("new")}); got != current {
		t.Errorf("resolved to %q, want %q", got, current)
	}
	if err := os.Remove(filepath.Join(cache, "models--org--m", "refs", "main")); err != nil {
		t.Fatal(err)
	}
	if got := where(t, resolver, card.File{Path: "hf://org/m/config.json", Checksum: checksum("old")}); got != old {
		t.Errorf("without refs resolved to %q, want %q", got, old)
	}
}

func TestHubDownload(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/org/m/resolve/main/sub/config.json" || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, r.URL.Path, http.StatusNotFound)
			return
		}
		w.Write([]byte("abc"))
	}))
	defer server.Close()
	resolver := &card.Resolver{Hub: card.Hub{Cache: t.TempDir(), Endpoint: server.URL, Token: "secret"}, CacheDir: t.TempDir()}
	if got := content(t, where(t, resolver, card.File{Path: "hf://org/m/sub/config.json", Checksum: checksum("abc")})); got != "abc" {
		t.Errorf("content %q", got)
	}
}

func TestURLsAreFetchedOnceAndKeptByContent(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Write([]byte("abc"))
	}))
	defer server.Close()
	cache := t.TempDir()
	resolver := &card.Resolver{CacheDir: cache}
	file := card.File{Path: server.URL + "/v1/metadata/tokenizer.json", Checksum: checksum("abc")}
	blob := where(t, resolver, file)
	if want := filepath.Join(cache, "blobs", file.Digest()); blob != want || content(t, blob) != "abc" {
		t.Errorf("kept as %q, want %q", blob, want)
	}
	where(t, resolver, file)
	if requests != 1 {
		t.Errorf("%d requests for the same content", requests)
	}
	put(t, "damaged", blob)
	if got := content(t, where(t, resolver, file)); got != "abc" || requests != 2 {
		t.Errorf("a damaged copy gave %q after %d requests", got, requests)
	}
}

func TestWrongContentIsRefused(t *testing.T) {
	directory := t.TempDir()
	local := put(t, "abc", directory, "config.json")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("abcdef")) }))
	defer server.Close()
	cache := t.TempDir()
	resolver := &card.Resolver{CacheDir: cache, Hub: offline(t.TempDir())}
	resolve := func(file card.File, custom bool) error {
		_, err := resolver.ResolveFile(t.Context(), &card.Card{DisplayName: "org/m"}, file, custom)
		return err
	}
	if err := resolve(card.File{Path: local, Checksum: checksum("other")}, false); !errors.Is(err, card.ErrChecksum) {
		t.Errorf("local: %v, want ErrChecksum", err)
	}
	if err := resolve(card.File{Path: server.URL, Checksum: checksum("other")}, false); !errors.Is(err, card.ErrChecksum) {
		t.Errorf("fetched: %v, want ErrChecksum", err)
	}
	size := uint64(3)
	if err := resolve(card.File{Path: server.URL, Checksum: checksum("abcdef"), Size: &size}, false); err == nil || !strings.Contains(err.Error(), "3 bytes") {
		t.Errorf("too long: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(cache, "blobs")); len(left) != 0 {
		t.Errorf("refused content stays in the cache: %v", left)
	}
	for path, complaint := range map[string]string{
		"/not/here/config.json":         "not on this machine",
		"hf://org/m/config.json":        "HF_HUB_OFFLINE",
		"hf://m":                        "want hf://",
		"hf://../m/config.json":         "not a repository",
		"hf://org/m/../../../etc/hosts": "leads out of the repository",
		"ftp://h/config.json":           `scheme "ftp"`,
		server.URL[:len(server.URL)-2]:  "fetch",
	} {
		if err := resolve(card.File{Path: path, Checksum: checksum("abc")}, false); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%s: %v, want an error with %q", path, err, complaint)
		}
	}
	if err := resolve(card.File{Path: "/not/here/x.jinja", Checksum: checksum("abc")}, true); err == nil || !strings.Contains(err.Error(), "custom chat template") {
		t.Errorf("custom template: %v", err)
	}
}

func TestAnEndedContextEndsFetching(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	resolver := &card.Resolver{CacheDir: t.TempDir()}
	_, err := resolver.ResolveFile(ctx, &card.Card{}, card.File{Path: server.URL, Checksum: checksum("abc")}, false)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// What our worker publishes has to be what a frontend can use.
func TestFromDirectory(t *testing.T) {
	directory := t.TempDir()
	put(t, `{"text_config":{"max_position_embeddings":4096}}`, directory, "config.json")
	put(t, `{}`, directory, "tokenizer.json")
	put(t, `{"model_max_length":1e30}`, directory, "tokenizer_config.json")
	put(t, `x`, directory, "chat_template.jinja")
	put(t, `{}`, directory, "generation_config.json")
	made, err := card.FromDirectory(directory, "My/Model", card.Options{BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	data, err := made.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	read, err := card.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if read.Checksum() != made.Checksum() {
		t.Error("the checksum changes on the way")
	}
	if read.Slug != "my_model" || read.EffectiveContextLength() != 4096 || read.ContextLength != 4096 ||
		read.Role() != card.AggregatedWorker || read.ModelType != card.Chat|card.Completions {
		t.Errorf("card %s", data)
	}
	files, err := new(card.Resolver).Resolve(t.Context(), read)
	if err != nil {
		t.Fatal(err)
	}
	want := card.Files{
		Config: filepath.Join(directory, "config.json"), Tokenizer: filepath.Join(directory, "tokenizer.json"),
		PromptFormatter: filepath.Join(directory, "tokenizer_config.json"), ChatTemplate: filepath.Join(directory, "chat_template.jinja"),
		GenerationConfig: filepath.Join(directory, "generation_config.json"),
	}
	if files.Config != want.Config || files.Tokenizer != want.Tokenizer || files.PromptFormatter != want.PromptFormatter ||
		files.ChatTemplate != want.ChatTemplate || files.GenerationConfig != want.GenerationConfig {
		t.Errorf("files %+v, want %+v", files, want)
	}
}

func TestFromDirectoryRefuses(t *testing.T) {
	empty, complete := t.TempDir(), t.TempDir()
	put(t, `{}`, complete, "tokenizer.json")
	broken := t.TempDir()
	put(t, `{}`, broken, "tokenizer.json")
	put(t, `{"max_position_embeddings":`, broken, "config.json")
	for _, test := range []struct {
		directory string
		options   card.Options
		complaint string
	}{
		{empty, card.Options{BlockSize: 16}, "no tokenizer"},
		{complete, card.Options{}, "block size"},
		{complete, card.Options{BlockSize: 16, ChatTemplate: filepath.Join(empty, "x.jinja")}, "does not exist"},
		{broken, card.Options{BlockSize: 16}, "config.json"},
	} {
		if _, err := card.FromDirectory(test.directory, "m", test.options); err == nil || !strings.Contains(err.Error(), test.complaint) {
			t.Errorf("got %v, want an error with %q", err, test.complaint)
		}
	}
}
