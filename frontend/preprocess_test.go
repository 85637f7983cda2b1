package frontend

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/pipeline"
	"signalbox/worker/builtin"
)

// written loads every card's model from one directory, by way of a card of that directory.
type written struct {
	files     FileLoader
	directory string
	runtime   card.RuntimeConfig
}

func (l *written) Load(ctx context.Context, c *card.Card) (*pipeline.Model, error) {
	full, err := card.FromDirectory(l.directory, c.DisplayName, card.Options{BlockSize: c.BlockSize, Runtime: &l.runtime})
	if err != nil {
		return nil, err
	}
	return l.files.Load(ctx, full)
}

// listener is a worker that keeps the last request and answers with one token.
type listener struct {
	mu   sync.Mutex
	last *inference.Request
}

func (l *listener) Send(_ context.Context, _ inference.Target, r *inference.Request) (inference.Stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = r
	return &oneToken{}, nil
}

func (l *listener) request() *inference.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

type oneToken struct{ sent bool }

func (o *oneToken) Next(context.Context) (*inference.Output, error) {
	if o.sent {
		return nil, io.EOF
	}
	o.sent = true
	return &inference.Output{TokenIDs: []uint32{300}, Finish: inference.FinishLength}, nil
}
func (o *oneToken) Buffered() bool { return true }
func (o *oneToken) Close() error   { return nil }

// templateLoader loads the built-in model with another template and what its worker says at run time.
func templateLoader(t *testing.T, template string, runtime *card.RuntimeConfig) *written {
	t.Helper()
	directory := t.TempDir()
	if err := builtin.Write(directory); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "chat_template.jinja"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	return &written{directory: directory, runtime: *runtime,
		files: FileLoader{Resolver: &card.Resolver{ModelPath: directory, CacheDir: t.TempDir()}, ExcludeToolsWhenNone: true}}
}

// preprocessing starts a frontend whose model is the built-in one with another template.
func preprocessing(t *testing.T, template string, runtime func(*card.RuntimeConfig)) (*fixture, *listener) {
	t.Helper()
	config := card.DefaultRuntimeConfig()
	if runtime != nil {
		runtime(&config)
	}
	loader := templateLoader(t, template, &config)
	f := start(t, func(o *Options) { o.Loader = loader })
	worker := &listener{}
	f.addWorker(worker)
	f.waitReady(1)
	return f, worker
}

// annotated posts a streamed body that asks for the prompt and its tokens, and returns both.
func (f *fixture) annotated(path, body string) (prompt string, tokens []uint32) {
	f.t.Helper()
	status, text := f.post(path, strings.TrimSuffix(body, "}")+`,"stream":true,"nvext":{"annotations":["formatted_prompt","token_ids"]}}`)
	if status != 200 {
		f.t.Fatalf("status %d, %s", status, text)
	}
	event := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		}
		value, ok := strings.CutPrefix(line, ": ")
		if !ok {
			continue
		}
		var content string
		if err := json.Unmarshal([]byte(value), &content); err != nil {
			f.t.Fatalf("annotation %s: %v in %s", event, err, line)
		}
		switch event {
		case "formatted_prompt":
			prompt = content
		case "token_ids":
			if err := json.Unmarshal([]byte(content), &tokens); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	return prompt, tokens
}

const showEverything = `{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if tools %}{{ tools|map(attribute='function')|map(attribute='name')|join(',') }}{% endif %}
{%- if thinking is defined %} thinking={{ thinking }}{% endif %}{% if reasoning_effort is defined %} effort={{ reasoning_effort }}{% endif %}
{%- if own is defined %} own={{ own|tojson }}{% endif %}{% if add_generation_prompt %} go{% endif %}`

func TestChatBodiesBecomePrompts(t *testing.T) {
	f, worker := preprocessing(t, showEverything, nil)
	tools := `"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]`
	for name, c := range map[string]struct{ body, prompt string }{
		"plain":                {`"messages":[{"role":"user","content":"Hi"}]`, `[user:Hi] go`},
		"parts":                {`"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`, "[user:a\nb] go"},
		"null beside calls":    {`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"r"}]`, "[user:Hi][assistant:][tool:r] go"},
		"reasoning":            {`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"yo","reasoning_content":"hm"},{"role":"user","content":"x"}]`, "[user:Hi][assistant:<think>hm</think>yo][user:x] go"},
		"no generation prompt": {`"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false`, `[user:Hi]`},
		"continued":            {`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well, "}],"continue_final_message":true,"add_generation_prompt":false`, `[user:Hi][assistant:Well, `},
		"tools":                {`"messages":[{"role":"user","content":"Hi"}],` + tools, `[user:Hi]f go`},
		"tools forbidden":      {`"messages":[{"role":"user","content":"Hi"}],"tool_choice":"none",` + tools, `[user:Hi] go`},
		"arguments":            {`"messages":[{"role":"user","content":"Hi"}],"chat_template_args":{"own":{"b":1,"a":2.0},"add_generation_prompt":false}`, `[user:Hi] own={"b": 1, "a": 2.0} go`},
		"kwargs":               {`"messages":[{"role":"user","content":"Hi"}],"chat_template_kwargs":{"enable_thinking":false}`, `[user:Hi] thinking=False go`},
		"effort":               {`"messages":[{"role":"user","content":"Hi"}],"reasoning_effort":"low"`, `[user:Hi] thinking=True effort=low go`},
		"thinking":             {`"messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"disabled"}`, `[user:Hi] thinking=False go`},
	} {
		t.Run(name, func(t *testing.T) {
			prompt, tokens := f.annotated("/v1/chat/completions", `{"model":"m",`+c.body+`}`)
			if prompt != c.prompt {
				t.Errorf("prompt %q, want %q", prompt, c.prompt)
			}
			if sent := worker.request().TokenIDs; len(tokens) == 0 || !slices.Equal(tokens, sent) {
				t.Errorf("annotated tokens %v, sent %v", tokens, sent)
			}
		})
	}
}

func TestTokensAndTextInPlaceOfATemplate(t *testing.T) {
	f, worker := preprocessing(t, showEverything, nil)
	post := func(path, body string) *inference.Request {
		t.Helper()
		if status, text := f.post(path, body); status != 200 {
			t.Fatalf("status %d, %s", status, text)
		}
		return worker.request()
	}
	raw := post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"Hello there"}],"nvext":{"use_raw_prompt":true}}`).TokenIDs
	if text := post("/v1/completions", `{"model":"m","prompt":"Hello there"}`).TokenIDs; !slices.Equal(raw, text) || len(text) == 0 {
		t.Errorf("the raw prompt is %v, a completion's %v", raw, text)
	}
	given := post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"ignored"}],"nvext":{"token_data":[7,8,9]}}`).TokenIDs
	if !slices.Equal(given, []uint32{7, 8, 9}) {
		t.Errorf("token_data became %v", given)
	}
	if ids := post("/v1/completions", `{"model":"m","prompt":[4,5,6]}`).TokenIDs; !slices.Equal(ids, []uint32{4, 5, 6}) {
		t.Errorf("a prompt of ids became %v", ids)
	}
	request := post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"nvext":{"annotations":["mine:1","token_ids"]}}`)
	if !slices.Equal(request.Annotations, []string{"mine:1", "token_ids"}) {
		t.Errorf("annotations reach the worker as %v", request.Annotations)
	}
	if len(request.EOSTokenIDs) == 0 || !slices.Equal(request.Stop.HiddenTokenIDs, request.EOSTokenIDs) {
		t.Errorf("end tokens %v, hidden stops %v", request.EOSTokenIDs, request.Stop.HiddenTokenIDs)
	}
	request = post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"ignore_eos":true,"stop":["a"],"stop_token_ids":[5]}`)
	if request.EOSTokenIDs != nil || request.Stop.HiddenTokenIDs != nil || request.Stop.Strings != nil {
		t.Errorf("ignore_eos leaves %v, %v, %v", request.EOSTokenIDs, request.Stop.HiddenTokenIDs, request.Stop.Strings)
	}
}

func TestATemplatesRefusalReachesTheClient(t *testing.T) {
	f, _ := preprocessing(t, `{% if messages[0].role != 'user' %}{{ raise_exception('The first turn must be the user\'s.') }}{% endif %}{{ messages[0].content + none }}`, nil)
	for body, words := range map[string]string{
		`{"model":"m","messages":[{"role":"assistant","content":"x"}]}`: "The first turn must be the user's.",
		`{"model":"m","messages":[{"role":"user","content":"x"}]}`:      "cannot render the conversation",
	} {
		status, text := f.post("/v1/chat/completions", body)
		var answer struct {
			Error struct{ Message, Param string }
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		if status != 400 || answer.Error.Param != "messages" || !strings.Contains(answer.Error.Message, words) {
			t.Errorf("status %d, %s", status, text)
		}
	}
}

func TestTemplateFieldsThatContradict(t *testing.T) {
	f, _ := preprocessing(t, showEverything, nil)
	for body, words := range map[string]string{
		`"continue_final_message":true`:                               "Cannot set both `continue_final_message` and `add_generation_prompt`",
		`"continue_final_message":true,"add_generation_prompt":true`:  "Cannot set both `continue_final_message` and `add_generation_prompt`",
		`"chat_template_args":{"a":1},"chat_template_kwargs":{"a":1}`: "duplicate field",
		`"chat_template_args":[1]`:                                    "chat_template_args",
		`"continue_final_message":true,"add_generation_prompt":false`: "",
	} {
		status, text := f.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],`+body+`}`)
		if words == "" && status != 200 || words != "" && (status != 400 || !strings.Contains(text, words)) {
			t.Errorf("%s: status %d, %s", body, status, text)
		}
	}
}

func TestOutputIsWhatIsLeftOfTheContext(t *testing.T) {
	length := uint32(64)
	f, worker := preprocessing(t, showEverything, func(r *card.RuntimeConfig) { r.ContextLength = &length })
	if status, text := f.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"Hi"}]}`); status != 200 {
		t.Fatalf("status %d, %s", status, text)
	}
	request := worker.request()
	if want := 64 - len(request.TokenIDs); request.Stop.MaxTokens == nil || int(*request.Stop.MaxTokens) != want {
		t.Errorf("max_tokens %v, want %d", request.Stop.MaxTokens, want)
	}
	if status, text := f.post("/v1/responses", `{"model":"m","input":"Hi"}`); status != 200 {
		t.Fatalf("status %d, %s", status, text)
	}
	if got := worker.request().Stop.MaxTokens; got != nil {
		t.Errorf("a Responses request without a length got %d", *got)
	}
}

func TestWhatCannotFitIsRefusedWhereTheWorkerWantsThat(t *testing.T) {
	long := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 100) + `"}]}`
	much := `{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_tokens":1000}`
	for name, c := range map[string]struct {
		budget     string
		long, much int
	}{
		"no budget":      {``, 200, 200},
		"both refused":   {`{"combined_limit":64,"reject_prompt_overflow":true,"reject_total_overflow":true}`, 400, 400},
		"prompt refused": {`{"combined_limit":64,"reject_prompt_overflow":true}`, 400, 200},
		"left to worker": {`{"combined_limit":64}`, 200, 200},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := preprocessing(t, showEverything, func(r *card.RuntimeConfig) {
				length := uint32(64)
				r.ContextLength = &length
				if c.budget != "" {
					r.RuntimeData = map[string]json.RawMessage{"token_budget": json.RawMessage(c.budget)}
				}
			})
			for body, want := range map[string]int{long: c.long, much: c.much} {
				status, text := f.post("/v1/chat/completions", body)
				if status != want {
					t.Errorf("status %d, want %d: %s", status, want, text)
				}
				if want == 400 && !strings.Contains(text, "64") {
					t.Errorf("the answer does not name the limit: %s", text)
				}
			}
		})
	}
}
