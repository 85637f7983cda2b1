package kserve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"signalbox/api/openai"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// tensorAnswer is a request of a tensor model. Its worker takes and gives JSON in a form of its own.
type tensorAnswer struct {
	service  *Service
	id       string // as the client sent it
	workerID string // the request's id to the worker
	model    openai.Model
	body     []byte
	raw      bool // outputs come as raw contents, as the inputs did
	inStream bool
}

func (s *Service) prepareTensor(ctx context.Context, r *inferRequest, model openai.Model, inStream bool) (answer, *problem.Problem) {
	request, p := s.newRequest(ctx, r)
	if p != nil {
		return nil, p
	}
	r.model = model.Name()
	body, err := tensorBody(r)
	if err != nil {
		return nil, cannotParse("%s", err)
	}
	return &tensorAnswer{service: s, id: r.id, workerID: request.ID, model: model, body: body, raw: len(r.raw) > 0, inStream: inStream}, nil
}

// tensorBody is the request as tensor workers read it.
func tensorBody(r *inferRequest) ([]byte, error) {
	if len(r.raw) > 0 && len(r.raw) != len(r.inputs) {
		return nil, mistakef("`raw_input_contents` must be used for all inputs")
	}
	b := []byte(`{"id":`)
	if r.id == "" {
		b = append(b, "null"...)
	} else {
		b = appendQuoted(b, r.id)
	}
	b = appendQuoted(append(b, `,"model":`...), r.model)
	b = append(b, `,"tensors":[`...)
	for i, input := range r.inputs {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendTensor(b, r, i, input); err != nil {
			return nil, err
		}
	}
	b, err := appendParameterObject(append(b, ']'), r.parameters)
	return append(b, '}'), err
}

func appendTensor(b []byte, r *inferRequest, i int, input *tensor) ([]byte, error) {
	e, ok := elementOf(input.datatype)
	if !ok {
		return nil, mistakef("Invalid data type %q of input '%s'", input.datatype, input.name)
	}
	want, err := count(input.name, input.shape)
	if err != nil {
		return nil, err
	}
	values := input.contents
	if values == nil {
		if i >= len(r.raw) {
			return nil, mistakef("Missing contents of input '%s'", input.name)
		}
		if values, err = e.splitRaw(input.name, r.raw[i], want); err != nil {
			return nil, err
		}
	}
	if have := len(values.bytes) + len(values.numbers[e.member]); have != want || e.size > 0 && len(values.bytes) > 0 {
		return nil, fmt.Errorf("shape of input '%s' implies %d elements but data has %d", input.name, want, have)
	}
	b = append(b, `{"metadata":{"name":`...)
	b = appendQuoted(b, input.name)
	b = append(b, `,"data_type":"`+e.worker+`","shape":[`...)
	for j, d := range input.shape {
		if j > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	if b, err = appendParameterObject(append(b, ']'), input.parameters); err != nil {
		return nil, err
	}
	b = append(b, `},"data":{"data_type":"`+e.worker+`","values":`...)
	if b, err = e.appendJSON(b, values); err != nil {
		return nil, fmt.Errorf("input '%s': %w", input.name, err)
	}
	return append(b, "}}"...), nil
}

// parameterWords are the workers' words for the kinds of parameters.
var parameterWords = map[parameterKind]string{boolParameter: "bool", int64Parameter: "int64", stringParameter: "string", doubleParameter: "double", uint64Parameter: "uint64"}

func appendParameterObject(b []byte, list []parameter) ([]byte, error) {
	if len(list) == 0 {
		return b, nil
	}
	object := make(map[string]map[string]any, len(list))
	for _, p := range list {
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		object[p.key] = map[string]any{parameterWords[p.kind]: value}
	}
	text, err := json.Marshal(object)
	return append(append(b, `,"parameters":`...), text...), err
}

func appendQuoted(b []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil { // a string always marshals
		return append(b, `""`...)
	}
	return append(b, quoted...)
}

func (t *tensorAnswer) streams() bool { return t.inStream }

func (t *tensorAnswer) begin(ctx context.Context) (*tensorStream, openai.RequestObserver, *problem.Problem) {
	observed := t.service.options.Observer.Begin("tensor", t.model.Name(), t.inStream)
	observed.Named(t.workerID, t.id, "")
	if !t.model.Ready() {
		p := unavailable()
		observed.End(pipeline.Usage{}, p, false)
		return nil, nil, p
	}
	observed.Model(t.model.Name())
	observed.Dispatched()
	items, err := t.model.Forward(ctx, t.workerID, t.body)
	if err != nil {
		p := t.service.mapper.FromError(err, false)
		observed.End(pipeline.Usage{}, p, ctx.Err() != nil)
		return nil, nil, p
	}
	return &tensorStream{t, items}, observed, nil
}

// tensorStream is a tensor worker's answer on its way.
type tensorStream struct {
	answer *tensorAnswer
	items  inference.Stream
}

// next returns the next answer; items without one, such as annotations, are passed over.
func (s *tensorStream) next(ctx context.Context) (*inferResponse, error) {
	for {
		item, err := s.items.Next(ctx)
		if err != nil {
			return nil, err
		}
		if item.Body == nil {
			continue
		}
		response, err := readTensorResponse(item.Body, s.answer.raw)
		if err == nil {
			response.id = s.answer.id
		}
		return response, err
	}
}

func (s *tensorStream) close() { _ = s.items.Close() }

// whole implements answer: a worker that gives several answers to one unary request does what nobody can pass on.
func (t *tensorAnswer) whole(ctx context.Context) (*inferResponse, *problem.Problem) {
	stream, observed, p := t.begin(ctx)
	if p != nil {
		return nil, p
	}
	defer stream.close()
	var response *inferResponse
	for {
		next, err := stream.next(ctx)
		switch {
		case errors.Is(err, io.EOF) && response != nil:
			observed.End(pipeline.Usage{}, nil, false)
			return response, nil
		case errors.Is(err, io.EOF):
			err = mistakef("No response received")
		case err == nil && response != nil:
			err = mistakef("Multiple responses in non-streaming mode")
		case err == nil:
			response = next
			continue
		}
		p := t.service.mapper.FromError(err, false)
		observed.End(pipeline.Usage{}, p, ctx.Err() != nil)
		return nil, p
	}
}

func (t *tensorAnswer) stream(ctx context.Context, out *sender) error {
	stream, observed, p := t.begin(ctx)
	if p != nil {
		return asStatus(p)
	}
	defer stream.close()
	for {
		response, err := stream.next(ctx)
		var bad *badAnswer
		switch {
		case errors.Is(err, io.EOF):
			observed.End(pipeline.Usage{}, nil, false)
			return nil
		case errors.As(err, &bad):
			err = out.send(&streamResponse{failure: bad.Error()})
		case err != nil:
			return t.service.failStream(ctx, out, observed, pipeline.Usage{}, err)
		default:
			err = out.send(&streamResponse{response: response})
		}
		if err != nil {
			observed.End(pipeline.Usage{}, clientClosed(err), true)
			return err
		}
	}
}

// badAnswer is a worker's answer that does not fit its own description.
type badAnswer struct{ cause error }

func (b *badAnswer) Error() string { return "Failed to convert response: " + b.cause.Error() }

func (b *badAnswer) Unwrap() error { return b.cause }

func readTensorResponse(body []byte, raw bool) (*inferResponse, error) {
	document, err := jsontape.Parse(body)
	if err != nil {
		return nil, &badAnswer{err}
	}
	root := document.Root()
	r := &inferResponse{model: root.Get("model").Text(), version: modelVersion}
	if r.parameters, err = readParameters(root.Get("parameters")); err != nil {
		return nil, &badAnswer{err}
	}
	for _, node := range root.Get("tensors").Elements {
		metadata, data := node.Get("metadata"), node.Get("data")
		output := &tensor{name: metadata.Get("name").Text()}
		fail := func(err error) (*inferResponse, error) {
			return nil, &badAnswer{fmt.Errorf("tensor '%s': %w", output.name, err)}
		}
		e := elementNamed(metadata.Get("data_type").Text())
		if e.datatype == "" || data.Get("data_type").Text() != e.worker {
			return fail(errors.New("metadata.data_type does not match data variant"))
		}
		output.datatype = e.datatype
		for _, d := range metadata.Get("shape").Elements {
			dimension, ok := d.Int()
			if !ok {
				return fail(errors.New("its shape is not made of integers"))
			}
			output.shape = append(output.shape, dimension)
		}
		want, err := count(output.name, output.shape)
		if err != nil {
			return fail(err)
		}
		values, err := e.readJSON(data.Get("values"))
		if err != nil {
			return fail(err)
		}
		if have := len(values.bytes) + len(values.numbers[e.member]); have != want {
			return fail(fmt.Errorf("shape implies %d elements but data has %d", want, have))
		}
		if output.parameters, err = readParameters(metadata.Get("parameters")); err != nil {
			return fail(err)
		}
		if raw {
			r.raw = append(r.raw, e.joinRaw(values))
		} else {
			output.contents = values
		}
		r.outputs = append(r.outputs, output)
	}
	return r, nil
}

// readParameters reads {"key": {"bool": true}} and its kin.
func readParameters(object jsontape.Node) ([]parameter, error) {
	var list []parameter
	if !object.Present() {
		return nil, nil
	}
	for key, choice := range object.Members {
		p := parameter{key: key}
		for word, value := range choice.Members {
			ok := true
			switch word {
			case "bool":
				var v bool
				v, ok = value.Bool()
				p.kind, p.number = boolParameter, bit(v)
			case "int64":
				v, err := strconv.ParseInt(string(value.Raw()), 10, 64)
				ok, p.kind, p.number = err == nil, int64Parameter, uint64(v)
			case "uint64":
				v, err := strconv.ParseUint(string(value.Raw()), 10, 64)
				ok, p.kind, p.number = err == nil, uint64Parameter, v
			case "double":
				var v float64
				v, ok = value.Float()
				p.kind, p.number = doubleParameter, math.Float64bits(v)
			case "string":
				ok = value.Kind() == jsontape.String
				p.kind, p.text = stringParameter, value.Text()
			default:
				ok = false
			}
			if !ok {
				return nil, fmt.Errorf("parameter '%s' is %s", key, choice.Raw())
			}
		}
		if p.kind == noParameter {
			return nil, fmt.Errorf("parameter '%s' is %s", key, choice.Raw())
		}
		list = append(list, p)
	}
	return list, nil
}
