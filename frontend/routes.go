package frontend

import (
	"net/http"
	"strings"

	"signalbox/api/admin"
	"signalbox/api/anthropic"
	"signalbox/api/body"
	"signalbox/api/frontdoor"
	"signalbox/api/openai"
	"signalbox/observe"
)

// handler mounts every route.
func (f *Frontend) handler() (http.Handler, error) {
	o := f.options
	apiOptions := o.API
	apiOptions.Draining = f.door.Draining
	apiOptions.AnthropicListing = o.HTTP.EnableAnthropic
	models := catalog{f}
	api := openai.New(models, f.requests, apiOptions)
	health := &admin.Health{Fleet: models, Draining: f.door.Draining, Stopping: f.door.Stopping}
	// Requests for inference are counted for the drain, and traced.
	track := func(handler http.HandlerFunc) http.Handler { return observe.Traced(o.Tracer, f.door.Track(handler)) }
	post, get := []string{http.MethodPost}, []string{http.MethodGet}
	on := func(kind openai.Kind) func() bool { return func() bool { return models.Any(kind) } }
	// Beside a companion the HTTP listener only has the routes for operators: those of inference exist and are off.
	inference := func() bool { return o.Companion == nil }
	e := o.Endpoint
	routes := []frontdoor.Route{
		{Path: e.Chat, Methods: post, Handler: track(api.Chat), On: both(inference, on(openai.Chat)), Summary: "Chat completions, whole or streamed", Request: "ChatRequest"},
		{Path: e.Completions, Methods: post, Handler: track(api.Completions), On: both(inference, on(openai.Completions)), Summary: "Text completions, whole or streamed", Request: "CompletionRequest"},
		{Path: e.Embeddings, Methods: post, Handler: track(api.Embed), On: inference, Summary: "Text embeddings", Request: "EmbeddingRequest"},
		{Path: e.Responses, Methods: post, Handler: track(api.Responses), On: inference, Summary: "Responses API, whole or streamed", Request: "ResponsesRequest"},
		{Path: e.Responses + "/input_tokens", Methods: post, Handler: http.HandlerFunc(api.InputTokens), On: inference, Summary: "Estimates the input tokens of a response", Request: "ResponsesRequest"},
		{Path: e.Models, Methods: get, Handler: http.HandlerFunc(api.ListModels), Summary: "Models that can serve now"},
		{Path: e.Models + "/", Prefix: true, Methods: get, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := strings.TrimPrefix(r.URL.Path, e.Models+"/")
			api.RetrieveModel(w, r, id)
		}), Summary: "One model", Described: []string{"{id}", "{id}/ready"}},
		{Path: e.Health, Methods: get, Handler: http.HandlerFunc(health.ServeHealth), Summary: "Health and the discovered instances"},
		{Path: e.Live, Methods: get, Handler: http.HandlerFunc(health.ServeLive), Summary: "Liveness"},
		{Path: e.Metrics, Methods: get, Handler: observe.Handler(o.Metrics), Summary: "Prometheus metrics"},
	}
	media := func(kind openai.Kind, handler http.HandlerFunc, request, summary string, paths ...string) {
		for _, path := range paths {
			routes = append(routes, frontdoor.Route{Path: path, Methods: post, Handler: track(handler), On: both(inference, on(kind)), Summary: summary, Request: request})
		}
	}
	media(openai.Images, api.Images, "ImageRequest", "Image generation", "/v1/images/generations")
	media(openai.Images, api.ImageEdits, "ImageRequest", "Image generation from an image", "/v1/images/edits")
	media(openai.Videos, api.Videos, "VideoRequest", "Video generation, whole or streamed", "/v1/videos/generations", "/v1/videos")
	media(openai.Videos, api.VideoFrames, "VideoRequest", "Video generation as a stream of pictures", "/v1/videos/generations/stream", "/v1/videos/stream")
	media(openai.Audios, api.Speech, "SpeechRequest", "Speech from text", "/v1/audio/speech")
	media(openai.Classify, api.Classify, "PoolingRequest", "Classes of texts", e.Classify)
	media(openai.Classify, api.Rerank, "RerankRequest", "Documents by how well they answer a query", "/v1/rerank")
	media(openai.Pooling, api.Pooling, "PoolingRequest", "Pooled vectors of texts", e.Pooling)
	if e.GenerateVLLM != "" {
		routes = append(routes, frontdoor.Route{Path: e.GenerateVLLM, Methods: post, Handler: track(api.GenerateVLLM), On: inference, Summary: "Tokens from tokens, in vLLM's words", Request: "VLLMGenerateRequest"})
	}
	if e.GenerateSGLang != "" {
		routes = append(routes, frontdoor.Route{Path: e.GenerateSGLang, Methods: []string{http.MethodPost, http.MethodPut}, Handler: track(api.GenerateSGLang), On: inference, Summary: "A stream of SGLang's answers from tokens", Request: "SGLangGenerateRequest"})
	}
	// It exists and is off, which is how clients learn that no model here serves it.
	routes = append(routes, frontdoor.Route{Path: "/v1/realtime", Methods: get, Handler: http.NotFoundHandler(), On: func() bool { return false }})
	if o.HTTP.EnableAnthropic && o.Companion == nil {
		messages := anthropic.New(models, f.requests, anthropic.Options{BodyLimitMB: o.API.BodyLimitMB, DisableExtensions: o.API.DisableExtensions,
			MetadataPrefix: o.API.MetadataPrefix, WriteTimeout: o.API.WriteTimeout, OverloadStatus: o.API.OverloadStatus,
			StripPreamble: o.HTTP.StripAnthropicPreamble, Draining: f.door.Draining})
		routes = append(routes,
			frontdoor.Route{Path: e.Anthropic, Methods: post, Handler: track(messages.Messages), Summary: "Anthropic Messages API, whole or streamed", Request: "MessagesRequest"},
			frontdoor.Route{Path: e.Anthropic + "/count_tokens", Methods: post, Handler: http.HandlerFunc(messages.CountTokens), Summary: "Estimates the input tokens of a message", Request: "CountTokensRequest"})
	}
	if !o.HTTP.DisableAdmin {
		busy := &admin.BusyThresholds{Store: f.thresholds, Reader: body.NewReader(o.API.BodyLimitMB)}
		routes = append(routes, frontdoor.Route{Path: "/busy_threshold", Methods: []string{http.MethodPost, http.MethodGet}, Handler: busy, Summary: "Read or set the thresholds beyond which workers count as busy", Request: "ThresholdsRequest"})
	}
	if f.explainer != nil && !o.HTTP.DisableAdmin {
		routes = append(routes, f.explainer.routes()...)
	}
	extra, err := f.extensionRoutes(routes)
	if err != nil {
		return nil, err
	}
	routes = append(routes, extra...)
	routes = append(routes, f.describe(routes)...)
	mux := frontdoor.NewRouter(routes)
	if o.HTTP.EnableAnthropic {
		mux.AnthropicPath = e.Anthropic
	}
	return mux, nil
}

// both tells whether a route is on by two conditions.
func both(x, y func() bool) func() bool { return func() bool { return x() && y() } }

// Where the routes are described.
const (
	descriptionPath = "/openapi.json"
	pagePath        = "/docs/"
)

// describe returns the routes that describe the others.
func (f *Frontend) describe(routes []frontdoor.Route) []frontdoor.Route {
	description := &admin.Description{Title: "signalbox", Version: f.options.Version}
	add := func(route frontdoor.Route) {
		if route.Summary == "" {
			return // off for good: nothing to describe
		}
		paths := []string{route.Path}
		if route.Prefix {
			paths = nil
			for _, rest := range route.Described {
				paths = append(paths, route.Path+rest)
			}
		}
		for _, path := range paths {
			for _, method := range route.Methods {
				operation := admin.Operation{Method: method, Path: path, Summary: route.Summary}
				if method == http.MethodPost {
					operation.Request = route.Request
				}
				description.Operations = append(description.Operations, operation)
			}
		}
	}
	get := []string{http.MethodGet}
	extra := []frontdoor.Route{
		{Path: descriptionPath, Methods: get, Handler: http.HandlerFunc(description.ServeJSON), Summary: "This API's description"},
		{Path: strings.TrimSuffix(pagePath, "/"), Methods: get, Handler: http.HandlerFunc(admin.RedirectToPage), Summary: "Redirects to the description page"},
		{Path: pagePath, Methods: get, Handler: http.HandlerFunc(description.ServePage), Summary: "The description as a page"},
	}
	for _, route := range append(append([]frontdoor.Route(nil), routes...), extra...) {
		add(route)
	}
	return extra
}
