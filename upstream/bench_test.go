package upstream

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// endless repeats an event.
type endless struct {
	event []byte
	at    int
}

func (e *endless) Read(p []byte) (n int, err error) {
	// One event at a time, as it comes from a server that generates.
	n = copy(p, e.event[e.at:])
	if e.at += n; e.at == len(e.event) {
		e.at = 0
	}
	return n, nil
}

// BenchmarkToken is what one streamed token costs, from the bytes of an event to an output.
func BenchmarkToken(b *testing.B) {
	for name, test := range map[string]struct {
		dialect dialect
		event   string
	}{
		"vllm":     {completions{vllm: true}, `{"id":"cmpl-1","object":"text_completion","created":1796228719,"model":"m","choices":[{"index":0,"text":" train","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[1234]}],"usage":null}`},
		"sglang":   {sglang{}, `{"text":" train","output_ids":[1234],"meta_info":{"id":"1","finish_reason":null,"prompt_tokens":19,"weight_version":"default","completion_tokens":1,"cached_tokens":0}}`},
		"llamacpp": {llamacpp{}, `{"index":0,"content":" train","tokens":[1234],"stop":false,"id_slot":-1,"tokens_predicted":0,"tokens_evaluated":19}`},
		"text":     {asItIs{}, `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" train"},"finish_reason":null}]}`},
	} {
		b.Run(name, func(b *testing.B) {
			s := testStream(test.dialect, io.Reader(&endless{event: fmt.Appendf(nil, "data: %s\n\n", test.event)}))
			defer s.Close()
			b.ReportAllocs()
			for b.Loop() {
				if s.choices != nil {
					s.choices[0].tokens = 0 // SGLang counts up
				}
				if out, err := s.Next(b.Context()); err != nil || len(out.TokenIDs)+len(out.Body) == 0 {
					b.Fatal(out, err)
				}
			}
		})
	}
}

func TestATokenAllocatesNothing(t *testing.T) {
	event := []byte("data: {\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\" train\",\"token_ids\":[1234],\"finish_reason\":null}]}\n\n")
	s := testStream(completions{vllm: true}, bytes.NewReader(bytes.Repeat(event, 2000)))
	defer s.Close()
	if average := testing.AllocsPerRun(1000, func() {
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}); average > 0.1 {
		t.Errorf("%.1f allocations for a token", average)
	}
}
