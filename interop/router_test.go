package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// asker asks endpoints of the request plane with the real client.
type asker struct {
	input  *json.Encoder
	output *bufio.Scanner
}

func newAsker(t *testing.T, r release, store store) *asker {
	t.Helper()
	command := exec.Command(r.python, "clients/endpoints.py")
	command.Env = append(os.Environ(), append([]string{"HF_HUB_OFFLINE=1", "DYN_LOG=error"}, planeVariables(store)...)...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = command.Wait()
	})
	scanner := bufio.NewScanner(output)
	scanner.Buffer(nil, 1<<20)
	return &asker{json.NewEncoder(input), scanner}
}

// planeVariables say by variables what a store's flags say.
func planeVariables(store store) []string {
	return append([]string{"DYN_DISCOVERY_BACKEND=" + store.kind, "DYN_REQUEST_PLANE=tcp", "DYN_EVENT_PLANE=zmq"}, store.environment()...)
}

// said is the answer of an endpoint.
type said struct {
	Items []struct {
		Data     json.RawMessage
		Event    *string
		Error    bool
		Comments []string
	}
	Error string
}

func (a *asker) ask(t *testing.T, endpoint string, request any) (answer said) {
	t.Helper()
	if err := a.input.Encode(map[string]any{"endpoint": endpoint, "request": request}); err != nil {
		t.Fatal(err)
	}
	for a.output.Scan() {
		if line := a.output.Bytes(); len(line) > 0 && line[0] == '{' { // the client logs there too
			if err := json.Unmarshal(line, &answer); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			return answer
		}
	}
	t.Fatal("the client has ended")
	return answer
}

// routed asks a router for real mock workers a series of questions. What differs from one run to the next is taken out of the answers.
func routed(t *testing.T, r release, begin func(store store, args ...string)) (answers []any) {
	t.Helper()
	const blockSize = 16
	store := fileStore(t)
	startMocker(t, r, store, modelDirectory(t), "--num-workers", "2", "--block-size", fmt.Sprint(blockSize))
	begin(store, "--endpoint", "dynamo.backend.generate", "--router-block-size", fmt.Sprint(blockSize))
	client := newAsker(t, r, store)
	tokens := make([]int, 5*blockSize/2)
	for i := range tokens {
		tokens[i] = i + 1
	}
	request := map[string]any{"model": "interop", "token_ids": tokens, "stop_conditions": map[string]any{"max_tokens": 3}, "sampling_options": map[string]any{},
		"output_options": map[string]any{}, "eos_token_ids": []int{}, "annotations": []string{}}
	note := func(answer said) {
		t.Helper()
		if answer.Error != "" {
			t.Fatal(answer.Error)
		}
		for _, item := range answer.Items {
			var value any
			if err := json.Unmarshal(item.Data, &value); err != nil {
				t.Fatal(err)
			}
			answers = append(answers, []any{withoutChance(value, ""), item.Event, item.Error, item.Comments})
		}
	}
	eventually(t, "the router knows both workers", func() bool {
		answer := client.ask(t, "dynamo.router.get_overlap_scores", map[string]any{"token_ids": tokens})
		return len(answer.Items) == 1 && strings.Count(string(answer.Items[0].Data), `"worker_id"`) == 2
	})
	note(client.ask(t, "dynamo.router.generate", request))
	eventually(t, "the worker tells what it holds", func() bool {
		answer := client.ask(t, "dynamo.router.get_overlap_scores", map[string]any{"token_ids": tokens})
		return len(answer.Items) == 1 && strings.Contains(string(answer.Items[0].Data), `"device_blocks": 2`)
	})
	note(client.ask(t, "dynamo.router.get_overlap_scores", map[string]any{"token_ids": tokens}))
	note(client.ask(t, "dynamo.router.get_overlap_scores", map[string]any{"token_ids": tokens, "lora_name": "adapter"}))
	note(client.ask(t, "dynamo.router.get_overlap_scores", map[string]any{"token_ids": tokens, "cache_namespace": "tenant", "include_shared": false}))
	note(client.ask(t, "dynamo.router.best_worker_id", tokens))
	note(client.ask(t, "dynamo.router.generate", request))
	for _, missing := range []string{"model", "sampling_options", "output_options", "eos_token_ids", "annotations"} {
		delete(request, missing)
		note(client.ask(t, "dynamo.router.generate", request))
	}
	request["dp_rank"] = 5
	note(client.ask(t, "dynamo.router.generate", request))
	delete(request, "stop_conditions")
	if answer := client.ask(t, "dynamo.router.generate", request); !strings.Contains(answer.Error, "max_tokens") {
		t.Errorf("a request that the worker refuses: %+v", answer)
	} else {
		answers = append(answers, answer.Error)
	}
	if answer := client.ask(t, "dynamo.router.get_overlap_scores", map[string]any{}); answer.Error == "" {
		t.Errorf("a question without tokens: %+v", answer)
	}
	return answers
}

// withoutChance takes out of an answer what is different every time: ids of workers, tokens, times.
func withoutChance(value any, name string) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = withoutChance(inner, key)
		}
	case []any:
		for i, inner := range value {
			if name == "token_ids" {
				inner = "a token"
			}
			value[i] = withoutChance(inner, "")
		}
		if name == "workers" {
			slices.SortFunc(value, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	case float64:
		if value > 1e12 || strings.HasSuffix(name, "_ms") { // ids lose digits here; which worker it is shows in what it holds
			return "one's own"
		}
	}
	return value
}

// A standalone router of this product answers the real client like the real one does, with the same real workers behind it.
func TestStandaloneRoutersAnswerAlike(t *testing.T) {
	for _, r := range releases(t) {
		if r.name != "1.6.1" {
			continue
		}
		want := routed(t, r, func(store store, args ...string) {
			start(t, planeVariables(store), r.python, append([]string{"-m", "dynamo.router"}, args...)...)
		})
		got := routed(t, r, func(store store, args ...string) {
			start(t, planeVariables(store), program, append([]string{"router"}, args...)...)
		})
		if len(got) != len(want) || len(want) < 20 {
			t.Fatalf("%d answers, by the real one %d", len(got), len(want))
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				mine, _ := json.Marshal(got[i])
				real, _ := json.Marshal(want[i])
				t.Errorf("answer %d:\nmine: %s\nreal: %s", i, mine, real)
			}
		}
	}
}
