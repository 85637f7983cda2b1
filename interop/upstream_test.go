package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// llama is a running server of llama.cpp.
type llama struct {
	*child
	url string
}

// startLlamas starts servers of llama.cpp with the same small random model, and returns the directory of its tokenizer.
func startLlamas(t *testing.T, count int) (servers []*llama, directory string) {
	t.Helper()
	binary := os.Getenv("SIGNALBOX_LLAMA_SERVER")
	if binary == "" {
		t.Skip("no llama.cpp: set SIGNALBOX_LLAMA_SERVER to its llama-server, or run make test-llama")
	}
	directory = modelDirectory(t)
	file := filepath.Join(directory, "random.gguf")
	writeRandomModel(t, directory, file)
	for range count {
		port := freePort(t)
		c := start(t, nil, binary, "-m", file, "--alias", "random", "--host", "127.0.0.1", "--port", strconv.Itoa(port), "-c", "4096", "-np", "2", "-t", "1")
		servers = append(servers, &llama{c, fmt.Sprintf("http://127.0.0.1:%d", port)})
	}
	for _, s := range servers {
		eventually(t, "llama.cpp serves", func() bool {
			response, err := http.Get(s.url + "/health")
			if err == nil {
				response.Body.Close()
			}
			return err == nil && response.StatusCode == http.StatusOK
		})
	}
	return servers, directory
}

// inFront starts our frontend in front of plain servers and waits for all of them.
func inFront(t *testing.T, servers []string, model string, args ...string) *frontend {
	t.Helper()
	port := freePort(t)
	args = append([]string{"frontend", "--http-host", "127.0.0.1", "--http-port", strconv.Itoa(port), "--upstream", strings.Join(servers, ","), "--router-mode", "kv"}, args...)
	f := &frontend{start(t, []string{"SIGNALBOX_UPSTREAM_HEALTH_SECS=0.1"}, program, args...), fmt.Sprintf("http://127.0.0.1:%d", port)}
	eventually(t, "all servers have joined", func() bool {
		return strings.Count(fetch(f.url+"/health"), `"http":"`) == len(servers) && strings.Contains(fetch(f.url+"/v1/models"), `"`+model+`"`)
	})
	return f
}

// fetch returns a document; "" when there is none.
func fetch(url string) string {
	response, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return string(text)
}

// chatAnswer is what a server answers to a chat.
type chatAnswer struct {
	Choices []struct {
		Message struct{ Content string }
		Finish  string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
}

func chat(t *testing.T, url, body string) (answer chatAnswer, status int, text string) {
	t.Helper()
	status, text, err := postWithin(patience, url+"/v1/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(text), &answer) // a refusal has another shape
	return answer, status, text
}

// question asks the random model; it knows nothing, but always says the same where the likeliest token is taken.
func question(content string, tokens int, more string) string {
	text, _ := json.Marshal(content)
	return fmt.Sprintf(`{"model":"random","max_tokens":%d,"temperature":0,"messages":[{"role":"user","content":%s}]%s}`, tokens, text, more)
}

// Answers through our frontend are those that the server gives who asks it directly: with its own template and tokenizer, and with ours.
func TestLlamaBehindOurFrontend(t *testing.T) {
	servers, directory := startLlamas(t, 2)
	urls := []string{servers[0].url, servers[1].url}
	for name, args := range map[string][]string{"tokens": {"--model-path", directory}, "text": nil} {
		t.Run(name, func(t *testing.T) {
			f := inFront(t, urls, "random", args...)
			for _, content := range []string{"Where does this train go?", "Zürich – Genève 😀", "func main() {\n\tprintln(1)\n}"} {
				want, _, _ := chat(t, servers[0].url, question(content, 24, ""))
				got, status, text := chat(t, f.url, question(content, 24, ""))
				if status != http.StatusOK || len(got.Choices) != 1 || len(want.Choices) != 1 {
					t.Fatalf("%d %s", status, text)
				}
				if got.Choices[0] != want.Choices[0] || got.Usage != want.Usage {
					t.Errorf("%q: %+v, want %+v", content, got, want)
				}
				stream := streamedChat(t, f.url, question(content, 24, `,"stream":true`), nil)
				if stream != want.Choices[0].Message.Content {
					t.Errorf("%q: streamed %q, want %q", content, stream, want.Choices[0].Message.Content)
				}
			}
			if _, status, text := chat(t, f.url, question("x", 4, `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"nonsense"}}}`)); status != http.StatusBadRequest || !strings.Contains(text, "nonsense") {
				t.Errorf("what the server refuses: %d %s; want its own words", status, text)
			}
		})
	}
}

// A server of llama.cpp tells nothing of the tokens in the middle of a character; they count.
func TestLlamaTokensThatMakeNoCharacter(t *testing.T) {
	servers, directory := startLlamas(t, 1)
	f := inFront(t, []string{servers[0].url}, "random", "--model-path", directory)
	for seed := range 8 {
		body := fmt.Sprintf(`{"model":"random","max_tokens":40,"temperature":2,"seed":%d,"top_k":4000,"min_p":0,"logit_bias":{"172":7,"253":7,"246":7,"222":7},"messages":[{"role":"user","content":"x"}]}`, seed)
		got, status, text := chat(t, f.url, body)
		if status != http.StatusOK || got.Choices[0].Finish == "length" && got.Usage.Completion != 40 || !utf8.ValidString(got.Choices[0].Message.Content) {
			t.Errorf("seed %d: %d %s", seed, status, text)
		}
	}
}

// streamedChat reads a stream; see is shown each of its events.
func streamedChat(t *testing.T, url, body string, see func(event string)) string {
	t.Helper()
	response, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var content strings.Builder
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		if see != nil {
			see(data)
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
			Error   any
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || chunk.Error != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for _, choice := range chunk.Choices {
			content.WriteString(choice.Delta.Content)
		}
	}
	return content.String()
}

// A server that is killed in the middle of an answer is not missed: another one goes on with the same words.
func TestLlamaIsKilledInMidStream(t *testing.T) {
	servers, directory := startLlamas(t, 2)
	f := inFront(t, []string{servers[0].url, servers[1].url}, "random", "--model-path", directory, "--migration-limit", "3")
	want, _, _ := chat(t, servers[0].url, question("Tell me of trains.", 900, ""))
	killed := false
	got := streamedChat(t, f.url, question("Tell me of trains.", 900, `,"stream":true,"nvext":{"extra_fields":["worker_id"]}`), func(event string) {
		if killed {
			return
		}
		var first struct {
			Extension struct {
				Workers struct {
					Decode uint64 `json:"decode_worker_id"`
				} `json:"worker_id"`
			} `json:"nvext"`
		}
		if json.Unmarshal([]byte(event), &first) != nil || first.Extension.Workers.Decode == 0 {
			return
		}
		var health struct {
			Instances []struct {
				ID        uint64 `json:"instance_id"`
				Transport struct{ HTTP string }
			}
		}
		if err := json.Unmarshal([]byte(fetch(f.url+"/health")), &health); err != nil {
			t.Fatal(err)
		}
		for _, instance := range health.Instances {
			for _, s := range servers {
				if instance.ID == first.Extension.Workers.Decode && instance.Transport.HTTP == s.url {
					s.signal(syscall.SIGKILL)
					killed = true
				}
			}
		}
	})
	if !killed {
		t.Fatal("the server of the stream was not found")
	}
	if got != want.Choices[0].Message.Content {
		t.Errorf("the answer changed where it moved:\n%q\nwant\n%q", got, want.Choices[0].Message.Content)
	}
	eventually(t, "the server that was killed has left", func() bool { return strings.Count(fetch(f.url+"/health"), `"http":"`) == 1 })
	if _, status, text := chat(t, f.url, question("x", 2, "")); status != http.StatusOK {
		t.Errorf("afterwards: %d %s", status, text)
	}
}

// Frontends are servers of OpenAI's API themselves: ours and the real ones, with a worker of ours behind them, can be workers of another
// one of ours.
func TestFrontendsArePlainServers(t *testing.T) {
	directory := modelDirectory(t)
	behind := map[string]func(t *testing.T, s store) *frontend{"signalbox": func(t *testing.T, s store) *frontend { return startOurs(t, s) }}
	if os.Getenv("SIGNALBOX_PYTHON161") != "" {
		for _, r := range releases(t) {
			behind[r.name] = func(t *testing.T, s store) *frontend { return startTheirs(t, r, s) }
		}
	}
	for name, make := range behind {
		t.Run(name, func(t *testing.T) {
			s := fileStore(t)
			start(t, s.environment(), program, append([]string{"worker", "--model-name", "interop", "--model-path", directory, "--speedup-ratio", "100"}, s.flags()...)...)
			inner := make(t, s)
			eventually(t, "the frontend behind serves", func() bool { return strings.Contains(fetch(inner.url+"/v1/models"), `"interop"`) })
			for how, args := range map[string][]string{"tokens": {"--model-path", directory}, "text": nil} {
				t.Run(how, func(t *testing.T) {
					f := inFront(t, []string{inner.url + "/v1"}, "interop", args...)
					exercise(t, f, "interop")
					leave(t, f, "interop")
				})
			}
		})
	}
}
