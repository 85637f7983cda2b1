package wire

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"signalbox/inference"
)

var codecs = []inference.Codec{inference.JSON, inference.MessagePack}

// optionally draws nil or a pointer to a value.
func optionally[T any](t *rapid.T, name string, value *rapid.Generator[T]) *T {
	if !rapid.Bool().Draw(t, "has "+name) {
		return nil
	}
	return ptr(value.Draw(t, name))
}

func listOf[T any](t *rapid.T, name string, value *rapid.Generator[T]) []T {
	return rapid.SliceOfN(value, 0, 4).Draw(t, name)
}

// finite are the floats that both encodings can say.
var (
	finite   = rapid.Float64()
	finite32 = rapid.Float32()
)

// anyJSON draws JSON texts in the spelling that our own encoder gives them.
func anyJSON(t *rapid.T, name string) []byte {
	return []byte(rapid.SampledFrom([]string{"", `null`, `{}`, `[]`, `"text with \"quotes\" and é"`, `{"a":[1,-2,18446744073709551615],"b":{"c":1.5,"d":null,"e":true}}`,
		`-9223372036854775808`, `0.0`, `[[[[]]]]`}).Draw(t, name))
}

// jsonOrNil is anyJSON for members where an explicit null says the same as nothing.
func jsonOrNil(t *rapid.T, name string) []byte {
	text := anyJSON(t, name)
	if len(text) == 0 || string(text) == "null" {
		return nil
	}
	return text
}

func drawOpaque(t *rapid.T, name string) inference.Opaque {
	text := jsonOrNil(t, name)
	if text == nil {
		return inference.Opaque{}
	}
	packed, err := AppendMessagePack(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	return inference.Opaque{Codec: inference.MessagePack, Bytes: packed}
}

func drawRequest(t *rapid.T) *inference.Request {
	text, flag, u32 := rapid.String(), rapid.Bool(), rapid.Uint32()
	r := &inference.Request{
		Model: text.Draw(t, "model"), TokenIDs: listOf(t, "token_ids", u32),
		Stop: inference.StopConditions{
			MaxTokens: optionally(t, "max_tokens", u32), MinTokens: optionally(t, "min_tokens", u32),
			MaxThinkingTokens: optionally(t, "max_thinking_tokens", u32), Strings: listOf(t, "stop", text), TokenIDs: listOf(t, "stop ids", u32),
			VisibleTokenIDs: listOf(t, "visible", u32), HiddenTokenIDs: listOf(t, "hidden", u32), IgnoreEOS: optionally(t, "ignore_eos", flag)},
		Sampling: inference.SamplingOptions{
			N: optionally(t, "n", rapid.Uint8()), BestOf: optionally(t, "best_of", rapid.Uint8()),
			PresencePenalty: optionally(t, "presence", finite32), FrequencyPenalty: optionally(t, "frequency", finite32),
			RepetitionPenalty: optionally(t, "repetition", finite32), Temperature: optionally(t, "temperature", finite32),
			TopP: optionally(t, "top_p", finite32), TopK: optionally(t, "top_k", rapid.Int32()), MinP: optionally(t, "min_p", finite32),
			UseBeamSearch: optionally(t, "beam", flag), LengthPenalty: optionally(t, "length", finite32), Seed: optionally(t, "seed", rapid.Int64()),
			IncludeStopString: optionally(t, "include", flag)},
		Output: inference.OutputOptions{
			Logprobs: optionally(t, "logprobs", u32), PromptLogprobs: optionally(t, "prompt_logprobs", u32), SkipSpecialTokens: optionally(t, "skip", flag),
			FormattedPrompt: optionally(t, "formatted", flag), ReturnTokensAsTokenIDs: optionally(t, "as ids", flag)},
		EOSTokenIDs: listOf(t, "eos", u32), CardChecksum: text.Draw(t, "mdc_sum"), Annotations: listOf(t, "annotations", text),
		PromptEmbeds: text.Draw(t, "embeds"), ExtraArgs: jsonOrNil(t, "extra_args"), EncoderResult: jsonOrNil(t, "encoder_result"),
		MediaIOArgs: jsonOrNil(t, "media_io"), MMProcessorArgs: jsonOrNil(t, "mm_processor"), RequireReasoning: flag.Draw(t, "reasoning"),
		TTFTTarget: optionally(t, "ttft", finite), ITLTarget: optionally(t, "itl", finite), RequestTimestamp: optionally(t, "timestamp", finite),
		HealthCheck: flag.Draw(t, "health"),
	}
	drawGuided(t, r)
	drawRouting(t, &r.Routing)
	drawRareRequest(t, r)
	return r
}

func drawGuided(t *rapid.T, r *inference.Request) {
	if !rapid.Bool().Draw(t, "guided") {
		return
	}
	text := rapid.String()
	r.Sampling.Guided = &inference.GuidedDecoding{JSON: jsonOrNil(t, "guided json"), Regex: text.Draw(t, "regex"), Choice: listOf(t, "choice", text),
		Grammar: text.Draw(t, "grammar"), StructuralTag: jsonOrNil(t, "tag"), Backend: text.Draw(t, "backend"), WhitespacePattern: text.Draw(t, "whitespace")}
}

func drawRouting(t *rapid.T, r *inference.Routing) {
	text, u32, u64 := rapid.String(), rapid.Uint32(), rapid.Uint64()
	*r = inference.Routing{
		BackendInstanceID: optionally(t, "instance", u64), PrefillWorkerID: optionally(t, "prefill", u64), DecodeWorkerID: optionally(t, "decode", u64),
		DPRank: optionally(t, "dp_rank", u32), PrefillDPRank: optionally(t, "prefill dp_rank", u32), ExpectedOutputTokens: optionally(t, "osl", u32),
		LoRAName: text.Draw(t, "lora"), CacheSalt: text.Draw(t, "salt"), PriorityJump: optionally(t, "jump", finite),
		Priority: optionally(t, "priority", rapid.Int32()), StrictPriority: optionally(t, "strict", u32), AllowedWorkerIDs: listOf(t, "allowed", u64)}
	if rapid.Bool().Draw(t, "constraints") {
		r.RequiredTaints = listOf(t, "required", text)
		r.PreferredTaints = rapid.MapOfN(text, finite32, 0, 3).Draw(t, "preferred")
	}
}

func drawRareRequest(t *rapid.T, r *inference.Request) {
	text, flag := rapid.String(), rapid.Bool()
	if flag.Draw(t, "override") {
		r.RouterOverride = &inference.RouterOverride{OverlapScoreCredit: optionally(t, "credit", finite), PrefillLoadScale: optionally(t, "scale", finite),
			RouterTemperature: optionally(t, "router temperature", finite), AssumeKVReuse: optionally(t, "reuse", flag),
			TrackPrefillTokens: optionally(t, "track", flag), SharedCacheMultiplier: optionally(t, "multiplier", finite)}
	}
	if flag.Draw(t, "prefill result") {
		r.PrefillResult = &inference.PrefillResult{DisaggregatedParams: drawOpaque(t, "params"), CachedTokens: optionally(t, "cached", rapid.Uint32())}
		r.PrefillResult.DisaggregatedParams.Codec = inference.MessagePack // so do those that are not there arrive
	}
	if flag.Draw(t, "bootstrap") {
		r.Bootstrap = &inference.Bootstrap{Host: text.Draw(t, "host"), Port: rapid.Uint16().Draw(t, "port"), Room: rapid.Uint64().Draw(t, "room")}
		copy(r.Bootstrap.HandoffID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "handoff"))
	}
	if flag.Draw(t, "agent") {
		r.AgentContext = &inference.AgentContext{SessionID: text.Draw(t, "session"), ParentSessionID: text.Draw(t, "parent"), SessionFinal: optionally(t, "final", flag)}
	}
	if flag.Draw(t, "media") {
		r.MultiModal = map[string][]inference.Media{}
		for _, kind := range []string{"image_url", "video_url"} {
			for range rapid.IntRange(0, 2).Draw(t, kind) {
				medium := inference.Media{UUID: rapid.StringN(1, 8, -1).Draw(t, "uuid")}
				if flag.Draw(t, "by url") {
					medium = inference.Media{URL: rapid.StringN(1, 8, -1).Draw(t, "url")}
				}
				r.MultiModal[kind] = append(r.MultiModal[kind], medium)
			}
		}
	}
}

// TestRequestsSurviveBothCodecs covers every member that travels in a body. The others stay with the frontend (session, policy
// class, query-only, the client's own request id) or travel in headers and control JSON (id, metadata, trace).
func TestRequestsSurviveBothCodecs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRequest(t)
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		prefix := []byte("before")
		body, err := AppendRequest(bytes.Clone(prefix), want, codec)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(body, prefix) {
			t.Fatalf("what was in the buffer is gone: %.20q", body)
		}
		got, err := DecodeRequest(body[len(prefix):], codec)
		if err != nil {
			t.Fatalf("%v in %q", err, body)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%v (-want +got):\n%s\n%q", codec, diff, body)
		}
	})
}

func drawOutput(t *rapid.T) *inference.Output {
	text, u32 := rapid.String(), rapid.Uint32()
	o := &inference.Output{}
	switch rapid.SampledFrom([]string{"tokens", "annotation", "body"}).Draw(t, "kind") {
	case "annotation":
		o.Event, o.Comments = rapid.StringMatching(`[a-z_]{1,12}`).Filter(func(s string) bool { return s != "error" }).Draw(t, "event"), listOf(t, "comments", text)
		return o
	case "body":
		o.Body = []byte(`{"embedding":[0.5,1e-07],"n":18446744073709551615}`)
		return o
	}
	o.TokenIDs = listOf(t, "token_ids", u32)
	if rapid.Bool().Draw(t, "has text") {
		o.Text, o.HasText = text.Draw(t, "text"), true
		o.Tokens = listOf(t, "tokens", text)
	}
	o.Index = u32.Draw(t, "index")
	o.CumLogprob = optionally(t, "cumulated", finite)
	o.Logprobs = listOf(t, "logprobs", finite)
	for range rapid.IntRange(0, 3).Draw(t, "positions") {
		o.TopLogprobs = append(o.TopLogprobs, listOf(t, "alternatives", rapid.Custom(drawTopToken)))
	}
	o.Finish = inference.FinishReason(rapid.IntRange(int(inference.FinishNone), int(inference.FinishError)).Draw(t, "finish"))
	if o.Finish == inference.FinishError {
		o.FinishMessage = text.Draw(t, "finish message")
	}
	switch rapid.IntRange(0, 2).Draw(t, "stop reason") {
	case 1:
		o.StopReason = inference.StopReason{Text: rapid.StringN(1, 8, -1).Draw(t, "stop text")}
	case 2:
		o.StopReason = inference.StopReason{TokenID: u32.Draw(t, "stop id"), IsToken: true}
	}
	if rapid.Bool().Draw(t, "has usage") {
		o.Usage = &inference.Usage{PromptTokens: u32.Draw(t, "prompt"), CompletionTokens: u32.Draw(t, "completion"), TotalTokens: u32.Draw(t, "total"),
			CachedTokens: optionally(t, "cached", u32), AudioTokens: optionally(t, "audio", u32), CompletionDetails: jsonOrNil(t, "details")}
	}
	o.DisaggregatedParams = drawOpaque(t, "params")
	o.EngineData, o.RoutingData = jsonOrNil(t, "engine data"), jsonOrNil(t, "routing data")
	o.ExtraArgs, o.EncoderResult = jsonOrNil(t, "extra args"), jsonOrNil(t, "encoder result")
	return o
}

func drawTopToken(t *rapid.T) inference.TopToken {
	token := inference.TopToken{Rank: rapid.Uint32().Draw(t, "rank"), TokenID: rapid.Uint32().Draw(t, "id"), Logprob: finite.Draw(t, "logprob"),
		Bytes: listOf(t, "bytes", rapid.Byte())}
	if rapid.Bool().Draw(t, "has token") {
		token.Token, token.HasText = rapid.String().Draw(t, "token"), true
	}
	return token
}

// TestAnswersSurviveBothCodecs sends several items through one encoder and one decoder: nothing of an item may show up in a
// later one, though both reuse their memory.
func TestAnswersSurviveBothCodecs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		items := rapid.SliceOfN(rapid.Custom(drawOutput), 1, 4).Draw(t, "items")
		encoder := ItemEncoder{Codec: codec}
		var stream []byte
		for _, item := range items {
			var err error
			if stream, err = encoder.AppendOutput(stream, item); err != nil {
				t.Fatal(err)
			}
		}
		stream = encoder.AppendFinal(stream)
		reader := NewMessageReader(bytes.NewReader(stream), DefaultMaxMessage)
		decoders := map[bool]*ItemDecoder{false: {Codec: codec}, true: {Codec: codec, Raw: true}}
		for i, want := range items {
			message, err := reader.Next()
			if err != nil {
				t.Fatal(err)
			}
			raw := want.Body != nil // items with bodies of their own are read by a decoder that leaves them alone
			got, err := decoders[raw].Decode(message.Data)
			if err != nil {
				t.Fatalf("item %d: %v in %q", i, err, message.Data)
			}
			if got.Final || got.Failure != nil {
				t.Fatalf("item %d: %+v", i, got)
			}
			if diff := cmp.Diff(want, got.Output, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%v, item %d (-want +got):\n%s\n%q", codec, i, diff, message.Data)
			}
		}
		message, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decoders[false].Decode(message.Data); err != nil || !got.Final || got.Output != nil {
			t.Fatalf("last item: %+v, %v", got, err)
		}
	})
}

// TestFailuresSurviveBothCodecs sends every kind with every text through an item and through a prologue. Kinds that have no
// error type of their own arrive as the nearest one that has.
func TestFailuresSurviveBothCodecs(t *testing.T) {
	arrivesAs := map[inference.Kind]inference.Kind{
		inference.PayloadTooLarge: inference.InvalidArgument, inference.ContextLengthLimit: inference.InvalidArgument,
		inference.RateLimited: inference.ResourceExhausted, inference.Unauthenticated: inference.Unknown,
		inference.NotImplemented: inference.Unknown, inference.ProtocolViolation: inference.Unknown,
	}
	kinds := []inference.Kind{inference.Unknown, inference.InvalidArgument, inference.CannotConnect, inference.Disconnected, inference.ConnectionTimeout,
		inference.ResponseTimeout, inference.Cancelled, inference.ResourceExhausted, inference.WorkerOverloaded, inference.Unavailable,
		inference.EngineShutdown, inference.StreamIncomplete, inference.BackendUnknown, inference.BackendInvalid, inference.Unauthenticated,
		inference.PayloadTooLarge, inference.RateLimited, inference.NotImplemented, inference.ProtocolViolation, inference.ContextLengthLimit}
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		sent := &inference.Error{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Message: rapid.StringN(1, 30, -1).Draw(t, "message")}
		if rapid.Bool().Draw(t, "has public") {
			sent.Public = rapid.StringN(1, 30, -1).Draw(t, "public")
		}
		want := *sent
		if sent.Public != "" {
			want.Message = sent.Public
		}
		if to, ok := arrivesAs[want.Kind]; ok {
			want.Kind = to
		}
		if rapid.Bool().Draw(t, "has status") {
			sent.Status = rapid.IntRange(400, 599).Draw(t, "status")
			want.Status = sent.Status
		}
		encoder := ItemEncoder{Codec: codec}
		message, err := ParseMessage(encoder.AppendFailure(nil, sent), DefaultMaxMessage)
		if err != nil {
			t.Fatal(err)
		}
		decoder := ItemDecoder{Codec: codec}
		item, err := decoder.Decode(message.Data)
		if err != nil || item.Failure == nil || item.Output != nil {
			t.Fatalf("%+v, %v", item, err)
		}
		prologue, err := ParseMessage(AppendPrologue(nil, sent), DefaultMaxMessage)
		if err != nil {
			t.Fatal(err)
		}
		refused, err := ParsePrologue(prologue.Header)
		if err != nil {
			t.Fatal(err)
		}
		for where, got := range map[string]*inference.Error{"item": item.Failure, "prologue": refused} {
			if want.Status != 0 {
				want.Kind = got.Kind // the status decides, the kind is the nearest to it
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", where, diff)
			}
		}
	})
}

func TestStatusesKeepTheirClass(t *testing.T) {
	for status, want := range map[int]inference.Kind{400: inference.InvalidArgument, 404: inference.Unknown, 422: inference.InvalidArgument, 429: inference.ResourceExhausted,
		499: inference.Cancelled, 500: inference.Unknown, 503: inference.Unavailable, 529: inference.ResourceExhausted} {
		encoder := ItemEncoder{Codec: inference.MessagePack}
		message, err := ParseMessage(encoder.AppendFailure(nil, &inference.Error{Message: "m", Status: status}), DefaultMaxMessage)
		if err != nil {
			t.Fatal(err)
		}
		var decoder ItemDecoder
		decoder.Codec = inference.MessagePack
		if item, err := decoder.Decode(message.Data); err != nil || item.Failure.Status != status || item.Failure.Kind != want || item.Failure.Message != "m" {
			t.Errorf("%d: %+v, %v", status, item.Failure, err)
		}
	}
}

// TestEveryMarkOfAFailureIsRead covers the spellings of error objects that only peers write.
func TestEveryMarkOfAFailureIsRead(t *testing.T) {
	for text, want := range map[string]inference.Error{
		`{"error_type":"Unknown","message":"m","caused_by":{"error_type":"Disconnected","message":"c"}}`: {Kind: inference.Unknown, Message: "m",
			Cause: &inference.Error{Kind: inference.Disconnected, Message: "c"}},
		`{"error_type":{"Backend":"EngineShutdown"},"message":"m"}`:                                              {Kind: inference.EngineShutdown, Message: "m"},
		`{"error_type":{"Backend":"Novel"},"message":"m"}`:                                                       {Kind: inference.BackendUnknown, Message: "m"},
		`{"error_type":"Novel","class":"RateLimited","message":"m"}`:                                             {Kind: inference.RateLimited, Message: "m"},
		`{"error_type":"Novel","class":"Novel","diagnostic":"d"}`:                                                {Kind: inference.Unknown, Message: "d"},
		`{"error_type":"InvalidArgument","message":"m","public":{"type":"context_length","message":"too long"}}`: {Kind: inference.ContextLengthLimit, Message: "m", Public: "too long"},
		`{"error_type":"Unknown","message":"{\"message\":\"limit\",\"code\":429}"}`:                              {Kind: inference.Unknown, Message: "limit", Status: 429},
		`{"error_type":"Unknown","message":"{\"message\":\"no status\",\"code\":99}"}`:                           {Kind: inference.Unknown, Message: `{"message":"no status","code":99}`},
		`"just a text"`: {Kind: inference.Unknown, Message: "just a text"},
		`{}`:            {Kind: inference.Unknown},
		`17`:            {Kind: inference.Unknown},
	} {
		for _, codec := range codecs {
			body := []byte(`{"data":{"event":"error","error":` + text + `},"complete_final":false}`)
			if codec == inference.MessagePack {
				body, _ = AppendMessagePack(nil, body)
			}
			decoder := ItemDecoder{Codec: codec}
			item, err := decoder.Decode(body)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			if diff := cmp.Diff(&want, item.Failure); diff != "" {
				t.Errorf("%v %s (-want +got):\n%s", codec, text, diff)
			}
		}
	}
	old := ItemDecoder{Codec: inference.JSON}
	if item, err := old.Decode([]byte(`{"data":{"event":"error","comment":["told so"]},"complete_final":false}`)); err != nil || item.Failure == nil || item.Failure.Message != "told so" {
		t.Errorf("failure in a comment: %+v, %v", item, err)
	}
}

func TestTranscodingKeepsNumbers(t *testing.T) {
	for _, text := range []string{`18446744073709551615`, `-9223372036854775808`, `0`, `0.1`, `1.0`, `1e-07`, `1e+16`, `-0.0`, `""`, `[]`, `{}`, `"é\n\u0001"`, `{"a":{"b":[null,true,false]}}`} {
		packed, err := AppendMessagePack(nil, []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got, err := AppendJSON(nil, packed); err != nil || string(got) != text {
			t.Errorf("%s became %s (error %v)", text, got, err)
		}
	}
	for _, special := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		value := appendFloat(nil, special, 64)
		if string(value) != "null" {
			t.Errorf("%v became %s: JSON has no word for it", special, value)
		}
	}
}
