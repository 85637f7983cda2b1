package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// gate stands between SDKs and a frontend of ours. The first part of a path names the client, the second what happens to it at first:
//
//	refused-429, -503, -529  two refusals of a frontend whose workers are busy, with that status
//	broken                   two connections that end without an answer
//	slow                     one request without an answer in time
//
// What follows goes to a frontend that answers. The gate is a stand-in for a network and for load that passes; the refusals are real.
type gate struct {
	*httptest.Server
	good *httputil.ReverseProxy
	full map[string]*httputil.ReverseProxy

	mu    sync.Mutex
	tries map[string][]try // by client and case
}

// try is one request of an SDK.
type try struct {
	at    time.Time
	retry string // what the SDK says about it
}

// failures is how many requests of a case fail.
var failures = map[string]int{"refused-429": 2, "refused-503": 2, "refused-529": 2, "broken": 2, "slow": 1}

func proxyTo(t *testing.T, f *frontend) *httputil.ReverseProxy {
	target, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	return httputil.NewSingleHostReverseProxy(target)
}

// newGate starts the frontends behind the gate, and the gate.
func newGate(t *testing.T) (g *gate, model string) {
	t.Helper()
	s := fileStore(t)
	start(t, s.environment(), program, append([]string{"worker", "--num-workers", "1", "--model-name", "interop"}, s.flags()...)...)
	good := startOurs(t, s, "--enable-anthropic-api")
	g = &gate{good: proxyTo(t, good), full: map[string]*httputil.ReverseProxy{}, tries: map[string][]try{}}
	model = good.serve(t)
	var busy []*frontend
	for _, status := range []string{"429", "503", "529"} {
		t.Setenv("DYN_HTTP_OVERLOAD_STATUS_CODE", status)
		full := startOurs(t, s, "--enable-anthropic-api", "--router-mode", "kv", "--active-decode-blocks-threshold", "0")
		full.serve(t)
		busy = append(busy, full)
		g.full["refused-"+status] = proxyTo(t, full)
	}
	tokens, _ := prompt(t, rand.New(rand.NewPCG(1, 9)), nil, 30)
	good.hold(t, model, tokens) // the only worker says that it is busy, and all but this frontend mind
	for _, full := range busy {
		eventually(t, "requests are refused", func() bool {
			_, text, _ := full.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"x","max_tokens":1}`, model))
			return strings.Contains(text, "overloaded")
		})
	}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g, model
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	key, what := parts[0]+"/"+parts[1], parts[1]
	g.mu.Lock()
	g.tries[key] = append(g.tries[key], try{time.Now(), r.Header.Get("X-Stainless-Retry-Count")})
	count := len(g.tries[key])
	g.mu.Unlock()
	r.URL.Path = "/" + parts[2]
	switch {
	case count > failures[what]:
		g.good.ServeHTTP(w, r)
	case what == "broken":
		panic(http.ErrAbortHandler) // the server closes the connection
	case what == "slow":
		_, _ = http.MaxBytesReader(w, r.Body, 1<<20).Read(make([]byte, 1<<20)) // else nobody notices that the client goes
		<-r.Context().Done()
	default:
		g.full[what].ServeHTTP(w, r)
	}
}

// endsWithTimeout are the clients that give up when an answer does not come in their time; the others try again.
var endsWithTimeout = []string{"openai-go"}

// check looks at the tries of a client that should have come through.
func (g *gate) check(t *testing.T, client string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for what, count := range failures {
		tries := g.tries[client+"/"+what]
		var said []string
		for _, try := range tries {
			said = append(said, try.retry)
		}
		if what == "slow" && slices.Contains(endsWithTimeout, client) {
			count = 0
		}
		if want := []string{"0", "1", "2"}[:count+1]; !slices.Equal(said, want) {
			t.Errorf("%s, %s: the tries call themselves %q, want %q", client, what, said, want)
		}
		for i := 1; i < len(tries) && strings.HasPrefix(what, "refused"); i++ {
			// The refusals say Retry-After: 1; left to themselves the SDKs come back after half a second at first.
			if waited := tries[i].at.Sub(tries[i-1].at); waited < time.Second {
				t.Errorf("%s, %s: try %d came after %v, the answer asked for a second", client, what, i+1, waited)
			}
		}
	}
}

// TestSDKsTryAgain lets the official SDKs meet refusals, broken connections and time-outs.
func TestSDKsTryAgain(t *testing.T) {
	g, model := newGate(t)
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		output, err := exec.Command(releases(t)[0].python, filepath.Join("clients", "retries.py"), g.URL, model).CombinedOutput()
		if err != nil || !strings.HasSuffix(string(output), "ok\n") {
			t.Fatalf("%v:\n%s", err, output)
		}
		g.check(t, "openai-python")
		g.check(t, "anthropic-python")
	})
	t.Run("openai-go", func(t *testing.T) {
		t.Parallel()
		ask := func(base string, retries int) (int64, error) {
			client := openai.NewClient(option.WithBaseURL(base+"/v1"), option.WithAPIKey("unused"), option.WithMaxRetries(retries), option.WithRequestTimeout(wait(base)))
			answer, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: model, MaxTokens: openai.Int(2),
				Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Where to?")}})
			if err != nil {
				return 0, err
			}
			return answer.Usage.CompletionTokens, nil
		}
		g.goSDK(t, "openai-go", ask, func(err error) (int, string) {
			var failure *openai.Error
			if !errors.As(err, &failure) {
				return 0, ""
			}
			return failure.StatusCode, failure.Message
		})
	})
	t.Run("anthropic-go", func(t *testing.T) {
		t.Parallel()
		ask := func(base string, retries int) (int64, error) {
			client := anthropic.NewClient(anthropicoption.WithBaseURL(base), anthropicoption.WithAPIKey("unused"), anthropicoption.WithMaxRetries(retries),
				anthropicoption.WithRequestTimeout(wait(base)))
			answer, err := client.Messages.New(t.Context(), anthropic.MessageNewParams{Model: anthropic.Model(model), MaxTokens: 2,
				Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Where to?"))}})
			if err != nil {
				return 0, err
			}
			return answer.Usage.OutputTokens, nil
		}
		g.goSDK(t, "anthropic-go", ask, func(err error) (int, string) {
			var failure *anthropic.Error
			if !errors.As(err, &failure) {
				return 0, ""
			}
			return failure.StatusCode, failure.RawJSON()
		})
	})
}

// wait is how long a client waits for an answer.
func wait(base string) time.Duration {
	if strings.HasSuffix(base, "/slow") {
		return time.Second
	}
	return 30 * time.Second
}

// goSDK walks a client through all cases, with retries and without.
func (g *gate) goSDK(t *testing.T, client string, ask func(base string, retries int) (int64, error), failed func(error) (status int, message string)) {
	for what := range failures {
		base := fmt.Sprintf("%s/%s/%s", g.URL, client, what)
		tokens, err := ask(base, 2)
		if what == "slow" && slices.Contains(endsWithTimeout, client) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want a time-out", what, err)
			}
		} else if err != nil || tokens != 2 {
			t.Errorf("%s: %d tokens, %v", what, tokens, err)
		}
		_, err = ask(fmt.Sprintf("%s/%s-once/%s", g.URL, client, what), 0)
		status, message := failed(err)
		if want, refused := strings.CutPrefix(what, "refused-"); refused {
			if fmt.Sprint(status) != want || !strings.Contains(message, "overloaded") {
				t.Errorf("%s: status %d, message %q, want one that the SDK shows", what, status, message)
			}
		} else if err == nil || status != 0 {
			t.Errorf("%s: %v (status %d), want a failure without an answer", what, err, status)
		}
	}
	g.check(t, client)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + listener.Addr().String()
	listener.Close()
	if _, err := ask(nobody, 1); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody listens: %v", err)
	}
}
