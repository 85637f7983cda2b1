package standalone

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/tinylib/msgp/msgp"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvservice"
	"signalbox/router"
	"signalbox/transport/tcp"
	"signalbox/transport/wire"
)

func invalid(format string, args ...any) error {
	return inference.Errorf(inference.InvalidArgument, format, args...)
}

// inMessagePack returns a call's body in MessagePack.
func inMessagePack(call *tcp.Call) ([]byte, error) {
	if call.Codec == inference.MessagePack {
		return call.Body, nil
	}
	body, err := wire.AppendMessagePack(nil, call.Body)
	if err != nil {
		return nil, invalid("the request cannot be read: %v", err)
	}
	return body, nil
}

// emit answers with a value in MessagePack, in the call's codec.
func emit(call *tcp.Call, value []byte) error {
	if call.Codec == inference.JSON {
		text, err := wire.AppendJSON(nil, value)
		if err != nil {
			return err
		}
		value = text
	}
	call.EmitValue(value)
	return nil
}

// answer answers with one item.
func answer(call *tcp.Call, data []byte) error {
	item := msgp.AppendMapHeader(nil, 1)
	item = msgp.AppendString(item, "data")
	if err := emit(call, append(item, data...)); err != nil {
		return err
	}
	return call.Flush()
}

// generate passes a request on to the worker that is chosen for it.
func (s *Service) generate(ctx context.Context, call *tcp.Call) error {
	received := time.Now()
	body, err := inMessagePack(call)
	if err != nil {
		return err
	}
	request, err := wire.DecodeRequest(body, inference.MessagePack)
	if err != nil {
		return invalid("%v", err)
	}
	request.ID, request.Metadata = call.ID, call.Metadata
	placement, err := s.router.Place(ctx, request, router.Attempt{})
	if err != nil {
		return err
	}
	answers := passing{placement: placement, received: received}
	err = s.pass(ctx, call, &answers, body)
	if err != nil {
		placement.End(err)
	} else {
		placement.End(answers.outcome())
	}
	return err
}

// pass sends a request to its worker and passes the answer on, and with it what the worker says of failures.
func (s *Service) pass(ctx context.Context, call *tcp.Call, answers *passing, body []byte) error {
	placement := answers.placement
	target, known := (*s.targets.Load())[placement.WorkerID]
	if !known {
		return inference.Errorf(inference.CannotConnect, "instance_id=%d not found for endpoint %s", placement.WorkerID, s.options.Endpoint)
	}
	body, err := addressed(body, placement)
	if err == nil && target.Codec == inference.JSON {
		body, err = wire.AppendJSON(nil, body)
	}
	if err != nil {
		return invalid("the request cannot be read: %v", err)
	}
	stream, err := s.options.Workers.SendValue(ctx, target, call.ID, body)
	if err != nil {
		return err
	}
	defer stream.Close()
	placement.Dispatched()
	answers.dispatched = time.Now()
	for {
		output, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		item := output.Body
		if target.Codec == inference.JSON {
			if item, err = wire.AppendMessagePack(nil, item); err != nil {
				return &inference.Error{Kind: inference.ProtocolViolation, Message: "the worker sent an item that cannot be read", Cause: err}
			}
		}
		if item, err = answers.take(item); err != nil {
			return &inference.Error{Kind: inference.ProtocolViolation, Message: "the worker sent an item that cannot be read", Cause: err}
		}
		if err := emit(call, item); err != nil {
			return err
		}
		if !stream.Buffered() {
			if err := call.Flush(); err != nil {
				return err
			}
		}
	}
}

// maxPrompt bounds the tokens of a question.
const maxPrompt = 16 << 20

// bestWorker answers which worker a prompt would go to now: the request is an array of token ids.
func (s *Service) bestWorker(ctx context.Context, call *tcp.Call) error {
	body, err := inMessagePack(call)
	if err != nil {
		return err
	}
	count, rest, err := msgp.ReadArrayHeaderBytes(body)
	if err != nil || count > maxPrompt {
		return invalid("best_worker_id wants an array of at most %d token ids", maxPrompt)
	}
	tokens := make([]uint32, 0, min(int(count), len(rest)))
	for range count {
		var token uint32
		if token, rest, err = msgp.ReadUint32Bytes(rest); err != nil {
			return invalid("best_worker_id: token %d: %v", len(tokens), err)
		}
		tokens = append(tokens, token)
	}
	request := &inference.Request{ID: call.ID, TokenIDs: tokens, Routing: inference.Routing{QueryOnly: true}}
	placement, err := s.router.Place(ctx, request, router.Attempt{})
	if err != nil {
		return err
	}
	placement.End(nil)
	return answer(call, msgp.AppendUint64(nil, placement.WorkerID))
}

// overlapScores answers what the workers hold of a prompt.
func (s *Service) overlapScores(_ context.Context, call *tcp.Call) error {
	text := call.Body
	if call.Codec == inference.MessagePack {
		var err error
		if text, err = wire.AppendJSON(nil, call.Body); err != nil {
			return invalid("the request cannot be read: %v", err)
		}
	}
	var question struct {
		Tokens    *[]uint32 `json:"token_ids"`
		Adapter   string    `json:"lora_name"`
		Namespace string    `json:"cache_namespace"`
		Media     []*struct {
			Objects []struct {
				Hash uint64 `json:"mm_hash"`
			} `json:"mm_objects"`
		} `json:"block_mm_infos"`
	}
	if err := json.Unmarshal(text, &question); err != nil {
		return invalid("get_overlap_scores: %v", err)
	}
	if question.Tokens == nil {
		return invalid("get_overlap_scores: token_ids is missing")
	}
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: s.options.BlockSize, LoRA: question.Adapter, CacheNamespace: question.Namespace, Eagle: s.eagle})
	if err != nil {
		return invalid("get_overlap_scores: %v", err)
	}
	objects := make([][]kvhash.Object, len(question.Media))
	for i, block := range question.Media {
		if block == nil {
			continue
		}
		for _, object := range block.Objects {
			objects[i] = append(objects[i], kvhash.Object{Hash: object.Hash})
		}
	}
	locals := hasher.AppendBlocksWithObjects(nil, *question.Tokens, objects)
	matches := s.find(locals)
	scores, err := kvservice.AppendOverlaps(nil, s.options.BlockSize, len(locals), s.pool.Snapshot(), &matches)
	if err != nil {
		return err
	}
	data, err := wire.AppendMessagePack(nil, scores)
	if err != nil {
		return err
	}
	return answer(call, data)
}
