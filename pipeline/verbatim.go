package pipeline

import "signalbox/inference"

// passOn turns an item of a verbatim job into a delta, unread.
func (r *Run) passOn(c *choice, output *inference.Output) {
	c.tokens += len(output.TokenIDs)
	d := Delta{Index: c.index, TokenIDs: output.TokenIDs, EngineData: output.EngineData, Finish: output.Finish, StopReason: output.StopReason}
	for i, id := range output.TokenIDs[:min(len(output.TokenIDs), len(output.Logprobs))] {
		entry := TokenLogprob{TokenID: id, Logprob: output.Logprobs[i]}
		if i < len(output.TopLogprobs) {
			for _, top := range output.TopLogprobs[i] {
				entry.Top = append(entry.Top, TopLogprob{TokenID: top.TokenID, Logprob: top.Logprob})
			}
		}
		d.Logprobs = append(d.Logprobs, entry)
	}
	if !output.DisaggregatedParams.IsZero() {
		d.Transfer = output.DisaggregatedParams.Bytes
		if output.DisaggregatedParams.Codec != inference.JSON && r.pipeline.OpaqueJSON != nil {
			d.Transfer, _ = r.pipeline.OpaqueJSON(output.DisaggregatedParams) // without it the client has the rest
		}
	}
	c.done = output.Finish != inference.FinishNone
	r.pending = append(r.pending, d)
}
