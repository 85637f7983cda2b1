package frontend

import (
	"context"
	"slices"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/disagg"
	"signalbox/router/kv"
)

// bypassAnnotation marks requests that skip the prefill workers. Only the router sets it.
const bypassAnnotation = "x-bypass-remote-prefill"

// kvOf returns the KV router behind a set's router; nil in other modes.
func kvOf(r router.Router) *kv.Router {
	switch made := r.(type) {
	case *kvRouting:
		return made.Router
	case *adapterRouter:
		if base := made.base(); base != nil {
			return base.Router
		}
	case *sessions:
		return kvOf(made.Router.Inner())
	}
	return nil
}

// conditional returns what decides whether a request of the set skips the prefill workers; nil where that is switched off.
func (s *server) conditional() func(context.Context, *inference.Request) *router.Pin {
	decode := kvOf(s.router)
	if decode == nil {
		return nil
	}
	settings := decode.Config()
	config := settings.Disaggregation()
	if !config.Enabled {
		return nil
	}
	if err := config.Check(settings.QueueThreshold); err != nil {
		s.frontend.options.Logger.Error("requests never skip the prefill workers", "error", err)
		return nil
	}
	return func(ctx context.Context, request *inference.Request) *router.Pin {
		request.Annotations = slices.DeleteFunc(slices.Clone(request.Annotations), func(a string) bool { return a == bypassAnnotation })
		if request.Routing.PrefillWorkerID != nil || len(request.TokenIDs) == 0 {
			return nil
		}
		advice, err := s.advise(ctx, decode, request)
		if err != nil {
			return nil // the normal path says what is wrong, if anything is
		}
		if !config.Bypasses(disagg.Prompt{Tokens: uint64(len(request.TokenIDs)), CachedTokens: uint64(advice.CachedTokens)}, s.prefillBusy(ctx, &config, request)) ||
			!config.DecodeAllows(advice.PotentialDecodeBlocks, advice.TotalBlocks) {
			return nil
		}
		return &advice.Pin
	}
}

// advise asks where the request would go among the decode workers. A session that is bound goes where it is bound.
func (s *server) advise(ctx context.Context, decode *kv.Router, request *inference.Request) (kv.Advice, error) {
	attempt := router.Attempt{Phase: router.Decode}
	if request.Routing.SessionID != "" {
		question := *request
		question.Routing.QueryOnly = true
		attempt.AtOnce = true
		placement, err := s.router.Place(ctx, &question, attempt)
		if err != nil {
			return kv.Advice{}, err
		}
		pin := placement.Pin()
		attempt.Pin = &pin
	}
	return decode.Advise(ctx, narrowed(s.router, request, &attempt), attempt)
}

// prefillBusy tells whether the prefill worker that the request would go to is busy; false where that does not matter or is not known.
func (s *server) prefillBusy(ctx context.Context, config *disagg.Config, request *inference.Request) bool {
	if !config.NeedsPrefillLoad() {
		return false
	}
	set := s.prefill.Load()
	if set == nil {
		return false
	}
	prefill := kvOf(set.router)
	if prefill == nil {
		return false
	}
	attempt := router.Attempt{Phase: router.Prefill}
	advice, err := prefill.Advise(ctx, narrowed(set.router, request, &attempt), attempt)
	return err == nil && config.PrefillIsBusy(advice.ActivePrefillTokens, advice.PerStep)
}
