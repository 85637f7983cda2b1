package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// streamed is what a client sees of a stream.
type streamed struct {
	status     int
	chunks     int // with text
	finish     string
	prompt     int
	completion int
	failure    string
	ended      bool
}

// stream sends a streamed completion and reads it to its end; first is called with the first text.
func (f *frontend) stream(model, prompt string, tokens int, first func()) (s streamed, err error) {
	response, err := http.Post(f.url+"/v1/completions", "application/json", strings.NewReader(
		fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d,"stream":true,"stream_options":{"include_usage":true}}`, model, prompt, tokens)))
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	s.status = response.StatusCode
	scanner := bufio.NewScanner(response.Body)
	for scanner.Scan() {
		data, ok := strings.CutPrefix(scanner.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			s.ended = true
			continue
		}
		var chunk struct {
			Error   json.RawMessage
			Choices []struct {
				Text         string
				FinishReason string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return s, err
		}
		if chunk.Error != nil {
			s.failure = string(chunk.Error)
		}
		for _, choice := range chunk.Choices {
			if choice.Text != "" {
				if s.chunks++; s.chunks == 1 && first != nil {
					first()
				}
			}
			if choice.FinishReason != "" {
				s.finish = choice.FinishReason
			}
		}
		if chunk.Usage != nil {
			s.prompt, s.completion = chunk.Usage.Prompt, chunk.Usage.Completion
		}
	}
	return s, scanner.Err()
}

func workers(f *frontend, name string, count int) func() bool {
	return func() bool {
		_, text, _ := get(f.url + "/v1/models/" + name + "/ready")
		return strings.Contains(text, fmt.Sprintf(`"workers":%d`, count))
	}
}

// TestStreamsMoveFromRealWorkersThatEnd runs streams on two real mock workers and ends one of them in their middle, in every way that
// workers end: killed, asked to go, and stalled. No stream fails, and each has all of its tokens.
func TestStreamsMoveFromRealWorkersThatEnd(t *testing.T) {
	for _, r := range releases(t) {
		for name, end := range map[string]func(c *child){
			"killed":  func(c *child) { c.signal(syscall.SIGKILL) },
			"asked":   func(c *child) { c.signal(syscall.SIGTERM) },
			"stalled": func(c *child) { c.signal(syscall.SIGSTOP) },
		} {
			t.Run(r.name+"/"+name, func(t *testing.T) {
				s := fileStore(t)
				model := modelDirectory(t)
				victim := startMocker(t, r, s, model, "--speedup-ratio", "1")
				t.Cleanup(func() { victim.signal(syscall.SIGCONT) })
				s2 := s
				s2.extra = []string{"DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS=2"}
				ours := startOurs(t, s2, "--migration-limit", "2")
				name := ours.serve(t)
				startMocker(t, r, s, model, "--speedup-ratio", "1")
				eventually(t, "both workers are known", workers(ours, name, 2))
				const clients, tokens = 6, 120
				var wait, begun sync.WaitGroup
				begun.Add(clients)
				for client := range clients {
					wait.Go(func() {
						once := sync.OnceFunc(begun.Done)
						defer once()
						got, err := ours.stream(name, fmt.Sprintf("a story of client %d", client), tokens, once)
						if err != nil || got.status != 200 || got.failure != "" || !got.ended || got.finish != "length" || got.completion != tokens || got.prompt == 0 || got.prompt > 30 {
							t.Errorf("client %d: %v, %+v", client, err, got)
						}
					})
				}
				begun.Wait()
				end(victim)
				wait.Wait()
				_, metrics, _ := get(ours.url + "/metrics")
				if moved := strings.Contains(metrics, `_model_migration_total{migration_type="ongoing_request"`); !moved && name != "asked" && !strings.Contains(t.Name(), "asked") {
					t.Error("no stream moved: the test tests nothing")
				}
			})
		}
	}
}

// TestOurWorkerLeavesInOrder asks one of two workers to go while requests come all the time: not one fails.
func TestOurWorkerLeavesInOrder(t *testing.T) {
	s := fileStore(t)
	args := append([]string{"worker", "--model-name", "interop", "--model-path", modelDirectory(t), "--speedup-ratio", "4"}, s.flags()...)
	leaving := start(t, s.environment(), program, args...)
	start(t, s.environment(), program, args...)
	ours := startOurs(t, s)
	name := ours.serve(t)
	eventually(t, "both workers are known", workers(ours, name, 2))
	stop := make(chan struct{})
	var wait, begun sync.WaitGroup
	begun.Add(4)
	for client := range 4 {
		wait.Go(func() {
			once := sync.OnceFunc(begun.Done)
			defer once()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				got, err := ours.stream(name, fmt.Sprintf("client %d request %d", client, i), 40, once)
				if err != nil || got.status != 200 || got.failure != "" || got.completion != 40 {
					t.Errorf("client %d request %d: %v, %+v", client, i, err, got)
					return
				}
			}
		})
	}
	begun.Wait()
	leaving.signal(syscall.SIGTERM)
	<-leaving.done
	close(stop)
	wait.Wait()
	eventually(t, "one worker is left", workers(ours, name, 1))
}
