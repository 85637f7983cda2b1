// Package terminal is a conversation with a model in the terminal: lines in, streamed text out. It speaks to a frontend over HTTP as any
// client does and knows nothing of what is behind it.
package terminal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Chat is one conversation.
type Chat struct {
	// URL is where the frontend is, without a path.
	URL string
	// Model is who is spoken to; "" takes the first that is served, and waits for one.
	Model string
	In    io.Reader
	Out   io.Writer

	messages []message
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

const (
	poll         = 200 * time.Millisecond
	maxLineBytes = 1 << 20
	prompt       = "> "
)

// Run talks until the input ends or ctx does; neither is an error. A request that fails is told and forgotten, and the conversation
// goes on.
func (c *Chat) Run(ctx context.Context) error {
	lines := make(chan string)
	ended := make(chan error, 1)
	go func() { // ends with the input; a terminal's last read ends with the program
		scanner := bufio.NewScanner(c.In)
		scanner.Buffer(nil, maxLineBytes)
		for scanner.Scan() {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
		ended <- scanner.Err()
	}()
	if err := c.chooseModel(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	fmt.Fprintf(c.Out, "Talking to %s. An empty line starts over; Ctrl-D ends.\n%s", c.Model, prompt)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			fmt.Fprintln(c.Out)
			return err
		case line := <-lines:
			if strings.TrimSpace(line) == "" {
				c.messages = nil
			} else if err := c.say(ctx, line); err != nil && ctx.Err() == nil {
				fmt.Fprintf(c.Out, "[%v]\n", err)
			}
			fmt.Fprint(c.Out, prompt)
		}
	}
}

// chooseModel waits for the first model.
func (c *Chat) chooseModel(ctx context.Context) error {
	told := false
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for c.Model == "" {
		names, err := c.models(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case len(names) > 0:
			c.Model = names[0]
			return nil
		case !told:
			told = true
			fmt.Fprintln(c.Out, "Waiting for a model.")
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}

func (c *Chat) models(ctx context.Context) ([]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/v1/models", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("list of models: %w", err)
	}
	var names []string
	for _, model := range list.Data {
		names = append(names, model.ID)
	}
	return names, nil
}

// say sends the conversation with the line and writes the answer as it comes.
func (c *Chat) say(ctx context.Context, line string) error {
	messages := append(c.messages, message{"user", line})
	body, err := json.Marshal(map[string]any{"model": c.Model, "messages": messages, "stream": true})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var refusal struct{ Error struct{ Message string } }
		if json.NewDecoder(response.Body).Decode(&refusal) == nil && refusal.Error.Message != "" {
			return errors.New(refusal.Error.Message)
		}
		return errors.New(response.Status)
	}
	answer, err := c.show(response.Body)
	fmt.Fprintln(c.Out)
	if err == nil {
		c.messages = append(messages, message{"assistant", answer})
	}
	return err
}

// show writes a stream's text and returns it.
func (c *Chat) show(stream io.Reader) (string, error) {
	var whole strings.Builder
	scanner := bufio.NewScanner(stream)
	scanner.Buffer(nil, maxLineBytes)
	for scanner.Scan() {
		data, ok := strings.CutPrefix(scanner.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return whole.String(), nil
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content   string
					Reasoning string `json:"reasoning_content"`
				}
			}
			Error *struct{ Message string }
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return "", fmt.Errorf("chunk of the answer: %w", err)
		}
		if chunk.Error != nil {
			return "", errors.New(chunk.Error.Message)
		}
		for _, choice := range chunk.Choices {
			whole.WriteString(choice.Delta.Content)
			fmt.Fprint(c.Out, choice.Delta.Reasoning, choice.Delta.Content)
		}
	}
	if err := scanner.Err(); err != nil {
		return "", err
	}
	return "", io.ErrUnexpectedEOF
}
