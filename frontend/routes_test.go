package frontend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"signalbox/api/frontdoor"
	"signalbox/model/card"
)

// described returns the paths and methods of /openapi.json.
func described(t *testing.T, f *fixture) map[string][]string {
	t.Helper()
	var document struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]json.RawMessage }
	}
	text := f.get("/openapi.json")
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	paths := make(map[string][]string)
	for path, operations := range document.Paths {
		for method, operation := range operations {
			paths[path] = append(paths[path], strings.ToUpper(method))
			for _, reference := range strings.Split(string(operation), "#/components/schemas/")[1:] {
				name, _, _ := strings.Cut(reference, `"`)
				if document.Components.Schemas[name] == nil {
					t.Errorf("%s %s refers to schema %q, which is not there", method, path, name)
				}
			}
		}
	}
	return paths
}

func (f *fixture) get(path string) string {
	f.t.Helper()
	response, err := http.Get("http://" + f.frontend.Address() + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

// TestTheDescriptionIsTrue asks for everything that /openapi.json describes, with its methods and with another one, and compares it
// with what is mounted.
func TestTheDescriptionIsTrue(t *testing.T) {
	f := start(t, func(o *Options) {
		o.HTTP.EnableAnthropic, o.Explain = true, true
		o.Extensions = []Extension{{Path: "/extra", Summary: "An extension", Answer: func(*http.Request, Service) (int, any, error) { return 200, 1, nil }}}
	})
	f.engine(nil)
	f.waitReady(1)
	paths := described(t, f)
	for path, methods := range paths {
		concrete := strings.ReplaceAll(path, "{id}", "m")
		for _, method := range []string{"GET", "POST", "DELETE"} {
			request, err := http.NewRequest(method, "http://"+f.frontend.Address()+concrete, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(response.Body)
			response.Body.Close()
			known := response.StatusCode != http.StatusMethodNotAllowed && response.Header.Get("Allow") == ""
			if known != slices.Contains(methods, method) || strings.Contains(string(text), "Route not found") || response.StatusCode >= 500 {
				t.Errorf("%s %s is described with %v and answers %d %s", method, path, methods, response.StatusCode, text)
			}
		}
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/responses/input_tokens", "/v1/messages",
		"/v1/messages/count_tokens", "/v1/images/generations", "/v1/images/edits", "/v1/videos/generations", "/v1/videos/generations/stream", "/v1/videos",
		"/v1/videos/stream", "/v1/audio/speech", "/v1/classify", "/v1/pooling", "/v1/rerank", "/v1/models", "/v1/models/{id}", "/v1/models/{id}/ready", "/health",
		"/live", "/metrics", "/openapi.json", "/docs", "/docs/", "/busy_threshold", "/signalbox/decisions", "/signalbox/decisions/{id}", "/extra"} {
		if paths[path] == nil {
			t.Errorf("%s is served and not described", path)
		}
	}
}

// TestWhatIsSwitchedOffIsNotDescribed has no Anthropic API, no operators' routes and no decisions.
func TestWhatIsSwitchedOffIsNotDescribed(t *testing.T) {
	f := start(t, func(o *Options) { o.HTTP.DisableAdmin = true })
	paths := described(t, f)
	for _, path := range []string{"/v1/messages", "/busy_threshold", "/signalbox/decisions"} {
		if paths[path] != nil {
			t.Errorf("%s is described and not served", path)
		}
		if text := f.get(path); !strings.Contains(text, "Route not found") {
			t.Errorf("%s answers %s", path, text)
		}
	}
	if page := f.get("/docs/"); !strings.Contains(page, "/v1/chat/completions") || strings.Contains(page, "<script") || strings.Contains(page, "http://") || strings.Contains(page, "https://") {
		t.Errorf("the page does not work offline: %s", page)
	}
}

func TestRouteExtensions(t *testing.T) {
	answers := 0
	f := start(t, func(o *Options) {
		o.Extensions = []Extension{
			{Path: "/fleet", Answer: func(r *http.Request, s Service) (int, any, error) {
				answers++
				return 202, map[string]any{"ready": s.Ready(), "any": s.AnyModelReady(), "m": s.ModelReady("m"), "x": s.ModelReady("x"), "models": s.Models()}, nil
			}},
			{Path: "/broken", Answer: func(*http.Request, Service) (int, any, error) { return 200, nil, errors.New("secret") }},
		}
	})
	f.engine(nil)
	f.waitReady(1)
	if text := f.get("/fleet"); text != `{"any":true,"m":true,"models":["m"],"ready":true,"x":false}` || answers != 1 {
		t.Errorf("answer %s", text)
	}
	if text := f.get("/broken"); !strings.Contains(text, "frontend route extension failed") || strings.Contains(text, "secret") {
		t.Errorf("answer %s", text)
	}
}

func TestRouteExtensionsThatCannotBe(t *testing.T) {
	for _, path := range []string{"/health", "/v1/models/x", "relative", "/a/{b}", "/v1/chat/completions"} {
		f := &Frontend{options: Options{Endpoint: DefaultEndpoints(), Extensions: []Extension{{Path: path}}}}
		taken := []frontdoor.Route{{Path: "/health"}, {Path: "/v1/chat/completions"}, {Path: "/v1/models/", Prefix: true}}
		if _, err := f.extensionRoutes(taken); err == nil {
			t.Errorf("a route extension on %s was taken", path)
		}
	}
	RegisterExtension("mine", Extension{Path: "/mine"})
	if list, err := Extensions([]string{"mine"}); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := Extensions([]string{"pkg.module:routes"}); err == nil || !strings.Contains(err.Error(), "Python entry points cannot be loaded") || !strings.Contains(err.Error(), "mine") {
		t.Errorf("a Python extension: %v", err)
	}
}

// TestInferenceIsOffBesideACompanion: then another service has it.
func TestInferenceIsOffBesideACompanion(t *testing.T) {
	stopped := false
	var host CompanionHost
	f := start(t, func(o *Options) {
		o.HTTP.EnableAnthropic = true
		o.Companion = func(h CompanionHost) (Companion, error) { host = h; return companion{&stopped}, nil }
	})
	f.engine(nil)
	f.waitReady(1)
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"} {
		if status, text := f.post(path, "{}"); status != 404 || text != "" {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if found := host.Models.Find("m"); found == nil || !host.Models.AnyReady() || host.Models.Card("m") == nil || !host.Models.Card("m").ModelType.Has(card.Chat) || host.Models.Card("x") != nil {
		t.Errorf("the companion finds %v", found)
	}
	if f.frontend.CompanionAddress() != "elsewhere" || fmt.Sprint(described(t, f)["/health"]) != "[GET]" {
		t.Error("the companion is not there")
	}
	t.Cleanup(func() {
		if host.Draining() {
			t.Error("draining before the end")
		}
	})
}

type companion struct{ stopped *bool }

func (companion) Address() string   { return "elsewhere" }
func (c companion) Shutdown() error { *c.stopped = true; return nil }
