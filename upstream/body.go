package upstream

import (
	"slices"

	"signalbox/inference"
)

// tokenBytes is what a token's id takes in a body, about.
const tokenBytes = 7

// stopIDs are the ids that end an answer: the client's and the model's. None are there when ends are to be ignored.
func stopIDs(r *inference.Request) []uint32 {
	ids := slices.Clone(r.Stop.HiddenTokenIDs)
	for _, more := range [][]uint32{r.Stop.TokenIDs, r.Stop.VisibleTokenIDs} {
		for _, id := range more {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func isTrue(value *bool) bool { return value != nil && *value }

// limit is how many tokens the answer may have: what was asked for, else what is left of the server's context; 0 when nobody knows.
func limit(s *Server, r *inference.Request) uint32 {
	if r.Stop.MaxTokens != nil {
		return *r.Stop.MaxTokens
	}
	if length := s.About.ContextLength; int64(length) > int64(len(r.TokenIDs)) {
		return length - uint32(len(r.TokenIDs))
	}
	return 0
}

// unsupported refuses what no server can be asked with tokens.
func unsupported(s *Server, r *inference.Request) error {
	refuse := func(what string) error {
		return &inference.Error{Kind: inference.InvalidArgument, Message: what + " for a plain server", Public: what + " cannot be had of this model's server"}
	}
	switch {
	case len(r.MultiModal) > 0:
		return &inference.Error{Kind: inference.InvalidArgument, Message: "media in a request of tokens",
			Public: "this model is asked with tokens here and takes no images, videos or audio"}
	case r.PromptEmbeds != "":
		return refuse("prompt_embeds")
	case r.Output.PromptLogprobs != nil:
		return refuse("prompt_logprobs")
	case isTrue(r.Sampling.UseBeamSearch):
		return refuse("beam search")
	case r.Sampling.BestOf != nil && *r.Sampling.BestOf > 1:
		return refuse("best_of")
	case r.PrefillResult != nil || r.Bootstrap != nil:
		return refuse("a separate prefill")
	case r.Routing.CacheSalt != "" && s.About.Kind != VLLM: // tenants would share what they must not
		return refuse("cache_salt")
	case r.Routing.LoRAName != "" && r.Routing.LoRAName != s.About.Model:
		return refuse("an adapter")
	}
	return nil
}
