package openai

import (
	"strconv"
	"time"

	"signalbox/api/nvext"
	"signalbox/inference"
	"signalbox/internal/jsonbody"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// finishWord is finish_reason in the API's words; "" while the choice goes on.
func finishWord(reason inference.FinishReason) string {
	switch reason {
	case inference.FinishEOS, inference.FinishStop, inference.FinishCancelled, inference.FinishError:
		return "stop"
	case inference.FinishLength:
		return "length"
	case inference.FinishContentFilter:
		return "content_filter"
	case inference.FinishToolCalls:
		return "tool_calls"
	}
	return ""
}

func appendFinish(dst []byte, reason inference.FinishReason) []byte {
	if word := finishWord(reason); word != "" {
		return appendString(dst, word)
	}
	return append(dst, "null"...)
}

// appendChatUsage appends the usage object of chat answers.
func appendChatUsage(dst []byte, u pipeline.Usage) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CompletionTokens), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens+u.CompletionTokens), 10)
	if u.CachedTokens != nil {
		dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
		dst = strconv.AppendInt(dst, int64(*u.CachedTokens), 10)
		dst = append(dst, '}')
	}
	switch {
	case u.CompletionDetails != nil:
		dst = append(dst, `,"completion_tokens_details":`...)
		dst = append(dst, u.CompletionDetails...)
	case u.ReasoningTokens != nil:
		dst = append(dst, `,"completion_tokens_details":{"reasoning_tokens":`...)
		dst = strconv.AppendInt(dst, int64(*u.ReasoningTokens), 10)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// appendCompletionUsage appends the usage object of text completions, whose details have their own members.
func appendCompletionUsage(dst []byte, u pipeline.Usage) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CompletionTokens), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens+u.CompletionTokens), 10)
	if u.CachedTokens != nil {
		dst = append(dst, `,"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":`...)
		dst = strconv.AppendInt(dst, int64(*u.CachedTokens), 10)
		dst = append(dst, '}')
	}
	if u.CompletionDetails != nil {
		dst = append(dst, `,"completion_tokens_details":`...)
		dst = appendCompletionDetails(dst, u.CompletionDetails)
	}
	return append(dst, '}')
}

// appendCompletionDetails appends a worker's details with all members that text completions show, those it left out as null.
func appendCompletionDetails(dst, details []byte) []byte {
	document, err := jsontape.Parse(details)
	if err != nil {
		return append(dst, "null"...)
	}
	separator := byte('{')
	for _, name := range [...]string{"accepted_prediction_tokens", "audio_tokens", "reasoning_tokens", "rejected_prediction_tokens"} {
		dst = append(dst, separator, '"')
		dst = append(append(dst, name...), `":`...)
		if node := document.Root().Get(name); node.Present() {
			dst = append(dst, node.Raw()...)
		} else {
			dst = append(dst, "null"...)
		}
		separator = ','
	}
	return append(dst, '}')
}

// appendChatLogprobs appends the logprobs object of a chat choice.
func appendChatLogprobs(dst []byte, tokens []pipeline.TokenLogprob) []byte {
	if len(tokens) == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i := range tokens {
		token := &tokens[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"token":`...)
		dst = appendString(dst, token.Token)
		dst = append(dst, `,"logprob":`...)
		dst = appendFloat(dst, token.Logprob)
		dst = append(dst, `,"token_id":`...)
		dst = strconv.AppendUint(dst, uint64(token.TokenID), 10)
		dst = append(dst, `,"bytes":`...)
		dst = appendBytes(dst, token.Bytes)
		dst = append(dst, `,"top_logprobs":[`...)
		for j := range token.Top {
			alternative := &token.Top[j]
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"token":`...)
			dst = appendString(dst, alternative.Token)
			dst = append(dst, `,"logprob":`...)
			dst = appendFloat(dst, alternative.Logprob)
			dst = append(dst, `,"bytes":`...)
			dst = appendBytes(dst, alternative.Bytes)
			dst = append(dst, '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendToolCall appends one tool call; index < 0 leaves the index out, as whole answers do.
func appendToolCall(dst []byte, call *pipeline.ToolCallDelta, index int) []byte {
	dst = append(dst, '{')
	if index >= 0 {
		dst = append(dst, `"index":`...)
		dst = strconv.AppendInt(dst, int64(index), 10)
		dst = append(dst, ',')
	}
	if call.ID != "" || call.Name != "" {
		dst = append(dst, `"id":`...)
		dst = appendString(dst, call.ID)
		dst = append(dst, `,"type":"function",`...)
	}
	dst = append(dst, `"function":{`...)
	if call.Name != "" {
		dst = append(dst, `"name":`...)
		dst = appendString(dst, call.Name)
		dst = append(dst, ',')
	}
	dst = append(dst, `"arguments":`...)
	dst = appendString(dst, call.Arguments)
	return append(dst, "}}"...)
}

// disclosure gathers the members of a response's nvext object.
type disclosure struct {
	members []byte
}

func (d *disclosure) begin(name string) {
	if d.members == nil {
		d.members = append(d.members, '{')
	} else {
		d.members = append(d.members, ',')
	}
	d.members = append(d.members, '"')
	d.members = append(d.members, name...)
	d.members = append(d.members, `":`...)
}

func (d *disclosure) ids(name string, ids []uint32) {
	d.begin(name)
	d.members = jsonbody.AppendIDs(d.members, ids)
}

func (d *disclosure) raw(name string, value []byte) {
	d.begin(name)
	d.members = append(d.members, value...)
}

// appendTo appends `,"nvext":{…}` where there is anything to disclose.
func (d *disclosure) appendTo(dst []byte) []byte {
	if d.members == nil {
		return dst
	}
	dst = append(dst, `,"nvext":`...)
	dst = append(dst, d.members...)
	return append(dst, '}')
}

func (d *disclosure) workers(report pipeline.WorkerReport) {
	d.begin("worker_id")
	d.members = append(d.members, '{')
	first := true
	add := func(name string, value uint64) {
		if !first {
			d.members = append(d.members, ',')
		}
		first = false
		d.members = append(d.members, '"')
		d.members = append(d.members, name...)
		d.members = append(d.members, `":`...)
		d.members = strconv.AppendUint(d.members, value, 10)
	}
	if report.PrefillWorkerID != nil {
		add("prefill_worker_id", *report.PrefillWorkerID)
	}
	if report.PrefillRank != nil {
		add("prefill_dp_rank", uint64(*report.PrefillRank))
	}
	if report.DecodeWorkerID != nil {
		add("decode_worker_id", *report.DecodeWorkerID)
	}
	if report.DecodeRank != nil {
		add("decode_dp_rank", uint64(*report.DecodeRank))
	}
	d.members = append(d.members, '}')
}

func (d *disclosure) timing(t pipeline.Timing) {
	d.begin("timing")
	d.members = append(d.members, `{"request_received_ms":`...)
	d.members = strconv.AppendInt(d.members, t.Received.UnixMilli(), 10)
	duration := func(name string, value *time.Duration) {
		if value == nil {
			return
		}
		d.members = append(d.members, `,"`...)
		d.members = append(d.members, name...)
		d.members = append(d.members, `":`...)
		d.members = appendFloat(d.members, float64(value.Microseconds())/1000)
	}
	duration("prefill_wait_time_ms", t.PrefillWait)
	duration("prefill_time_ms", t.PrefillTime)
	duration("ttft_ms", t.TTFT)
	duration("total_time_ms", t.Total)
	if t.KVHitRate != nil {
		d.members = append(d.members, `,"kv_hit_rate":`...)
		d.members = appendFloat(d.members, *t.KVHitRate)
	}
	if t.RouterQueueDepth != nil {
		d.members = append(d.members, `,"router_queue_depth":`...)
		d.members = strconv.AppendInt(d.members, int64(*t.RouterQueueDepth), 10)
	}
	d.members = append(d.members, '}')
}

func (d *disclosure) stopReason(reason inference.StopReason) {
	if reason.IsZero() {
		return
	}
	d.begin("stop_reason")
	if reason.IsToken {
		d.members = strconv.AppendUint(d.members, uint64(reason.TokenID), 10)
	} else {
		d.members = appendString(d.members, reason.Text)
	}
}

// discloseChunk gathers what one chunk of a stream discloses.
func discloseChunk(e *nvext.Extension, g Generation, delta *pipeline.Delta, finished bool) disclosure {
	var d disclosure
	if len(e.ExtraFields) == 0 {
		return d
	}
	if e.Wants("worker_id") {
		d.workers(g.Workers())
	}
	if e.Wants("completion_token_ids") {
		d.ids("completion_token_ids", delta.TokenIDs)
	}
	if e.Wants("engine_data") && delta.EngineData != nil {
		d.raw("engine_data", delta.EngineData)
	}
	if finished {
		if e.Wants("timing") {
			d.timing(g.Timing())
		}
		if e.Wants("prompt_token_ids") {
			d.ids("prompt_token_ids", g.PromptTokenIDs())
		}
		if e.Wants("stop_reason") {
			d.stopReason(delta.StopReason)
		}
	}
	return d
}
