package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"signalbox/inference"
)

const (
	replayAnnotation = "output_replay_id:"
	scriptAnnotation = "script:"
)

// Scripts are outputs by name that replace the engine's own: token sequences (annotation "output_replay_id:NAME") and whole
// item lists (annotation "script:NAME"), which may also fail, stall and break off.
type Scripts struct {
	replays map[string][]uint32
	items   map[string][]scriptItem
}

// scriptItem is one item of a script.
type scriptItem struct {
	output inference.Output
	// fail ends the stream: with this error, or without a word when it is errCrash.
	fail  error
	stall time.Duration
}

// errCrash breaks the stream off, as a worker that dies does.
var errCrash = inference.Errorf(inference.Disconnected, "the worker broke off, as its script says")

type found struct {
	tokens []uint32
	items  []scriptItem
}

// find returns the script that the request's annotations name. A nil receiver holds none.
func (s *Scripts) find(request *inference.Request) (found, bool) {
	if s == nil {
		return found{}, false
	}
	for _, annotation := range request.Annotations {
		if name, ok := strings.CutPrefix(annotation, replayAnnotation); ok {
			if tokens, known := s.replays[name]; known {
				return found{tokens: tokens}, true
			}
		}
		if name, ok := strings.CutPrefix(annotation, scriptAnnotation); ok {
			if items, known := s.items[name]; known {
				return found{items: items}, true
			}
		}
	}
	if items, ok := s.items["plain"]; ok && len(s.replays) == 0 {
		return found{items: items}, true
	}
	return found{}, false
}

// NewScripts returns an empty set.
func NewScripts() *Scripts {
	return &Scripts{replays: make(map[string][]uint32), items: make(map[string][]scriptItem)}
}

// LoadReplays adds a trace file: one JSON object per line with request_id and output_token_ids.
func (s *Scripts) LoadReplays(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("response replay trace: %w", err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 64<<20)
	for line := 1; scanner.Scan(); line++ {
		if len(bytes.TrimSpace(scanner.Bytes())) == 0 {
			continue
		}
		var entry struct {
			RequestID      string   `json:"request_id"`
			OutputTokenIDs []uint32 `json:"output_token_ids"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &entry); err != nil {
			return fmt.Errorf("response replay trace %s, line %d: %w", path, line, err)
		}
		if entry.RequestID == "" {
			continue
		}
		if entry.OutputTokenIDs == nil {
			entry.OutputTokenIDs = []uint32{}
		}
		s.replays[entry.RequestID] = entry.OutputTokenIDs
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("response replay trace %s: %w", path, err)
	}
	return nil
}

// LoadScripts adds a file of item lists by name.
func (s *Scripts) LoadScripts(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("script file: %w", err)
	}
	var file map[string][]json.RawMessage
	if err := json.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("script file %s: %w", path, err)
	}
	for name, raws := range file {
		items := make([]scriptItem, 0, len(raws))
		for i, raw := range raws {
			item, err := parseScriptItem(raw)
			if err != nil {
				return fmt.Errorf("script file %s, script %q, item %d: %w", path, name, i, err)
			}
			items = append(items, item)
		}
		s.items[name] = items
	}
	return nil
}

// wireItem is an item as script files write it.
type wireItem struct {
	Raise   string `json:"raise"`
	Code    int    `json:"code"`
	StallMS int    `json:"stall_ms"`

	TokenIDs    []uint32  `json:"token_ids"`
	Text        *string   `json:"text"`
	Index       uint32    `json:"index"`
	LogProbs    []float64 `json:"log_probs"`
	TopLogprobs [][]struct {
		Rank    uint32  `json:"rank"`
		TokenID uint32  `json:"token_id"`
		Token   *string `json:"token"`
		Logprob float64 `json:"logprob"`
		Bytes   []int   `json:"bytes"`
	} `json:"top_logprobs"`
	StopReason      json.RawMessage `json:"stop_reason"`
	EngineData      json.RawMessage `json:"engine_data"`
	CompletionUsage *struct {
		PromptTokens       uint32 `json:"prompt_tokens"`
		CompletionTokens   uint32 `json:"completion_tokens"`
		TotalTokens        uint32 `json:"total_tokens"`
		PromptTokensDetail *struct {
			CachedTokens *uint32 `json:"cached_tokens"`
			AudioTokens  *uint32 `json:"audio_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionDetails json.RawMessage `json:"completion_tokens_details"`
	} `json:"completion_usage"`
}

func parseScriptItem(raw []byte) (scriptItem, error) {
	var wire wireItem
	if err := json.Unmarshal(raw, &wire); err != nil {
		return scriptItem{}, err
	}
	var finish struct {
		FinishReason json.RawMessage `json:"finish_reason"`
	}
	if err := json.Unmarshal(raw, &finish); err != nil {
		return scriptItem{}, err
	}
	item := scriptItem{stall: time.Duration(wire.StallMS) * time.Millisecond}
	switch wire.Raise {
	case "":
	case "value":
		item.fail = inference.Errorf(inference.InvalidArgument, "bad value from the worker")
	case "type":
		item.fail = inference.Errorf(inference.InvalidArgument, "bad type from the worker")
	case "runtime":
		item.fail = inference.Errorf(inference.Unknown, "the worker broke")
	case "cancel":
		item.fail = inference.Errorf(inference.Cancelled, "cancelled")
	case "http":
		item.fail = &inference.Error{Kind: inference.Unknown, Status: wire.Code, Message: "http error from the worker"}
	case "crash":
		item.fail = errCrash
	default:
		return scriptItem{}, fmt.Errorf("raise %q: expected value, type, runtime, cancel, http or crash", wire.Raise)
	}
	o := &item.output
	o.TokenIDs, o.Index, o.Logprobs = wire.TokenIDs, wire.Index, wire.LogProbs
	if wire.Text != nil {
		o.Text, o.HasText = *wire.Text, true
	}
	for _, position := range wire.TopLogprobs {
		var top []inference.TopToken
		for _, alternative := range position {
			token := inference.TopToken{Rank: alternative.Rank, TokenID: alternative.TokenID, Logprob: alternative.Logprob}
			if alternative.Token != nil {
				token.Token, token.HasText = *alternative.Token, true
			}
			for _, b := range alternative.Bytes {
				token.Bytes = append(token.Bytes, byte(b))
			}
			top = append(top, token)
		}
		o.TopLogprobs = append(o.TopLogprobs, top)
	}
	if len(wire.EngineData) > 0 && string(wire.EngineData) != "null" {
		o.EngineData = wire.EngineData
	}
	if u := wire.CompletionUsage; u != nil {
		o.Usage = &inference.Usage{PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.TotalTokens, CompletionDetails: u.CompletionDetails}
		if u.PromptTokensDetail != nil {
			o.Usage.CachedTokens, o.Usage.AudioTokens = u.PromptTokensDetail.CachedTokens, u.PromptTokensDetail.AudioTokens
		}
	}
	return item, parseEnd(o, finish.FinishReason, wire.StopReason)
}

func parseEnd(o *inference.Output, finish, stop json.RawMessage) error {
	if len(stop) > 0 && string(stop) != "null" {
		if json.Unmarshal(stop, &o.StopReason.Text) != nil {
			if err := json.Unmarshal(stop, &o.StopReason.TokenID); err != nil {
				return fmt.Errorf("stop_reason %s: expected a string or a token id", stop)
			}
			o.StopReason.IsToken = true
		}
	}
	if len(finish) == 0 || string(finish) == "null" {
		return nil
	}
	var word string
	if err := json.Unmarshal(finish, &word); err != nil {
		var failure struct {
			Error string `json:"error"`
		}
		if err := json.Unmarshal(finish, &failure); err != nil {
			return fmt.Errorf("finish_reason %s: expected a word or an object with error", finish)
		}
		o.Finish, o.FinishMessage = inference.FinishError, failure.Error
		return nil
	}
	reasons := map[string]inference.FinishReason{"eos": inference.FinishEOS, "length": inference.FinishLength, "stop": inference.FinishStop,
		"cancelled": inference.FinishCancelled, "abort": inference.FinishCancelled, "content_filter": inference.FinishContentFilter}
	if text, ok := strings.CutPrefix(word, "error"); ok {
		o.Finish, o.FinishMessage = inference.FinishError, strings.TrimPrefix(text, ": ")
		return nil
	}
	reason, ok := reasons[word]
	if !ok {
		return fmt.Errorf("finish_reason %q: expected eos, length, stop, cancelled, content_filter or error", word)
	}
	o.Finish = reason
	return nil
}

// playScript plays a list of items.
func playScript(ctx context.Context, items []scriptItem) inference.Stream {
	box := newOutbox()
	go func() { // ends after the last item, with ctx, or when the reader closes
		for i := range items {
			item := &items[i]
			if !stall(ctx, box, item.stall) {
				box.end(inference.Errorf(inference.Cancelled, "cancelled"))
				return
			}
			if item.fail != nil {
				box.end(item.fail)
				return
			}
			output := item.output
			box.put(&output)
		}
		box.end(errEnd)
	}()
	return box
}

// stall waits for d; false when ctx ends or the reader closes.
func stall(ctx context.Context, box *outbox, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil && !box.isClosed()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-box.closed:
	case <-ctx.Done():
	}
	return false
}
