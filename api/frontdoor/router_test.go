package frontdoor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func named(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(text)) })
}

func TestRoutes(t *testing.T) {
	on := false
	router := NewRouter([]Route{
		{Path: "/a", Methods: []string{"POST"}, Handler: named("a")},
		{Path: "/m", Methods: []string{"GET"}, Handler: named("list")},
		{Path: "/m/", Prefix: true, Methods: []string{"GET"}, Handler: named("one")},
		{Path: "/m/deep/", Prefix: true, Methods: []string{"GET"}, Handler: named("deep")},
		{Path: "/off", Methods: []string{"POST"}, Handler: named("off"), On: func() bool { return on }},
		{Path: "/both", Methods: []string{"POST", "GET"}, Handler: named("both")},
		{Path: "/twice", Methods: []string{"GET"}, Handler: named("first")},
		{Path: "/twice", Methods: []string{"GET"}, Handler: named("second")},
	})
	router.AnthropicPath = "/v1/messages"
	for _, test := range []struct {
		method, path string
		status       int
		body, allow  string
	}{
		{"POST", "/a", 200, "a", ""}, {"GET", "/a", 405, "", "POST"}, {"OPTIONS", "/a", 405, "", "POST"}, {"HEAD", "/a", 405, "", "POST"},
		{"GET", "/m", 200, "list", ""}, {"HEAD", "/m", 200, "list", ""}, {"GET", "/m/x", 200, "one", ""}, {"GET", "/m/x/y/z", 200, "one", ""}, {"GET", "/m/deep/x", 200, "deep", ""},
		{"POST", "/m/x", 405, "", "GET,HEAD"}, {"DELETE", "/both", 405, "", "POST,GET,HEAD"}, {"GET", "/twice", 200, "second", ""},
		{"POST", "/off", 404, "", ""}, {"GET", "/off", 404, "", "POST"},
		{"GET", "/m/", 404, "Route not found: GET /m/", ""}, {"GET", "//a", 404, "Route not found: GET //a", ""}, {"GET", "/", 404, "Route not found: GET /", ""},
		{"POST", "/a/", 404, "Route not found: POST /a/", ""}, {"GET", "/v1/messages/x", 404, `{"type":"error","error":{"type":"not_found_error"`, ""},
	} {
		recorder := httptest.NewRecorder()
		request := httptest.NewRequest(test.method, test.path+"?query", nil)
		request.Header.Set("X-Request-Id", "mine")
		router.ServeHTTP(recorder, request)
		body := recorder.Body.String()
		if recorder.Code != test.status || !strings.Contains(body, test.body) || test.body == "" && body != "" || recorder.Header().Get("Allow") != test.allow {
			t.Errorf("%s %s: %d, %q, allow %q", test.method, test.path, recorder.Code, body, recorder.Header().Get("Allow"))
		}
		if recorder.Header().Get("X-Request-Id") != "mine" {
			t.Errorf("%s %s: x-request-id is %q", test.method, test.path, recorder.Header().Get("X-Request-Id"))
		}
	}
	on = true
	recorder := httptest.NewRecorder()
	router.ServeHTTP(recorder, httptest.NewRequest("POST", "/off", nil))
	if recorder.Body.String() != "off" {
		t.Errorf("a route that was switched on: %d", recorder.Code)
	}
}

// TestBareAnswersSpeakToThoseWhoListen: probes get an empty body, who reads JSON gets the reason.
func TestBareAnswersSpeakToThoseWhoListen(t *testing.T) {
	router := NewRouter([]Route{{Path: "/off", Methods: []string{"POST"}, Handler: named(""), On: func() bool { return false }}})
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest("POST", "/off", nil)
	request.Header.Set("Accept", "application/json")
	router.ServeHTTP(recorder, request)
	var body struct{ Message string }
	if err := json.Unmarshal(recorder.Body.Bytes(), &body); err != nil || recorder.Code != 404 || body.Message == "" {
		t.Errorf("%d, %s", recorder.Code, recorder.Body)
	}
}
