package upstream

import (
	"slices"
	"strconv"

	"signalbox/inference"
	"signalbox/internal/jsonbody"
)

// llamacpp asks with tokens over llama.cpp's own /completion.
//
// The server tells the id of a token together with its text, and says nothing while a character is incomplete: the ids in between are
// never told. Where that happens the text counts, which is whole, and the number of tokens, which is told. Stop strings are left to the
// pipeline: text that the server holds back for them would come twice then.
type llamacpp struct {
	eos []uint32 // the model's end tokens
	top uint32   // how many alternatives of a token are wanted
}

const llamacppPath = "/completion"

func (llamacpp) body(s *Server, r *inference.Request) ([]byte, error) {
	b := jsonbody.New(1024 + tokenBytes*len(r.TokenIDs))
	b.IDs("prompt", r.TokenIDs)
	b.Raw("stream", []byte("true"))
	b.Truth("return_tokens", true)
	b.Truth("cache_prompt", true)
	if r.Stop.MaxTokens != nil {
		b.Integer("n_predict", int64(*r.Stop.MaxTokens))
	}
	appendSampling(b, &r.Sampling)
	b.Float("repeat_penalty", r.Sampling.RepetitionPenalty)
	if r.Sampling.Seed != nil {
		b.Integer("seed", *r.Sampling.Seed)
	}
	b.Bias("logit_bias", r.Sampling.LogitBias)
	if isTrue(r.Stop.IgnoreEOS) {
		b.Truth("ignore_eos", true)
	}
	if n := r.Output.Logprobs; n != nil {
		b.Integer("n_probs", int64(max(1, *n)))
	}
	switch g := r.Sampling.Guided; {
	case g == nil:
	case g.JSON != nil:
		b.Raw("json_schema", g.JSON)
	case g.Grammar != "":
		b.Str("grammar", g.Grammar)
	default:
		return nil, &inference.Error{Kind: inference.InvalidArgument, Message: "a constraint that llama.cpp does not know",
			Public: "this model's server can be held to JSON schemas and grammars only"}
	}
	return b.Done(), nil
}

// event implements dialect.
func (d llamacpp) event(s *stream, data []byte) error {
	scanner := scan{text: data}
	held := s.held && s.head < len(s.queue)
	s.held = false
	out := s.push()
	first := len(s.ids)
	var content []byte
	var stopped bool
	var stopType, word string
	var total, prompt, cached uint32
	var hasCache bool
	for in := scanner.enter('{'); in; in = scanner.more('{') {
		switch string(scanner.key()) {
		case "index":
			out.Index, _ = scanner.count()
		case "content":
			if !scanner.null() {
				content = scanner.quoted()
			}
		case "tokens":
			s.ids = scanner.counts(s.ids)
		case "tokens_predicted":
			total, _ = scanner.count()
		case "tokens_evaluated":
			prompt, _ = scanner.count()
		case "stop":
			stopped = scanner.truth()
		case "stop_type":
			stopType = scanner.str()
		case "stopping_word":
			word = scanner.str()
		case "completion_probabilities":
			d.readProbabilities(&scanner, out)
		case "timings":
			for in := scanner.enter('{'); in; in = scanner.more('{') {
				if string(scanner.key()) == "cache_n" {
					cached, hasCache = scanner.count()
					continue
				}
				scanner.skip()
			}
		case "error":
			if scanner.null() {
				continue
			}
			text, code := errorIn(data)
			return s.failed(code, text)
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
	now := uint32(len(out.TokenIDs))
	if total > c.tokens+now {
		out.Untold = total - c.tokens - now
	}
	c.tokens += now + out.Untold
	if out.Untold > 0 {
		out.Text, out.HasText = string(unescape(make([]byte, 0, len(content)), content)), true
	}
	if !stopped {
		// Whoever reads the end token may go at once; the last word comes in the next event.
		s.held = s.expected == 1 && slices.ContainsFunc(out.TokenIDs, func(id uint32) bool { return slices.Contains(d.eos, id) })
		return nil
	}
	out.Usage = &inference.Usage{PromptTokens: prompt, CompletionTokens: total, TotalTokens: prompt + total}
	if hasCache {
		told := cached // a copy: events that end nothing are not to allocate
		out.Usage.CachedTokens = &told
	}
	reason := "stop"
	if stopType == "limit" {
		reason = "length"
	}
	if word != "" {
		out.StopReason = inference.StopReason{Text: word}
	}
	if err := ends(s, c, out, reason, stopType == "word"); err != nil {
		return err
	}
	if held && now == 0 && out.Untold == 0 {
		last := len(s.queue) - 1
		before := &s.queue[last-1]
		out.TokenIDs, out.Logprobs, out.TopLogprobs = before.TokenIDs, before.Logprobs, before.TopLogprobs
		*before = *out
		s.queue = s.queue[:last]
	}
	if s.finished >= s.expected {
		s.clean.Store(true)
	}
	return nil
}

func (d llamacpp) readProbabilities(scanner *scan, out *inference.Output) {
	for in := scanner.enter('['); in; in = scanner.more('[') {
		value, top := 0.0, []inference.TopToken(nil)
		for in := scanner.enter('{'); in; in = scanner.more('{') {
			switch string(scanner.key()) {
			case "logprob":
				value = scanner.float()
			case "top_logprobs":
				for in := scanner.enter('['); in; in = scanner.more('[') {
					t := inference.TopToken{}
					for in := scanner.enter('{'); in; in = scanner.more('{') {
						switch string(scanner.key()) {
						case "id":
							t.TokenID, _ = scanner.count()
						case "logprob":
							t.Logprob = scanner.float()
						default:
							scanner.skip()
						}
					}
					top = append(top, t)
				}
			default:
				scanner.skip()
			}
		}
		out.Logprobs, out.TopLogprobs = append(out.Logprobs, value), append(out.TopLogprobs, likeliest(top, d.top))
	}
}
