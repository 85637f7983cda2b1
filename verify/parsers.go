package verify

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"signalbox/postprocess"
	"signalbox/postprocess/toolcall"
	"signalbox/preprocess/prompt"
)

// ParserCase is one recorded answer: what a worker wrote, and what a client was sent.
type ParserCase struct {
	Name      string
	Parsers   postprocess.Parsers
	Request   postprocess.Request
	Text      string
	Finish    string       // the engine's
	Want      ParsedAnswer // of a client that reads the answer as one
	WantWhole ParsedAnswer // of a client that reads a stream in which all of the text came at once
	WantCut   ParsedAnswer // the same with the text in pieces of five characters
}

// ParsedAnswer is an answer with its pieces joined.
type ParsedAnswer struct {
	Content, Reasoning string
	Calls              []ParsedCall
	Finish             string
}

// ParsedCall is a call; random parts of the id are masked.
type ParsedCall struct{ ID, Name, Arguments string }

func (a ParsedAnswer) equal(b ParsedAnswer) bool {
	return a.Content == b.Content && a.Reasoning == b.Reasoning && a.Finish == b.Finish && slices.Equal(a.Calls, b.Calls)
}

// String shows the answer on one line.
func (a ParsedAnswer) String() string {
	return fmt.Sprintf("content %q, reasoning %q, calls %q, finish %q", a.Content, a.Reasoning, a.Calls, a.Finish)
}

// kept are recordings in which the reference system loses a whole answer, or the rest of one, that no marker of its format is in: it
// waits for a marker and drops what it holds at the end. Here the text is shown.
var kept = map[string]string{
	"reasoning-minimax_m3.json partial-start": "a <mm:t b",
	"reasoning-inkling.json plain":            `Just a plain answer, no tools at all. 1 < 2 and <b>x</b> [1, 2] {"a": 1}`,
	"tool-phi4.json not-json":                 "functoolsoops not json",
}

// Parsers checks recorded answers: whole, in pieces of five characters, and byte by byte, read as one and as a stream. All must give the
// same, and that must be what was recorded for a client that reads the answer as one. Where the reference system's answers differ by how
// the text was cut, it may instead be what was recorded for a stream.
func Parsers(path string) Result {
	var result Result
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.json")); err != nil {
			result.fail("%v", err)
		}
	}
	for _, file := range files {
		switch filepath.Base(file) {
		case "tools.json", "bytes_tokenizer.json":
			continue // used by the others
		case "stops.json":
			result.add(stops(file))
			continue
		}
		cases, err := ParserCases(file)
		if err != nil {
			result.fail("%s: %v", file, err)
			continue
		}
		for i := range cases {
			if problem := cases[i].check(); problem != "" {
				result.fail("%s: %s", cases[i].Name, problem)
			} else {
				result.Passed++
			}
		}
	}
	return result
}

func (c *ParserCase) check() string {
	for _, cut := range []struct {
		how    string
		pieces []string
	}{{"whole", []string{c.Text}}, {"in pieces", Runes(c.Text, 5)}, {"byte by byte", strings.Split(c.Text, "")}} {
		for how, whole := range map[string]bool{"read as one": true, "streamed": false} {
			if got := c.Run(cut.pieces, whole); !got.equal(c.Want) && !got.equal(c.WantCut) && !got.equal(c.WantWhole) {
				return fmt.Sprintf("%s, %s: have %s; want %s or %s", cut.how, how, got, c.Want, c.WantCut)
			}
		}
	}
	return ""
}

// Runes cuts a text into pieces of so many characters.
func Runes(text string, size int) (pieces []string) {
	runes := []rune(text)
	for len(runes) > size {
		pieces = append(pieces, string(runes[:size]))
		runes = runes[size:]
	}
	return append(pieces, string(runes))
}

// Run gives the pieces to the parsers and joins what they find. whole says that the client reads the answer as one.
func (c *ParserCase) Run(pieces []string, whole bool) ParsedAnswer {
	request := c.Request
	request.Whole = whole
	stage := postprocess.New(c.Parsers, request)
	answer := ParsedAnswer{Finish: c.Finish}
	if stage == nil {
		answer.Content = strings.Join(pieces, "")
		return answer
	}
	take := func(piece postprocess.Piece) {
		answer.Content += piece.Content
		answer.Reasoning += piece.Reasoning
		for _, call := range piece.Calls {
			if call.Index == len(answer.Calls) {
				answer.Calls = append(answer.Calls, ParsedCall{ID: maskID(call.ID), Name: call.Name})
			}
			answer.Calls[call.Index].Arguments += call.Arguments
		}
	}
	for _, piece := range pieces {
		stage.Feed(piece, take)
	}
	switch finish := stage.Finish(take); {
	case answer.Finish != "stop":
	case finish == postprocess.ToolCalls:
		answer.Finish = "tool_calls"
	case finish == postprocess.Length:
		answer.Finish = "length"
	}
	return answer
}

var (
	uuidPattern = regexp.MustCompile(`^(call-)?[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	hexPattern  = regexp.MustCompile(`^call_[0-9a-f]{24}$`)
)

func maskID(id string) string {
	switch {
	case hexPattern.MatchString(id):
		return "call_<hex24>"
	case !uuidPattern.MatchString(id):
		return id
	case strings.HasPrefix(id, "call-"):
		return "call-<uuid>"
	}
	return "<uuid>"
}

// recordedParse is a case as it is stored.
type recordedParse struct {
	ID        string
	Tool      string          `json:"tool_parser"`
	Reasoning string          `json:"reasoning_parser"`
	Text      string          `json:"text"`
	Finish    string          `json:"engine_finish"`
	Tools     *bool           `json:"tools"`
	Unary     recordedDelta   `json:"unary"`
	Whole     []recordedDelta `json:"stream_whole"`
	Cut       []recordedDelta `json:"stream_5"`
	Request   recordedRequest `json:"request"`
}

type recordedDelta struct {
	Content   *string
	Reasoning string `json:"reasoning_content"`
	Calls     []struct {
		Index           *int
		ID              string
		Name, Arguments string
	} `json:"tool_calls"`
	Finish string `json:"finish_reason"`
}

type recordedRequest struct {
	ToolChoice json.RawMessage `json:"tool_choice"`
	Effort     string          `json:"reasoning_effort"`
	Arguments  json.RawMessage `json:"chat_template_args"`
	Parallel   *bool           `json:"parallel_tool_calls"`
}

func joined(deltas []recordedDelta) (a ParsedAnswer) {
	for _, d := range deltas {
		if d.Content != nil {
			a.Content += *d.Content
		}
		a.Reasoning += d.Reasoning
		for i, call := range d.Calls {
			at := i
			if call.Index != nil {
				at = *call.Index
			}
			for at >= len(a.Calls) {
				a.Calls = append(a.Calls, ParsedCall{})
			}
			have := &a.Calls[at]
			have.ID += call.ID
			have.Name += call.Name
			have.Arguments += call.Arguments
		}
		if d.Finish != "" {
			a.Finish = d.Finish
		}
	}
	return a
}

// ParserCases reads a file of recorded answers.
func ParserCases(file string) ([]ParserCase, error) {
	var recorded []recordedParse
	if err := readJSON(file, &recorded); err != nil {
		return nil, err
	}
	tools, err := recordedTools(filepath.Join(filepath.Dir(file), "tools.json"))
	if err != nil {
		return nil, err
	}
	base := filepath.Base(file)
	var cases []ParserCase
	for _, r := range recorded {
		c := ParserCase{Name: base + " " + r.ID, Text: r.Text, Finish: r.Finish,
			Want: joined([]recordedDelta{r.Unary}), WantWhole: joined(r.Whole), WantCut: joined(r.Cut)}
		c.Parsers = postprocess.Parsers{Tool: r.Tool, Reasoning: r.Reasoning}
		if strings.HasPrefix(base, "v2-") {
			c.Parsers.Version = toolcall.Version2
		}
		if text, ok := kept[c.Name]; ok {
			c.Want = ParsedAnswer{Content: text, Finish: r.Finish}
		}
		if r.Tools == nil || *r.Tools {
			c.Request.Tools = tools
		}
		if err := r.Request.apply(&c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// apply brings the body's fields into the form that parsers take.
func (r *recordedRequest) apply(c *ParserCase) error {
	c.Request.FirstCallOnly = r.Parallel != nil && !*r.Parallel
	var named struct{ Function struct{ Name string } }
	switch choice := string(r.ToolChoice); {
	case choice == "" || choice == `"auto"`:
	case choice == `"none"`:
		c.Request.Choice = postprocess.None
	case choice == `"required"`:
		c.Request.Choice = postprocess.Required
	default:
		if err := json.Unmarshal(r.ToolChoice, &named); err != nil {
			return err
		}
		c.Request.Choice, c.Request.Function = postprocess.Named, named.Function.Name
	}
	var arguments struct{ Prefill string }
	if r.Arguments != nil {
		if err := json.Unmarshal(r.Arguments, &arguments); err != nil {
			return err
		}
	}
	c.Request.Prompt = "user: hi\nassistant: " + arguments.Prefill
	options := prompt.Options{Family: prompt.FamilyOf(c.Parsers.Tool, c.Parsers.Reasoning)}
	thinking := options.Thinking(prompt.Request{Arguments: r.Arguments, ReasoningEffort: r.Effort, NamedTool: c.Request.Choice == postprocess.Named})
	c.Request.Thinking = postprocess.Thinking{On: thinking.On, Mode: thinking.Mode, Effort: thinking.Effort}
	return nil
}

func recordedTools(file string) ([]toolcall.Tool, error) {
	var recorded []struct {
		Function struct {
			Name       string
			Parameters json.RawMessage
		}
	}
	if err := readJSON(file, &recorded); err != nil {
		return nil, err
	}
	var tools []toolcall.Tool
	for _, t := range recorded {
		tools = append(tools, toolcall.Tool{Name: t.Function.Name, Parameters: t.Function.Parameters})
	}
	return tools, nil
}
