package upstream

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/inference"
)

// document is any JSON value.
func document(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 5
		if depth == 0 {
			kinds = 3
		}
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "truth")
		case 2:
			return rapid.Float64Range(-1e9, 1e9).Draw(t, "number")
		case 3:
			return rapid.String().Draw(t, "text")
		case 4:
			list := []any{}
			for range rapid.IntRange(0, 3).Draw(t, "length") {
				list = append(list, document(depth-1).Draw(t, "element"))
			}
			return list
		}
		object := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			object[rapid.String().Draw(t, "name")] = document(depth-1).Draw(t, "value")
		}
		return object
	})
}

func TestScanAgreesWithJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, -1).Draw(t, "text")
		ids := rapid.SliceOfN(rapid.Uint32(), 0, 5).Draw(t, "ids")
		number := rapid.Float64().Draw(t, "number")
		other := document(3).Draw(t, "other")
		want := map[string]any{"text": text, "ids": ids, "number": number, "other": other, "none": nil, "truth": true}
		data, err := json.MarshalIndent(want, "", rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "indent"))
		if err != nil {
			t.Skip()
		}
		var gotText string
		var gotIDs []uint32
		var gotNumber float64
		var gotTruth bool
		var gotOther []byte
		s := scan{text: data}
		for in := s.enter('{'); in; in = s.more('{') {
			switch string(s.key()) {
			case "text":
				gotText = s.str()
			case "ids":
				gotIDs = s.counts(nil)
			case "number":
				gotNumber = s.float()
			case "truth":
				gotTruth = s.truth()
			case "other":
				gotOther = s.raw()
			default:
				s.skip()
			}
		}
		if s.err != nil || s.at != len(data) {
			t.Fatalf("%s: %v at %d", data, s.err, s.at)
		}
		if !json.Valid(gotOther) || gotText != strings.ToValidUTF8(text, "\ufffd") || gotNumber != number || !gotTruth || len(gotIDs) != len(ids) {
			t.Fatalf("%s: %q %v %v %v %s", data, gotText, gotIDs, gotNumber, gotTruth, gotOther)
		}
		for i := range ids {
			if ids[i] != gotIDs[i] {
				t.Fatalf("%v, want %v", gotIDs, ids)
			}
		}
	})
}

// dialects are all that read what servers send.
var dialects = []dialect{completions{vllm: true}, completions{}, sglang{}, llamacpp{eos: []uint32{7}}, asItIs{}}

// FuzzAnswers lets servers answer anything: nothing may crash, and what comes out must be in order.
func FuzzAnswers(f *testing.F) {
	for _, text := range []string{
		`data: {"choices":[{"index":0,"text":"a","token_ids":[5],"finish_reason":null,"logprobs":{"token_logprobs":[-1],"top_logprobs":[{"token_id:5":-1}]}}]}` + "\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":1}}}\n\ndata: [DONE]\n\n",
		`data: {"text":"a","output_ids":[1,2],"meta_info":{"finish_reason":{"type":"stop","matched":2},"completion_tokens":2,"output_token_logprobs":[[-1,2,null]]}}`,
		`data: {"index":0,"content":"\ud83d\ude00","tokens":[7],"stop":true,"stop_type":"eos","tokens_predicted":3,"timings":{"cache_n":2},"completion_probabilities":[{"id":1,"logprob":-1,"top_logprobs":[{"id":1,"logprob":-1}]}]}`,
		`data: {"error":{"message":"no","code":400}}`, `data: {"object":"error","message":"no","code":500}`, ": ping\n\ndata:{\n",
		`data: {"detail":[{"loc":["body"],"msg":"bad"}]}`,
	} {
		for i := range dialects {
			f.Add(byte(i), []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, text []byte) {
		_, _ = errorIn(text)
		_ = metricLabels(text, "m")
		s := testStream(dialects[int(which)%len(dialects)], strings.NewReader(string(text)))
		defer s.Close()
		for range len(text) + 2 {
			out, err := s.Next(t.Context())
			if err != nil {
				var known *inference.Error
				if err != io.EOF && !errors.As(err, &known) {
					t.Fatalf("%v is no failure that anybody knows", err)
				}
				return
			}
			if out.Index >= maxChoices {
				t.Fatalf("choice %d", out.Index)
			}
		}
		t.Fatal("the stream does not end")
	})
}
