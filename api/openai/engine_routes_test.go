package openai

import (
	"net/http"
	"strings"
	"testing"

	"signalbox/api/body"
	"signalbox/internal/jsontape"
)

// What engines are sent holds everything that the client said, but the tokens only once; the ids and priorities are as each engine has them.
func TestEnginesGetTheirOwnOptions(t *testing.T) {
	r, err := http.NewRequest(http.MethodPost, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) *jsontape.Document {
		document, err := jsontape.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return document
	}
	d := read(`{"token_ids":[4],"sampling_params":{"max_tokens":3,"x":null},"priority":2,"cache_salt":"s","kv_transfer_params":{"a":1},"features":[1],"request_id":"mine"}`)
	f := body.NewFields(d.Root(), "")
	q := readVLLM(f, engineJob(d, "token_ids", f, r), "")
	request := q.job.Request
	if f.Problem != nil || q.mistake != nil || q.id != "mine" || *request.Routing.Priority != -2 || *request.Routing.PriorityJump != 0 ||
		request.Routing.CacheSalt != "s" || *request.Stop.MaxTokens != 3 || !q.job.Verbatim {
		t.Errorf("%v %v %+v", f.Problem, q.mistake, request)
	}
	want := `{"vllm_tito":{"request_id":"mine","sampling_params":{"max_tokens":3,"x":null},"stream":false,"priority":2,"cache_salt":"s","kv_transfer_params":{"a":1},"features":[1]},"kv_transfer_params":{"a":1}}`
	if got := string(request.ExtraArgs); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}

	d = read(`{"input_ids":[4],"sampling_params":{"max_new_tokens":3},"priority":2,"rid":"mine","stream":true,"text_only":1}`)
	f = body.NewFields(d.Root(), "")
	job := engineJob(d, "input_ids", f, r)
	stream, p := readSGLang(f, job, "other")
	if !stream || p != nil || f.Problem != nil || *job.Request.Routing.Priority != 2 || *job.Request.Routing.PriorityJump != 2 || *job.Request.Stop.MaxTokens != 3 {
		t.Errorf("%v %v %v %+v", stream, p, f.Problem, job.Request)
	}
	want = `{"sglang_tito":{"text_only":1,"sampling_params":{"max_new_tokens":3},"rid":"mine","stream":true}}`
	if got := string(job.Request.ExtraArgs); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	for text, part := range map[string]string{
		`{"input_ids":[],"stream":true}`:                                         "input_ids cannot be empty.",
		`{"input_ids":[1],"sampling_params":{"n":2}}`:                            "sampling_params.n must be 1",
		`{"input_ids":[1],"sampling_params":{"max_new_tokens":"x"}}`:             `sampling_params.max_new_tokens: invalid type: string "x", expected u32`,
		`{"input_ids":[1],"bootstrap_room":5}`:                                   "`bootstrap_room` is internal",
		`{"input_ids":[1],"sampling_params":{"min_new_tokens":1},"rid":"a"}`:     "",
		`{"input_ids":[1],"sampling_params":null,"stream":true,"priority":null}`: "",
	} {
		d := read(text)
		f := body.NewFields(d.Root(), "")
		_, p := readSGLang(f, engineJob(d, "input_ids", f, r), "")
		if f.Problem != nil || (p == nil) != (part == "") || p != nil && !strings.HasPrefix(p.Message, part) {
			t.Errorf("%s: %v, %v", text, p, f.Problem)
		}
	}
}
