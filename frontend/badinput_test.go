package frontend

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/model/card"
	"signalbox/pipeline"
	"signalbox/worker/builtin"
)

// refusal is what a client sees of a mistake: the flat body and the object for SDKs.
type refusal struct {
	Message, Type string
	Code          int
	Error         struct{ Message, Type, Param string }
}

// mistake posts a body that is wrong and checks that the answer is one clear error of the status that names the field; "" for
// mistakes that belong to none.
func (f *fixture) mistake(name, path, body string, status int, field string) {
	f.t.Helper()
	got, text := f.post(path, body)
	var r refusal
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		f.t.Errorf("%s: status %d, no JSON: %.200q", name, got, text)
		return
	}
	named := r.Error.Param == field || field != "" && (strings.HasPrefix(r.Error.Param, field+".") || strings.HasPrefix(r.Error.Param, field+"["))
	if got != status || r.Code != status || r.Message == "" || r.Type == "" || r.Error.Message == "" || !named {
		f.t.Errorf("%s: status %d, field %q, want %d and %q: %.300s", name, got, r.Error.Param, status, field, text)
	}
}

// alive checks that a good request is still served.
func (f *fixture) alive() {
	f.t.Helper()
	if status, text := f.post("/v1/chat/completions", fmt.Sprintf(chatBody, "")); status != 200 {
		f.t.Errorf("a good request: status %d, %s", status, text)
	}
}

// TestBodiesThatAreNoRequests sends what is no JSON, or none that fits, to every route that takes a body.
func TestBodiesThatAreNoRequests(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	deep := func(open, shut string) string { return strings.Repeat(open, 4000) + "1" + strings.Repeat(shut, 4000) }
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"} {
		for name, body := range map[string]string{
			"nothing": "", "spaces": "  \n", "half an object": `{"model":"m"`, "words": "hello", "single quotes": `{'model':'m'}`, "no key": `{1:2}`,
			"comma at the end": `{"model":"m",}`, "two values": `{"model":"m"} {"model":"m"}`, "comment": `{"model":"m"/**/}`,
			"list": `[]`, "text": `"model"`, "number": `17`, "null": `null`, "bytes": "\x00\x01\x02", "NaN": `NaN`,
			"other encoding": "\xff\xfe{\x00}\x00", "byte order mark": "\xef\xbb\xbf{}",
		} {
			f.mistake(path+" "+name, path, body, 400, "")
		}
		for name, test := range map[string]struct{ body, field string }{
			"given twice":          {`{"model":"m","model":"n"}`, "model"},
			"given twice, escaped": {`{"model":"m","mod\u0065l":"n"}`, "model"},
			"twice further in":     {`{"model":"m","metadata":{"a":1,"a":2}}`, "metadata"},
			"lone high surrogate":  {`{"model":"\ud83d"}`, "model"},
			"lone low surrogate":   {`{"model":"\ude00"}`, "model"},
			"high twice":           {`{"model":"\ud83d\ud83d"}`, "model"},
			"escape cut off":       {`{"model":"\u00"}`, "model"},
			"unknown escape":       {`{"model":"\x41"}`, "model"},
			"deep list":            {`{"model":` + deep("[", "]") + `}`, "model"},
			"deep object":          {`{"model":` + deep(`{"a":`, "}") + `}`, "model"},
			"number out of range":  {`{"model":1e999}`, "model"},
			"long number":          {`{"model":` + strings.Repeat("9", 400) + `}`, "model"},
			"leading zero":         {`{"model":01}`, ""},
			"plus":                 {`{"model":+1}`, "model"},
			"hexadecimal":          {`{"model":0x10}`, ""},
			"no fraction":          {`{"model":1.}`, "model"},
			"cut off in a value":   {`{"model":"m`, "model"},
			"no value":             {`{"model":}`, "model"},
		} {
			f.mistake(path+" "+name, path, test.body, 400, test.field)
		}
	}
	f.alive()
}

// TestEveryFieldHasAType gives every member of a request a value of every JSON type. What the member's type does not allow is a
// mistake that names the member; what it allows never fails for its type.
func TestEveryFieldHasAType(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	const (
		text    = "text"
		whole   = "whole"  // not negative
		signed  = "signed" // negative too
		number  = "number"
		truth   = "truth"
		object  = "object"
		list    = "list"
		huge    = "huge"    // no integer type holds it
		beyond  = "beyond"  // no number type holds it
		choice  = "choice"  // a text, or a list
		any     = "any"     // whatever can be said at all
		words   = "words"   // texts of its own, none of those here
		refused = "refused" // refused by name
	)
	samples := map[string][]string{text: {`"a"`}, whole: {`1`}, signed: {`-1`}, number: {`1.5`}, truth: {`true`, `false`}, object: {`{}`, `{"a":1}`},
		list: {`[]`, `["a"]`, `[{}]`, `[null]`}, huge: {`99999999999999999999`}, beyond: {`1e400`, `-1e400`}}
	fits := map[string][]string{text: {text}, whole: {whole}, signed: {whole, signed}, number: {whole, signed, number, huge}, truth: {truth}, object: {object},
		list: {list}, choice: {text, list}, any: {text, whole, signed, number, truth, object, list, huge}}
	shared := map[string]string{"model": text, "max_tokens": whole, "temperature": number, "top_p": number, "n": whole, "stream": truth,
		"stream_options": object, "stop": choice, "presence_penalty": number, "frequency_penalty": number, "logit_bias": object, "user": text,
		"seed": signed, "metadata": object, "ignore_eos": truth, "min_tokens": whole, "top_k": signed, "min_p": number, "repetition_penalty": number,
		"include_stop_str_in_output": truth, "skip_special_tokens": truth, "prompt_logprobs": whole, "guided_regex": text, "guided_grammar": text,
		"guided_choice": list, "guided_decoding_backend": text, "guided_whitespace_pattern": text, "return_tokens_as_token_ids": truth, "nvext": object,
		"cache_salt": text, "stop_token_ids": list, "allowed_token_ids": list, "logprob_token_ids": list, "bad_words_token_ids": list, "detokenize": truth,
		"response_format": object, "guided_json": any, "media_io_kwargs": any, "mm_processor_kwargs": any}
	fits[list] = []string{list}
	routes := map[string]struct {
		base  map[string]json.RawMessage
		types map[string]string
	}{
		"/v1/chat/completions": {base: map[string]json.RawMessage{"model": json.RawMessage(`"m"`), "messages": json.RawMessage(`[{"role":"user","content":"x"}]`), "max_tokens": json.RawMessage(`2`)},
			types: map[string]string{"messages": list, "max_completion_tokens": whole, "logprobs": truth, "top_logprobs": whole, "tools": list, "tool_choice": words,
				"parallel_tool_calls": truth, "reasoning_effort": words, "service_tier": words, "store": truth, "modalities": list, "prediction": object,
				"audio": object, "functions": refused, "function_call": refused, "chat_template_args": object, "chat_template_kwargs": object, "thinking": truth,
				"add_generation_prompt": truth, "continue_final_message": truth, "web_search_options": object, "verbosity": words,
				"safety_identifier": text, "prompt_cache_key": text, "prompt_cache_retention": text}},
		"/v1/completions": {base: map[string]json.RawMessage{"model": json.RawMessage(`"m"`), "prompt": json.RawMessage(`"x"`), "max_tokens": json.RawMessage(`2`)},
			types: map[string]string{"prompt": choice, "suffix": text, "logprobs": whole, "echo": truth, "best_of": whole, "prompt_embeds": text}},
		"/v1/responses": {base: map[string]json.RawMessage{"model": json.RawMessage(`"m"`), "input": json.RawMessage(`"x"`), "max_output_tokens": json.RawMessage(`2`)},
			types: map[string]string{"model": text, "input": choice, "instructions": text, "max_output_tokens": whole, "temperature": number, "top_p": number,
				"stream": truth, "parallel_tool_calls": truth, "top_logprobs": whole, "store": truth, "metadata": object, "service_tier": words,
				"truncation": words, "include": list, "reasoning": object, "text": object, "user": text, "tools": list, "tool_choice": words,
				"previous_response_id": refused, "conversation": refused, "nvext": object}},
	}
	for path, route := range routes {
		for name, kind := range shared {
			if path != "/v1/responses" {
				route.types[name] = kind
			}
		}
		for name, kind := range route.types {
			for sampleKind, values := range samples {
				for _, value := range values {
					members := make(map[string]json.RawMessage, len(route.base)+1)
					for member, raw := range route.base {
						members[member] = raw
					}
					delete(members, name)
					rest, err := json.Marshal(members)
					if err != nil {
						t.Fatal(err)
					}
					body := fmt.Sprintf(`{%q:%s,%s`, name, value, rest[1:])
					if !slices.Contains(fits[kind], sampleKind) {
						status := 400
						if kind == refused && sampleKind != beyond {
							status = 501
						}
						f.mistake(path+" "+name+" "+value, path, body, status, name)
						continue
					}
					status, answer := f.post(path, body)
					var r refusal
					if status == 200 {
						continue
					}
					// Refused for what it says, not for its type: still by name.
					if err := json.Unmarshal([]byte(answer), &r); err != nil || status != 400 && status != 404 || r.Error.Param != name && !strings.HasPrefix(r.Error.Param, name) {
						t.Errorf("%s %s %s: status %d, %.200s", path, name, value, status, answer)
					}
				}
			}
		}
	}
	f.alive()
}

// TestMistakesInsideMessages names the member for what is wrong further in.
func TestMistakesInsideMessages(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	chat := func(messages, rest string) string {
		return `{"model":"m","max_tokens":2,"messages":` + messages + rest + `}`
	}
	for name, test := range map[string]struct {
		body, field string
		status      int
	}{
		"no role":             {chat(`[{"content":"x"}]`, ""), "messages", 400},
		"unknown role":        {chat(`[{"role":"wizard","content":"x"}]`, ""), "messages", 400},
		"role is a number":    {chat(`[{"role":1,"content":"x"}]`, ""), "messages", 400},
		"no content":          {chat(`[{"role":"user"}]`, ""), "messages", 400},
		"content is a number": {chat(`[{"role":"user","content":7}]`, ""), "messages", 400},
		"unknown part":        {chat(`[{"role":"user","content":[{"type":"smell"}]}]`, ""), "messages", 400},
		"part is a number":    {chat(`[{"role":"user","content":[1]}]`, ""), "messages", 400},
		"text part":           {chat(`[{"role":"user","content":[{"type":"text"}]}]`, ""), "messages", 400},
		"image part":          {chat(`[{"role":"user","content":[{"type":"image_url","image_url":1}]}]`, ""), "messages", 400},
		"message is a text":   {chat(`["x"]`, ""), "messages", 400},
		"none":                {chat(`[]`, ""), "messages", 400},
		"tool arguments":      {chat(`[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]`, ""), "messages", 400},
		"option":              {chat(`[{"role":"user","content":"x"}]`, `,"stream":true,"stream_options":{"include_usage":1}`), "stream_options", 400},
		"tool without a name": {chat(`[{"role":"user","content":"x"}]`, `,"tools":[{"type":"function","function":{}}]`), "tools", 400},
		"bias key":            {chat(`[{"role":"user","content":"x"}]`, `,"logit_bias":{"x":1}`), "logit_bias", 400},
		"bias value":          {chat(`[{"role":"user","content":"x"}]`, `,"logit_bias":{"1":"x"}`), "logit_bias", 400},
		"stop of numbers":     {chat(`[{"role":"user","content":"x"}]`, `,"stop":["a",1]`), "stop", 400},
		"hint":                {chat(`[{"role":"user","content":"x"}]`, `,"nvext":{"agent_hints":{"priority":"high"}}`), "nvext", 400},
		"unknown in nvext":    {chat(`[{"role":"user","content":"x"}]`, `,"nvext":{"nope":1}`), "nvext", 400},
		"token data":          {chat(`[{"role":"user","content":"x"}]`, `,"nvext":{"token_data":[-1]}`), "nvext", 400},
		"schema":              {chat(`[{"role":"user","content":"x"}]`, `,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":[]}}`), "response_format", 400},
		"unknown model":       {`{"model":"other","messages":[{"role":"user","content":"x"}]}`, "model", 404},
		"blank model":         {`{"model":"  ","messages":[{"role":"user","content":"x"}]}`, "model", 400},
	} {
		f.mistake(name, "/v1/chat/completions", test.body, test.status, test.field)
	}
	f.alive()
}

// TestErrorsAreShort: an error quotes what is wrong, and no more than a part of a long request.
func TestErrorsAreShort(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	long := strings.Repeat("x", 500000)
	var fields strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&fields, `,"unknown%d":1`, i)
	}
	for name, rest := range map[string]string{"value": `,"temperature":"` + long + `"`, "name": `,"` + long + `":1`, "names": fields.String(),
		"variant": `,"reasoning_effort":"` + long + `"`, "twice": `,"` + long + `":1,"` + long + `":1`, "stop": `,"nvext":{"` + long + `":1}`} {
		status, text := f.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]`+rest+`}`)
		if status != 400 || len(text) > 32<<10 || !json.Valid([]byte(text)) {
			t.Errorf("%s: status %d, %d bytes: %.200s", name, status, len(text), text)
		}
	}
}

// TestBodiesThatAreRepaired: what JSON forbids inside strings and everybody sends is taken.
func TestBodiesThatAreRepaired(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	for name, content := range map[string]string{"line break": "a\nb", "invalid UTF-8": "a\xffb", "half a character": "a\xe2\x82", "NUL": "a\x00b"} {
		if status, text := f.post("/v1/completions", `{"model":"m","max_tokens":2,"prompt":"`+content+`"}`); status != 200 {
			t.Errorf("%s: status %d, %s", name, status, text)
		}
	}
}

// TestBodiesByTransport covers size, coding, content type and clients that promise more than they send.
func TestBodiesByTransport(t *testing.T) {
	f := start(t, nil) // the limit is 1 MB
	f.engine(nil)
	f.waitReady(1)
	url := "http://" + f.frontend.Address() + "/v1/chat/completions"
	good := fmt.Sprintf(chatBody, "")
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	_, _ = writer.Write([]byte(good))
	_ = writer.Close()
	large := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 1<<20) + `"}]}`
	for name, test := range map[string]struct {
		body   io.Reader
		header map[string]string
		status int
		says   string
	}{
		"over the limit":             {body: strings.NewReader(large), status: 413, says: "exceeds the limit of 1 MB"},
		"over the limit, no length":  {body: io.MultiReader(strings.NewReader(large)), status: 413, says: "exceeds the limit of 1 MB"},
		"gzip":                       {body: bytes.NewReader(zipped.Bytes()), header: map[string]string{"Content-Encoding": "gzip"}, status: 415, says: "Content-Encoding"},
		"gzip that nobody announced": {body: bytes.NewReader(zipped.Bytes()), status: 400, says: "Failed to deserialize the JSON body"},
		"identity":                   {body: strings.NewReader(good), header: map[string]string{"Content-Encoding": "identity"}, status: 200},
		"form":                       {body: strings.NewReader(good), header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, status: 415, says: "application/json"},
		"no content type":            {body: strings.NewReader(good), header: map[string]string{"Content-Type": ""}, status: 415, says: "application/json"},
		"bad content type":           {body: strings.NewReader(good), header: map[string]string{"Content-Type": "application/json; ="}, status: 415, says: "application/json"},
		"json with a suffix":         {body: strings.NewReader(good), header: map[string]string{"Content-Type": "application/vnd.api+json; charset=utf-8"}, status: 200},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, test.body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		for key, value := range test.header {
			request.Header.Set(key, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != test.status || !strings.Contains(string(text), test.says) {
			t.Errorf("%s: status %d, %.200s", name, response.StatusCode, text)
		}
	}
	f.alive()
}

// TestPromisesOfBodies opens connections that announce large bodies and send a part, or nothing, and leave.
func TestPromisesOfBodies(t *testing.T) {
	f := start(t, nil)
	f.engine(nil)
	f.waitReady(1)
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, request := range map[string]string{
		"length, nothing sent":    head + "Content-Length: 1000000\r\n\r\n",
		"length, half sent":       head + "Content-Length: 100\r\n\r\n{\"model\":",
		"chunk, nothing sent":     head + "Transfer-Encoding: chunked\r\n\r\n",
		"chunk, cut off":          head + "Transfer-Encoding: chunked\r\n\r\nff\r\n{\"model\":",
		"chunk of another number": head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
		"negative length":         head + "Content-Length: -1\r\n\r\n",
		"two lengths":             head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
	} {
		conn, err := net.Dial("tcp", f.frontend.Address())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, err := io.ReadAll(conn)
		if err != nil || len(answer) > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.1 4")) {
			t.Errorf("%s: %.200q, %v", name, answer, err)
		}
		conn.Close()
	}
	f.alive()
}

// logs gathers what a frontend logs.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logs) contain(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range strings.Split(l.text.String(), "\n") {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}

// TestRecordsThatAreNoRecords puts rubbish into discovery: it is logged, and the workers that are there are served.
func TestRecordsThatAreNoRecords(t *testing.T) {
	log := &logs{}
	f := start(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	f.engine(nil)
	f.waitReady(1)
	vandal := f.store.Open(mem.Options{})
	f.backends = append(f.backends, vandal)
	put := func(bucket discovery.Bucket, key, value string) {
		if err := vandal.Put(context.Background(), bucket, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	rubbish := []string{"no JSON", "{", "null", "[]", "17", `""`, `{"type":"Endpoint"}`, `{"type":"Model","card_json":7}`, strings.Repeat("[", 100000), "\xff\xfe"}
	for i, value := range rubbish {
		put(discovery.Instances, fmt.Sprintf("n/backend/generate/%x", i+1), value)
		put(discovery.Models, fmt.Sprintf("n/backend/generate/%x", i+1), value)
	}
	// A card that is JSON and no card, on a record that is fine.
	put(discovery.Models, "n/backend/generate/ff", `{"type":"Model","namespace":"n","component":"backend","endpoint":"generate","instance_id":255,"card_json":{"display_name":7}}`)
	waitFor(t, func() bool { return log.contain("model card cannot be used", "n/backend/generate/ff") })
	for i := range rubbish {
		for _, bucket := range []string{"v1/instances", "v1/mdc"} {
			if key := fmt.Sprintf("key=n/backend/generate/%x", i+1); !f.records.contain("unusable", bucket, key+" ") {
				t.Errorf("%s in %s is not in the log", key, bucket)
			}
		}
	}
	f.alive()
	late := f.engine(nil) // the watch goes on behind the rubbish
	f.waitReady(2)
	f.alive()
	if late == 0 {
		t.Error("no worker was added")
	}
}

// TestAnUnreadableTokenizerConcernsItsModelAlone registers models whose files are broken in several ways next to a good one: the
// good one is served, the others are known and not ready, and the log says which file and why. Once the file is whole, the model
// is served.
func TestAnUnreadableTokenizerConcernsItsModelAlone(t *testing.T) {
	log := &logs{}
	loader := &FileLoader{Resolver: &card.Resolver{CacheDir: t.TempDir()}}
	f := start(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		o.Loader = loaderFunc(func(ctx context.Context, c *card.Card) (*pipeline.Model, error) {
			if c.DisplayName == "m" {
				return bytesLoader{}.Load(ctx, c)
			}
			return loader.Load(ctx, c)
		})
	})
	f.engine(nil)
	for name, damage := range map[string]func(dir string) error{
		"cut-off": func(dir string) error { return os.Truncate(filepath.Join(dir, "tokenizer.json"), 1000) },
		"rubbish": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("\x00\x01"), 0o600)
		},
		"empty-object": func(dir string) error { return os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("{}"), 0o600) },
		"unknown-kind": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(`{"model":{"type":"Oracle","vocab":{}}}`), 0o600)
		},
	} {
		dir := t.TempDir()
		if err := builtin.Write(dir); err != nil {
			t.Fatal(err)
		}
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		f.register(name, dir, nil)
	}
	gone := t.TempDir()
	if err := builtin.Write(gone); err != nil {
		t.Fatal(err)
	}
	f.register("gone", gone, func() error { return os.Remove(filepath.Join(gone, "tokenizer.json")) })
	swapped := t.TempDir()
	if err := builtin.Write(swapped); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(swapped, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	f.register("swapped", swapped, func() error {
		return os.WriteFile(filepath.Join(swapped, "tokenizer.json"), append([]byte(" "), whole...), 0o600)
	})
	for _, name := range []string{"cut-off", "rubbish", "empty-object", "unknown-kind", "gone", "swapped"} {
		waitFor(t, func() bool { return log.contain("a model cannot be served yet", "model="+name, "tokenizer") })
		f.mistakeStatus(name, 503)
	}
	f.waitReadyModel("m")
	f.alive()
	if err := os.WriteFile(filepath.Join(swapped, "tokenizer.json"), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	f.waitReadyModel("swapped")
}

// mistakeStatus asks for a model and expects an error of the status.
func (f *fixture) mistakeStatus(model string, status int) {
	f.t.Helper()
	got, text := f.post("/v1/completions", `{"model":"`+model+`","prompt":"x","max_tokens":2}`)
	var r refusal
	if err := json.Unmarshal([]byte(text), &r); err != nil || got != status || r.Message == "" {
		f.t.Errorf("%s: status %d, %s", model, got, text)
	}
}
