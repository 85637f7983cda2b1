package kserve

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// decoder reads one message. field is called for every field of the message; it returns false for one that it does not know.
type decoder interface {
	field(number protowire.Number, kind protowire.Type, value field) error
}

// encoder writes one message.
type encoder interface {
	appendTo(b []byte) []byte
}

// field is the value of one field: number for the fixed and variable integers, bytes for what has a length.
type field struct {
	number uint64
	bytes  []byte
}

// codec is gRPC's view of the messages of this package. A message keeps what it was decoded from: nothing is copied twice.
type codec struct{}

// Name implements encoding.CodecV2: clients send protocol buffers.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(encoder)
	if !ok {
		return nil, fmt.Errorf("%T is no message of this service", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(message.appendTo(nil))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(decoder)
	if !ok {
		return fmt.Errorf("%T is no message of this service", v)
	}
	return decode(data.Materialize(), message)
}

func decode(b []byte, message decoder) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var value field
		switch kind {
		case protowire.VarintType:
			value.number, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var short uint32
			short, n = protowire.ConsumeFixed32(b)
			value.number = uint64(short)
		case protowire.Fixed64Type:
			value.number, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			value.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := message.field(number, kind, value); err != nil {
			return err
		}
	}
	return nil
}

// numbers appends what a repeated numeric field brought: one element, or many packed into bytes.
func numbers(dst []uint64, kind protowire.Type, value field, packed protowire.Type) ([]uint64, error) {
	if kind != protowire.BytesType {
		return append(dst, value.number), nil
	}
	for b := value.bytes; len(b) > 0; {
		var v uint64
		var n int
		switch packed {
		case protowire.Fixed32Type:
			var short uint32
			short, n = protowire.ConsumeFixed32(b)
			v = uint64(short)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		default:
			v, n = protowire.ConsumeVarint(b)
		}
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		dst, b = append(dst, v), b[n:]
	}
	return dst, nil
}

func appendBytes(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

// appendText leaves an empty text out, as the encoding of a default value does.
func appendText(b []byte, number protowire.Number, value string) []byte {
	if value == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), value)
}

func appendNumber(b []byte, number protowire.Number, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), value)
}

func appendPacked(b []byte, number protowire.Number, values []uint64, packed protowire.Type) []byte {
	if len(values) == 0 {
		return b
	}
	var inner []byte
	for _, v := range values {
		switch packed {
		case protowire.Fixed32Type:
			inner = protowire.AppendFixed32(inner, uint32(v))
		case protowire.Fixed64Type:
			inner = protowire.AppendFixed64(inner, v)
		default:
			inner = protowire.AppendVarint(inner, v)
		}
	}
	return appendBytes(b, number, inner)
}

// appendShape appends repeated int64 dimensions.
func appendShape(b []byte, number protowire.Number, shape []int64) []byte {
	values := make([]uint64, len(shape))
	for i, d := range shape {
		values[i] = uint64(d)
	}
	return appendPacked(b, number, values, protowire.VarintType)
}

// empty is a request without fields: ServerLive, ServerReady.
type empty struct{}

func (*empty) field(protowire.Number, protowire.Type, field) error { return nil }

// flagResponse answers ServerLive, ServerReady and ModelReady: one boolean under number 1.
type flagResponse bool

func (r flagResponse) appendTo(b []byte) []byte {
	if r {
		b = appendNumber(b, 1, 1)
	}
	return b
}

// modelRequest asks about a model: ModelReady, ModelMetadata, ModelConfig.
type modelRequest struct{ name, version string }

func (r *modelRequest) field(number protowire.Number, _ protowire.Type, value field) error {
	switch number {
	case 1:
		r.name = string(value.bytes)
	case 2:
		r.version = string(value.bytes)
	}
	return nil
}

// parameterKind is the member of InferParameter's choice; its value is the field number.
type parameterKind protowire.Number

const (
	noParameter     parameterKind = 0
	boolParameter   parameterKind = 1
	int64Parameter  parameterKind = 2
	stringParameter parameterKind = 3
	doubleParameter parameterKind = 4
	uint64Parameter parameterKind = 5
)

// parameter is one InferParameter with its key. number holds booleans, integers and the bits of doubles.
type parameter struct {
	key    string
	kind   parameterKind
	number uint64
	text   string
}

// parameterEntry reads a map entry: key under 1, InferParameter under 2.
type parameterEntry struct{ parameter }

func (p *parameterEntry) field(number protowire.Number, _ protowire.Type, value field) error {
	switch number {
	case 1:
		p.key = string(value.bytes)
	case 2:
		return decode(value.bytes, (*parameterChoice)(&p.parameter))
	}
	return nil
}

type parameterChoice parameter

func (p *parameterChoice) field(number protowire.Number, _ protowire.Type, value field) error {
	if number < 1 || number > 5 {
		return nil
	}
	p.kind, p.number, p.text = parameterKind(number), value.number, string(value.bytes)
	return nil
}

func appendParameters(b []byte, number protowire.Number, list []parameter) []byte {
	for _, p := range list {
		tag := protowire.Number(p.kind)
		var choice []byte
		switch p.kind {
		case stringParameter:
			choice = protowire.AppendString(protowire.AppendTag(nil, tag, protowire.BytesType), p.text)
		case doubleParameter:
			choice = protowire.AppendFixed64(protowire.AppendTag(nil, tag, protowire.Fixed64Type), p.number)
		default:
			choice = protowire.AppendVarint(protowire.AppendTag(nil, tag, protowire.VarintType), p.number)
		}
		b = appendBytes(b, number, appendBytes(appendText(nil, 1, p.key), 2, choice))
	}
	return b
}

func decodeParameter(list []parameter, value field) ([]parameter, error) {
	var entry parameterEntry
	if err := decode(value.bytes, &entry); err != nil {
		return nil, err
	}
	return append(list, entry.parameter), nil
}

// contents is InferTensorContents: the elements as 64-bit patterns, or as byte strings.
type contents struct {
	// numbers has the elements of the one numeric member that is used, floats as their bits: 32-bit floats as 32 bits.
	numbers map[protowire.Number][]uint64
	bytes   [][]byte
}

// Field numbers of InferTensorContents.
const (
	boolContents   protowire.Number = 1
	intContents    protowire.Number = 2
	int64Contents  protowire.Number = 3
	uintContents   protowire.Number = 4
	uint64Contents protowire.Number = 5
	fp32Contents   protowire.Number = 6
	fp64Contents   protowire.Number = 7
	bytesContents  protowire.Number = 8
)

func packedType(number protowire.Number) protowire.Type {
	switch number {
	case fp32Contents:
		return protowire.Fixed32Type
	case fp64Contents:
		return protowire.Fixed64Type
	}
	return protowire.VarintType
}

func (c *contents) field(number protowire.Number, kind protowire.Type, value field) error {
	switch {
	case number == bytesContents:
		c.bytes = append(c.bytes, value.bytes)
		return nil
	case number < boolContents || number > bytesContents:
		return nil
	}
	list, err := numbers(c.numbers[number], kind, value, packedType(number))
	if err != nil {
		return err
	}
	if c.numbers == nil {
		c.numbers = make(map[protowire.Number][]uint64, 1)
	}
	c.numbers[number] = list
	return nil
}

func (c *contents) appendTo(b []byte) []byte {
	for number := boolContents; number < bytesContents; number++ {
		b = appendPacked(b, number, c.numbers[number], packedType(number))
	}
	for _, element := range c.bytes {
		b = appendBytes(b, bytesContents, element)
	}
	return b
}

// tensor is InferInputTensor and InferOutputTensor, which have the same fields.
type tensor struct {
	name, datatype string
	shape          []int64
	parameters     []parameter
	contents       *contents // nil when the elements are among the raw contents
}

func (t *tensor) field(number protowire.Number, kind protowire.Type, value field) (err error) {
	switch number {
	case 1:
		t.name = string(value.bytes)
	case 2:
		t.datatype = string(value.bytes)
	case 3:
		var dimensions []uint64
		if dimensions, err = numbers(nil, kind, value, protowire.VarintType); err != nil {
			return err
		}
		for _, d := range dimensions {
			t.shape = append(t.shape, int64(d))
		}
	case 4:
		t.parameters, err = decodeParameter(t.parameters, value)
	case 5:
		if t.contents == nil {
			t.contents = &contents{}
		}
		err = decode(value.bytes, t.contents)
	}
	return err
}

func (t *tensor) appendTo(b []byte) []byte {
	b = appendText(b, 1, t.name)
	b = appendText(b, 2, t.datatype)
	b = appendShape(b, 3, t.shape)
	b = appendParameters(b, 4, t.parameters)
	if t.contents != nil {
		b = appendBytes(b, 5, t.contents.appendTo(nil))
	}
	return b
}

// inferRequest is ModelInferRequest. Which outputs are requested is not looked at: all are returned.
type inferRequest struct {
	model, version, id string
	parameters         []parameter
	inputs             []*tensor
	raw                [][]byte
}

func (r *inferRequest) field(number protowire.Number, _ protowire.Type, value field) (err error) {
	switch number {
	case 1:
		r.model = string(value.bytes)
	case 2:
		r.version = string(value.bytes)
	case 3:
		r.id = string(value.bytes)
	case 4:
		r.parameters, err = decodeParameter(r.parameters, value)
	case 5:
		input := &tensor{}
		err = decode(value.bytes, input)
		r.inputs = append(r.inputs, input)
	case 7:
		r.raw = append(r.raw, value.bytes)
	}
	return err
}

// inferResponse is ModelInferResponse.
type inferResponse struct {
	model, version, id string
	parameters         []parameter
	outputs            []*tensor
	raw                [][]byte
}

func (r *inferResponse) appendTo(b []byte) []byte {
	b = appendText(b, 1, r.model)
	b = appendText(b, 2, r.version)
	b = appendText(b, 3, r.id)
	b = appendParameters(b, 4, r.parameters)
	for _, output := range r.outputs {
		b = appendBytes(b, 5, output.appendTo(nil))
	}
	for _, raw := range r.raw {
		b = appendBytes(b, 6, raw)
	}
	return b
}

// streamResponse is ModelStreamInferResponse: an answer, or the message of a failure that leaves the stream open.
type streamResponse struct {
	failure  string
	response *inferResponse
}

func (r *streamResponse) appendTo(b []byte) []byte {
	b = appendText(b, 1, r.failure)
	if r.response != nil {
		b = appendBytes(b, 2, r.response.appendTo(nil))
	}
	return b
}
