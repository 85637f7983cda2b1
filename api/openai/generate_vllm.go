package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/pipeline"
)

// GenerateVLLM answers POST /inference/v1/generate: tokens in, tokens out, with vLLM's own sampling parameters.
func (a *API) GenerateVLLM(w http.ResponseWriter, r *http.Request) {
	document, plain := a.reader.LooseDocument(w, r)
	if plain != nil {
		a.observer.Refused(&problem.Problem{Status: plain.Status, Message: plain.Message, Class: "InvalidRequest", Reason: "request.invalid"})
		plain.Write(w)
		return
	}
	if a.draining() {
		a.refuse(w, problem.Draining())
		return
	}
	f := body.NewFields(document.Root(), "")
	q := readVLLM(f, engineJob(document, "token_ids", f, r), r.Header.Get("X-Request-Id"))
	if f.Problem != nil {
		a.refuse(w, f.Problem)
		return
	}
	observed := a.observer.Begin("generate", q.model, false)
	observed.Named(q.job.Request.ID, q.job.Request.ClientRequestID, q.job.Request.TraceParent)
	fail := func(p *problem.Problem, gone bool) {
		observed.End(pipeline.Usage{}, p, gone)
		status, kind, message := engineProblem(p)
		if p.Status == http.StatusNotImplemented {
			status, kind, message = p.Status, "not_implemented", p.Message
		}
		engineError(w, status, kind, message)
	}
	if p := q.judge(); p != nil {
		fail(p, false)
		return
	}
	if p := a.applyHeaders(r.Header, q.job.Request); p != nil {
		fail(p, false)
		return
	}
	model, p := a.vllmModel(q.model)
	if p != nil {
		fail(p, false)
		return
	}
	q.job.Request.Model = model.Name()
	observed.Model(model.Name())
	observed.Dispatched()
	generation, err := model.Generate(r.Context(), q.job)
	if err == nil {
		defer generation.Close()
		var answer []byte
		if answer, err = q.gather(r.Context(), generation, observed); err == nil {
			writeJSON(w, http.StatusOK, answer)
			observed.End(generation.Usage(), nil, false)
			return
		}
	}
	fail(a.mapper.FromError(problem.Reason(r.Context(), err), false), problem.ClientGone(r.Context()))
}

func (a *API) vllmModel(name string) (Model, *problem.Problem) {
	if name == "" {
		return a.onlyModel(VLLMGenerate, "multiple models are registered; specify `model` in the request")
	}
	return a.findEngine(name, VLLMGenerate)
}

// vllmRequest is a request of vLLM's route.
type vllmRequest struct {
	job    *pipeline.Job
	id     string // as the client knows it
	model  string
	stream bool
	// mistake is what the values say wrong, judged after all types.
	mistake        *problem.Problem
	logprobs       bool
	promptLogprobs bool
}

func (q *vllmRequest) judge() *problem.Problem { return q.mistake }

// readVLLM reads what the frontend needs; the engine gets everything as it was sent.
func readVLLM(f *body.Fields, job *pipeline.Job, headerID string) *vllmRequest {
	q := &vllmRequest{job: job, id: headerID}
	if id := f.String("request_id"); id != nil && q.id == "" {
		q.id = *id
	}
	if q.id == "" {
		q.id = job.Request.ID
	}
	if model := f.String("model"); model != nil {
		q.model = *model
	}
	stream := f.Bool("stream")
	q.stream = stream != nil && *stream
	priority := int32(0)
	if given := f.Int32("priority"); given != nil {
		priority = *given
	}
	if salt := f.String("cache_salt"); salt != nil {
		job.Request.Routing.CacheSalt = *salt
	}
	node := f.Node("sampling_params")
	switch {
	case !node.Exists():
		f.Missing("sampling_params")
		return q
	case node.Kind().String() != "map":
		f.Fail("sampling_params", "sampling_params must be a JSON object")
		return q
	}
	s := body.NewFields(node, "sampling_params")
	q.readSampling(s)
	if f.Problem == nil {
		f.Problem = s.Problem
	}
	// vLLM serves low numbers first, the router high ones.
	setEnginePriority(job, -max(priority, -1<<31+1))
	q.mistake = q.check(f, s)

	var e envelope
	e.addText("request_id", q.id)
	e.add("sampling_params", node.Raw())
	if q.model != "" {
		e.addText("model", q.model)
	}
	e.add("stream", fmt.Append(nil, q.stream))
	e.add("priority", appendInt(nil, int64(priority)))
	e.rest(f.Object(), "request_id", "sampling_params", "model", "stream", "priority", "token_ids")
	var extra envelope
	extra.add("vllm_tito", e.end())
	if transfer := f.Node("kv_transfer_params"); transfer.Present() {
		extra.add("kv_transfer_params", transfer.Raw())
	}
	if skip := s.Bool("skip_reading_prefix_cache"); skip != nil && *skip {
		extra.add("skip_reading_prefix_cache", []byte("true"))
	}
	job.Request.ExtraArgs = extra.end()
	return q
}

func (q *vllmRequest) readSampling(s *body.Fields) {
	r := q.job.Request
	one := r.Sampling.N
	sampling := &r.Sampling
	sampling.FrequencyPenalty, sampling.PresencePenalty, sampling.RepetitionPenalty = s.Float32("frequency_penalty"), s.Float32("presence_penalty"), s.Float32("repetition_penalty")
	sampling.Temperature, sampling.TopP, sampling.TopK, sampling.MinP = s.Float32("temperature"), s.Float32("top_p"), s.Int32("top_k"), s.Float32("min_p")
	sampling.Seed, sampling.N = s.Int64("seed"), one
	r.Stop.MaxTokens, r.Stop.MinTokens = s.Uint32("max_tokens"), s.Uint32("min_tokens")
	ignore := s.Bool("ignore_eos")
	if ignore == nil {
		ignore = new(bool)
	}
	r.Stop.IgnoreEOS = ignore
	r.Stop.HiddenTokenIDs = s.TokenIDs("stop_token_ids")
	r.Output.SkipSpecialTokens = s.Bool("skip_special_tokens")
	r.Output.Logprobs = positions(s.Int32("logprobs"))
	r.Output.PromptLogprobs = positions(s.Int32("prompt_logprobs"))
	q.logprobs, q.promptLogprobs = r.Output.Logprobs != nil, r.Output.PromptLogprobs != nil
}

// positions is a number of alternatives on the wire, where all of them, -1, is the largest number.
func positions(count *int32) *uint32 {
	if count == nil {
		return nil
	}
	n := uint32(*count)
	return &n
}

func (q *vllmRequest) check(f, s *body.Fields) *problem.Problem {
	r := q.job.Request
	prompt := s.Int32("prompt_logprobs")
	switch {
	case len(r.TokenIDs) == 0:
		return problem.Invalid("token_ids", "token_ids must contain at least one token ID.")
	case f.Node("stream_options").Present() && !q.stream:
		return problem.Invalid("stream_options", "stream_options are only supported when stream=true.")
	case r.Stop.MaxTokens != nil && *r.Stop.MaxTokens == 0:
		return problem.Invalid("sampling_params.max_tokens", "sampling_params.max_tokens must be greater than 0.")
	case prompt != nil && *prompt < -1:
		return problem.Invalid("sampling_params.prompt_logprobs", "sampling_params.prompt_logprobs must be non-negative or -1.")
	case prompt != nil && q.stream:
		return problem.Invalid("sampling_params.prompt_logprobs", "sampling_params.prompt_logprobs are not available when stream=true.")
	case r.Stop.MinTokens != nil && r.Stop.MaxTokens != nil && *r.Stop.MinTokens > *r.Stop.MaxTokens:
		return problem.Invalid("sampling_params.min_tokens", "sampling_params.min_tokens (%d) exceeds max_tokens (%d).", *r.Stop.MinTokens, *r.Stop.MaxTokens)
	case s.Node("thinking_token_budget").Present():
		return problem.Invalid("sampling_params.thinking_token_budget", "sampling_params.thinking_token_budget is not supported by vLLM gRPC.")
	case q.stream:
		return &problem.Problem{Status: http.StatusNotImplemented, Message: "streaming (stream=true) is not implemented for /inference/v1/generate yet",
			Class: "NotImplemented", Reason: "runtime.not_implemented"}
	}
	for _, check := range []func(*inference.SamplingOptions) *problem.Problem{checkPenalties, checkTemperatureAndTopP, checkRest} {
		if p := check(&r.Sampling); p != nil {
			p.Message = strings.TrimPrefix(p.Message, "Validation: ")
			return p
		}
	}
	return nil
}

// vllmChoice is one choice while its tokens arrive.
type vllmChoice struct {
	Index         uint32          `json:"index"`
	TokenIDs      []uint32        `json:"token_ids"`
	Logprobs      json.RawMessage `json:"logprobs"`
	Finish        *string         `json:"finish_reason"`
	RoutedExperts json.RawMessage `json:"routed_experts"`
	SamplingMask  json.RawMessage `json:"sampling_mask"`

	positions []byte
	counted   int
}

// gather reads the whole answer.
func (q *vllmRequest) gather(ctx context.Context, g Generation, observed RequestObserver) ([]byte, error) {
	choices := map[uint32]*vllmChoice{}
	answer := struct {
		ID             string          `json:"request_id"`
		Choices        []*vllmChoice   `json:"choices"`
		PromptLogprobs json.RawMessage `json:"prompt_logprobs"`
		Transfer       json.RawMessage `json:"kv_transfer_params"`
	}{ID: q.id}
	engineTransfer := false
	for {
		delta, err := g.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if delta.Event != "" {
			continue
		}
		observed.Tokens(len(delta.TokenIDs))
		c := choices[delta.Index]
		if c == nil {
			c = &vllmChoice{Index: delta.Index, TokenIDs: []uint32{}}
			choices[delta.Index] = c
			answer.Choices = append(answer.Choices, c)
		}
		var data struct {
			RoutedExperts  json.RawMessage `json:"routed_experts"`
			SamplingMask   json.RawMessage `json:"sampling_mask"`
			Transfer       json.RawMessage `json:"kv_transfer_params"`
			PromptLogprobs json.RawMessage `json:"prompt_logprobs"`
		}
		if delta.EngineData != nil && json.Unmarshal(delta.EngineData, &data) != nil {
			return nil, inference.Errorf(inference.ProtocolViolation, "engine_data of a worker is no object")
		}
		if data.RoutedExperts != nil {
			c.RoutedExperts = data.RoutedExperts
		}
		if data.SamplingMask != nil {
			c.SamplingMask = data.SamplingMask
		}
		switch {
		case data.Transfer != nil:
			answer.Transfer, engineTransfer = data.Transfer, true
		case !engineTransfer && delta.Finish != inference.FinishNone && delta.Transfer != nil:
			answer.Transfer = delta.Transfer
		}
		if q.promptLogprobs && answer.PromptLogprobs == nil {
			answer.PromptLogprobs = data.PromptLogprobs
		}
		if err := c.add(delta, q.logprobs); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(answer.Choices, func(x, y *vllmChoice) int { return int(x.Index) - int(y.Index) })
	for _, c := range answer.Choices {
		if q.logprobs {
			if c.counted != len(c.TokenIDs) {
				return nil, inference.Errorf(inference.ProtocolViolation, "%d log probabilities came for %d tokens", c.counted, len(c.TokenIDs))
			}
			c.Logprobs = slices.Concat([]byte(`{"content":[`), c.positions, []byte("]}"))
		}
		if c.Finish == nil {
			return nil, inference.Errorf(inference.ProtocolViolation, "the answer ended without a finish reason")
		}
	}
	if len(answer.Choices) == 0 || q.promptLogprobs && answer.PromptLogprobs == nil {
		return nil, inference.Errorf(inference.ProtocolViolation, "the answer lacks what was asked for")
	}
	return json.Marshal(answer)
}

func (c *vllmChoice) add(delta *pipeline.Delta, logprobs bool) error {
	c.TokenIDs = append(c.TokenIDs, delta.TokenIDs...)
	switch delta.Finish {
	case inference.FinishNone:
	case inference.FinishCancelled:
		return inference.Errorf(inference.Cancelled, "the worker cancelled the request")
	default:
		reason := finishWord(delta.Finish)
		if delta.Finish == inference.FinishEOS {
			reason = "eos"
		}
		c.Finish = &reason
	}
	if !logprobs {
		return nil
	}
	for i, entry := range delta.Logprobs {
		if i >= len(delta.TokenIDs) {
			break
		}
		if c.counted++; c.counted > 1 {
			c.positions = append(c.positions, ',')
		}
		c.positions = appendTokenLogprob(c.positions, entry.TokenID, entry.Logprob)
		c.positions = append(c.positions[:len(c.positions)-1], `,"top_logprobs":[`...)
		listed := false
		for j, top := range entry.Top {
			if j > 0 {
				c.positions = append(c.positions, ',')
			}
			c.positions = appendTokenLogprob(c.positions, top.TokenID, top.Logprob)
			listed = listed || top.TokenID == entry.TokenID
		}
		if !listed { // the drawn token is always among them
			if len(entry.Top) > 0 {
				c.positions = append(c.positions, ',')
			}
			c.positions = appendTokenLogprob(c.positions, entry.TokenID, entry.Logprob)
		}
		c.positions = append(c.positions, "]}"...)
	}
	return nil
}

// leastLogprob is what vLLM writes in the place of minus infinity.
const leastLogprob = -9999

// appendTokenLogprob writes one token of a log probability: tokens are named by their ids here.
func appendTokenLogprob(dst []byte, id uint32, logprob float64) []byte {
	name := fmt.Sprintf("token_id:%d", id)
	dst = appendString(append(dst, `{"token":`...), name)
	dst = appendFloat(append(dst, `,"logprob":`...), max(logprob, leastLogprob))
	dst = appendBytes(append(dst, `,"bytes":`...), []byte(name))
	return append(dst, '}')
}
