package frontend

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/worker/sim"
)

// TestStreamsThatOutlastTheDrainEndWithAnError: the client learns what happened, in every protocol.
func TestStreamsThatOutlastTheDrainEndWithAnError(t *testing.T) {
	for path, test := range map[string]struct{ body, want string }{
		"/v1/chat/completions": {`{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100000,"stream":true}`, `"type":"service_unavailable","code":503}}` + "\n\ndata: [DONE]"},
		"/v1/completions":      {`{"model":"m","prompt":"hello","max_tokens":100000,"stream":true}`, `"type":"service_unavailable","code":503}}` + "\n\ndata: [DONE]"},
		"/v1/responses":        {`{"model":"m","input":"hello","max_output_tokens":100000,"stream":true}`, "response.failed"},
		"/v1/messages":         {`{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100000,"stream":true}`, "overloaded_error"},
	} {
		f := start(t, func(o *Options) { o.HTTP.DrainTimeout, o.HTTP.EnableAnthropic = 20*time.Millisecond, true })
		f.engine(func(c *sim.Config) { c.SpeedupRatio = 1 })
		f.waitReady(1)
		response, err := http.Post("http://"+f.frontend.Address()+path, "application/json", strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(response.Body, make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := f.frontend.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%s: the end took %v", path, took)
		}
		rest, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(rest), test.want) {
			t.Errorf("%s: %v, ends with %s", path, err, rest[max(0, len(rest)-300):])
		}
	}
}
