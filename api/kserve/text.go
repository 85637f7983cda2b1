package kserve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"signalbox/api/nvext"
	"signalbox/api/openai"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/pipeline"
)

// requestID is the client's id where that is a UUID, else a new one.
func requestID(given string) string {
	if id, err := uuid.Parse(given); err == nil {
		return id.String()
	}
	return uuid.NewString()
}

// newRequest starts a request from the call's metadata.
func (s *Service) newRequest(ctx context.Context, r *inferRequest) (*inference.Request, *problem.Problem) {
	request := &inference.Request{ID: requestID(r.id), Model: r.model}
	h := headers(ctx)
	nvext.ApplyTracing(h, request)
	if !s.options.DisableExtensions {
		nvext.ApplyRoutingHeaders(h, request)
	}
	if p := nvext.ApplySessionHeaders(h, request); p != nil {
		return nil, p
	}
	prefix := s.options.MetadataPrefix
	if prefix == "" {
		prefix = nvext.DefaultMetadataPrefix
	}
	return request, nvext.ApplyMetadataHeaders(h, prefix, request)
}

// textAnswer is a completion of a text model.
type textAnswer struct {
	service   *Service
	id        string // as the client sent it
	model     openai.Model
	job       *pipeline.Job
	streaming bool
}

// sampling are the request parameters that steer generation; others are ignored.
var sampling = []string{"max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "ignore_eos",
	"frequency_penalty", "presence_penalty", "repetition_penalty"}

func (s *Service) prepareText(ctx context.Context, r *inferRequest, model openai.Model) (answer, *problem.Problem) {
	text, streaming, err := readText(r)
	if err != nil {
		return nil, cannotParse("%s", err)
	}
	request, p := s.newRequest(ctx, r)
	if p != nil {
		return nil, p
	}
	body, err := completionBody(r, text)
	if err != nil {
		return nil, cannotParse("%s", err)
	}
	job, p := s.options.Completions.CompletionJob(body, request)
	if p != nil {
		return nil, p
	}
	job.Streaming = streaming
	return &textAnswer{service: s, id: r.id, model: model, job: job, streaming: streaming}, nil
}

// readText reads the inputs of a text request.
func readText(r *inferRequest) (text string, streaming bool, err error) {
	if len(r.raw) > 0 && len(r.raw) != len(r.inputs) {
		return "", false, mistakef("`raw_input_contents` must be used for all inputs")
	}
	found := false
	for i, input := range r.inputs {
		switch input.name {
		case "text_input":
			if input.datatype != "BYTES" {
				return "", false, mistakef("Expected 'text_input' to be of type BYTES for string input, got %q", input.datatype)
			}
			if !slices.Equal(input.shape, []int64{1}) && !slices.Equal(input.shape, []int64{1, 1}) {
				return "", false, mistakef("Expected 'text_input' to have shape [1], got %s", shapeText(input.shape))
			}
			if text, err = textElement(input, r.raw, i); err != nil {
				return "", false, err
			}
			found = true
		case "streaming", "stream":
			if input.datatype != "BOOL" {
				return "", false, mistakef("Expected '%s' to be of type BOOL, got %q", input.name, input.datatype)
			}
			if !slices.Equal(input.shape, []int64{1}) {
				return "", false, mistakef("Expected 'stream' to have shape [1], got %s", shapeText(input.shape))
			}
			if streaming, err = boolElement(input, r.raw, i); err != nil {
				return "", false, err
			}
		default:
			return "", false, mistakef("Invalid input name: %s, supported inputs are 'text_input', 'stream'", input.name)
		}
	}
	if !found {
		return "", false, mistakef("Missing required input: 'text_input'")
	}
	return text, streaming, nil
}

func shapeText(shape []int64) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ", ")
}

func textElement(input *tensor, raw [][]byte, at int) (string, error) {
	if input.contents != nil {
		if len(input.contents.bytes) == 0 {
			return "", mistakef("'text_input' must contain exactly one element")
		}
		return strings.ToValidUTF8(string(input.contents.bytes[0]), "\uFFFD"), nil
	}
	if at >= len(raw) {
		return "", mistakef("Missing raw input for 'text_input'")
	}
	if len(raw[at]) < 4 {
		return "", mistakef("'text_input' raw input must be length-prefixed (>= 4 bytes)")
	}
	return strings.ToValidUTF8(string(raw[at][4:]), "\uFFFD"), nil
}

func boolElement(input *tensor, raw [][]byte, at int) (bool, error) {
	if input.contents != nil {
		list := input.contents.numbers[boolContents]
		if len(list) == 0 {
			return false, mistakef("'stream' must contain exactly one element")
		}
		return list[0] != 0, nil
	}
	if at >= len(raw) {
		return false, mistakef("Missing raw input for 'stream'")
	}
	if len(raw[at]) == 0 {
		return false, mistakef("'stream' raw input must contain at least one byte")
	}
	return raw[at][0] != 0, nil
}

// completionBody is the request as the completions API reads it, so that both judge alike.
func completionBody(r *inferRequest, text string) ([]byte, error) {
	body := map[string]any{"model": r.model, "prompt": text}
	for _, p := range r.parameters {
		if !slices.Contains(sampling, p.key) {
			continue
		}
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		body[p.key] = value
	}
	return json.Marshal(body)
}

// value is the parameter as JSON has it.
func (p parameter) value() (any, error) {
	switch p.kind {
	case boolParameter:
		return p.number != 0, nil
	case int64Parameter:
		return int64(p.number), nil
	case uint64Parameter:
		return p.number, nil
	case stringParameter:
		return p.text, nil
	case doubleParameter:
		v := math.Float64frombits(p.number)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, mistakef("Parameter '%s' is not a finite number", p.key)
		}
		return v, nil
	}
	return nil, mistakef("Parameter '%s' has no value", p.key)
}

func (t *textAnswer) streams() bool { return t.streaming }

// begin starts the generation.
func (t *textAnswer) begin(ctx context.Context) (openai.Generation, openai.RequestObserver, *problem.Problem) {
	observed := t.service.options.Observer.Begin("completions", t.model.Name(), t.streaming)
	observed.Named(t.job.Request.ID, t.id, t.job.Request.TraceParent)
	if !t.model.Ready() {
		p := unavailable()
		observed.End(pipeline.Usage{}, p, false)
		return nil, nil, p
	}
	t.job.Received, t.job.Request.Model = time.Now(), t.model.Name()
	observed.Model(t.model.Name())
	observed.Dispatched()
	generation, err := t.model.Generate(ctx, t.job)
	if err != nil {
		p := t.service.mapper.FromError(err, false)
		observed.End(pipeline.Usage{}, p, ctx.Err() != nil)
		return nil, nil, p
	}
	return generation, observed, nil
}

// textChoice is what one choice says.
type textChoice struct {
	text   []byte
	finish inference.FinishReason
}

func (t *textAnswer) whole(ctx context.Context) (*inferResponse, *problem.Problem) {
	generation, observed, p := t.begin(ctx)
	if p != nil {
		return nil, p
	}
	defer generation.Close()
	var choices []textChoice
	for {
		delta, err := generation.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p := t.service.mapper.FromError(err, len(choices) > 0)
			observed.End(generation.Usage(), p, ctx.Err() != nil)
			return nil, p
		}
		if delta.Event != "" {
			continue
		}
		observed.Tokens(len(delta.TokenIDs))
		for int(delta.Index) >= len(choices) {
			choices = append(choices, textChoice{})
		}
		choice := &choices[delta.Index]
		choice.text = append(choice.text, delta.Content...)
		if delta.Finish != inference.FinishNone {
			choice.finish = delta.Finish
		}
	}
	observed.End(generation.Usage(), nil, false)
	return t.response(choices), nil
}

func (t *textAnswer) stream(ctx context.Context, out *sender) error {
	generation, observed, p := t.begin(ctx)
	if p != nil {
		return asStatus(p)
	}
	defer generation.Close()
	for {
		delta, err := generation.Next(ctx)
		if errors.Is(err, io.EOF) {
			observed.End(generation.Usage(), nil, false)
			return nil
		}
		if err != nil {
			return t.service.failStream(ctx, out, observed, generation.Usage(), err)
		}
		observed.Tokens(len(delta.TokenIDs))
		if delta.Event != "" || delta.Content == "" && delta.Finish == inference.FinishNone {
			continue
		}
		choice := textChoice{text: []byte(delta.Content), finish: delta.Finish}
		if err := out.send(&streamResponse{response: t.response([]textChoice{choice})}); err != nil {
			observed.End(generation.Usage(), clientClosed(err), true)
			return err
		}
	}
}

// failStream tells of a failure inside an answer; the stream goes on with the next request unless the client is gone.
func (s *Service) failStream(ctx context.Context, out *sender, observed openai.RequestObserver, usage pipeline.Usage, err error) error {
	if ctx.Err() != nil && s.base.Err() == nil {
		observed.End(usage, clientClosed(err), true)
		return err
	}
	p := s.mapper.FromError(err, true)
	observed.End(usage, p, false)
	if s.base.Err() != nil {
		return asStatus(problem.Draining())
	}
	return out.send(&streamResponse{failure: p.Message})
}

func clientClosed(cause error) *problem.Problem {
	return &problem.Problem{Status: problem.StatusClientClosed, Message: "Request cancelled", Class: "Cancelled", Reason: "request.cancelled", Cause: cause}
}

func (t *textAnswer) response(choices []textChoice) *inferResponse {
	texts, reasons := make([][]byte, len(choices)), make([][]byte, len(choices))
	for i, choice := range choices {
		texts[i], reasons[i] = choice.text, []byte(finishWord(choice.finish))
	}
	shape := []int64{int64(len(choices))}
	return &inferResponse{model: t.model.Name(), version: modelVersion, id: t.id, outputs: []*tensor{
		{name: "text_output", datatype: "BYTES", shape: shape, contents: &contents{bytes: texts}},
		{name: "finish_reason", datatype: "BYTES", shape: shape, contents: &contents{bytes: reasons}},
	}}
}

func finishWord(reason inference.FinishReason) string {
	switch reason {
	case inference.FinishNone:
		return ""
	case inference.FinishLength:
		return "length"
	case inference.FinishContentFilter:
		return "content_filter"
	}
	return "stop"
}
