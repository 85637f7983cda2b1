package card_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/golden"
	"signalbox/model/card"
)

// minimal is a card with nothing but what is required.
const minimal = `{"display_name":"m","slug":"m","kv_cache_block_size":16,"migration_limit":0,"model_type":"Chat","model_input":"Tokens"}`

// with returns minimal with members replaced or added; a nil value removes one.
func with(t *testing.T, members map[string]any) []byte {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(minimal), &all); err != nil {
		t.Fatal(err)
	}
	for name, value := range members {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = value
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A wrong checksum keeps workers out of their set, or lets a stranger in.
func TestChecksumsEqualTheRealOnes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(golden.Dir(t, "request_plane"), "mdcsum_vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name   string          `json:"name"`
		Card   json.RawMessage `json:"card"`
		MDCSum string          `json:"mdcsum"`
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 16 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, vector := range vectors {
		t.Run(vector.Name, func(t *testing.T) {
			parsed, err := card.Parse(vector.Card)
			if err != nil {
				t.Fatal(err)
			}
			if got := parsed.Checksum(); got != vector.MDCSum {
				t.Errorf("checksum %s, want %s", got, vector.MDCSum)
			}
			written, err := parsed.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			again, err := card.Parse(written)
			if err != nil {
				t.Fatal(err)
			}
			if got := again.Checksum(); got != vector.MDCSum {
				t.Errorf("checksum of the card that we write is %s, want %s", got, vector.MDCSum)
			}
		})
	}
}

func TestChecksumCountsRouterConfigBytes(t *testing.T) {
	sum := func(config any) string {
		parsed, err := card.Parse(with(t, map[string]any{"router_config": config}))
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Checksum()
	}
	absent := sum(nil)
	a, b := sum(json.RawMessage(`{"router_mode":"k_v","x":1.0}`)), sum(json.RawMessage(`{"router_mode":"k_v","x":1}`))
	if a == b || a == absent {
		t.Errorf("checksums %s, %s and %s without: all have to differ, for the worker's bytes count", a, b, absent)
	}
	if null := sum(json.RawMessage(`null`)); null != absent {
		t.Errorf("null gives %s, absent %s", null, absent)
	}
	if spaced := sum(json.RawMessage(`{ "router_mode" : "k_v", "x": 1 }`)); spaced != b {
		t.Errorf("white space counts: %s and %s", spaced, b)
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	badFile := map[string]any{"hf_config_json": map[string]any{"path": "/m/config.json", "checksum": "blake3:12"}}
	for _, test := range []struct {
		name      string
		members   map[string]any
		complaint string
	}{
		{"no name", map[string]any{"display_name": nil}, `"display_name" is missing`},
		{"empty name", map[string]any{"display_name": ""}, `"display_name" is empty`},
		{"no slug", map[string]any{"slug": nil}, `"slug" is missing`},
		{"no block size", map[string]any{"kv_cache_block_size": nil}, `"kv_cache_block_size" is missing`},
		{"null block size", map[string]any{"kv_cache_block_size": json.RawMessage("null")}, `"kv_cache_block_size" is missing`},
		{"no migration limit", map[string]any{"migration_limit": nil}, `"migration_limit" is missing`},
		{"no type", map[string]any{"model_type": nil}, `"model_type" is missing`},
		{"no input", map[string]any{"model_input": nil}, `"model_input" is missing`},
		{"slug", map[string]any{"slug": "A/b"}, `"slug" is "A/b"`},
		{"input", map[string]any{"model_input": "Pixels"}, "want Text, Tokens or Tensor"},
		{"worker type", map[string]any{"worker_type": "boss"}, "want prefill, decode, encode or aggregated"},
		{"needs", map[string]any{"needs": []any{[]any{"boss"}}}, "want prefill, decode, encode or aggregated"},
		{"block size type", map[string]any{"kv_cache_block_size": "16"}, "kv_cache_block_size"},
		{"negative block size", map[string]any{"kv_cache_block_size": -1}, "kv_cache_block_size"},
		{"runtime type", map[string]any{"runtime_config": map[string]any{"max_num_seqs": "x"}}, "max_num_seqs"},
		{"checksum", map[string]any{"model_info": badFile}, "want blake3: and 64 hex digits"},
		{"artifact kind", map[string]any{"tokenizer": map[string]any{"sentencepiece": 1}}, `kind "sentencepiece"`},
		{"artifact shape", map[string]any{"tokenizer": map[string]any{}}, "one member"},
		{"prompt context", map[string]any{"prompt_context": []any{"x"}}, "want oai_chat or llama3_date_time"},
		{"nameless adapter", map[string]any{"lora": map[string]any{}}, `"lora" has no name`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := card.Parse(with(t, test.members))
			if err == nil || !strings.Contains(err.Error(), test.complaint) {
				t.Errorf("got %v, want an error with %q", err, test.complaint)
			}
		})
	}
	for _, data := range []string{``, `[]`, `{`, `null`, `"x"`} {
		if _, err := card.Parse([]byte(data)); err == nil {
			t.Errorf("%q was accepted", data)
		}
	}
}

func TestParseIsLenient(t *testing.T) {
	parsed, err := card.Parse(with(t, map[string]any{
		"model_type":         "Chat | Hologram|Completions",
		"tomorrow":           map[string]any{"a": 1},
		"runtime_config":     map[string]any{"enable_eagle": true, "brand_new": 3, "data_parallel_size": json.RawMessage("null")},
		"worker_type":        json.RawMessage("null"),
		"media_decoder":      json.RawMessage("null"),
		"chat_template_file": map[string]any{"hf_chat_template_jinja": map[string]any{"is_custom": true, "file": map[string]any{"path": "/x.jinja", "checksum": "blake3:" + strings.Repeat("AB", 32)}}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if parsed.ModelType != card.Chat|card.Completions {
		t.Errorf("model type %v", parsed.ModelType)
	}
	want := card.DefaultRuntimeConfig()
	want.Eagle = true
	if diff := cmp.Diff(want, parsed.Runtime); diff != "" {
		t.Errorf("members that a card leaves out have other values than the defaults (-want +got):\n%s", diff)
	}
	template := parsed.ChatTemplateFile
	if template.Kind != card.ChatTemplateJinja || !template.Custom || template.File.Digest() != strings.Repeat("ab", 32) {
		t.Errorf("chat template %+v", template)
	}
	if parsed.MediaDecoder != nil || parsed.WorkerType != "" {
		t.Errorf("null is not absent: %+v", parsed)
	}
}

func TestModelTypeText(t *testing.T) {
	all := "Chat | Completions | Embedding | TensorBased | Prefill | Images | Audios | Videos | Realtime | Classify | Pooling"
	var read card.ModelType
	if err := read.UnmarshalText([]byte(all)); err != nil {
		t.Fatal(err)
	}
	if read.String() != all {
		t.Errorf("%q became %q", all, read)
	}
	if err := read.UnmarshalText(nil); err != nil || read != 0 || read.String() != "" {
		t.Errorf("the empty set became %q, %v", read, err)
	}
}

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"/models/x": "models_x", "Qwen/Qwen3-0.6B": "qwen_qwen3-0_6b", "a_b-c": "a_b-c", "___": "", "né": "n_",
	} {
		if got := card.Slug(name); got != want {
			t.Errorf("Slug(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestRole(t *testing.T) {
	for _, test := range []struct {
		worker card.WorkerType
		model  card.ModelType
		want   card.WorkerType
	}{
		{"", card.Chat, card.AggregatedWorker},
		{"", card.Prefill, card.PrefillWorker},
		{card.DecodeWorker, card.Chat, card.DecodeWorker},
		{card.EncodeWorker, card.Prefill, card.EncodeWorker},
	} {
		c := card.Card{WorkerType: test.worker, ModelType: test.model}
		if got := c.Role(); got != test.want {
			t.Errorf("role of %q with %v is %q, want %q", test.worker, test.model, got, test.want)
		}
	}
}

func TestEffectiveContextLength(t *testing.T) {
	number := func(n uint32) *uint32 { return &n }
	for _, test := range []struct {
		runtime, architectural *uint32
		legacy, want           uint32
	}{
		{number(0), number(40960), 5, 0}, // what the mock worker says: no limit known
		{number(7), number(40960), 5, 7},
		{nil, number(40960), 5, 40960},
		{nil, nil, 5, 5},
		{nil, nil, 0, 0},
	} {
		c := card.Card{ArchitecturalContextLength: test.architectural, ContextLength: test.legacy}
		c.Runtime.ContextLength = test.runtime
		if got := c.EffectiveContextLength(); got != test.want {
			t.Errorf("%+v gives %d", test, got)
		}
	}
}

// A worker must not be able to stop the frontend with a card.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(`{"display_name":"m","slug":"m","kv_cache_block_size":16,"migration_limit":0,"model_type":"","model_input":"Text",` +
		`"tokenizer":{"hf_tokenizer_json":{"path":"hf://a/b/c","checksum":"blake3:0000000000000000000000000000000000000000000000000000000000000000"}},` +
		`"needs":[["prefill"],[]],"prompt_context":[],"indexer_identity":{"semantics":{"a":"b"}},"router_config":{"a":[1.50]},"aliases":["x"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := card.Parse(data)
		if err != nil {
			return
		}
		written, err := parsed.Marshal()
		if err != nil {
			t.Fatalf("a card that was read can't be written: %v", err)
		}
		again, err := card.Parse(written)
		if err != nil {
			t.Fatalf("what was written can't be read: %v\n%s", err, written)
		}
		if again.Checksum() != parsed.Checksum() {
			t.Fatalf("writing changes the checksum:\n%s\n%s", data, written)
		}
	})
}
