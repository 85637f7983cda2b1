package wire

import (
	"bytes"
	"math"

	"signalbox/inference"
	"signalbox/internal/jsontape"
)

// ItemDecoder reads the response items of one stream into one Output that it reuses, with all of its slices: in the steady
// state an item with a token costs no allocation. The zero value is ready for MessagePack.
type ItemDecoder struct {
	// Codec is the encoding of the items: the one that the request named.
	Codec inference.Codec
	// Raw leaves items undecoded: Output.Body gets their JSON.
	Raw bool
	// Plain is for endpoints whose items have no annotated wrapper (recovery queries): Output.Body gets the data as it is, in Codec.
	Plain bool

	output inference.Output
	// The memory behind the output's members, which are nil in items that lack them.
	tokenIDs  []uint32
	tokens    []string
	comments  []string
	logprobs  []float64
	top       [][]inference.TopToken
	cumulated float64
	usage     inference.Usage
	cached    uint32
	audio     uint32
	scratch   []byte // JSON turned into MessagePack, or the other way round
}

// Item is one data frame, decoded.
type Item struct {
	// Output is nil when the frame holds none (the last frame). It is valid until the following call of Decode.
	Output *inference.Output
	// Failure is what the worker reports instead of an output.
	Failure *inference.Error
	// Final marks the frame that ends the stream cleanly.
	Final bool
}

// Decode reads one data frame: {"data": annotated item, "complete_final": bool}.
func (d *ItemDecoder) Decode(data []byte) (Item, error) {
	if d.Plain {
		return d.decodePlain(data)
	}
	if d.Codec == inference.JSON {
		if d.Raw {
			return d.decodeRawJSON(data)
		}
		packed, err := AppendMessagePack(d.scratch[:0], data)
		if err != nil {
			return Item{}, err
		}
		d.scratch = packed
		data = packed
	}
	var item Item
	s := scanner{data: data, part: "response item"}
	for range s.mapLen() {
		switch string(s.text()) {
		case "data":
			if s.null() {
				continue
			}
			if err := d.annotated(&s, &item); err != nil {
				return Item{}, err
			}
		case "complete_final":
			item.Final = s.flag()
		default:
			s.skip()
		}
		if s.failed != nil {
			return Item{}, s.failed
		}
	}
	if s.failed == nil && s.at != len(data) {
		s.fail("bytes after the end of the item")
	}
	return item, s.err()
}

// annotated reads the wrapper of an item: {data?, event?, comment?, error?}.
func (d *ItemDecoder) annotated(s *scanner, item *Item) error {
	d.reset()
	var failure []byte
	for range s.mapLen() {
		switch string(s.text()) {
		case "data":
			if s.null() {
				continue
			}
			item.Output = &d.output
			if d.Raw {
				if err := d.rawBody(s); err != nil {
					return err
				}
			} else {
				d.engineOutput(s)
			}
		case "event":
			d.output.Event = s.str()
		case "comment":
			d.comments = d.comments[:0]
			for range s.bounded(maxStrings) {
				d.comments = append(d.comments, s.str())
			}
			d.output.Comments = d.comments
		case "error":
			failure = s.raw()
		default:
			s.skip()
		}
		if s.failed != nil {
			return s.failed
		}
	}
	if failure != nil || d.output.Event == "error" {
		item.Output = nil
		item.Failure = &inference.Error{Kind: inference.Unknown}
		if failure != nil {
			object, err := readErrorValue(failure)
			if err != nil {
				return err
			}
			item.Failure = object
		}
		if item.Failure.Message == "" && len(d.output.Comments) > 0 { // old workers put the text into the comment
			item.Failure.Message = d.output.Comments[0]
		}
		return nil
	}
	if d.output.Event != "" || len(d.output.Comments) > 0 {
		item.Output = &d.output
	}
	return nil
}

// reset empties the output.
func (d *ItemDecoder) reset() { d.output = inference.Output{TokenIDs: d.tokenIDs[:0]} }

// engineOutput reads the inner data of an item. Most members of most items are nil.
func (d *ItemDecoder) engineOutput(s *scanner) {
	o := &d.output
	for range s.mapLen() {
		key := s.text()
		if s.null() {
			continue
		}
		switch string(key) {
		case "token_ids":
			d.tokenIDs = appendTokenIDs(d.tokenIDs[:0], s)
			o.TokenIDs = d.tokenIDs
		case "tokens":
			d.tokens = d.tokens[:0]
			for range s.bounded(maxItemTokens) {
				d.tokens = append(d.tokens, s.str())
			}
			o.Tokens = d.tokens
		case "text":
			o.Text, o.HasText = s.str(), true
		case "cum_log_probs":
			d.cumulated = s.float()
			o.CumLogprob = &d.cumulated
		case "log_probs":
			d.logprobs = d.logprobs[:0]
			for range s.arrayLen() {
				d.logprobs = append(d.logprobs, s.float())
			}
			o.Logprobs = d.logprobs
		case "top_logprobs":
			d.topLogprobs(s)
			o.TopLogprobs = d.top
		case "finish_reason":
			o.Finish, o.FinishMessage = finishReason(s)
		case "stop_reason":
			o.StopReason = stopReason(s)
		case "index":
			o.Index = uint32(s.uint(math.MaxUint32))
		case "completion_usage":
			d.completionUsage(s)
		case "disaggregated_params":
			// A copy, for it outlives the item: the prefill hop keeps it for the decode request.
			o.DisaggregatedParams = inference.Opaque{Codec: inference.MessagePack, Bytes: bytes.Clone(s.raw())}
		case "encoder_result":
			o.EncoderResult = rawJSON(s)
		case "extra_args":
			o.ExtraArgs = rawJSON(s)
		case "engine_data":
			o.EngineData = rawJSON(s)
		case "routing_data":
			o.RoutingData = rawJSON(s)
		default:
			s.skip()
		}
		if s.failed != nil {
			return
		}
	}
}

// appendTokenIDs reads token ids: an array of numbers, or binary data that holds little-endian 32-bit integers.
func appendTokenIDs(dst []uint32, s *scanner) []uint32 {
	if lead := s.peek(); lead >= 0xc4 && lead <= 0xc6 {
		packed := s.text()
		if len(packed)%4 != 0 {
			s.fail("packed token ids must be a multiple of 4 bytes")
			return dst
		}
		for ; len(packed) >= 4; packed = packed[4:] {
			dst = append(dst, uint32(packed[0])|uint32(packed[1])<<8|uint32(packed[2])<<16|uint32(packed[3])<<24)
		}
		return dst
	}
	n := s.arrayLen()
	for range n {
		dst = append(dst, uint32(s.uint(math.MaxUint32)))
	}
	return dst
}

// maxItemTokens bounds the tokens of one item whose texts or alternatives are listed; leastTopToken is the least size of an
// alternative in bytes, for a map with a single member. Both keep a small item from asking for much memory.
const (
	maxItemTokens = 1 << 20
	leastTopToken = 6
)

func (d *ItemDecoder) topLogprobs(s *scanner) {
	d.top = d.top[:0]
	for position := range s.bounded(maxItemTokens) {
		if position < cap(d.top) { // with the inner slice of an earlier item
			d.top = d.top[:position+1]
		} else {
			d.top = append(d.top, nil)
		}
		tokens := d.top[position][:0]
		for range s.count(uint64(s.arrayLen()), leastTopToken) {
			tokens = append(tokens, topToken(s))
		}
		d.top[position] = tokens
		if s.failed != nil {
			return
		}
	}
}

func topToken(s *scanner) (token inference.TopToken) {
	for range s.mapLen() {
		key := s.text()
		if s.null() {
			continue
		}
		switch string(key) {
		case "rank":
			token.Rank = uint32(s.uint(math.MaxUint32))
		case "token_id":
			token.TokenID = uint32(s.uint(math.MaxUint32))
		case "token":
			token.Token, token.HasText = s.str(), true
		case "logprob":
			token.Logprob = s.float()
		case "bytes":
			token.Bytes = byteList(s)
		default:
			s.skip()
		}
	}
	return token
}

// byteList reads bytes written as an array of numbers or as binary data.
func byteList(s *scanner) []byte {
	if lead := s.peek(); lead&0xf0 != 0x90 && lead != 0xdc && lead != 0xdd {
		return bytes.Clone(s.text())
	}
	list := make([]byte, 0, 8)
	for range s.arrayLen() {
		list = append(list, byte(s.uint(math.MaxUint8)))
	}
	return list
}

func finishReason(s *scanner) (inference.FinishReason, string) {
	if lead := s.peek(); lead&0xf0 == 0x80 || lead == 0xde || lead == 0xdf { // {"error": text}
		message := ""
		for range s.mapLen() {
			s.skip()
			message = s.str()
		}
		return inference.FinishError, message
	}
	word := s.text()
	switch string(word) {
	case "eos":
		return inference.FinishEOS, ""
	case "length":
		return inference.FinishLength, ""
	case "cancelled", "abort":
		return inference.FinishCancelled, ""
	case "content_filter":
		return inference.FinishContentFilter, ""
	case "error":
		return inference.FinishError, ""
	}
	if message, found := bytes.CutPrefix(word, []byte("error:")); found {
		return inference.FinishError, string(bytes.TrimSpace(message))
	}
	return inference.FinishStop, "" // "stop", and reasons that a later engine may add
}

func stopReason(s *scanner) inference.StopReason {
	if lead := s.peek(); lead&0xe0 == 0xa0 || lead >= 0xd9 && lead <= 0xdb {
		return inference.StopReason{Text: s.str()}
	}
	return inference.StopReason{TokenID: uint32(s.uint(math.MaxUint32)), IsToken: true}
}

func (d *ItemDecoder) completionUsage(s *scanner) {
	d.usage = inference.Usage{}
	d.output.Usage = &d.usage
	for range s.mapLen() {
		key := s.text()
		if s.null() {
			continue
		}
		switch string(key) {
		case "prompt_tokens":
			d.usage.PromptTokens = uint32(s.uint(math.MaxUint32))
		case "completion_tokens":
			d.usage.CompletionTokens = uint32(s.uint(math.MaxUint32))
		case "total_tokens":
			d.usage.TotalTokens = uint32(s.uint(math.MaxUint32))
		case "prompt_tokens_details":
			d.promptDetails(s)
		case "completion_tokens_details":
			d.usage.CompletionDetails = rawJSON(s)
		default:
			s.skip()
		}
	}
}

func (d *ItemDecoder) promptDetails(s *scanner) {
	for range s.mapLen() {
		key := s.text()
		if s.null() {
			continue
		}
		switch string(key) {
		case "cached_tokens":
			d.cached = uint32(s.uint(math.MaxUint32))
			d.usage.CachedTokens = &d.cached
		case "audio_tokens":
			d.audio = uint32(s.uint(math.MaxUint32))
			d.usage.AudioTokens = &d.audio
		default:
			s.skip()
		}
	}
}

// rawJSON reads a value of any shape as JSON text of its own.
func rawJSON(s *scanner) []byte {
	value := s.raw()
	if value == nil {
		return nil
	}
	text, err := AppendJSON(nil, value)
	if err != nil {
		s.fail(err.Error())
	}
	return text
}

func (d *ItemDecoder) rawBody(s *scanner) error {
	text, err := AppendJSON(d.scratch[:0], s.raw())
	if err != nil {
		return err
	}
	d.scratch = text
	d.output.Body = text
	return nil
}

// decodeRawJSON finds the body in a JSON item and hands it out as it is.
func (d *ItemDecoder) decodeRawJSON(data []byte) (Item, error) {
	document, err := jsontape.Parse(data)
	if err != nil {
		return Item{}, err
	}
	var item Item
	root := document.Root()
	item.Final, _ = root.Get("complete_final").Bool()
	annotated := root.Get("data")
	if !annotated.Present() {
		return item, nil
	}
	d.reset()
	d.output.Event = annotated.Get("event").Text()
	if comments := annotated.Get("comment"); comments.Present() {
		d.comments = d.comments[:0]
		for _, comment := range comments.Elements {
			d.comments = append(d.comments, comment.Text())
		}
		d.output.Comments = d.comments
	}
	failure := annotated.Get("error")
	if failure.Present() || d.output.Event == "error" {
		item.Failure = &inference.Error{Kind: inference.Unknown}
		if failure.Present() {
			item.Failure = readError(failure, 8)
		}
		if item.Failure.Message == "" && len(d.output.Comments) > 0 {
			item.Failure.Message = d.output.Comments[0]
		}
		return item, nil
	}
	if body := annotated.Get("data"); body.Present() {
		d.output.Body = body.Raw()
		item.Output = &d.output
	} else if d.output.Event != "" || len(d.output.Comments) > 0 {
		item.Output = &d.output
	}
	return item, nil
}

// decodePlain finds the data of an item without a wrapper and hands it out as it is.
func (d *ItemDecoder) decodePlain(data []byte) (Item, error) {
	var item Item
	d.reset()
	if d.Codec == inference.JSON {
		document, err := jsontape.Parse(data)
		if err != nil {
			return Item{}, err
		}
		root := document.Root()
		item.Final, _ = root.Get("complete_final").Bool()
		if body := root.Get("data"); body.Present() {
			d.output.Body = body.Raw()
			item.Output = &d.output
		}
		return item, nil
	}
	s := scanner{data: data, part: "response item"}
	for range s.mapLen() {
		switch string(s.text()) {
		case "data":
			if d.output.Body = s.raw(); d.output.Body != nil {
				item.Output = &d.output
			}
		case "complete_final":
			item.Final = s.boolean()
		default:
			s.skip()
		}
	}
	if s.failed == nil && s.at != len(data) {
		s.fail("bytes after the end of the item")
	}
	return item, s.err()
}
