package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"signalbox/inference"
	"signalbox/pipeline"
	"signalbox/preprocess/tokenizer"
	"signalbox/router"
)

// recordedStop is a recorded answer without parsers: tokens become text, and stops end it.
type recordedStop struct {
	ID     string
	Chunks []json.RawMessage
	Tokens *int `json:"completion_tokens"`
	Unary  *stopAnswer
	Status int

	Request struct {
		Stop         []string
		StopIDs      []uint32 `json:"stop_token_ids"`
		MinTokens    *uint32  `json:"min_tokens"`
		MaxTokens    *uint32  `json:"max_tokens"`
		IgnoreEOS    *bool    `json:"ignore_eos"`
		IncludeStop  *bool    `json:"include_stop_str_in_output"`
		SkipSpecials *bool    `json:"skip_special_tokens"`
	}
}

// stopAnswer is what the client was sent.
type stopAnswer struct {
	Content    string
	Finish     string `json:"finish_reason"`
	StopReason any    `json:"stop_reason"` // the string or the token's id
}

const recordedEOS = 256

// stops checks recorded answers without parsers: detokenising and stops.
func stops(file string) Result {
	var result Result
	var recorded []recordedStop
	if err := readJSON(file, &recorded); err != nil {
		result.fail("%v", err)
		return result
	}
	model, err := tokenizer.LoadModel(tokenizer.ModelFiles{Tokenizer: filepath.Join(filepath.Dir(file), "bytes_tokenizer.json")})
	if err != nil {
		result.fail("%v", err)
		return result
	}
	for i := range recorded {
		if problem := recorded[i].check(model); problem != "" {
			result.fail("stops.json %s: %s", recorded[i].ID, problem)
		} else {
			result.Passed++
		}
	}
	return result
}

func (r *recordedStop) check(model *tokenizer.Tokenizer) string {
	items, err := r.items()
	if err != nil {
		return err.Error()
	}
	have, tokens, err := r.run(model, items)
	if r.Unary == nil {
		if err == nil {
			return fmt.Sprintf("have %+v; want a failure with status %d", have, r.Status)
		}
		return ""
	}
	if err != nil {
		return err.Error()
	}
	if have != *r.Unary {
		return fmt.Sprintf("have %+v; want %+v", have, *r.Unary)
	}
	if r.Tokens != nil && tokens != *r.Tokens {
		return fmt.Sprintf("have %d tokens; want %d", tokens, *r.Tokens)
	}
	return ""
}

// items are the worker's answer.
func (r *recordedStop) items() ([]*inference.Output, error) {
	reasons := map[string]inference.FinishReason{"stop": inference.FinishStop, "length": inference.FinishLength, "eos": inference.FinishEOS, "error": inference.FinishError}
	var items []*inference.Output
	for _, chunk := range r.Chunks {
		item := &inference.Output{}
		var text string
		var last struct{ Finish string }
		switch chunk[0] {
		case '"':
			if err := json.Unmarshal(chunk, &text); err != nil {
				return nil, err
			}
			for i := range len(text) {
				item.TokenIDs = append(item.TokenIDs, uint32(text[i]))
			}
		case '[':
			if err := json.Unmarshal(chunk, &item.TokenIDs); err != nil {
				return nil, err
			}
		default:
			if err := json.Unmarshal(chunk, &last); err != nil {
				return nil, err
			}
			item.Finish = reasons[last.Finish]
		}
		items = append(items, item)
	}
	return items, nil
}

// run sends the items through a pipeline whose only worker plays them.
func (r *recordedStop) run(model *tokenizer.Tokenizer, items []*inference.Output) (answer stopAnswer, tokens int, err error) {
	p := &pipeline.Pipeline{
		Model: pipeline.Model{Name: "recorded", EOSTokenIDs: []uint32{recordedEOS}, Tokenizer: plainTokenizer{model}},
		Decode: pipeline.Hop{Router: onlyWorker{}, Sender: player{items},
			Target: func(uint64) (inference.Target, bool) { return inference.Target{WorkerID: 1}, true }},
		Observer: unobserved{},
	}
	limit := uint32(50)
	if r.Request.MaxTokens != nil {
		limit = *r.Request.MaxTokens
	}
	text := "user: hi\nassistant: "
	request := &inference.Request{ID: "recorded"}
	request.Stop = inference.StopConditions{Strings: r.Request.Stop, TokenIDs: r.Request.StopIDs, MaxTokens: &limit, MinTokens: r.Request.MinTokens, IgnoreEOS: r.Request.IgnoreEOS}
	request.Sampling.IncludeStopString = r.Request.IncludeStop
	request.Output.SkipSpecialTokens = r.Request.SkipSpecials
	run, err := p.Generate(context.Background(), &pipeline.Job{Request: request, Prompt: pipeline.Prompt{Text: &text}})
	if err != nil {
		return answer, 0, err
	}
	defer func() { _ = run.Close() }()
	for {
		delta, err := run.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return answer, run.Usage().CompletionTokens, nil
		}
		if err != nil {
			return answer, 0, err
		}
		answer.Content += delta.Content
		switch delta.Finish {
		case inference.FinishNone:
		case inference.FinishLength:
			answer.Finish = "length"
		default:
			answer.Finish = "stop"
		}
		switch stop := delta.StopReason; {
		case stop.IsToken:
			answer.StopReason = float64(stop.TokenID)
		case stop.Text != "":
			answer.StopReason = stop.Text
		}
	}
}

// plainTokenizer shows a tokenizer to the pipeline.
type plainTokenizer struct{ *tokenizer.Tokenizer }

func (t plainTokenizer) NewDecoder(prompt []uint32, skipSpecial bool) pipeline.Decoder {
	return t.Tokenizer.NewDecoder(prompt, skipSpecial)
}

// onlyWorker places everything on one worker.
type onlyWorker struct{}

func (onlyWorker) Place(context.Context, *inference.Request, router.Attempt) (*router.Placement, error) {
	return router.NewPlacement(router.Pin{WorkerID: 1}, nil), nil
}
func (onlyWorker) Close() {}

// player is a worker that answers with the same items every time.
type player struct{ items []*inference.Output }

func (p player) Send(context.Context, inference.Target, *inference.Request) (inference.Stream, error) {
	return &played{items: p.items}, nil
}

type played struct{ items []*inference.Output }

func (p *played) Next(context.Context) (*inference.Output, error) {
	if len(p.items) == 0 {
		return nil, io.EOF
	}
	item := p.items[0]
	p.items = p.items[1:]
	return item, nil
}
func (p *played) Buffered() bool { return true }
func (p *played) Close() error   { return nil }

// unobserved is an observer that looks away.
type unobserved struct{}

func (unobserved) Stage(string, string, float64)                      {}
func (unobserved) Rendered(float64)                                   {}
func (unobserved) Tokenized(float64, int)                             {}
func (unobserved) Migrated(string, string)                            {}
func (unobserved) MigrationExceeded(string)                           {}
func (unobserved) Placed(string, *router.Placement)                   {}
func (unobserved) FirstToken(string, *router.Placement, float64, int) {}
func (unobserved) InterToken(string, *router.Placement, float64)      {}
