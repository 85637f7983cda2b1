package fakeengine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// answer is one stream being written.
type answer struct {
	engine  *Engine
	writer  http.ResponseWriter
	request Request
	prompt  int
	limit   int
	made    int
	all     []uint32
	ended   bool
}

// next generates a token, and tells why it is the last one.
func (a *answer) next() (id uint32, reason string) {
	e := a.engine
	id = e.Answer[a.made%len(e.Answer)]
	if e.Stops && a.made >= len(e.Answer) {
		id, reason = e.End, "stop"
	}
	a.made++
	a.all = append(a.all, id)
	if reason == "" && a.made >= a.limit {
		reason = "length"
	}
	a.ended = reason != ""
	return id, reason
}

func (a *answer) step() {
	id, reason := a.next()
	switch a.request.Path {
	case "/generate":
		a.sglang(id, reason)
	case "/v1/chat/completions":
		finish := "null"
		if reason != "" {
			finish = `"` + reason + `"`
		}
		a.event(`{"id":"c","object":"chat.completion.chunk","model":%q,"choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}]}`, a.engine.Model, Word(id), finish)
	default:
		a.vllm(id, reason)
	}
}

// Word is the text of a token in answers as text.
func Word(id uint32) string { return fmt.Sprintf("t%d ", id) }

func (a *answer) event(format string, values ...any) {
	fmt.Fprintf(a.writer, "data: "+format+"\n\n", values...)
}

// has tells whether a member of the request is true.
func (a *answer) has(name string) bool { return string(a.request.Body[name]) == "true" }

func (a *answer) vllm(id uint32, reason string) {
	finish, ids, probabilities := "null", "null", "null"
	if reason != "" {
		finish = `"` + reason + `"`
	}
	if a.has("return_token_ids") {
		ids = fmt.Sprintf("[%d]", id)
	}
	if raw := a.request.Body["logprobs"]; raw != nil {
		probabilities = fmt.Sprintf(`{"text_offset":[0],"token_logprobs":[-0.5],"tokens":["token_id:%d"],"top_logprobs":[{"token_id:%d":-0.5,"token_id:%d":-1.5}]}`, id, id, id+1)
	}
	a.event(`{"id":"cmpl-1","object":"text_completion","created":1,"model":%q,"choices":[{"index":0,"text":%q,"logprobs":%s,"finish_reason":%s,"stop_reason":null,"token_ids":%s}]}`,
		a.engine.Model, Word(id), probabilities, finish, ids)
}

func (a *answer) sglang(id uint32, reason string) {
	told, finish := a.all, "null"
	if a.engine.Incremental {
		told = []uint32{id}
	}
	switch reason {
	case "stop":
		finish = fmt.Sprintf(`{"type":"stop","matched":%d}`, id)
	case "length":
		finish = fmt.Sprintf(`{"type":"length","length":%d}`, a.made)
	}
	logprobs := ""
	if a.has("return_logprob") {
		var list []string
		for _, one := range told {
			list = append(list, fmt.Sprintf("[-0.25, %d, null]", one))
		}
		logprobs = `,"output_token_logprobs":[` + strings.Join(list, ",") + `],"output_top_logprobs":[` +
			strings.Join(slices.Repeat([]string{fmt.Sprintf("[[-0.25, %d, null]]", id)}, len(told)), ",") + `]`
	}
	ids, _ := json.Marshal(told) // numbers can always be written
	a.event(`{"text":"…","output_ids":%s,"meta_info":{"id":"r","finish_reason":%s,"prompt_tokens":%d,"weight_version":"default","completion_tokens":%d,"cached_tokens":%d%s}}`,
		ids, finish, a.prompt, a.made, a.request.Cached, logprobs)
}

// finish ends the stream as the engine does.
func (a *answer) finish() {
	if a.request.Path != "/generate" {
		a.event(`{"id":"cmpl-1","object":"text_completion","created":1,"model":%q,"choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`,
			a.engine.Model, a.prompt, a.prompt+a.made, a.made, a.request.Cached)
	}
	a.event("[DONE]")
}
