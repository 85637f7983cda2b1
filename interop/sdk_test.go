package interop

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// simulated is a frontend with two of our workers.
func simulated(t *testing.T) (*frontend, string) {
	t.Helper()
	s := fileStore(t)
	start(t, s.environment(), program, append([]string{"worker", "--num-workers", "2", "--model-name", "interop", "--speedup-ratio", "100"}, s.flags()...)...)
	ours := startOurs(t, s, "--enable-anthropic-api")
	return ours, ours.serve(t)
}

func TestPythonSDKs(t *testing.T) {
	python := releases(t)[0].python
	ours, model := simulated(t)
	output, err := exec.Command(python, filepath.Join("clients", "openai_sdk.py"), ours.url, model).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(output), "ok\n") {
		t.Errorf("%v:\n%s", err, output)
	}
}

func TestGoSDKOfOpenAI(t *testing.T) {
	ours, model := simulated(t)
	client := openai.NewClient(option.WithBaseURL(ours.url+"/v1"), option.WithAPIKey("unused"), option.WithMaxRetries(0))
	params := openai.ChatCompletionNewParams{Model: model, MaxTokens: openai.Int(7),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Where does this train go?")}}
	answer, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Usage.CompletionTokens != 7 || answer.Choices[0].FinishReason != "length" || answer.Choices[0].Message.Content == "" {
		t.Errorf("answer %s", answer.RawJSON())
	}
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	var whole openai.ChatCompletionAccumulator
	for stream.Next() {
		if !whole.AddChunk(stream.Current()) {
			t.Errorf("the SDK does not take chunk %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if len(whole.Choices) != 1 || whole.Choices[0].Message.Content != answer.Choices[0].Message.Content {
		t.Errorf("streamed %+v, want the text of the unary answer %q", whole.Choices, answer.Choices[0].Message.Content)
	}
	_, err = client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "no-such-model", Messages: params.Messages})
	var failure *openai.Error
	if !errors.As(err, &failure) || failure.StatusCode != 404 || failure.Message == "" {
		t.Errorf("unknown model: %v, want a 404 with a message that the SDK shows", err)
	}
}

func TestGoSDKOfAnthropic(t *testing.T) {
	ours, model := simulated(t)
	client := anthropic.NewClient(anthropicoption.WithBaseURL(ours.url), anthropicoption.WithAPIKey("unused"), anthropicoption.WithMaxRetries(0))
	answer, err := client.Messages.New(t.Context(), anthropic.MessageNewParams{Model: anthropic.Model(model), MaxTokens: 7,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Where does this train go?"))}})
	if err != nil {
		t.Fatal(err)
	}
	if answer.Usage.OutputTokens != 7 || answer.StopReason != "max_tokens" {
		t.Errorf("answer %s", answer.RawJSON())
	}
}

func TestNodeSDKOfOpenAI(t *testing.T) {
	modules := os.Getenv("SIGNALBOX_NODE_MODULES")
	if modules == "" {
		t.Skip("no SDK for Node: set SIGNALBOX_NODE_MODULES, or run make test")
	}
	ours, model := simulated(t)
	command := exec.Command("node", filepath.Join("clients", "openai_sdk.mjs"), ours.url, model)
	command.Env = append(os.Environ(), "NODE_PATH="+modules)
	output, err := command.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(output), "ok\n") {
		t.Errorf("%v:\n%s", err, output)
	}
}

// TestNoRequestIsTooMuch gives the API's own description to schemathesis, which makes requests of it, good and bad ones: none may be
// answered by a failure of the server, and none may hang.
func TestNoRequestIsTooMuch(t *testing.T) {
	program := filepath.Join(clients(t), "schemathesis")
	ours, _ := simulated(t)
	command := exec.Command(program, "run", ours.url+"/openapi.json", "--checks", "not_a_server_error,status_code_conformance", "--max-examples", "12", "--seed", "1",
		"--phases", "examples,coverage,fuzzing", "--request-timeout", "20", "--workers", "2", "--generation-database", "none", "--no-color", "--exclude-path", "/docs/")
	command.Dir = t.TempDir()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, output[max(0, len(output)-6000):])
	}
}
