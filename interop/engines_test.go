package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestRoutesOfEngines sends the same requests in vLLM's and SGLang's shape through the real frontend and ours: answers, statuses and what
// the workers are asked are the same. So is the list of workers for reinforcement learning.
func TestRoutesOfEngines(t *testing.T) {
	peer := releases(t)[0]
	if peer.name != "1.6.1" {
		t.Skip("the routes are compared with those of 1.6.1")
	}
	s, model, written := fileStore(t), modelDirectory(t), filepath.Join(t.TempDir(), "requests")
	plane := append(s.environment(), "DYN_DISCOVERY_BACKEND=file", "DYN_REQUEST_PLANE=tcp", "DYN_EVENT_PLANE=zmq")
	start(t, plane, peer.python, filepath.Join("clients", "engine_worker.py"), model, written)
	var both [2]*frontend
	var lists [2]string
	for i, program := range []func(t *testing.T, s store) *frontend{
		func(t *testing.T, s store) *frontend { return startTheirs(t, peer, s) }, func(t *testing.T, s store) *frontend { return startOurs(t, s) },
	} {
		port := freePort(t)
		lists[i] = fmt.Sprintf("http://127.0.0.1:%d/v1/rl/workers", port)
		for name, value := range map[string]string{"DYN_VLLM_ENABLE_INFERENCE_V1_GENERATE": "1", "DYN_SGLANG_ENABLE_GENERATE": "1", "DYN_ENABLE_RL": "1", "DYN_RL_PORT": fmt.Sprint(port)} {
			t.Setenv(name, value)
		}
		both[i] = program(t, s)
	}
	for _, f := range both {
		waitForModels(t, f, "gen")
		waitForModels(t, f, "sgl")
	}
	const vllm, sglang = "/inference/v1/generate", "/generate"
	for _, c := range [][2]string{
		{vllm, `{"token_ids":[10,11],"sampling_params":{"max_tokens":4},"model":"gen"}`},
		{vllm, `{"token_ids":[10],"sampling_params":{"max_tokens":4,"min_tokens":1,"ignore_eos":true,"x":null,"temperature":0.5,"top_p":0.5,"top_k":5,"seed":-3,"stop_token_ids":[4],"n":3},"request_id":"me","cache_salt":"s","priority":3,"kv_transfer_params":{"a":1},"features":[1],"stream":false}`},
		{vllm, `{"token_ids":[10],"sampling_params":{"skip_reading_prefix_cache":true,"structured_outputs":{"json":{}}},"priority":-3}`},
		{vllm, `{"token_ids":[],"sampling_params":{}}`},
		{vllm, `{"token_ids":[10]}`},
		{vllm, `{"token_ids":[10],"sampling_params":{"max_tokens":0}}`},
		{vllm, `{"token_ids":[10],"sampling_params":{"min_tokens":5,"max_tokens":2}}`},
		{vllm, `{"token_ids":[10],"sampling_params":{"temperature":-1}}`},
		{vllm, `{"token_ids":[10],"sampling_params":{"thinking_token_budget":1}}`},
		{vllm, `{"token_ids":[10],"sampling_params":{},"stream":true}`},
		{vllm, `{"token_ids":[10],"sampling_params":{},"stream_options":{}}`},
		{vllm, `{"token_ids":[10],"sampling_params":{"prompt_logprobs":-2}}`},
		{vllm, `{"token_ids":[10],"sampling_params":{},"model":"nope"}`},
		{vllm, `{"token_ids":[10],"sampling_params":{},"model":"sgl"}`},
		{vllm, `{bad`},
		{vllm, `{"token_ids":[4,5],"sampling_params":{"logprobs":1,"prompt_logprobs":1,"max_tokens":2}}`},
		{vllm, `{"token_ids":[4,5],"sampling_params":{"max_tokens":2}}`},
		{vllm, `{"token_ids":[3,5],"sampling_params":{"logprobs":1}}`},
		{vllm, `{"token_ids":[10],"sampling_params":{"prompt_logprobs":0}}`},
		{vllm, `{"token_ids":[2],"sampling_params":{}}`},
		{vllm, `{"token_ids":[1],"sampling_params":{}}`},
		{vllm, `{"token_ids":[9],"sampling_params":{}}`},
		{vllm, `{"token_ids":[8],"sampling_params":{}}`},
		{vllm, `{"token_ids":[7],"sampling_params":{}}`},
		{sglang, `{"input_ids":[10,11],"sampling_params":{"max_new_tokens":4,"min_new_tokens":1,"ignore_eos":true},"stream":true,"rid":"me","priority":2,"foo":{"a":1}}`},
		{sglang, `{"input_ids":[10],"stream":true}`},
		{sglang, `{"input_ids":[10]}`},
		{sglang, `{"input_ids":[],"stream":true}`},
		{sglang, `{"stream":true}`},
		{sglang, `{bad`},
		{sglang, `{"input_ids":[10],"sampling_params":{"n":2},"stream":true}`},
		{sglang, `{"input_ids":[10],"bootstrap_host":"x","stream":true}`},
		{sglang, `{"input_ids":[10],"sampling_params":{"max_new_tokens":"x"},"stream":true}`},
		{sglang, `{"input_ids":[9],"stream":true}`},
		{sglang, `{"input_ids":[8],"stream":true}`},
		{sglang, `{"input_ids":[7],"stream":true}`},
		{sglang, `{"input_ids":[6],"stream":true}`},
		{sglang, `{"input_ids":[5],"stream":true}`},
	} {
		theirs, real := engineAnswer(t, both[0], written, c)
		ours, mine := engineAnswer(t, both[1], written, c)
		if ours != theirs {
			t.Errorf("%s %s\n ours %s\ntheirs %s", c[0], c[1], ours, theirs)
		}
		if !reflect.DeepEqual(mine, real) {
			t.Errorf("%s %s: the worker is asked\n%v by ours\n%v by theirs", c[0], c[1], mine, real)
		}
	}
	status, theirs, err := get(lists[0])
	if err != nil || status != 200 || strings.Count(theirs, `"endpoint":"rl"`) != 2 {
		t.Fatalf("%d %s %v", status, theirs, err)
	}
	if status, ours, err := get(lists[1]); err != nil || status != 200 || ours != theirs {
		t.Errorf("%d %v\n ours %s\ntheirs %s", status, err, ours, theirs)
	}
}

var madeID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// engineAnswer sends a request and returns the answer and what the worker was asked, without the ids that are made up.
func engineAnswer(t *testing.T, f *frontend, written string, request [2]string) (answer string, asked any) {
	t.Helper()
	before := len(lines(written))
	response, err := http.Post(f.url+request[0], "application/json", strings.NewReader(request[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	// The flat error body of ours has an error object besides.
	flat, _, _ := strings.Cut(string(text), `,"error":{"message":`)
	answer = fmt.Sprint(response.StatusCode, " ", response.Header.Get("Content-Type"), " ", madeID.ReplaceAllString(strings.TrimSuffix(flat, "}"), "ID"))
	if after := lines(written); len(after) > before {
		if err := json.Unmarshal([]byte(madeID.ReplaceAllString(after[len(after)-1], "ID")), &asked); err != nil {
			t.Fatal(err)
		}
	}
	return answer, asked
}
