package frontend

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/golden"
)

// errorCase is a recorded request that was refused.
type errorCase struct {
	Name, Method, Path string
	Headers            map[string]string
	Needs              []string
	Body               json.RawMessage
	BodyText           *string `json:"body_text"`
	BodyFill           *struct {
		Prefix, Char, Suffix string
		Count                int
	} `json:"body_fill"`
	Expect struct {
		Status int
		Body   struct {
			Message, Type string
			Code          int
		}
		Text *string
	}
}

func (c *errorCase) body() string {
	switch {
	case c.BodyText != nil:
		return *c.BodyText
	case c.BodyFill != nil:
		return c.BodyFill.Prefix + strings.Repeat(c.BodyFill.Char, c.BodyFill.Count) + c.BodyFill.Suffix
	}
	return string(c.Body)
}

// TestRecordedRefusals sends the requests that the reference refused and compares status and text. Recorded parser texts are
// compared by their beginning, as the recordings say.
func TestRecordedRefusals(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(golden.Dir(t, "http"), "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, func(o *Options) {
		o.ModelName = "qwen3"
		o.API.BodyLimitMB = 45
	})
	f.engine(nil)
	f.waitReady(1)
	compared := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var c errorCase
		if err := json.Unmarshal(text, &c); err != nil || c.Expect.Status < 400 || c.Expect.Body.Message == "" || slices.Contains(c.Needs, "short") || slices.Contains(c.Needs, "anthropic") {
			continue // an answer, a file of another shape, or a case that needs a certain worker
		}
		compared++
		request, err := http.NewRequestWithContext(t.Context(), c.Method, "http://"+f.frontend.Address()+c.Path, strings.NewReader(c.body()))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range c.Headers {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		answer, _ := io.ReadAll(response.Body)
		response.Body.Close()
		var got refusal
		if err := json.Unmarshal(answer, &got); err != nil {
			t.Errorf("%s: status %d, %.200q", c.Name, response.StatusCode, answer)
			continue
		}
		want := c.Expect.Body
		prefix, isPrefix := strings.CutPrefix(want.Message, "<prefix:")
		same := got.Message == want.Message || isPrefix && strings.HasPrefix(got.Message, strings.TrimSuffix(prefix, ">"))
		if response.StatusCode != c.Expect.Status || got.Code != want.Code || got.Type != want.Type || !same || got.Error.Message == "" {
			t.Errorf("%s: status %d: %s\nwant %d: %+v", c.Name, response.StatusCode, answer, c.Expect.Status, want)
		}
	}
	if compared < 80 {
		t.Errorf("only %d cases were compared", compared)
	}
}
