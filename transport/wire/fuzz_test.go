package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"signalbox/inference"
)

// allocated returns how many bytes run allocates.
func allocated(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestAnnouncedLengthsCostNothing announces sizes that never arrive to every reader of outside bytes.
func TestAnnouncedLengthsCostNothing(t *testing.T) {
	const allowance = 1 << 20 // bytes; the announcements below reach from 32 MiB to 16 EiB
	huge64, huge32 := bytes.Repeat([]byte{0xff}, 16), []byte{0xff, 0xff, 0xff, 0xff}
	item := func(value ...byte) []byte { // {"data":{"data":{NAME: value
		return append([]byte("\x81\xa4data\x81\xa4data\x81"), value...)
	}
	decodeItem := func(data []byte) func() error {
		return func() error {
			decoder := ItemDecoder{Codec: inference.MessagePack}
			_, err := decoder.Decode(data)
			return err
		}
	}
	decodeRequest := func(data []byte) func() error {
		return func() error { _, err := DecodeRequest(data, inference.MessagePack); return err }
	}
	for name, run := range map[string]func() error{
		"message of 16 EiB": func() error {
			_, err := NewMessageReader(bytes.NewReader(append(huge64, make([]byte, 8)...)), DefaultMaxMessage).Next()
			return err
		},
		"sizes that overflow when added": func() error {
			prefix := binary.BigEndian.AppendUint64(nil, 1<<63)
			prefix = binary.BigEndian.AppendUint64(prefix, 1<<63)
			_, err := ParseMessage(append(prefix, make([]byte, 8)...), DefaultMaxMessage)
			return err
		},
		"message at the limit": func() error {
			prefix := AppendPrefix(nil, 0, DefaultMaxMessage-PrefixSize)
			_, err := NewMessageReader(bytes.NewReader(prefix), DefaultMaxMessage).Next()
			return err
		},
		"payload of 4 GiB": func() error {
			_, err := ReadRequestFrame(bytes.NewReader(append([]byte{0, 0, 0, 0}, huge32...)), DefaultMaxMessage)
			return err
		},
		"payload at the limit": func() error {
			frame := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0}, DefaultMaxMessage-8)
			_, err := ReadRequestFrame(bytes.NewReader(frame), DefaultMaxMessage)
			return err
		},
		"acknowledgement of 4 GiB":  func() error { _, err := ReadAck(bytes.NewReader(huge32)); return err },
		"item with 2^32 members":    decodeItem(append([]byte{0xdf}, huge32...)),
		"item with 2^32 tokens":     decodeItem(item(append([]byte("\xa9token_ids\xdd"), huge32...)...)),
		"item with 4 GiB of tokens": decodeItem(item(append([]byte("\xa9token_ids\xc6"), huge32...)...)),
		"item with 4 GiB of text":   decodeItem(item(append([]byte("\xa4text\xdb"), huge32...)...)),
		"2^32 alternatives":         decodeItem(item(append([]byte("\xactop_logprobs\x91\xdd"), huge32...)...)),
		"2^32 positions":            decodeItem(item(append([]byte("\xactop_logprobs\xdd"), huge32...)...)),
		"extension of 4 GiB":        decodeItem(item(append([]byte("\xa1x\xc9"), huge32...)...)),
		"request of 2^32 members":   decodeRequest(append([]byte{0xdf}, huge32...)),
		"request of 2^32 tokens":    decodeRequest(append([]byte("\x81\xa9token_ids\xdd"), huge32...)),
		"2^32 annotations":          decodeRequest(append([]byte("\x81\xabannotations\xdd"), huge32...)),
		"transcoded array":          func() error { _, err := AppendJSON(nil, append([]byte{0xdd}, huge32...)); return err },
		"transcoded map":            func() error { _, err := AppendJSON(nil, append([]byte{0xdf}, huge32...)); return err },
	} {
		var err error
		if got := allocated(func() { err = run() }); got > allowance {
			t.Errorf("%s: allocated %d bytes", name, got)
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestSmallElementsStayBounded sends lists whose elements take one byte each and much more in memory.
func TestSmallElementsStayBounded(t *testing.T) {
	const elements = 1 << 21
	list := func(element byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{0xdd}, elements), bytes.Repeat([]byte{element}, elements)...)
	}
	for name, data := range map[string][]byte{
		"empty positions":    append([]byte("\x81\xa4data\x81\xa4data\x81\xactop_logprobs"), list(0x90)...),
		"empty alternatives": append([]byte("\x81\xa4data\x81\xa4data\x81\xactop_logprobs\x91"), list(0x80)...),
		"empty texts":        append([]byte("\x81\xa4data\x81\xa4data\x81\xa6tokens"), list(0xa0)...),
		"empty comments":     append([]byte("\x81\xa4data\x81\xa7comment"), list(0xa0)...),
	} {
		decoder := ItemDecoder{Codec: inference.MessagePack}
		var err error
		if got := allocated(func() { _, err = decoder.Decode(data) }); got > 1<<20 || err == nil {
			t.Errorf("%s: allocated %d bytes, error %v", name, got, err)
		}
	}
	for name, data := range map[string][]byte{
		"annotations": append([]byte("\x81\xabannotations"), list(0xa0)...),
		"workers":     append([]byte("\x81\xa7routing\x81\xb2allowed_worker_ids"), list(0)...),
		"media":       append([]byte("\x81\xb0multi_modal_data\x81\xa1x"), list(0x80)...),
	} {
		var err error
		if got := allocated(func() { _, err = DecodeRequest(data, inference.MessagePack) }); got > 1<<20 || err == nil {
			t.Errorf("%s: allocated %d bytes, error %v", name, got, err)
		}
	}
}

// TestNestingIsBounded sends bodies that nest deeper than any stack should go.
func TestNestingIsBounded(t *testing.T) {
	arrays := bytes.Repeat([]byte{0x91}, 1<<20)
	maps := bytes.Repeat([]byte{0x81, 0x01}, 1<<20)
	for name, value := range map[string][]byte{"arrays": arrays, "maps": maps} {
		decoder := ItemDecoder{Codec: inference.MessagePack}
		if _, err := decoder.Decode(append([]byte("\x81\xa1x"), value...)); !isFormat(err) {
			t.Errorf("%s, skipped: %v", name, err)
		}
		if _, err := AppendJSON(nil, value); !isFormat(err) {
			t.Errorf("%s, transcoded: %v", name, err)
		}
	}
	if _, err := AppendMessagePack(nil, []byte(strings.Repeat("[", 1<<20))); err == nil {
		t.Error("nested JSON was accepted")
	}
}

func isFormat(err error) bool {
	var format *FormatError
	return errors.As(err, &format)
}

// TestMalformedBodiesAreNamed says where and what for the mistakes that a peer may make.
func TestMalformedBodiesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{"data":{"data":{"token_ids":"no"}}}`:                              "an array was expected, found a string",
		`{"data":{"data":{"token_ids":[-1]}}}`:                              "a whole number from 0 to 4294967295 was expected, found -1",
		`{"data":{"data":{"token_ids":[4294967296]}}}`:                      "found 4294967296",
		`{"data":{"data":{"token_ids":[1.5]}}}`:                             "found a float",
		`{"data":{"data":{"text":7}}}`:                                      "a string was expected, found an integer",
		`{"data":{"data":{"log_probs":[true]}}}`:                            "a number was expected, found a boolean",
		`{"data":{"data":{"top_logprobs":[[{"rank":-1,"token_id":1}]]}}}`:   "found -1",
		`{"data":{"data":{"completion_usage":[]}}}`:                         "a map was expected, found an array",
		`{"data":[],"complete_final":false}`:                                "a map was expected, found an array",
		`{"complete_final":1}`:                                              "true or false was expected, found an integer",
		`[]`:                                                                "a map was expected, found an array",
		`{"data":{"data":{"stop_reason":{}}}}`:                              "a whole number",
		`{"data":{"data":{"token_ids":[1]}},"complete_final":false} and on`: "trailing characters",
	} {
		decoder := ItemDecoder{Codec: inference.JSON}
		_, err := decoder.Decode([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"token_ids":[1],"stop_conditions":{"max_tokens":-1}}`: "found -1",
		`{"token_ids":[1],"routing":{"dp_rank":"0"}}`:           "found a string",
		`{"token_ids":[1],"bootstrap_info":{"handoff_id":"x"}}`: `handoff_id "x" is no UUID`,
		`{"token_ids":{"a":1}}`:                                 "an array was expected, found a map",
		`{"token_ids":[1],"sampling_options":{"seed":1e30}}`:    "a whole number",
		`nonsense`: "request body",
	} {
		_, err := DecodeRequest([]byte(text), inference.JSON)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "request body: ") {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
}

func TestControlsThatAreRefused(t *testing.T) {
	const good = `{"id":"a","request_type":"single_in","response_type":"many_out","payload_codec":"msgpack","connection_info":{"transport":"tcp_server","info":"{\"address\":\"h:1\",\"subject\":\"s\",\"context\":\"a\",\"stream_type\":\"response\"}"}}`
	if _, err := ParseControl([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ from, to, want string }{
		{`"msgpack"`, `"cbor"`, `payload_codec is "cbor", must be json or msgpack`},
		{`single_in`, `none_in`, `request_type is "none_in"`},
		{`tcp_server`, `quic_server`, `connection_info.transport is "quic_server"`},
		{`\"context\":\"a\"`, `\"context\":\"b\"`, `context is "b", must equal the id "a"`},
		{`\"address\":\"h:1\"`, `\"address\":\"\"`, `needs an address and a subject`},
		{`"info":"{`, `"info":"`, `connection_info.info`},
		{`{"id"`, `{"id":1,"x"`, `control JSON`},
	} {
		_, err := ParseControl([]byte(strings.Replace(good, change.from, change.to, 1)))
		if err == nil || !strings.Contains(err.Error(), change.want) {
			t.Errorf("%s: %v, want %q in it", change.to, err, change.want)
		}
	}
	long := `{"id":"` + strings.Repeat("x", MaxControl) + `"}`
	if _, err := ParseControl([]byte(long)); err == nil {
		t.Error("control JSON beyond the limit was accepted")
	}
	if _, err := ParseHandshake([]byte(`{"subject":"","stream_type":"response"}`)); err == nil {
		t.Error("a handshake without a subject was accepted")
	}
}

func FuzzItem(f *testing.F) {
	f.Add([]byte("\x82\xa4data\x81\xa4data\x82\xa9token_ids\x92\x01\xcd\x03\xe8\xadfinish_reason\xa3eos\xaecomplete_final\xc2"), false)
	f.Add([]byte("\x81\xa4data\x81\xa5error\x82\xaaerror_type\x81\xa7Backend\xa7Unknown\xa7message\xa1m"), false)
	f.Add([]byte("\x81\xa4data\x81\xa4data\x82\xa9token_ids\xc4\x04\x01\x00\x00\x00\xactop_logprobs\x91\x91\x81\xa4rank\x01"), false)
	f.Add([]byte(`{"data":{"data":{"token_ids":[1],"text":"x","log_probs":[-0.5],"completion_usage":{"prompt_tokens":1}}},"complete_final":false}`), true)
	f.Fuzz(func(t *testing.T, data []byte, asJSON bool) {
		codec := inference.MessagePack
		if asJSON {
			codec = inference.JSON
		}
		raw := ItemDecoder{Codec: codec, Raw: true}
		_, _ = raw.Decode(data)
		decoder := ItemDecoder{Codec: codec}
		item, err := decoder.Decode(data)
		if err != nil || item.Output == nil || item.Output.Event != "" || len(item.Output.Comments) > 0 {
			return
		}
		// What was read can be written, and says the same.
		encoder := ItemEncoder{Codec: codec}
		again, err := encoder.AppendOutput(nil, item.Output)
		if err != nil {
			t.Fatalf("an output that was read cannot be written: %v", err)
		}
		message, err := ParseMessage(again, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		second := ItemDecoder{Codec: codec}
		reread, err := second.Decode(message.Data)
		if err != nil {
			t.Fatalf("%v in %q", err, message.Data)
		}
		ignored := cmpopts.IgnoreFields(inference.Output{}, "DisaggregatedParams", "ExtraArgs", "EngineData", "RoutingData", "EncoderResult", "Usage")
		lossy := cmp.FilterValues(func(a, b float64) bool { return true }, cmp.Comparer(func(a, b float64) bool { return a == b || a != a || b != b }))
		if !asJSON { // strings of invalid UTF-8 survive MessagePack only
			if diff := cmp.Diff(item.Output, reread.Output, cmpopts.EquateEmpty(), ignored, lossy); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func FuzzRequest(f *testing.F) {
	body, err := AppendRequest(nil, &inference.Request{Model: "m", TokenIDs: []uint32{1, 2}, Stop: inference.StopConditions{MaxTokens: ptr(uint32(3)), Strings: []string{"x"}},
		Bootstrap: &inference.Bootstrap{Host: "h", Port: 1, Room: 2}, Annotations: []string{"a"}, ExtraArgs: []byte(`{"a":1}`)}, inference.MessagePack)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body, false)
	f.Add([]byte(`{"token_ids":[1,2],"routing":{"allowed_worker_ids":[1]},"multi_modal_data":{"image_url":[{"Url":"u"}]},"prefill_result":{"disaggregated_params":{}}}`), true)
	f.Fuzz(func(t *testing.T, data []byte, asJSON bool) {
		codec := inference.MessagePack
		if asJSON {
			codec = inference.JSON
		}
		request, err := DecodeRequest(data, codec)
		if err != nil {
			return
		}
		again, err := AppendRequest(nil, request, codec)
		if err != nil {
			t.Fatalf("a request that was read cannot be written: %v", err)
		}
		if _, err := DecodeRequest(again, codec); err != nil {
			t.Fatalf("%v in %q", err, again)
		}
	})
}

func FuzzTranscode(f *testing.F) {
	f.Add([]byte("\x82\xa1a\x93\xc0\xc3\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\x01\xc4\x02\x00\xff"))
	f.Add([]byte("\xd4\x01\x00"))
	f.Fuzz(func(t *testing.T, value []byte) {
		text, err := AppendJSON(nil, value)
		if err != nil {
			if !isFormat(err) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		packed, err := AppendMessagePack(nil, text)
		if err != nil {
			if strings.Contains(err.Error(), "duplicate field") { // MessagePack allows what JSON readers refuse
				return
			}
			t.Fatalf("%v in our own JSON %q", err, text)
		}
		again, err := AppendJSON(nil, packed)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%q became %q (error %v)", text, again, err)
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add(AppendMessage(AppendControlWord(nil, Stop), []byte(`{"error":null}`), []byte("data")))
	f.Add(AppendHandshake(nil, "subject", ResponseStream))
	f.Add(AppendPrologue(nil, inference.Errorf(inference.InvalidArgument, "bad")))
	f.Add(AppendAck(nil, "Server overloaded: full"))
	if frame, err := AppendRequestFrame(nil, RequestFrame{Path: "a/b", Headers: []byte("{}"), Payload: []byte("p")}, 100); err == nil {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 1 << 16
		reader := NewMessageReader(bytes.NewReader(data), limit)
		for consumed := 0; ; {
			message, err := reader.Next()
			if err != nil {
				if err != io.EOF && err != io.ErrUnexpectedEOF && !isFormat(err) {
					t.Fatalf("error of another kind: %v", err)
				}
				break
			}
			whole := AppendMessage(nil, message.Header, message.Data)
			if alone, err := ParseMessage(whole, limit); err != nil || !bytes.Equal(alone.Header, message.Header) || !bytes.Equal(alone.Data, message.Data) {
				t.Fatalf("read alone: %v", err)
			}
			if consumed += len(whole); consumed > len(data) {
				t.Fatalf("%d bytes read of %d", consumed, len(data))
			}
			_, _ = ParseHandshake(message.Header)
			_, _ = ParsePrologue(message.Header)
			_, _ = ParseHeaders(message.Header)
			_ = ParseControlWord(message.Header)
		}
		source := bytes.NewReader(data)
		if frame, err := ReadRequestFrame(source, limit); err == nil {
			again, err := AppendRequestFrame(nil, frame, limit)
			if err != nil || !bytes.Equal(again, data[:len(data)-source.Len()]) {
				t.Fatalf("frame written again differs (error %v)", err)
			}
			if message, err := ParseMessage(frame.Payload, limit); err == nil {
				_, _ = ParseControl(message.Header)
			}
		}
		if text, err := ReadAck(bytes.NewReader(data)); err == nil {
			_ = KindOfAck(text)
		}
	})
}

func FuzzControl(f *testing.F) {
	f.Add(AppendControl(nil, &Control{ID: "id", Codec: inference.MessagePack, Metadata: map[string]string{"policy-class": "batch"},
		CallHome: CallHome{Address: "127.0.0.1:1", Subject: "s", Context: "id", StreamType: ResponseStream}}))
	f.Add([]byte(`{"error":"x","typed_error":{"error_type":"Unknown"}}`))
	f.Add([]byte(`{"subject":"s","stream_type":"response"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = ParsePrologue(text)
		if handshake, err := ParseHandshake(text); err == nil {
			message, err := ParseMessage(AppendHandshake(nil, handshake.Subject, handshake.StreamType), DefaultMaxMessage)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := ParseHandshake(message.Header); err != nil || again != handshake {
				t.Fatalf("%+v became %+v (error %v)", handshake, again, err)
			}
		}
		control, err := ParseControl(text)
		if err != nil || control.Bidirectional || control.RequestStream != nil {
			return
		}
		control.CallHome.StreamType = ResponseStream
		again, err := ParseControl(AppendControl(nil, control))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(control, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}
