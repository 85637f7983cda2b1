// Package shortlane is a worker-selection policy that keeps some ranks free of long prompts, so that short ones never stand behind
// them. It is the worked example of docs/custom-policy.md.
package shortlane

import (
	"errors"
	"math"

	"signalbox/router/selection"
)

// Type lets policy files name the policy.
var Type = selection.Type{Name: "short-lane", New: New}

// New makes an instance for one pool of workers from the parameters of a policy file.
func New(parameters []byte) (selection.Policy, error) {
	read := struct {
		ShortTokens int     `yaml:"short_tokens"`
		Reserved    float64 `yaml:"reserved"`
	}{ShortTokens: 512, Reserved: 0.25}
	if err := selection.DecodeParameters(parameters, &read); err != nil {
		return nil, err
	}
	if read.ShortTokens < 1 {
		return nil, errors.New("short_tokens must be at least 1")
	}
	if !(read.Reserved > 0 && read.Reserved < 1) {
		return nil, errors.New("reserved must be greater than 0 and less than 1")
	}
	return &selection.Pipeline{
		Filters: []selection.Filter{lane{shortTokens: read.ShortTokens, reserved: read.Reserved}},
		Scorers: []selection.Scorer{work{}},
	}, nil
}

// lane keeps long prompts off the first ranks.
type lane struct {
	shortTokens int
	reserved    float64
}

// Keep implements selection.Filter.
func (l lane) Keep(table *selection.Table, row *selection.Row) bool {
	if table.Prompt.InputTokens <= l.shortTokens {
		return true
	}
	reserved := int(math.Ceil(l.reserved * float64(len(table.Rows))))
	if reserved >= len(table.Rows) {
		return true // too few ranks to keep any
	}
	for i := range table.Rows[:reserved] {
		if table.Rows[i].Rank == row.Rank {
			return false
		}
	}
	return true
}

// work prices a rank by the prompt tokens that it has to compute before the request's first token.
type work struct{}

// Score implements selection.Scorer.
func (work) Score(table *selection.Table, row *selection.Row) float64 {
	cached := min(int(row.Overlap.Device)*table.Prompt.BlockSize, table.Prompt.InputTokens)
	return float64(row.Load.ActivePrefillTokens) + float64(table.Prompt.InputTokens-cached)
}
