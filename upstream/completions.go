package upstream

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"

	"signalbox/inference"
	"signalbox/internal/jsonbody"
)

// completions asks with tokens over /v1/completions, as vLLM and other servers of OpenAI's API understand it. vLLM tells the ids of the
// tokens that it makes; others tell their text.
type completions struct {
	vllm bool
	top  uint32 // how many alternatives of a token are wanted
}

// noLogprobs refuses what can only be told of tokens whose ids are known.
var noLogprobs = &inference.Error{Kind: inference.InvalidArgument, Message: "log probabilities of a server that tells no token ids",
	Public: "logprobs cannot be had of this model's server"}

const completionsPath = "/v1/completions"

// saltMark stands before the cache namespace of a request where vLLM's events repeat it.
const saltMark = "dynamo-cache-salt:"

func (d completions) body(s *Server, r *inference.Request) ([]byte, error) {
	b := jsonbody.New(1024 + tokenBytes*len(r.TokenIDs))
	b.Str("model", s.About.Model)
	b.IDs("prompt", r.TokenIDs)
	b.Raw("stream", []byte("true"))
	b.Raw("stream_options", []byte(`{"include_usage":true}`))
	if most := limit(s, r); most > 0 || r.Stop.MaxTokens != nil {
		b.Integer("max_tokens", int64(most))
	}
	appendSampling(b, &r.Sampling)
	if r.Sampling.Seed != nil {
		b.Integer("seed", *r.Sampling.Seed)
	}
	b.Float("repetition_penalty", r.Sampling.RepetitionPenalty)
	b.Bias("logit_bias", r.Sampling.LogitBias)
	if len(r.Stop.Strings) > 0 {
		b.Strs("stop", r.Stop.Strings)
	}
	if r.Stop.MinTokens != nil {
		b.Integer("min_tokens", int64(*r.Stop.MinTokens))
	}
	if isTrue(r.Stop.IgnoreEOS) {
		b.Truth("ignore_eos", true)
	}
	if isTrue(r.Sampling.IncludeStopString) {
		b.Truth("include_stop_str_in_output", true)
	}
	if d.vllm {
		d.vllmOnly(b, r)
	} else if r.Output.Logprobs != nil {
		return nil, noLogprobs
	}
	if err := d.guided(b, r.Sampling.Guided); err != nil {
		return nil, err
	}
	return b.Done(), nil
}

// appendSampling writes what all servers call by the same names.
func appendSampling(b *jsonbody.Body, o *inference.SamplingOptions) {
	b.Float("temperature", o.Temperature)
	b.Float("top_p", o.TopP)
	if o.TopK != nil {
		b.Integer("top_k", int64(*o.TopK))
	}
	b.Float("min_p", o.MinP)
	b.Float("presence_penalty", o.PresencePenalty)
	b.Float("frequency_penalty", o.FrequencyPenalty)
	if o.N != nil && *o.N > 1 {
		b.Integer("n", int64(*o.N))
	}
}

// vllmOnly writes what other servers would not know.
func (d completions) vllmOnly(b *jsonbody.Body, r *inference.Request) {
	b.Truth("return_token_ids", true)
	if r.Output.Logprobs != nil {
		b.Integer("logprobs", int64(*r.Output.Logprobs))
		b.Truth("return_tokens_as_token_ids", true)
	}
	if ids := stopIDs(r); len(ids) > 0 {
		b.IDs("stop_token_ids", ids)
	}
	if skip := r.Output.SkipSpecialTokens; skip != nil {
		b.Truth("skip_special_tokens", *skip)
	}
	if salt := r.Routing.CacheSalt; salt != "" {
		b.Str("cache_salt", saltMark+salt)
	}
}

// guided writes what constrains the answer.
func (d completions) guided(b *jsonbody.Body, g *inference.GuidedDecoding) error {
	if g == nil {
		return nil
	}
	if !d.vllm {
		if g.JSON == nil {
			return &inference.Error{Kind: inference.InvalidArgument, Message: "a constraint that is no JSON schema for a server of OpenAI's API",
				Public: "this model's server can be held to JSON schemas only"}
		}
		b.Raw("response_format", jsonFormat(g.JSON))
		return nil
	}
	inner := jsonbody.New(256)
	switch {
	case g.JSON != nil:
		inner.Raw("json", g.JSON)
	case g.Regex != "":
		inner.Str("regex", g.Regex)
	case len(g.Choice) > 0:
		inner.Strs("choice", g.Choice)
	case g.Grammar != "":
		inner.Str("grammar", g.Grammar)
	case g.StructuralTag != nil:
		inner.Str("structural_tag", string(g.StructuralTag))
	}
	b.Raw("structured_outputs", inner.Done())
	return nil
}

// jsonFormat is the response_format that holds an answer to a schema.
func jsonFormat(schema []byte) []byte {
	inner := jsonbody.New(64 + len(schema))
	inner.Str("type", "json_schema")
	named := jsonbody.New(32 + len(schema))
	named.Str("name", "answer")
	named.Raw("schema", schema)
	inner.Raw("json_schema", named.Done())
	return inner.Done()
}

// event implements dialect.
func (d completions) event(s *stream, data []byte) error {
	scanner := scan{text: data}
	for in := scanner.enter('{'); in; in = scanner.more('{') {
		switch string(scanner.key()) {
		case "choices":
			for in := scanner.enter('['); in; in = scanner.more('[') {
				if err := d.choice(s, &scanner); err != nil {
					return err
				}
			}
		case "usage":
			if usage := readUsage(&scanner); usage != nil {
				s.settle(usage)
			}
		case "error":
			if scanner.null() {
				continue
			}
			text, code := errorIn(data)
			return s.failed(code, text)
		case "object":
			if string(scanner.raw()) == `"error"` {
				text, code := errorIn(data)
				return s.failed(code, text)
			}
		default:
			scanner.skip()
		}
	}
	return scanner.err
}

func (d completions) choice(s *stream, scanner *scan) error {
	out := s.push()
	var told, reason bool
	var text []byte // as it is written: where the ids are told nobody reads it
	finish := ""
	first := len(s.ids)
	for in := scanner.enter('{'); in; in = scanner.more('{') {
		switch string(scanner.key()) {
		case "index":
			out.Index, _ = scanner.count()
		case "text":
			if !scanner.null() {
				text = scanner.quoted()
			}
		case "token_ids":
			if scanner.kind() == '[' {
				s.ids = scanner.counts(s.ids)
				told = true
				continue
			}
			scanner.skip()
		case "finish_reason":
			finish = scanner.str()
		case "stop_reason":
			switch kind := scanner.kind(); {
			case kind == '"':
				out.StopReason, reason = inference.StopReason{Text: scanner.str()}, true
			case kind >= '0' && kind <= '9':
				id, _ := scanner.count()
				out.StopReason, reason = inference.StopReason{TokenID: id, IsToken: true}, true
			default:
				scanner.skip()
			}
		case "logprobs":
			if d.vllm {
				d.readLogprobs(scanner, out)
			} else {
				scanner.skip() // without ids there is nothing to hang them on
			}
		default:
			scanner.skip()
		}
	}
	if scanner.err != nil {
		return scanner.err
	}
	c := s.choice(out.Index)
	if c == nil {
		return &inference.Error{Kind: inference.ProtocolViolation, Message: "choice " + strconv.FormatUint(uint64(out.Index), 10) + " of " + s.server.URL}
	}
	out.TokenIDs = s.ids[first:len(s.ids):len(s.ids)]
	if !told && len(text) > 0 {
		out.Text, out.HasText, out.Untold = string(unescape(make([]byte, 0, len(text)), text)), true, 1
	}
	c.tokens += uint32(len(out.TokenIDs)) + out.Untold
	if finish != "" {
		if err := ends(s, c, out, finish, reason); err != nil {
			return err
		}
		out.HasText = out.HasText || !told
	}
	return nil
}

// ends marks an output as the last one of its choice.
func ends(s *stream, c *choiceState, out *inference.Output, reason string, matched bool) error {
	switch reason {
	case "length":
		out.Finish = inference.FinishLength
	case "content_filter":
		out.Finish = inference.FinishContentFilter
	case "abort", "error":
		return &inference.Error{Kind: inference.EngineShutdown, Message: "server " + s.server.URL + " gave the request up (" + reason + ")"}
	default:
		out.Finish = inference.FinishEOS
		if matched {
			out.Finish = inference.FinishStop
		}
	}
	s.finish(c)
	return nil
}

// settle takes the usage at the end of an answer whose tokens were counted by their texts: how many there are is known now.
func (s *stream) settle(usage *inference.Usage) {
	total := uint32(0)
	for i := range s.choices {
		total += s.choices[i].tokens
	}
	s.usage(usage)
	if last := &s.queue[len(s.queue)-1]; usage.CompletionTokens > total && last.HasText && s.finished >= s.expected {
		last.Untold += usage.CompletionTokens - total
	}
}

// readUsage reads usage; nil for null.
func readUsage(scanner *scan) *inference.Usage {
	if scanner.null() {
		return nil
	}
	usage := &inference.Usage{}
	for in := scanner.enter('{'); in; in = scanner.more('{') {
		switch string(scanner.key()) {
		case "prompt_tokens":
			usage.PromptTokens, _ = scanner.count()
		case "completion_tokens":
			usage.CompletionTokens, _ = scanner.count()
		case "total_tokens":
			usage.TotalTokens, _ = scanner.count()
		case "prompt_tokens_details":
			for in := scanner.enter('{'); in; in = scanner.more('{') {
				if string(scanner.key()) == "cached_tokens" {
					if cached, ok := scanner.count(); ok {
						usage.CachedTokens = &cached
					}
					continue
				}
				scanner.skip()
			}
		default:
			scanner.skip()
		}
	}
	return usage
}

// readLogprobs reads vLLM's log probabilities, whose tokens are named "token_id:N".
func (d completions) readLogprobs(scanner *scan, out *inference.Output) {
	for in := scanner.enter('{'); in; in = scanner.more('{') {
		switch string(scanner.key()) {
		case "token_logprobs":
			for in := scanner.enter('['); in; in = scanner.more('[') {
				out.Logprobs = append(out.Logprobs, scanner.float())
			}
		case "top_logprobs":
			for in := scanner.enter('['); in; in = scanner.more('[') {
				out.TopLogprobs = append(out.TopLogprobs, likeliest(readTop(scanner), d.top))
			}
		default:
			scanner.skip()
		}
	}
}

// likeliest keeps the likeliest of the alternatives, in order: servers add the token that was drawn, wherever it stands.
func likeliest(list []inference.TopToken, count uint32) []inference.TopToken {
	slices.SortStableFunc(list, func(a, b inference.TopToken) int { return cmp.Compare(b.Logprob, a.Logprob) })
	list = list[:min(len(list), int(min(count, maxAlternatives)))]
	for i := range list {
		list[i].Rank = uint32(i) + 1
	}
	return list
}

// maxAlternatives bounds the alternatives of a token.
const maxAlternatives = 1 << 10

func readTop(scanner *scan) []inference.TopToken {
	var list []inference.TopToken
	for in := scanner.enter('{'); in; in = scanner.more('{') {
		name := scanner.key()
		top := inference.TopToken{Logprob: scanner.float()}
		digits, ok := bytes.CutPrefix(name, []byte("token_id:"))
		id, err := strconv.ParseUint(string(digits), 10, 32)
		if !ok || err != nil || math.IsNaN(top.Logprob) {
			continue
		}
		top.TokenID = uint32(id)
		list = append(list, top)
	}
	return list
}
