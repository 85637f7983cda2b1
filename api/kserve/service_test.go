package kserve

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"signalbox/api/openai"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bytesCodec lets a test send and receive messages as they are on the wire.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// reader decodes what the service answers.
type reader struct {
	inferResponse
	failure string
	flag    bool
}

func (r *reader) field(number protowire.Number, _ protowire.Type, value field) (err error) {
	switch number {
	case 1:
		r.flag, r.model = value.number == 1, string(value.bytes)
	case 2:
		r.version = string(value.bytes)
	case 3:
		r.id = string(value.bytes)
	case 4:
		r.parameters, err = decodeParameter(r.parameters, value)
	case 5:
		output := &tensor{}
		err = decode(value.bytes, output)
		r.outputs = append(r.outputs, output)
	case 6:
		r.raw = append(r.raw, value.bytes)
	}
	return err
}

// streamReader decodes ModelStreamInferResponse.
type streamReader struct{ reader }

func (r *streamReader) field(number protowire.Number, _ protowire.Type, value field) error {
	if number == 1 {
		r.failure = string(value.bytes)
		return nil
	}
	return decode(value.bytes, &r.reader)
}

func (r *inferRequest) appendTo(b []byte) []byte {
	b = appendText(b, 1, r.model)
	b = appendText(b, 3, r.id)
	b = appendParameters(b, 4, r.parameters)
	for _, input := range r.inputs {
		b = appendBytes(b, 5, input.appendTo(nil))
	}
	for _, raw := range r.raw {
		b = appendBytes(b, 7, raw)
	}
	return b
}

// fakeModel answers text with its deltas and tensors with its bodies.
type fakeModel struct {
	openai.Model
	kind   openai.Kind
	ready  bool
	deltas []pipeline.Delta
	bodies []string
	fail   error

	mu   sync.Mutex
	job  *pipeline.Job
	body []byte
}

func (m *fakeModel) Name() string                 { return "canonical" }
func (m *fakeModel) Ready() bool                  { return m.ready }
func (m *fakeModel) Serves(kind openai.Kind) bool { return kind == m.kind }
func (m *fakeModel) Generate(_ context.Context, job *pipeline.Job) (openai.Generation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.job = job
	return &fakeGeneration{model: m}, nil
}
func (m *fakeModel) Forward(_ context.Context, _ string, body []byte) (inference.Stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.body = body
	return &fakeStream{model: m}, nil
}

type fakeGeneration struct {
	openai.Generation
	model *fakeModel
	at    int
}

func (g *fakeGeneration) Next(ctx context.Context) (*pipeline.Delta, error) {
	if g.at == len(g.model.deltas) {
		if g.model.fail != nil {
			return nil, g.model.fail
		}
		return nil, io.EOF
	}
	g.at++
	return &g.model.deltas[g.at-1], ctx.Err()
}
func (g *fakeGeneration) Usage() pipeline.Usage { return pipeline.Usage{} }
func (g *fakeGeneration) Close() error          { return nil }

type fakeStream struct {
	inference.Stream
	model *fakeModel
	at    int
}

func (s *fakeStream) Next(context.Context) (*inference.Output, error) {
	if s.at == len(s.model.bodies) {
		return nil, io.EOF
	}
	s.at++
	return &inference.Output{Body: []byte(s.model.bodies[s.at-1])}, nil
}
func (s *fakeStream) Close() error { return nil }

type fakeModels map[string]*fakeModel

func (m fakeModels) Find(name string) openai.Model {
	if found := m[name]; found != nil {
		return found
	}
	return nil
}
func (m fakeModels) Card(string) *card.Card { return nil }
func (m fakeModels) AnyReady() bool         { return len(m) > 0 }

type ignore struct{}

func (ignore) Begin(string, string, bool) openai.RequestObserver { return ignore{} }
func (ignore) Refused(*problem.Problem)                          {}
func (ignore) Model(string)                                      {}
func (ignore) Named(string, string, string)                      {}
func (ignore) Media(int, int, int)                               {}
func (ignore) Dispatched()                                       {}
func (ignore) Tokens(int)                                        {}
func (ignore) End(_ pipeline.Usage, _ *problem.Problem, _ bool)  {}

func connect(t *testing.T, models fakeModels, change func(*Options)) *grpc.ClientConn {
	t.Helper()
	options := Options{Host: "127.0.0.1", Observer: ignore{}, Completions: openai.New(nil, ignore{}, openai.Options{BodyLimitMB: 1})}
	if change != nil {
		change(&options)
	}
	service, err := Start(models, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	connection, err := grpc.NewClient(service.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

const prefix = "/inference.GRPCInferenceService/"

func infer(t *testing.T, c *grpc.ClientConn, r *inferRequest) (*reader, error) {
	t.Helper()
	var reply []byte
	if err := c.Invoke(t.Context(), prefix+"ModelInfer", r.appendTo(nil), &reply); err != nil {
		return nil, err
	}
	got := &reader{}
	if err := decode(reply, got); err != nil {
		t.Fatal(err)
	}
	return got, nil
}

func textRequest(model, text string, streaming bool) *inferRequest {
	return &inferRequest{model: model, id: "mine", inputs: []*tensor{
		{name: "text_input", datatype: "BYTES", shape: []int64{1}, contents: &contents{bytes: [][]byte{[]byte(text)}}},
		{name: "streaming", datatype: "BOOL", shape: []int64{1}, contents: &contents{numbers: map[protowire.Number][]uint64{boolContents: {bit(streaming)}}}},
	}}
}

func TestTextIsAnsweredWholeAndInPieces(t *testing.T) {
	model := &fakeModel{kind: openai.Completions, ready: true, deltas: []pipeline.Delta{
		{Content: "ab", TokenIDs: []uint32{1}}, {TokenIDs: []uint32{2}}, {Content: "c", Finish: inference.FinishLength}}}
	c := connect(t, fakeModels{"m": model}, nil)
	request := textRequest("m", "hello", false)
	request.parameters = []parameter{{key: "max_tokens", kind: int64Parameter, number: 7}, {key: "temperature", kind: doubleParameter, number: math.Float64bits(0.5)},
		{key: "unknown", kind: stringParameter, text: "x"}}
	got, err := infer(t, c, request)
	if err != nil {
		t.Fatal(err)
	}
	if got.model != "canonical" || got.version != "1" || got.id != "mine" || len(got.outputs) != 2 || string(got.outputs[0].contents.bytes[0]) != "abc" || string(got.outputs[1].contents.bytes[0]) != "length" {
		t.Errorf("answer %+v", got)
	}
	if job := model.job; *job.Prompt.Text != "hello" || *job.Request.Stop.MaxTokens != 7 || *job.Request.Sampling.Temperature != 0.5 || job.Request.Model != "canonical" {
		t.Errorf("job %+v", job)
	}
	stream, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, prefix+"ModelStreamInfer")
	if err != nil {
		t.Fatal(err)
	}
	model.fail = inference.Errorf(inference.Disconnected, "secret")
	for range 2 { // a failure inside an answer leaves the stream open
		if err := stream.SendMsg(textRequest("m", "hello", true).appendTo(nil)); err != nil {
			t.Fatal(err)
		}
		var pieces []string
		for {
			var reply []byte
			if err := stream.RecvMsg(&reply); err != nil {
				t.Fatal(err)
			}
			var piece streamReader
			if err := decode(reply, &piece); err != nil {
				t.Fatal(err)
			}
			if piece.failure != "" {
				pieces = append(pieces, piece.failure)
				break
			}
			pieces = append(pieces, string(piece.outputs[0].contents.bytes[0])+"/"+string(piece.outputs[1].contents.bytes[0]))
		}
		if want := []string{"ab/", "c/length", "Service temporarily unavailable"}; !slices.Equal(pieces, want) {
			t.Errorf("pieces %q, want %q", pieces, want)
		}
	}
	if err := stream.SendMsg(textRequest("none", "hello", true).appendTo(nil)); err != nil {
		t.Fatal(err)
	}
	var reply []byte
	if err := stream.RecvMsg(&reply); status.Code(err) != codes.NotFound {
		t.Errorf("a request for an unknown model ended the stream with %v", err)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	text := &fakeModel{kind: openai.Completions, ready: true}
	tensors := &fakeModel{kind: openai.Tensor, ready: true}
	c := connect(t, fakeModels{"m": text, "t": tensors, "away": {kind: openai.Completions}}, nil)
	with := func(change func(*inferRequest)) *inferRequest {
		r := textRequest("m", "x", false)
		change(r)
		return r
	}
	numeric := func(shape []int64, raw []byte) *inferRequest {
		return &inferRequest{model: "t", inputs: []*tensor{{name: "X", datatype: "INT32", shape: shape}}, raw: [][]byte{raw}}
	}
	for name, test := range map[string]struct {
		request *inferRequest
		code    codes.Code
		message string
	}{
		"unknown model":  {textRequest("none", "x", false), codes.NotFound, "Model 'none' not found"},
		"not ready":      {textRequest("away", "x", false), codes.Unavailable, "model temporarily unavailable"},
		"streaming":      {textRequest("m", "x", true), codes.InvalidArgument, "Streaming is not supported for this endpoint"},
		"shape":          {with(func(r *inferRequest) { r.inputs[0].shape = []int64{2} }), codes.InvalidArgument, "Failed to parse request: Expected 'text_input' to have shape [1], got [2]"},
		"type":           {with(func(r *inferRequest) { r.inputs[0].datatype = "INT32" }), codes.InvalidArgument, `of type BYTES for string input, got "INT32"`},
		"name":           {with(func(r *inferRequest) { r.inputs[0].name = "foo" }), codes.InvalidArgument, "Invalid input name: foo, supported inputs are 'text_input', 'stream'"},
		"missing":        {with(func(r *inferRequest) { r.inputs = r.inputs[1:] }), codes.InvalidArgument, "Missing required input: 'text_input'"},
		"some raw":       {with(func(r *inferRequest) { r.raw = [][]byte{{0, 0, 0, 0}} }), codes.InvalidArgument, "`raw_input_contents` must be used for all inputs"},
		"short raw":      {with(func(r *inferRequest) { r.inputs, r.raw = r.inputs[:1], [][]byte{{0}}; r.inputs[0].contents = nil }), codes.InvalidArgument, "length-prefixed"},
		"sampling":       {with(func(r *inferRequest) { r.parameters = []parameter{{key: "top_p", kind: int64Parameter, number: 3}} }), codes.InvalidArgument, "Top_p must be between 0 and 1"},
		"tensor count":   {numeric([]int64{2}, []byte{1, 0, 0, 0}), codes.InvalidArgument, "Raw input element count for 'X' does not match expected size, expected 2 elements, got 1 elements"},
		"tensor shape":   {numeric([]int64{-1}, []byte{1, 0, 0, 0}), codes.InvalidArgument, "negative dimension: -1"},
		"tensor is huge": {numeric([]int64{1 << 40, 1 << 40}, nil), codes.InvalidArgument, "more than"},
		"tensor type":    {&inferRequest{model: "t", inputs: []*tensor{{name: "X", datatype: "FP16"}}, raw: [][]byte{{}}}, codes.InvalidArgument, "Invalid data type"},
		"no answer":      {numeric([]int64{1}, []byte{1, 0, 0, 0}), codes.Internal, ""},
	} {
		_, err := infer(t, c, test.request)
		if status.Code(err) != test.code || !strings.Contains(status.Convert(err).Message(), test.message) {
			t.Errorf("%s: %v, want %v %q", name, err, test.code, test.message)
		}
	}
}

// TestTensorsReachTheWorkerAndComeBack compares the worker's JSON, and the bytes of raw contents.
func TestTensorsReachTheWorkerAndComeBack(t *testing.T) {
	model := &fakeModel{kind: openai.Tensor, ready: true, bodies: []string{`{"model":"canonical","tensors":[
		{"metadata":{"name":"A","data_type":"Int16","shape":[2]},"data":{"data_type":"Int16","values":[-2,300]}},
		{"metadata":{"name":"B","data_type":"Bytes","shape":[1,2],"parameters":{"p":{"double":1.5}}},"data":{"data_type":"Bytes","values":[[97,255],[]]}}],
		"parameters":{"done":{"bool":true}}}`}}
	c := connect(t, fakeModels{"t": model}, nil)
	request := &inferRequest{model: "t", parameters: []parameter{{key: "k", kind: uint64Parameter, number: math.MaxUint64}}, inputs: []*tensor{
		{name: "A", datatype: "INT16", shape: []int64{2}}, {name: "B", datatype: "BYTES", shape: []int64{1, 2}}, {name: "C", datatype: "FP32", shape: []int64{1}}},
		raw: [][]byte{{0xfe, 0xff, 0x2c, 0x01}, {2, 0, 0, 0, 'a', 0xff, 0, 0, 0, 0}, {0xcd, 0xcc, 0xcc, 0x3d}}}
	got, err := infer(t, c, request)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":null,"model":"canonical","tensors":[` +
		`{"metadata":{"name":"A","data_type":"Int16","shape":[2]},"data":{"data_type":"Int16","values":[-2,300]}},` +
		`{"metadata":{"name":"B","data_type":"Bytes","shape":[1,2]},"data":{"data_type":"Bytes","values":[[97,255],[]]}},` +
		`{"metadata":{"name":"C","data_type":"Float32","shape":[1]},"data":{"data_type":"Float32","values":[0.1]}}],` +
		`"parameters":{"k":{"uint64":18446744073709551615}}}`
	if string(model.body) != want || !json.Valid(model.body) {
		t.Errorf("the worker got %s\nwant %s", model.body, want)
	}
	if len(got.raw) != 2 || !slices.Equal(got.raw[0], request.raw[0]) || !slices.Equal(got.raw[1], request.raw[1]) || got.outputs[0].contents != nil {
		t.Errorf("raw outputs %v", got.raw)
	}
	if len(got.parameters) != 1 || got.parameters[0].key != "done" || len(got.outputs[1].parameters) != 1 || got.outputs[1].parameters[0].number != math.Float64bits(1.5) {
		t.Errorf("parameters %+v, %+v", got.parameters, got.outputs[1].parameters)
	}
	// Typed contents come back typed.
	request = &inferRequest{model: "t", inputs: []*tensor{{name: "A", datatype: "INT8", shape: []int64{1},
		contents: &contents{numbers: map[protowire.Number][]uint64{intContents: {math.MaxUint64}}}}}}
	if got, err = infer(t, c, request); err != nil || len(got.raw) != 0 || !slices.Equal(got.outputs[0].contents.numbers[intContents], []uint64{math.MaxUint64 - 1, 300}) {
		t.Errorf("%v: %+v", err, got)
	}
	if !strings.Contains(string(model.body), `"values":[-1]`) {
		t.Errorf("the worker got %s", model.body)
	}
}

// TestAClientThatReadsNothingIsDropped fills the flow-control windows of a stream that nobody reads.
func TestAClientThatReadsNothingIsDropped(t *testing.T) {
	model := &fakeModel{kind: openai.Completions, ready: true, deltas: make([]pipeline.Delta, 64)}
	for i := range model.deltas {
		model.deltas[i].Content = strings.Repeat("x", 64<<10)
	}
	running := make(chan int, 2)
	c := connect(t, fakeModels{"m": model}, func(o *Options) {
		o.Stall = 50 * time.Millisecond
		o.Track = func() func() { running <- 1; return func() { running <- -1 } }
	})
	stream, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, prefix+"ModelStreamInfer")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(textRequest("m", "hello", true).appendTo(nil)); err != nil {
		t.Fatal(err)
	}
	for sum, seen := 0, 0; seen < 2; seen++ {
		select {
		case change := <-running:
			if sum += change; seen == 1 && sum != 0 {
				t.Fatalf("%d requests run", sum)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the stream was not given up")
		}
	}
	for {
		var reply []byte
		if err = stream.RecvMsg(&reply); err != nil {
			break
		}
	}
	if status.Code(err) != codes.Aborted {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestDrainingRefusesAndSaysSo(t *testing.T) {
	c := connect(t, fakeModels{"m": {kind: openai.Completions, ready: true}}, func(o *Options) { o.Draining = func() bool { return true } })
	if _, err := infer(t, c, textRequest("m", "x", false)); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	for method, want := range map[string]bool{"ServerLive": true, "ServerReady": false} {
		var reply []byte
		var got reader
		if err := c.Invoke(t.Context(), prefix+method, []byte{}, &reply); err != nil || decode(reply, &got) != nil || got.flag != want {
			t.Errorf("%s: %v, %v", method, got.flag, err)
		}
	}
}

// FuzzMessages feeds what anybody may send.
func FuzzMessages(f *testing.F) {
	f.Add(textRequest("m", "x", true).appendTo(nil))
	f.Add((&inferRequest{model: "t", inputs: []*tensor{{name: "A", datatype: "INT16", shape: []int64{2}}}, raw: [][]byte{{1, 2, 3, 4}}}).appendTo(nil))
	f.Fuzz(func(t *testing.T, message []byte) {
		var r inferRequest
		if decode(message, &r) != nil {
			return
		}
		_, _, _ = readText(&r)
		if body, err := tensorBody(&r); err == nil && !json.Valid(body) {
			t.Errorf("the worker would get %s", body)
		}
	})
}
