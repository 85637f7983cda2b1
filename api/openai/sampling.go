package openai

import (
	"strconv"
	"strings"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// maxTokensCeiling is the largest output length that a client may ask for, in tokens.
const maxTokensCeiling = 1048576

// maxStopSequences is the largest number of stop strings.
const maxStopSequences = 32

func invalid(param, format string, args ...any) *problem.Problem {
	return problem.Invalid(param, "Validation: "+format, args...)
}

// readSampling reads the sampling fields that chat and completions share into r. Only types are judged here.
func readSampling(f *body.Fields, r *inference.Request) {
	s := &r.Sampling
	s.FrequencyPenalty = f.Float32("frequency_penalty")
	s.PresencePenalty = f.Float32("presence_penalty")
	s.RepetitionPenalty = f.Float32("repetition_penalty")
	if temperature := f.Float32("temperature"); temperature != nil {
		s.Temperature = temperature
	}
	s.TopP = f.Float32("top_p")
	s.TopK = f.Int32("top_k")
	s.MinP = f.Float32("min_p")
	s.N = f.Uint8("n")
	s.Seed = f.Int64("seed")
	s.IncludeStopString = f.Bool("include_stop_str_in_output")
	r.Stop.MaxTokens = f.Uint32("max_tokens")
	r.Stop.MinTokens = f.Uint32("min_tokens")
	r.Stop.IgnoreEOS = f.Bool("ignore_eos")
	r.Output.SkipSpecialTokens = f.Bool("skip_special_tokens")
	r.Output.PromptLogprobs = f.Uint32("prompt_logprobs")
	r.Output.ReturnTokensAsTokenIDs = f.Bool("return_tokens_as_token_ids")
}

// readStop reads stop: a string, strings, or token ids.
func readStop(f *body.Fields, r *inference.Request) {
	node := f.Node("stop")
	switch node.Kind() {
	case jsontape.Invalid:
	case jsontape.String:
		r.Stop.Strings = []string{node.Text()}
	case jsontape.Array:
		if node.Len() > 0 {
			if ids, bad := body.TokenIDs(node); !bad.Exists() {
				r.Stop.TokenIDs = ids
				return
			}
		}
		if list := f.Strings("stop"); list != nil {
			r.Stop.Strings = list
		}
	default:
		f.Fail("stop", "data did not match any variant of untagged enum Stop")
	}
}

// readGuided reads the guided decoding extensions; at most one constraint may be set. A schema of guided_json comes before a response
// format, and calls that the client demands come before that too.
func readGuided(f *body.Fields, responseFormat []byte, choice pipeline.ToolChoice) (*inference.GuidedDecoding, *problem.Problem) {
	guided := &inference.GuidedDecoding{}
	var received []string
	if schema := f.Raw("guided_json"); schema != nil {
		guided.JSON = schema
		received = append(received, "json")
	}
	if regex := f.String("guided_regex"); regex != nil {
		guided.Regex = *regex
		received = append(received, "regex")
	}
	if choice := f.Strings("guided_choice"); len(choice) > 0 {
		guided.Choice = choice
		received = append(received, "choice")
	}
	if grammar := f.String("guided_grammar"); grammar != nil {
		guided.Grammar = *grammar
		received = append(received, "grammar")
	}
	if backend := f.String("guided_decoding_backend"); backend != nil {
		guided.Backend = *backend
	}
	if pattern := f.String("guided_whitespace_pattern"); pattern != nil {
		guided.WhitespacePattern = *pattern
	}
	asked := len(received)
	if responseFormat != nil && guided.JSON == nil {
		received = append([]string{"json"}, received...)
	}
	if choice >= pipeline.ToolChoiceRequired {
		if asked == 0 {
			return nil, nil // the pipeline constrains calls
		}
		received = append(received, "tool_choice")
	}
	switch {
	case len(received) > 1:
		param := received[1]
		if param != "tool_choice" {
			param = "guided_" + param
		}
		return nil, problem.Invalid(param, "Only one guided-decoding constraint can be set; received: %s", strings.Join(received, ", "))
	case len(received) == 0:
		return nil, nil
	case asked == 0:
		guided.JSON = responseFormat
	}
	return guided, nil
}

// checkPenalties to checkTopP judge ranges in the order in which clients know them.
func checkPenalties(s *inference.SamplingOptions) *problem.Problem {
	if v := s.FrequencyPenalty; v != nil && (*v < -2 || *v > 2) {
		return invalid("frequency_penalty", "Frequency penalty must be between -2 and 2, got %s", number(*v))
	}
	if v := s.PresencePenalty; v != nil && (*v < -2 || *v > 2) {
		return invalid("presence_penalty", "Presence penalty must be between -2 and 2, got %s", number(*v))
	}
	return nil
}

func number(v float32) string { return strconv.FormatFloat(float64(v), 'f', -1, 32) }

// readLogitBias judges and reads the bias per token.
func readLogitBias(node jsontape.Node, s *inference.SamplingOptions) *problem.Problem {
	if !node.Present() {
		return nil
	}
	if node.Kind() != jsontape.Object {
		return problem.Invalid("logit_bias", body.DeserializePrefix+"invalid type: %s, expected a map", node.Kind())
	}
	s.LogitBias = make(map[uint32]float32, node.Len())
	for key, value := range node.Members {
		bias, ok := value.Float()
		if !ok {
			kind := "Null"
			switch value.Kind() {
			case jsontape.String:
				kind = "String(" + strconv.Quote(value.Text()) + ")"
			case jsontape.True, jsontape.False:
				kind = "Bool(" + string(value.Raw()) + ")"
			case jsontape.Array:
				kind = "Array"
			case jsontape.Object:
				kind = "Object"
			}
			return invalid("logit_bias", "Logit bias value for token '%s' must be a number, got %s", key, kind)
		}
		if bias < -100 || bias > 100 {
			return invalid("logit_bias", "Logit bias for token '%s' must be between -100 and 100, got %s", key, value.Raw())
		}
		id, err := strconv.ParseUint(key, 10, 32)
		if err != nil {
			return invalid("logit_bias", "Logit bias key must be a non-negative 32-bit integer token id")
		}
		s.LogitBias[uint32(id)] = float32(bias)
	}
	return nil
}

func checkMaxTokens(param, label string, v *uint32) *problem.Problem {
	if v == nil {
		return nil
	}
	if *v == 0 {
		return invalid(param, "%s must be greater than 0, got 0", label)
	}
	if *v > maxTokensCeiling {
		return invalid(param, "%s must not exceed %d, got %d", label, maxTokensCeiling, *v)
	}
	return nil
}

func checkN(s *inference.SamplingOptions) *problem.Problem {
	if s.N != nil && (*s.N < 1 || *s.N > 128) {
		return invalid("n", "n must be between 1 and 128, got %d", *s.N)
	}
	return nil
}

func checkTemperatureAndTopP(s *inference.SamplingOptions) *problem.Problem {
	if v := s.Temperature; v != nil && (*v < 0 || *v > 2) {
		return invalid("temperature", "Temperature must be between 0 and 2, got %s", number(*v))
	}
	if v := s.TopP; v != nil && (*v <= 0 || *v > 1) {
		return invalid("top_p", "Top_p must be between 0 and 1, got %s", number(*v))
	}
	return nil
}

// checkRest judges what comes last: repetition, min_p, top_k, and n with temperature.
func checkRest(s *inference.SamplingOptions) *problem.Problem {
	if v := s.RepetitionPenalty; v != nil && (*v <= 0 || *v > 2) {
		return invalid("repetition_penalty", "Repetition penalty must be between 0 and 2, got %s", number(*v))
	}
	if v := s.MinP; v != nil && (*v < 0 || *v > 1) {
		return invalid("min_p", "Min_p must be between 0 and 1, got %s", number(*v))
	}
	if v := s.TopK; v != nil && *v < -1 {
		return invalid("top_k", "Top_k must be null or greater than or equal to -1")
	}
	if s.N != nil && *s.N > 1 && s.Temperature != nil && *s.Temperature == 0 {
		return invalid("n", "When n > 1, temperature must be greater than 0 to ensure diverse outputs. Got n=%d, temperature=0", *s.N)
	}
	return nil
}

func checkStop(f *body.Fields, r *inference.Request) *problem.Problem {
	node := f.Node("stop")
	switch node.Kind() {
	case jsontape.String:
		if node.Len() == 0 && len(node.Bytes()) == 0 {
			return invalid("stop", "Stop sequence cannot be empty")
		}
	case jsontape.Array:
		if node.Len() == 0 {
			return invalid("stop", "Stop sequences array cannot be empty")
		}
		if node.Len() > maxStopSequences {
			return problem.Invalid("stop", "Maximum of %d stop sequences allowed, got %d", maxStopSequences, node.Len())
		}
		for i, text := range r.Stop.Strings {
			if text == "" {
				return invalid("stop", "Stop sequence at index %d cannot be empty", i)
			}
		}
	}
	return nil
}

// readLoose reads the pass-through extensions that are judged by hand: cache_salt, stop_token_ids and their kin.
func readLoose(f *body.Fields, r *inference.Request) *problem.Problem {
	if node := f.Node("cache_salt"); node.Exists() {
		if node.Kind() != jsontape.String {
			return invalid("cache_salt", "`cache_salt` must be a string")
		}
		if r.Routing.CacheSalt == "" {
			r.Routing.CacheSalt = node.Text()
		}
	}
	for _, name := range []string{"stop_token_ids", "allowed_token_ids", "logprob_token_ids"} {
		node := f.Node(name)
		if !node.Exists() {
			continue
		}
		ids, bad := body.TokenIDs(node)
		if bad.Exists() {
			return invalid(name, "`%s` must be an array of token IDs", name)
		}
		if name == "stop_token_ids" {
			r.Stop.TokenIDs = append(r.Stop.TokenIDs, ids...)
		}
	}
	if node := f.Node("bad_words_token_ids"); node.Exists() {
		ok := node.Kind() == jsontape.Array
		for _, element := range node.Elements {
			if _, bad := body.TokenIDs(element); bad.Exists() {
				ok = false
			}
		}
		if !ok {
			return invalid("bad_words_token_ids", "`bad_words_token_ids` must be an array of token ID arrays")
		}
	}
	if node := f.Node("detokenize"); node.Exists() {
		if _, ok := node.Bool(); !ok {
			return invalid("detokenize", "`detokenize` must be a boolean")
		}
	}
	return nil
}
