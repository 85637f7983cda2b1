package pipeline

import (
	"testing"

	"signalbox/inference"
)

// Items of a verbatim job come back as the worker sent them; the last of them ends the choice.
func TestVerbatimItemsAreNotRead(t *testing.T) {
	r := &Run{pipeline: &Pipeline{}, job: &Job{Verbatim: true}}
	c := &choice{index: 2}
	r.passOn(c, &inference.Output{TokenIDs: []uint32{7, 1 << 31}, EngineData: []byte(`{"a":1}`), Logprobs: []float64{-1},
		TopLogprobs: [][]inference.TopToken{{{TokenID: 9, Logprob: -2}}}})
	if c.done || c.tokens != 2 {
		t.Errorf("%+v", c)
	}
	r.passOn(c, &inference.Output{Finish: inference.FinishLength, DisaggregatedParams: inference.Opaque{Codec: inference.JSON, Bytes: []byte(`{"b":2}`)}})
	if !c.done || len(r.pending) != 2 {
		t.Fatalf("%+v %+v", c, r.pending)
	}
	first, last := r.pending[0], r.pending[1]
	if first.Index != 2 || len(first.TokenIDs) != 2 || string(first.EngineData) != `{"a":1}` || first.Content != "" || len(first.Logprobs) != 1 ||
		first.Logprobs[0].TokenID != 7 || first.Logprobs[0].Top[0].TokenID != 9 {
		t.Errorf("%+v", first)
	}
	if last.Finish != inference.FinishLength || string(last.Transfer) != `{"b":2}` {
		t.Errorf("%+v", last)
	}
}
