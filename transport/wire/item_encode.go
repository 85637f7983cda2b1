package wire

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"signalbox/inference"
)

// ItemEncoder writes the data frames of one stream as whole two-part messages. The zero value is ready for MessagePack.
type ItemEncoder struct {
	Codec   inference.Codec
	scratch []byte
}

// finishNames are the wire's words for reasons; those that only a frontend knows become "stop".
var finishNames = [...]string{
	inference.FinishEOS:           "eos",
	inference.FinishLength:        "length",
	inference.FinishStop:          "stop",
	inference.FinishCancelled:     "cancelled",
	inference.FinishContentFilter: "content_filter",
	inference.FinishToolCalls:     "stop",
}

// AppendOutput appends the frame of one item.
func (e *ItemEncoder) AppendOutput(dst []byte, o *inference.Output) ([]byte, error) {
	return e.frame(dst, func(body []byte) ([]byte, error) {
		body = msgp.AppendMapHeader(body, 2)
		body = msgp.AppendString(body, "data")
		body, err := appendAnnotated(body, o)
		if err != nil {
			return body, err
		}
		body = msgp.AppendString(body, "complete_final")
		return msgp.AppendBool(body, false), nil
	})
}

// AppendFailure appends the frame of an item that reports a failure.
func (e *ItemEncoder) AppendFailure(dst []byte, failure *inference.Error) []byte {
	dst, _ = e.frame(dst, func(body []byte) ([]byte, error) { // nothing in it comes from outside: it can't fail
		body = msgp.AppendMapHeader(body, 2)
		body = msgp.AppendString(body, "data")
		body = msgp.AppendMapHeader(body, 2)
		body = msgp.AppendString(body, "event")
		body = msgp.AppendString(body, "error")
		body = msgp.AppendString(body, "error")
		body = appendErrorObject(body, failure)
		body = msgp.AppendString(body, "complete_final")
		return msgp.AppendBool(body, false), nil
	})
	return dst
}

// AppendData appends the frame of an item whose data is a value of any shape, already in the stream's codec, without the
// annotated wrapper. Endpoints other than generation (recovery queries) answer so.
func (e *ItemEncoder) AppendData(dst, value []byte) []byte {
	start := len(dst)
	dst = AppendPrefix(dst, 0, 0)
	if e.Codec == inference.JSON {
		dst = append(dst, `{"data":`...)
		dst = append(dst, value...)
		dst = append(dst, `,"complete_final":false}`...)
	} else {
		dst = msgp.AppendMapHeader(dst, 2)
		dst = msgp.AppendString(dst, "data")
		dst = append(dst, value...)
		dst = msgp.AppendString(dst, "complete_final")
		dst = msgp.AppendBool(dst, false)
	}
	setDataLength(dst, start)
	return dst
}

// AppendFinal appends the frame that ends the stream cleanly. The sentinel is to follow.
func (e *ItemEncoder) AppendFinal(dst []byte) []byte {
	start := len(dst)
	dst = AppendPrefix(dst, 0, 0)
	if e.Codec == inference.JSON {
		dst = append(dst, `{"complete_final":true}`...)
	} else {
		dst = msgp.AppendMapHeader(dst, 1)
		dst = msgp.AppendString(dst, "complete_final")
		dst = msgp.AppendBool(dst, true)
	}
	setDataLength(dst, start)
	return dst
}

// frame writes a data frame whose MessagePack body is made by write, as JSON when the stream wants that.
func (e *ItemEncoder) frame(dst []byte, write func([]byte) ([]byte, error)) ([]byte, error) {
	start := len(dst)
	framed := AppendPrefix(dst, 0, 0)
	var err error
	if e.Codec == inference.MessagePack {
		framed, err = write(framed)
	} else if e.scratch, err = write(e.scratch[:0]); err == nil {
		framed, err = AppendJSON(framed, e.scratch)
	}
	if err != nil {
		return dst[:start], fmt.Errorf("response item: %w", err)
	}
	setDataLength(framed, start)
	return framed, nil
}

// appendAnnotated writes {data?, event?, comment?}.
func appendAnnotated(dst []byte, o *inference.Output) ([]byte, error) {
	annotation := o.Event != "" || len(o.Comments) > 0
	if !annotation {
		dst = msgp.AppendMapHeader(dst, 1)
		dst = msgp.AppendString(dst, "data")
		if o.Body != nil {
			return AppendMessagePack(dst, o.Body)
		}
		return appendEngineOutput(dst, o)
	}
	members := uint32(0)
	if o.Event != "" {
		members++
	}
	if len(o.Comments) > 0 {
		members++
	}
	dst = msgp.AppendMapHeader(dst, members)
	if o.Event != "" {
		dst = msgp.AppendString(dst, "event")
		dst = msgp.AppendString(dst, o.Event)
	}
	if len(o.Comments) > 0 {
		dst = msgp.AppendString(dst, "comment")
		dst = appendStrings(dst, o.Comments)
	}
	return dst, nil
}

// appendEngineOutput writes the nine members that every item of the reference has, then those that are set.
func appendEngineOutput(dst []byte, o *inference.Output) ([]byte, error) {
	members := uint32(9)
	for _, set := range [...]bool{!o.StopReason.IsZero(), o.Usage != nil, !o.DisaggregatedParams.IsZero(), o.EncoderResult != nil,
		o.ExtraArgs != nil, o.EngineData != nil, o.RoutingData != nil} {
		if set {
			members++
		}
	}
	dst = msgp.AppendMapHeader(dst, members)
	dst = msgp.AppendString(dst, "token_ids")
	dst = appendUint32s(dst, o.TokenIDs)
	dst = msgp.AppendString(dst, "tokens")
	if o.Tokens == nil {
		dst = msgp.AppendNil(dst)
	} else {
		dst = appendStrings(dst, o.Tokens)
	}
	dst = msgp.AppendString(dst, "text")
	if o.HasText {
		dst = msgp.AppendString(dst, o.Text)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendString(dst, "output_type")
	dst = msgp.AppendString(dst, "text")
	dst = msgp.AppendString(dst, "cum_log_probs")
	if o.CumLogprob == nil {
		dst = msgp.AppendNil(dst)
	} else {
		dst = msgp.AppendFloat64(dst, *o.CumLogprob)
	}
	dst = msgp.AppendString(dst, "log_probs")
	dst = appendLogprobs(dst, o.Logprobs)
	dst = msgp.AppendString(dst, "top_logprobs")
	dst = appendTopLogprobs(dst, o.TopLogprobs)
	dst = msgp.AppendString(dst, "finish_reason")
	dst = appendFinish(dst, o)
	if !o.StopReason.IsZero() {
		dst = msgp.AppendString(dst, "stop_reason")
		dst = appendStopReason(dst, o.StopReason)
	}
	dst = msgp.AppendString(dst, "index")
	if o.Index == 0 { // the only choice, or the first: the reference says neither
		dst = msgp.AppendNil(dst)
	} else {
		dst = msgp.AppendUint32(dst, o.Index)
	}
	return appendRareOutput(dst, o)
}

// appendRareOutput writes the members that few items have.
func appendRareOutput(dst []byte, o *inference.Output) ([]byte, error) {
	var err error
	if !o.DisaggregatedParams.IsZero() {
		dst = msgp.AppendString(dst, "disaggregated_params")
		if dst, err = AppendOpaque(dst, o.DisaggregatedParams, inference.MessagePack); err != nil {
			return dst, fmt.Errorf("disaggregated_params: %w", err)
		}
	}
	if o.Usage != nil {
		dst = msgp.AppendString(dst, "completion_usage")
		if dst, err = appendUsage(dst, o.Usage); err != nil {
			return dst, err
		}
	}
	for _, member := range [...]struct {
		name string
		text []byte
	}{{"encoder_result", o.EncoderResult}, {"extra_args", o.ExtraArgs}, {"engine_data", o.EngineData}, {"routing_data", o.RoutingData}} {
		if member.text == nil {
			continue
		}
		dst = msgp.AppendString(dst, member.name)
		if dst, err = AppendMessagePack(dst, member.text); err != nil {
			return dst, fmt.Errorf("%s: %w", member.name, err)
		}
	}
	return dst, nil
}

func appendFinish(dst []byte, o *inference.Output) []byte {
	switch {
	case o.Finish == inference.FinishNone:
		return msgp.AppendNil(dst)
	case o.Finish == inference.FinishError:
		dst = msgp.AppendMapHeader(dst, 1)
		dst = msgp.AppendString(dst, "error")
		return msgp.AppendString(dst, o.FinishMessage)
	case int(o.Finish) < len(finishNames):
		return msgp.AppendString(dst, finishNames[o.Finish])
	}
	return msgp.AppendString(dst, "stop")
}

func appendStopReason(dst []byte, reason inference.StopReason) []byte {
	if reason.IsToken {
		return msgp.AppendUint32(dst, reason.TokenID)
	}
	return msgp.AppendString(dst, reason.Text)
}

func appendLogprobs(dst []byte, logprobs []float64) []byte {
	if logprobs == nil {
		return msgp.AppendNil(dst)
	}
	dst = msgp.AppendArrayHeader(dst, uint32(len(logprobs)))
	for _, logprob := range logprobs {
		dst = msgp.AppendFloat64(dst, logprob)
	}
	return dst
}

func appendTopLogprobs(dst []byte, positions [][]inference.TopToken) []byte {
	if positions == nil {
		return msgp.AppendNil(dst)
	}
	dst = msgp.AppendArrayHeader(dst, uint32(len(positions)))
	for _, tokens := range positions {
		dst = msgp.AppendArrayHeader(dst, uint32(len(tokens)))
		for _, token := range tokens {
			dst = appendTopToken(dst, token)
		}
	}
	return dst
}

func appendTopToken(dst []byte, token inference.TopToken) []byte {
	members := uint32(4)
	if token.Bytes != nil {
		members++
	}
	dst = msgp.AppendMapHeader(dst, members)
	dst = msgp.AppendString(dst, "rank")
	dst = msgp.AppendUint32(dst, token.Rank)
	dst = msgp.AppendString(dst, "token_id")
	dst = msgp.AppendUint32(dst, token.TokenID)
	dst = msgp.AppendString(dst, "token")
	if token.HasText {
		dst = msgp.AppendString(dst, token.Token)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendString(dst, "logprob")
	dst = msgp.AppendFloat64(dst, token.Logprob)
	if token.Bytes != nil { // an array of numbers: the reference reads no binary data here
		dst = msgp.AppendString(dst, "bytes")
		dst = msgp.AppendArrayHeader(dst, uint32(len(token.Bytes)))
		for _, b := range token.Bytes {
			dst = msgp.AppendUint8(dst, b)
		}
	}
	return dst
}

func appendUsage(dst []byte, usage *inference.Usage) ([]byte, error) {
	members := uint32(4)
	if usage.CompletionDetails != nil {
		members++
	}
	dst = msgp.AppendMapHeader(dst, members)
	dst = msgp.AppendString(dst, "prompt_tokens")
	dst = msgp.AppendUint32(dst, usage.PromptTokens)
	dst = msgp.AppendString(dst, "completion_tokens")
	dst = msgp.AppendUint32(dst, usage.CompletionTokens)
	dst = msgp.AppendString(dst, "total_tokens")
	dst = msgp.AppendUint32(dst, usage.TotalTokens)
	dst = msgp.AppendString(dst, "prompt_tokens_details")
	dst = appendPromptDetails(dst, usage.AudioTokens, usage.CachedTokens)
	if usage.CompletionDetails != nil {
		dst = msgp.AppendString(dst, "completion_tokens_details")
		return AppendMessagePack(dst, usage.CompletionDetails)
	}
	return dst, nil
}

func appendPromptDetails(dst []byte, audio, cached *uint32) []byte {
	if audio == nil && cached == nil {
		return msgp.AppendNil(dst)
	}
	dst = msgp.AppendMapHeader(dst, 2)
	dst = msgp.AppendString(dst, "audio_tokens")
	dst = appendOptionalUint32(dst, audio)
	dst = msgp.AppendString(dst, "cached_tokens")
	return appendOptionalUint32(dst, cached)
}
