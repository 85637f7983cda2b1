package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// templateWithMedia renders media parts as one token each, as vision models' templates do.
const templateWithMedia = `{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% else %}<|image_pad|>{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}<|im_start|>assistant
`

// TestWorkersAreAskedAlike sends the same requests through the real frontend and ours to a worker that writes down what it is asked.
func TestWorkersAreAskedAlike(t *testing.T) {
	peer := releases(t)[0]
	if peer.name != "1.6.1" {
		t.Skip("the requests are compared with those of 1.6.1")
	}
	model, s := qwenDirectory(t), fileStore(t)
	var config map[string]any
	path := filepath.Join(model, "tokenizer_config.json")
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	config["chat_template"] = templateWithMedia
	if text, err = json.Marshal(config); err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(t.TempDir(), "requests")
	environment := append(s.environment(), "DYN_DISCOVERY_BACKEND=file", "DYN_REQUEST_PLANE=tcp", "DYN_EVENT_PLANE=zmq")
	start(t, environment, peer.python, filepath.Join("clients", "capture_worker.py"), model, "capture", written, `{"context_length":4096}`)
	theirs, ours := startTheirs(t, peer, s, "--enable-anthropic-api"), startOurs(t, s, "--enable-anthropic-api")
	waitForModels(t, theirs, "capture")
	waitForModels(t, ours, "capture")
	const chat = `{"model":"capture","max_tokens":3,"messages":[{"role":"user","content":`
	const open = `{"model":"capture","messages":[{"role":"user","content":`
	const words = `"hi"}]`
	for _, c := range [][2]string{
		{"/v1/chat/completions", chat + words + `,"allowed_token_ids":[1],"bad_words_token_ids":[[1]],"logprob_token_ids":[2],"detokenize":true,"cache_salt":"s"}`},
		{"/v1/chat/completions", chat + words + `,"logit_bias":{"5":1.5},"user":"u","seed":-3,"top_k":5,"min_p":0.25,"n":2,"temperature":0.5,"frequency_penalty":1}`},
		{"/v1/chat/completions", chat + words + `,"logprobs":true,"top_logprobs":3,"prompt_logprobs":2,"stop":["a"],"min_tokens":1,"ignore_eos":false}`},
		{"/v1/chat/completions", chat + words + `,"response_format":{"type":"json_object"}}`},
		{"/v1/chat/completions", chat + words + `,"guided_regex":"a+","nvext":{"agent_hints":{"priority":3,"osl":9},"cache_salt":"t","extra_fields":["timing"],"annotations":["mine"]}}`},
		{"/v1/chat/completions", chat + `[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}`},
		{"/v1/chat/completions", chat + `[{"type":"audio_url","audio_url":{"url":"http://127.0.0.1:9/a"}},{"type":"video_url","video_url":{"url":"http://127.0.0.1:9/v"}}]}],"mm_processor_kwargs":{"a":1},"media_io_kwargs":{"video":{"n":1}}}`},
		{"/v1/chat/completions", chat + `[{"type":"image_url","image_url":{"url":"http://127.0.0.1:9/i","detail":"low"},"uuid":"me"}]}]}`},
		{"/v1/chat/completions", open + `[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}`},
		{"/v1/chat/completions", open + `[{"type":"audio_url","audio_url":{"url":"http://127.0.0.1:9/a"}}]}]}`},
		{"/v1/completions", `{"model":"capture","prompt":"x","max_tokens":3,"echo":true,"n":2,"best_of":3,"suffix":"s"}`},
		{"/v1/completions", `{"model":"capture","prompt":[1,2,3],"max_tokens":3,"echo":true,"logprobs":2}`},
		{"/v1/responses", `{"model":"capture","input":"x","max_output_tokens":3}`},
		{"/v1/responses", `{"model":"capture","input":[{"role":"user","content":[{"type":"input_text","text":"what"},{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo=","detail":"auto"}]}],"max_output_tokens":3}`},
		{"/v1/messages", `{"model":"capture","max_tokens":3,"messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}]}`},
		{"/v1/responses", `{"model":"capture","input":"x","max_output_tokens":3,"nvext":{"extra_fields":["timing","engine_data"],"token_data":[1,2]}}`},
		{"/v1/messages", `{"model":"capture","max_tokens":3,"messages":[{"role":"user","content":"x"}],"nvext":{"extra_fields":["timing","engine_data"]}}`},
		{"/v1/messages", `{"model":"capture","max_tokens":3,"system":"s","messages":[{"role":"user","content":"x"}],"stop_sequences":["a"],"top_k":3}`},
	} {
		real, mine := asked(t, theirs, written, c), asked(t, ours, written, c)
		withoutDifferences(real, mine)
		for name := range mine {
			if _, has := real[name]; !has && mine[name] != nil {
				t.Errorf("%s: %s is ours alone: %v", c[1], name, mine[name])
			}
		}
		for name, want := range real {
			if !reflect.DeepEqual(mine[name], want) {
				t.Errorf("%s: %s is\n%v, theirs is\n%v", c[1], name, mine[name], want)
			}
		}
	}
}

// asked sends a request and returns what the worker wrote down of it.
func asked(t *testing.T, f *frontend, written string, request [2]string) map[string]any {
	t.Helper()
	before := lines(written)
	if status, text, err := f.post(request[0], request[1]); err != nil || status != 200 {
		t.Fatalf("%s: %d %s %v", request[1], status, text, err)
	}
	after := lines(written)
	if len(after) != len(before)+1 {
		t.Fatalf("%s: the worker wrote down %d requests", request[1], len(after)-len(before))
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(after[len(after)-1]), &members); err != nil {
		t.Fatal(err)
	}
	return members
}

func lines(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// withoutDifferences takes out what is known to differ: logit_bias, which only ours passes on, and members of the conversation that
// are spelled out as null.
func withoutDifferences(real, mine map[string]any) {
	if extra, ok := mine["extra_args"].(map[string]any); ok {
		if sampling, ok := extra["sampling_options"].(map[string]any); ok {
			delete(sampling, "logit_bias")
			if len(sampling) == 0 {
				delete(extra, "sampling_options")
			}
		}
		if len(extra) == 0 {
			mine["extra_args"] = nil
		}
	}
	if extra, ok := real["extra_args"].(map[string]any); ok {
		dropNulls(extra["messages"])
		if len(extra) == 0 {
			delete(real, "extra_args")
		}
	}
}

func dropNulls(value any) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			dropNulls(element)
		}
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			}
			dropNulls(member)
		}
	}
}
