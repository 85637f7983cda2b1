package upstream

import (
	"strconv"

	"signalbox/inference"
	"signalbox/internal/jsonbody"
)

// sglang asks with tokens over SGLang's own /generate.
type sglang struct{}

const sglangPath = "/generate"

func (sglang) body(s *Server, r *inference.Request) ([]byte, error) {
	b := jsonbody.New(1024 + tokenBytes*len(r.TokenIDs))
	b.IDs("input_ids", r.TokenIDs)
	b.Raw("stream", []byte("true"))
	if r.ID != "" && (r.Sampling.N == nil || *r.Sampling.N <= 1) {
		b.Str("rid", r.ID)
	}
	if r.Output.Logprobs != nil {
		b.Truth("return_logprob", true)
		b.Integer("top_logprobs_num", int64(*r.Output.Logprobs))
		b.Integer("logprob_start_len", -1)
	}
	p := jsonbody.New(512)
	if most := limit(s, r); most > 0 || r.Stop.MaxTokens != nil {
		p.Integer("max_new_tokens", int64(most))
	}
	appendSampling(p, &r.Sampling)
	p.Float("repetition_penalty", r.Sampling.RepetitionPenalty)
	if r.Sampling.Seed != nil {
		p.Integer("sampling_seed", *r.Sampling.Seed)
	}
	p.Bias("logit_bias", r.Sampling.LogitBias)
	if len(r.Stop.Strings) > 0 {
		p.Strs("stop", r.Stop.Strings)
	}
	if ids := stopIDs(r); len(ids) > 0 {
		p.IDs("stop_token_ids", ids)
	}
	if r.Stop.MinTokens != nil {
		p.Integer("min_new_tokens", int64(*r.Stop.MinTokens))
	}
	if isTrue(r.Stop.IgnoreEOS) {
		p.Truth("ignore_eos", true)
	}
	if skip := r.Output.SkipSpecialTokens; skip != nil {
		p.Truth("skip_special_tokens", *skip)
	}
	switch g := r.Sampling.Guided; {
	case g == nil:
	case g.JSON != nil:
		p.Str("json_schema", string(g.JSON))
	case g.Regex != "":
		p.Str("regex", g.Regex)
	case g.Grammar != "":
		p.Str("ebnf", g.Grammar)
	case g.StructuralTag != nil:
		p.Str("structural_tag", string(g.StructuralTag))
	default:
		return nil, &inference.Error{Kind: inference.InvalidArgument, Message: "guided_choice for SGLang", Public: "guided_choice cannot be had of this model's server"}
	}
	b.Raw("sampling_params", p.Done())
	if rank := r.Routing.DPRank; rank != nil && s.RankCount() > 1 {
		b.Integer("data_parallel_rank", int64(*rank))
	}
	return b.Done(), nil
}

// sglangMeta is meta_info of an event.
type sglangMeta struct {
	prompt   uint32
	tokens   uint32
	cached   uint32
	hasCache bool
	finish   string
	message  string
	status   int
	stop     inference.StopReason
	logprobs []float64
	top      [][]inference.TopToken
}

// event implements dialect. Lists of tokens hold all so far or the new ones alone, as the server was started; the number of tokens tells
// which.
func (sglang) event(s *stream, data []byte) error {
	scanner := scan{text: data}
	out := s.push()
	first := len(s.ids)
	var m sglangMeta
	var text []byte
	for in := scanner.enter('{'); in; in = scanner.more('{') {
		switch string(scanner.key()) {
		case "output_ids":
			s.ids = scanner.counts(s.ids)
		case "text":
			if scanner.kind() == '"' {
				text = scanner.quoted()
				continue
			}
			scanner.skip()
		case "index":
			out.Index, _ = scanner.count()
		case "meta_info":
			m.read(&scanner)
		case "error":
			if scanner.null() {
				continue
			}
			said, code := errorIn(data)
			return s.failed(code, said)
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
	total := m.tokens
	ids := s.ids[first:]
	if len(ids) == 0 && total > c.tokens && len(text) > 0 {
		return &inference.Error{Kind: inference.ProtocolViolation, Message: "server " + s.server.URL + " tells no output_ids, as releases of SGLang before 0.5 may not"}
	}
	out.TokenIDs = newest(ids, c.tokens, total)
	out.Logprobs = newest(m.logprobs, c.tokens, total)
	out.TopLogprobs = newest(m.top, c.tokens, total)
	c.tokens += uint32(len(out.TokenIDs))
	if m.finish == "" {
		return nil
	}
	out.StopReason = m.stop
	out.Usage = m.usage()
	switch m.finish {
	case "abort":
		if m.status >= 400 && m.status < 500 {
			return s.failed(m.status, m.message)
		}
		return &inference.Error{Kind: inference.EngineShutdown, Message: "server " + s.server.URL + " gave the request up: " + m.message}
	case "stop":
		matched := !m.stop.IsZero()
		if m.stop.IsToken {
			out.StopReason = inference.StopReason{} // the pipeline knows which ids are the client's
			matched = false
		}
		if err := ends(s, c, out, m.finish, matched); err != nil {
			return err
		}
	default:
		if err := ends(s, c, out, m.finish, false); err != nil {
			return err
		}
	}
	if s.finished >= s.expected {
		s.clean.Store(true)
	}
	return nil
}

// newest returns what is new of a list that holds everything so far, or the new ones alone: have were told before, total are there now.
// A list of everything may have grown since its total was noted; what is beyond comes with the next event.
func newest[T any](list []T, have, total uint32) []T {
	if total == 0 { // nobody says
		return list
	}
	list = list[:min(uint32(len(list)), total)]
	if uint32(len(list)) > total-min(have, total) {
		return list[min(have, uint32(len(list))):]
	}
	return list
}

func (m *sglangMeta) read(scanner *scan) {
	for in := scanner.enter('{'); in; in = scanner.more('{') {
		switch string(scanner.key()) {
		case "prompt_tokens":
			m.prompt, _ = scanner.count()
		case "completion_tokens":
			m.tokens, _ = scanner.count()
		case "cached_tokens":
			m.cached, m.hasCache = scanner.count()
		case "finish_reason":
			m.readFinish(scanner)
		case "output_token_logprobs":
			for in := scanner.enter('['); in; in = scanner.more('[') {
				value, _ := readTriple(scanner)
				m.logprobs = append(m.logprobs, value)
			}
		case "output_top_logprobs":
			for in := scanner.enter('['); in; in = scanner.more('[') {
				var list []inference.TopToken
				for in := scanner.enter('['); in; in = scanner.more('[') {
					value, id := readTriple(scanner)
					list = append(list, inference.TopToken{Rank: uint32(len(list)) + 1, TokenID: id, Logprob: value})
				}
				m.top = append(m.top, list)
			}
		default:
			scanner.skip()
		}
	}
}

// usage is what the event says of tokens.
func (m *sglangMeta) usage() *inference.Usage {
	usage := &inference.Usage{PromptTokens: m.prompt, CompletionTokens: m.tokens, TotalTokens: m.prompt + m.tokens}
	if m.hasCache {
		cached := m.cached // a copy: events that end nothing are not to allocate
		usage.CachedTokens = &cached
	}
	return usage
}

// readTriple reads [logprob, token id, text].
func readTriple(scanner *scan) (value float64, id uint32) {
	place := 0
	for in := scanner.enter('['); in; in = scanner.more('[') {
		switch place {
		case 0:
			value = scanner.float()
		case 1:
			id, _ = scanner.count()
		default:
			scanner.skip()
		}
		place++
	}
	return value, id
}

// readFinish reads {"type": "stop", "matched": …}, or a word alone.
func (m *sglangMeta) readFinish(scanner *scan) {
	if scanner.kind() == '"' {
		m.finish = scanner.str()
		return
	}
	for in := scanner.enter('{'); in; in = scanner.more('{') {
		switch string(scanner.key()) {
		case "type":
			m.finish = scanner.str()
		case "matched":
			switch kind := scanner.kind(); {
			case kind == '"':
				m.stop = inference.StopReason{Text: scanner.str()}
			case kind >= '0' && kind <= '9':
				id, _ := scanner.count()
				m.stop = inference.StopReason{TokenID: id, IsToken: true}
			default:
				scanner.skip()
			}
		case "message":
			m.message = scanner.str()
		case "status_code":
			status, _ := scanner.count()
			m.status = int(status)
		default:
			scanner.skip()
		}
	}
}
