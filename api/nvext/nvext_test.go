package nvext

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/inference"
	"signalbox/internal/jsontape"
)

func ptr[T any](v T) *T { return &v }

func parse(t testing.TB, text string, discard bool) (*Extension, *inference.Request, string) {
	t.Helper()
	document, err := jsontape.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := &inference.Request{}
	extension, p := Parse(document.Root(), r, discard)
	if p != nil {
		return nil, r, p.Param
	}
	return extension, r, ""
}

func TestEveryMemberHasItsPlace(t *testing.T) {
	const text = `{"greed_sampling":true,"use_raw_prompt":true,"annotations":["token_ids","query_instance_id:"],"backend_instance_id":18446744073709551615,
		"token_data":[1,2],"max_thinking_tokens":9,"cache_salt":"s","extra_fields":["timing","worker_id"],"prefill_worker_id":3,"decode_worker_id":4,"dp_rank":5,
		"prefill_dp_rank":6,"request_timestamp_ms":1.5,"agent_hints":{"priority":-7,"strict_priority":8,"osl":10,"speculative_prefill":false},
		"routing_constraints":{"required_taints":["a"],"preferred_taints":{"b":0.5}},"router":{"ttft_target":0.1,"itl_target":0.01}}`
	extension, r, _ := parse(t, text, false)
	want := &inference.Request{Annotations: []string{"token_ids", "query_instance_id:"}, RequestTimestamp: ptr(1.5), TTFTTarget: ptr(0.1), ITLTarget: ptr(0.01),
		Sampling: inference.SamplingOptions{Temperature: ptr(float32(0))}, Stop: inference.StopConditions{MaxThinkingTokens: ptr(uint32(9))},
		Routing: inference.Routing{BackendInstanceID: ptr(^uint64(0)), PrefillWorkerID: ptr(uint64(3)), DecodeWorkerID: ptr(uint64(4)), DPRank: ptr(uint32(5)),
			PrefillDPRank: ptr(uint32(6)), CacheSalt: "s", Priority: ptr(int32(-7)), PriorityJump: ptr(0.0), StrictPriority: ptr(uint32(8)),
			ExpectedOutputTokens: ptr(uint32(10)), RequiredTaints: []string{"a"}, PreferredTaints: map[string]float32{"b": 0.5}, QueryOnly: true}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if !extension.UseRaw || !extension.HasTokens || len(extension.TokenData) != 2 || !extension.Wants("timing") || extension.Wants("stop_reason") || !extension.Asks("token_ids") {
		t.Errorf("%+v", extension)
	}
	if extras := extension.Extras(); !extras.Timing || !extras.WorkerID || extras.StopReason {
		t.Errorf("%+v", extras)
	}
	extension, r, _ = parse(t, text, true)
	if diff := cmp.Diff(&inference.Request{}, r); diff != "" || extension.UseRaw || extension.HasTokens {
		t.Errorf("switched off, it had an effect: %s", diff)
	}
}

func TestMistakesNameTheirMember(t *testing.T) {
	for text, want := range map[string]string{
		`[]`: "nvext", `{"unknown":1}`: "nvext.unknown", `{"annotations":"a"}`: "nvext.annotations", `{"annotations":[1]}`: "nvext.annotations",
		`{"backend_instance_id":-1}`: "nvext.backend_instance_id", `{"dp_rank":4294967296}`: "nvext.dp_rank", `{"token_data":["a"]}`: "nvext.token_data",
		`{"greed_sampling":1}`: "nvext.greed_sampling", `{"cache_salt":1}`: "nvext.cache_salt", `{"request_timestamp_ms":"x"}`: "nvext.request_timestamp_ms",
		`{"agent_hints":[]}`: "nvext.agent_hints", `{"agent_hints":{"osl":-1}}`: "nvext.agent_hints.osl", `{"agent_hints":{"nope":1}}`: "nvext.agent_hints.nope",
		`{"agent_hints":{"priority":3000000000}}`: "nvext.agent_hints.priority", `{"routing_constraints":{"required_taints":{}}}`: "nvext.routing_constraints.required_taints",
		`{"routing_constraints":{"preferred_taints":{"a":"x"}}}`: "nvext.routing_constraints.preferred_taints.a", `{"routing_constraints":{"preferred_taints":[]}}`: "nvext.routing_constraints.preferred_taints",
		`{"router":{"ttft_target":true}}`: "nvext.router.ttft_target",
	} {
		for _, discard := range []bool{false, true} {
			if _, _, got := parse(t, text, discard); got != want {
				t.Errorf("%s: blames %q, want %q", text, got, want)
			}
		}
	}
}

// TestManyTaintsAreReadInOnePass: the time must not grow with the square of what a client sends.
func TestManyTaintsAreReadInOnePass(t *testing.T) {
	var taints strings.Builder
	for i := range 50000 {
		fmt.Fprintf(&taints, `,"t%d":1`, i)
	}
	_, r, problem := parse(t, `{"routing_constraints":{"preferred_taints":{`+taints.String()[1:]+`}}}`, false)
	if problem != "" || len(r.Routing.PreferredTaints) != 50000 {
		t.Errorf("%d taints, %s", len(r.Routing.PreferredTaints), problem)
	}
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestHeadersRoute(t *testing.T) {
	for name, test := range map[string]struct {
		header http.Header
		want   inference.Routing
	}{
		"nothing":           {header("Accept", "x"), inference.Routing{}},
		"a worker":          {header("X-Dynamo-Worker-Instance-Id", "7"), inference.Routing{BackendInstanceID: ptr(uint64(7)), DecodeWorkerID: ptr(uint64(7))}},
		"by the old name":   {header("X-Worker-Instance-Id", " 7 "), inference.Routing{BackendInstanceID: ptr(uint64(7)), DecodeWorkerID: ptr(uint64(7))}},
		"both names":        {header("X-Worker-Instance-Id", "7", "X-Dynamo-Worker-Instance-Id", "8"), inference.Routing{BackendInstanceID: ptr(uint64(8)), DecodeWorkerID: ptr(uint64(8))}},
		"the largest":       {header("X-Dynamo-Prefill-Instance-Id", "18446744073709551615"), inference.Routing{PrefillWorkerID: ptr(^uint64(0))}},
		"no number":         {header("X-Dynamo-Worker-Instance-Id", "seven", "X-Dynamo-Dp-Rank", "-1", "X-Dynamo-Request-Priority", "1.5"), inference.Routing{}},
		"out of range":      {header("X-Dynamo-Prefill-Instance-Id", "18446744073709551616", "X-Dynamo-Dp-Rank", "4294967296"), inference.Routing{}},
		"ranks":             {header("X-Data-Parallel-Rank", "1", "X-Prefill-Dp-Rank", "2"), inference.Routing{DPRank: ptr(uint32(1)), PrefillDPRank: ptr(uint32(2))}},
		"unset ranks":       {header("X-Dynamo-Dp-Rank", "4294967295", "X-Dynamo-Prefill-Dp-Rank", "4294967295"), inference.Routing{}},
		"priority":          {header("X-Dynamo-Request-Priority", "5", "X-Dynamo-Request-Strict-Priority", "6"), inference.Routing{Priority: ptr(int32(5)), PriorityJump: ptr(5.0), StrictPriority: ptr(uint32(6))}},
		"negative priority": {header("X-Dynamo-Request-Priority", "-5"), inference.Routing{Priority: ptr(int32(-5)), PriorityJump: ptr(0.0)}},
		"tenant":            {header("X-Tenant-Id", "t"), inference.Routing{CacheSalt: "t"}},
	} {
		r := &inference.Request{}
		ApplyRoutingHeaders(test.header, r)
		if diff := cmp.Diff(test.want, r.Routing); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if HasRoutingHeaders(test.header) == (name == "nothing" || name == "tenant") {
			t.Errorf("%s: HasRoutingHeaders is %v", name, HasRoutingHeaders(test.header))
		}
	}
}

func TestHeadersOfSessions(t *testing.T) {
	for name, test := range map[string]struct {
		header          http.Header
		session, parent string
		final           bool
	}{
		"own":         {header("X-Dynamo-Session-Id", "s", "X-Dynamo-Parent-Session-Id", "p", "X-Dynamo-Session-Final", "True", "X-Session-Id", "other"), "s", "p", true},
		"agent":       {header("X-Claude-Code-Agent-Id", "a", "X-Claude-Code-Session-Id", "s"), "a", "s", false},
		"its session": {header("X-Claude-Code-Session-Id", "s"), "s", "", false},
		"thread":      {header("Thread-Id", "t", "X-Codex-Parent-Thread-Id", "p"), "t", "p", false},
		"general":     {header("X-Session-Id", "s", "X-Parent-Session-Id", "p"), "s", "p", false},
		"none":        {header("X-Dynamo-Session-Final", "true"), "", "", false},
	} {
		r := &inference.Request{}
		if p := ApplySessionHeaders(test.header, r); p != nil {
			t.Fatal(p)
		}
		if r.Routing.SessionID != test.session || (r.AgentContext == nil) != (test.session == "") {
			t.Errorf("%s: %q, %+v", name, r.Routing.SessionID, r.AgentContext)
		}
		if a := r.AgentContext; a != nil && (a.SessionID != test.session || a.ParentSessionID != test.parent || (a.SessionFinal != nil) != test.final) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if p := ApplySessionHeaders(header("X-Session-Id", strings.Repeat("x", maxSessionIDBytes+1)), &inference.Request{}); p == nil || p.Status != 400 || p.Param != "x-dynamo-session-id" {
		t.Errorf("a long id: %+v", p)
	}
}

func TestHeadersOfMetadata(t *testing.T) {
	r := &inference.Request{}
	h := header("X-Dynamo-Meta-Policy-Class", " batch ", "X-Dynamo-Meta-A", "1", "X-Dynamo-Meta-A", "2", "X-Dynamo-Meta-Authorization", "secret", "X-Dynamo-Meta-Token", "Bearer secret", "X-Other", "x", "X-Dynamo-Meta-", "x")
	if p := ApplyMetadataHeaders(h, DefaultMetadataPrefix, r); p != nil {
		t.Fatal(p)
	}
	if diff := cmp.Diff(map[string]string{"policy-class": "batch", "a": "1"}, r.Metadata); diff != "" || r.Routing.PolicyClass != "batch" {
		t.Errorf("class %q (-want +got):\n%s", r.Routing.PolicyClass, diff)
	}
	many := http.Header{}
	for i := range maxMetadataEntries + 1 {
		many.Set(fmt.Sprintf("X-Dynamo-Meta-%d", i), "x")
	}
	for name, h := range map[string]http.Header{"64 entries": many, "65536 bytes": header("X-Dynamo-Meta-A", strings.Repeat("x", maxMetadataBytes))} {
		if p := ApplyMetadataHeaders(h, DefaultMetadataPrefix, &inference.Request{}); p == nil || p.Status != 431 || !strings.HasSuffix(p.Message, "exceed the limit of "+name) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	const id = "2f6e7d52-b178-4d29-9ce5-652166a6c038"
	if got := RequestID(header("X-Dynamo-Request-Id", strings.ToUpper(id))); got != id {
		t.Errorf("%q", got)
	}
	first, second := RequestID(header("X-Dynamo-Request-Id", "mine")), RequestID(http.Header{})
	if len(first) != 36 || len(second) != 36 || first == second {
		t.Errorf("%q, %q", first, second)
	}
}
