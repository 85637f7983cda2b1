package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"signalbox/inference"
	"signalbox/internal/golden"
)

// recording returns the bytes of one recorded exchange.
func recording(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(golden.Dir(t, "request_plane"), name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// inPieces are the ways in which the same bytes may arrive: in one piece, and one by one.
func inPieces(data []byte) map[string]io.Reader {
	return map[string]io.Reader{"whole": bytes.NewReader(data), "byte by byte": iotest.OneByteReader(bytes.NewReader(data))}
}

// value returns what a body says, whatever the order of its members.
func value(t testing.TB, body []byte, codec inference.Codec) any {
	t.Helper()
	if codec == inference.MessagePack {
		text, err := AppendJSON(nil, body)
		if err != nil {
			t.Fatal(err)
		}
		body = text
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%v in %.300q", err, body)
	}
	return v
}

func readRequest(t *testing.T, name string) (frame RequestFrame, control *Control, body []byte) {
	t.Helper()
	data := recording(t, name)
	for arrival, source := range inPieces(data) {
		var err error
		if frame, err = ReadRequestFrame(source, DefaultMaxMessage); err != nil {
			t.Fatalf("%s: %v", arrival, err)
		}
		again, err := AppendRequestFrame(nil, frame, DefaultMaxMessage)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%s: the frame written again differs (error %v)", arrival, err)
		}
		if _, err := ReadRequestFrame(source, DefaultMaxMessage); !errors.Is(err, io.EOF) {
			t.Fatalf("%s: after the frame: %v, want the end", arrival, err)
		}
	}
	message, err := ParseMessage(frame.Payload, DefaultMaxMessage)
	if err != nil {
		t.Fatal(err)
	}
	if control, err = ParseControl(message.Header); err != nil {
		t.Fatal(err)
	}
	return frame, control, message.Data
}

func ptr[T any](v T) *T { return &v }

func TestGoldenRequests(t *testing.T) {
	prompt := []uint32{151644, 872, 198, 45764, 15588, 151645, 198, 151644, 77091, 198}
	eos := []uint32{151645}
	loadOnly := &inference.RouterOverride{OverlapScoreCredit: ptr(0.0), AssumeKVReuse: ptr(false), TrackPrefillTokens: ptr(false)}
	meeting := &inference.Bootstrap{Host: "127.0.0.1", Port: 18551, Room: 0x5fbe72f40a2ca64c,
		HandoffID: [16]byte{0x4e, 0xca, 0xd5, 0x4d, 0xa8, 0xc0, 0x4e, 0x8e, 0x80, 0x8f, 0x0d, 0x52, 0xb1, 0x13, 0x17, 0x51}}
	chat := inference.Request{Model: "qwen3", TokenIDs: prompt, EOSTokenIDs: eos,
		Stop: inference.StopConditions{MaxTokens: ptr(uint32(3)), HiddenTokenIDs: eos}, Annotations: []string{}}
	with := func(change func(*inference.Request)) *inference.Request {
		r := chat
		change(&r)
		return &r
	}
	first := func(model string) *inference.Request {
		return with(func(r *inference.Request) {
			r.Model = model
			r.Stop.MaxTokens, r.Stop.Strings = ptr(uint32(4)), []string{"END"}
			r.Sampling = inference.SamplingOptions{Temperature: ptr(float32(0.7)), TopP: ptr(float32(0.9)), Seed: ptr(int64(7))}
			r.Annotations = []string{"token_ids", "formatted_prompt"}
			r.Routing.DPRank = ptr(uint32(0))
		})
	}
	for name, want := range map[string]*inference.Request{
		"v161_tcp_request": first("qwen3"),
		"v151_tcp_request": first("qwen3-dir"),
		"v161_tcp_disagg_prefill_request": with(func(r *inference.Request) {
			r.Stop.MaxTokens, r.Bootstrap = ptr(uint32(1)), meeting
			r.Routing = inference.Routing{PrefillWorkerID: ptr(uint64(0x250a22e53901943)), DPRank: ptr(uint32(0)), PrefillDPRank: ptr(uint32(0))}
		}),
		"v161_tcp_disagg_decode_request": with(func(r *inference.Request) {
			r.RouterOverride, r.Bootstrap = loadOnly, meeting
			r.Routing = inference.Routing{PrefillWorkerID: ptr(uint64(0x250a22e53901943)), DPRank: ptr(uint32(0)), PrefillDPRank: ptr(uint32(0))}
		}),
		"v161_tcp_disagg_handoff_decode_request": with(func(r *inference.Request) {
			r.RouterOverride = loadOnly
			r.Routing = inference.Routing{PrefillWorkerID: ptr(uint64(0x1a6354737e42be32)), DPRank: ptr(uint32(0))}
			r.PrefillResult = &inference.PrefillResult{CachedTokens: ptr(uint32(0)),
				DisaggregatedParams: inference.Opaque{Codec: inference.MessagePack, Bytes: []byte("\xa5dummy")}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			frame, control, body := readRequest(t, name)
			headers, err := ParseHeaders(frame.Headers)
			if err != nil {
				t.Fatal(err)
			}
			if headers["request-id"] != control.ID || headers["x-endpoint-path"] != frame.Path || control.Codec != inference.MessagePack ||
				control.CallHome.StreamType != ResponseStream {
				t.Errorf("control %+v, headers %v, path %q do not belong together", control, headers, frame.Path)
			}
			got, err := DecodeRequest(body, control.Codec)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.CardChecksum) != 64 {
				t.Errorf("card checksum %q has not 64 digits", got.CardChecksum)
			}
			want.CardChecksum = got.CardChecksum // of a card that only the capture knew
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
			again, err := AppendRequest(nil, got, inference.MessagePack)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, body) {
				t.Errorf("the body written again differs:\n%s", cmp.Diff(value(t, body, inference.MessagePack), value(t, again, inference.MessagePack)))
			}
			written := AppendControl(nil, control)
			if diff := cmp.Diff(value(t, mustHeader(t, frame.Payload), inference.JSON), value(t, written, inference.JSON)); diff != "" {
				t.Errorf("control written again (-want +got):\n%s", diff)
			}
		})
	}
}

func mustHeader(t testing.TB, payload []byte) []byte {
	t.Helper()
	message, err := ParseMessage(payload, DefaultMaxMessage)
	if err != nil {
		t.Fatal(err)
	}
	return message.Header
}

func TestGoldenRequestInJSON(t *testing.T) {
	_, control, body := readRequest(t, "v161_tcp_request_json")
	if control.Codec != inference.JSON {
		t.Fatalf("codec %v", control.Codec)
	}
	got, err := DecodeRequest(body, control.Codec)
	if err != nil {
		t.Fatal(err)
	}
	want := &inference.Request{Model: "qwen3", TokenIDs: []uint32{1, 2, 3}, EOSTokenIDs: []uint32{}, Annotations: []string{},
		Stop:     inference.StopConditions{MaxTokens: ptr(uint32(2)), IgnoreEOS: ptr(true)},
		Sampling: inference.SamplingOptions{Temperature: ptr(float32(0))}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	again, err := AppendRequest(nil, got, inference.JSON)
	if err != nil {
		t.Fatal(err)
	}
	before, after := value(t, body, inference.JSON).(map[string]any), value(t, again, inference.JSON).(map[string]any)
	before["routing"] = map[string]any{} // the recorded probe had no routing at all
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("written again (-want +got):\n%s", diff)
	}
}

func TestGoldenSmallestFrame(t *testing.T) {
	data := recording(t, "v161_tcp_request_unknown_endpoint")
	for arrival, source := range inPieces(data) {
		frame, err := ReadRequestFrame(source, DefaultMaxMessage)
		if err != nil || frame.Path != "abc/def" || string(frame.Headers) != "{}" || len(frame.Payload) != 0 {
			t.Errorf("%s: %+v, %v", arrival, frame, err)
		}
	}
}

func TestGoldenAcknowledgements(t *testing.T) {
	for name, want := range map[string]string{"v161_tcp_ack_ok": "", "v161_tcp_ack_unknown_endpoint": "Server unavailable: unknown endpoint abc/def"} {
		data := recording(t, name)
		for arrival, source := range inPieces(data) {
			if got, err := ReadAck(source); err != nil || got != want {
				t.Errorf("%s, %s: %q, %v", name, arrival, got, err)
			}
			if _, err := ReadAck(source); !errors.Is(err, io.EOF) {
				t.Errorf("%s, %s: after it: %v", name, arrival, err)
			}
		}
		if again := AppendAck(nil, want); !bytes.Equal(again, data) {
			t.Errorf("%s: written again: % x", name, again)
		}
	}
	if got := KindOfAck("Server unavailable: unknown endpoint abc/def"); got != inference.Unavailable {
		t.Errorf("kind %s", got)
	}
}

func TestGoldenControlWords(t *testing.T) {
	for name, want := range map[string]ControlWord{"v161_tcp_control_stop": Stop, "v161_tcp_control_kill": Kill} {
		data := recording(t, name)
		message, err := ParseMessage(data, DefaultMaxMessage)
		if err != nil || ParseControlWord(message.Header) != want || len(message.Data) != 0 {
			t.Errorf("%s: %q, %v", name, message.Header, err)
		}
		if again := AppendControlWord(nil, want); !bytes.Equal(again, data) {
			t.Errorf("%s: written again: % x", name, again)
		}
	}
}

// answer is a recorded answer, read to where it breaks off.
type answer struct {
	outputs  []inference.Output
	failure  *inference.Error
	final    bool
	sentinel bool
	clean    bool     // the end of the connection came between two messages
	frames   [][]byte // the data of all items
}

func readAnswer(t *testing.T, source io.Reader, codec inference.Codec) (a answer) {
	t.Helper()
	reader := NewMessageReader(source, DefaultMaxMessage)
	next := func() Message {
		message, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		return message
	}
	if handshake, err := ParseHandshake(next().Header); err != nil || handshake.StreamType != ResponseStream {
		t.Fatalf("handshake %+v, %v", handshake, err)
	}
	if failure, err := ParsePrologue(next().Header); err != nil || failure != nil {
		t.Fatalf("prologue: %v, %v", failure, err)
	}
	decoder := ItemDecoder{Codec: codec}
	for {
		message, err := reader.Next()
		if err != nil {
			a.clean = err == io.EOF
			return a
		}
		if len(message.Data) == 0 {
			a.sentinel = ParseControlWord(message.Header) == Sentinel
			continue
		}
		item, err := decoder.Decode(message.Data)
		if err != nil {
			t.Fatal(err)
		}
		a.frames = append(a.frames, bytes.Clone(message.Data))
		switch {
		case item.Failure != nil:
			a.failure = item.Failure
		case item.Final:
			a.final = true
		case item.Output != nil:
			a.outputs = append(a.outputs, deepCopy(*item.Output))
		}
	}
}

// deepCopy keeps an output beyond the decoder's next item.
func deepCopy(o inference.Output) inference.Output {
	o.TokenIDs = append([]uint32{}, o.TokenIDs...)
	if o.Tokens != nil {
		o.Tokens = append([]string{}, o.Tokens...)
	}
	if o.Usage != nil {
		usage := *o.Usage
		if usage.CachedTokens != nil {
			usage.CachedTokens = ptr(*usage.CachedTokens)
		}
		o.Usage = &usage
	}
	return o
}

func tokens(ids ...uint32) inference.Output {
	return inference.Output{TokenIDs: append([]uint32{}, ids...)}
}

func usage(o inference.Output, prompt, completion uint32) inference.Output {
	o.Usage = &inference.Usage{PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion, CachedTokens: ptr(uint32(0))}
	return o
}

func finish(o inference.Output, reason inference.FinishReason) inference.Output {
	o.Finish = reason
	return o
}

func spoken(id uint32, text string) inference.Output {
	return inference.Output{TokenIDs: []uint32{id}, Text: text, HasText: true, Tokens: []string{text}}
}

func TestGoldenAnswers(t *testing.T) {
	prefilled := usage(tokens(1004), 10, 1)
	prefilled.DisaggregatedParams = inference.Opaque{Codec: inference.MessagePack, Bytes: []byte("\xa5dummy")}
	ended := usage(finish(tokens(), inference.FinishLength), 10, 4)
	ended.Tokens = []string{} // 1.5.1 says which texts the no tokens have
	for name, want := range map[string]answer{
		"v161_tcp_response_stream": {final: true, sentinel: true, clean: true, outputs: []inference.Output{
			usage(tokens(1008), 10, 1), tokens(1316), tokens(1045), tokens(1657), usage(finish(tokens(), inference.FinishLength), 10, 4)}},
		"v161_tcp_response_stream_json": {final: true, sentinel: true, clean: true, outputs: []inference.Output{
			usage(tokens(1666), 3, 1), tokens(1080), usage(finish(tokens(), inference.FinishLength), 3, 2)}},
		"v161_tcp_disagg_prefill_response": {final: true, sentinel: true, clean: true, outputs: []inference.Output{
			prefilled, usage(finish(tokens(), inference.FinishLength), 10, 1)}},
		"v161_tcp_response_stream_error": {final: true, sentinel: true, clean: true, failure: &inference.Error{Kind: inference.InvalidArgument,
			Message: "dp_rank 99 is out of bounds for dp_size 1", Public: "dp_rank 99 is out of bounds for dp_size 1"}},
		"v161_tcp_response_stream_cancelled": {clean: true, outputs: []inference.Output{usage(tokens(1257), 3, 1), tokens(1380)}},
		"v151_tcp_response_stream": {final: true, sentinel: true, clean: true, outputs: []inference.Output{
			usage(spoken(1827, `").`), 10, 1), spoken(1239, "loat"), spoken(1201, "ouble"), spoken(1615, " mon"), ended}},
	} {
		t.Run(name, func(t *testing.T) {
			codec := inference.MessagePack
			if strings.HasSuffix(name, "json") {
				codec = inference.JSON
			}
			data := recording(t, name)
			for arrival, source := range inPieces(data) {
				got := readAnswer(t, source, codec)
				frames := got.frames
				got.frames = nil
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
					t.Errorf("%s (-want +got):\n%s", arrival, diff)
				}
				rewrite(t, data, codec, got, frames)
			}
		})
	}
}

// rewrite writes an answer as our own worker would and compares with the recording: 1.6.1's byte for byte in MessagePack and
// by value in JSON. 1.5.1 has no output_type, which is the one difference.
func rewrite(t *testing.T, data []byte, codec inference.Codec, got answer, frames [][]byte) {
	t.Helper()
	encoder := ItemEncoder{Codec: codec}
	var items []byte
	for i := range got.outputs {
		var err error
		if items, err = encoder.AppendOutput(items, &got.outputs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if got.failure != nil {
		items = encoder.AppendFailure(items, got.failure)
	}
	if got.final {
		items = encoder.AppendFinal(items)
	}
	reader := NewMessageReader(bytes.NewReader(items), DefaultMaxMessage)
	same := true
	for i, frame := range frames {
		message, err := reader.Next()
		if err != nil {
			t.Fatalf("item %d written again: %v", i, err)
		}
		same = same && bytes.Equal(frame, message.Data)
		before, after := value(t, frame, codec), value(t, message.Data, codec)
		if outer, ok := before.(map[string]any)["data"].(map[string]any); ok {
			if inner, ok := outer["data"].(map[string]any); ok {
				inner["output_type"] = "text"
			}
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("item %d written again (-want +got):\n%s", i, diff)
		}
	}
	if old := strings.Contains(t.Name(), "v151"); codec == inference.MessagePack && same == old {
		t.Errorf("all bytes equal: %v, want %v", same, !old)
	}
	if got.sentinel {
		items = AppendControlWord(items, Sentinel)
	}
	if codec == inference.MessagePack && same && !bytes.HasSuffix(data, items) {
		t.Error("the frames written again differ")
	}
}

// TestGoldenMessageQueuePayload reads the two-part message that travels inside a NATS message.
func TestGoldenMessageQueuePayload(t *testing.T) {
	for _, name := range []string{"v161_nats_hpub_request", "v161_nats_hmsg_request"} {
		_, rest, _ := bytes.Cut(recording(t, name), []byte("\r\n\r\n")) // after the protocol line and the headers
		message, err := ParseMessage(bytes.TrimSuffix(rest, []byte("\r\n")), DefaultMaxMessage)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		control, err := ParseControl(message.Header)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		request, err := DecodeRequest(message.Data, control.Codec)
		if err != nil || len(request.TokenIDs) == 0 {
			t.Fatalf("%s: %+v, %v", name, request, err)
		}
		again, err := AppendRequest(nil, request, control.Codec)
		if err != nil || !bytes.Equal(again, message.Data) {
			t.Errorf("%s: the body written again differs (error %v):\n%s", name, err,
				cmp.Diff(value(t, message.Data, control.Codec), value(t, again, control.Codec)))
		}
	}
}
