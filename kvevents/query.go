package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/internal/packed"
	"signalbox/kvindex"
	"signalbox/transport/wire"
)

// Queries carries recovery queries to workers. *tcp.Client is one.
type Queries interface {
	// SendValue sends a body that is in the target's codec to an endpoint that answers with plain values in the same codec.
	SendValue(ctx context.Context, target inference.Target, id string, body []byte) (inference.Stream, error)
}

// answerKind tells what a worker answered.
type answerKind uint8

const (
	// answerEvents are the events from the one asked for to the newest.
	answerEvents answerKind = iota + 1
	// answerDump is a script that makes an empty rank equal to the worker's. Its event ids mean nothing.
	answerDump
	// answerTooNew tells that there is nothing from there on.
	answerTooNew
)

// answer is a worker's answer to a recovery query.
type answer struct {
	kind  answerKind
	batch Batch
	// last is the id of the newest event that the answer covers.
	last uint64
}

// ask sends one query for the events from since on, or for everything when since is nil, and reads the answer.
func ask(ctx context.Context, queries Queries, target *discovery.Instance, rank kvindex.Rank, since *uint64) (*answer, error) {
	codec := inference.JSON
	if target.Codec == inference.MessagePack.String() {
		codec = inference.MessagePack
	}
	body := appendQuery(nil, rank, since)
	if codec == inference.JSON {
		text, err := wire.AppendJSON(nil, body)
		if err != nil {
			return nil, err
		}
		body = text
	}
	address := target.Transport.TCP
	if address == "" {
		address = target.Transport.NATS
	}
	stream, err := queries.SendValue(ctx, inference.Target{WorkerID: target.InstanceID, Address: address, Codec: codec},
		"kv-recovery-"+strconv.FormatUint(rand.Uint64(), 16), body)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	output, err := stream.Next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the worker answered nothing")
	case err != nil:
		return nil, err
	}
	value := output.Body
	if codec == inference.JSON {
		if value, err = wire.AppendMessagePack(nil, value); err != nil {
			return nil, err
		}
	}
	a := &answer{}
	if err := a.decode(value); err != nil {
		return nil, err
	}
	for i := range a.batch.Events {
		if event := &a.batch.Events[i]; event.Change.Rank != rank {
			return nil, fmt.Errorf("the answer has an event of worker %d rank %d", event.Change.Rank.WorkerID, event.Change.Rank.DPRank)
		}
	}
	return a, nil
}

func appendQuery(dst []byte, rank kvindex.Rank, since *uint64) []byte {
	dst = msgp.AppendMapHeader(dst, 6)
	dst = msgp.AppendString(dst, "worker_id")
	dst = msgp.AppendUint64(dst, rank.WorkerID)
	dst = msgp.AppendString(dst, "dp_rank")
	dst = msgp.AppendUint32(dst, rank.DPRank)
	dst = msgp.AppendString(dst, "start_event_id")
	if since != nil {
		dst = msgp.AppendUint64(dst, *since)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendString(dst, "end_event_id")
	dst = msgp.AppendNil(dst)
	dst = msgp.AppendString(dst, "supports_tree_dump_failed")
	dst = msgp.AppendBool(dst, true)
	dst = msgp.AppendString(dst, "kind")
	return msgp.AppendString(dst, "recovery")
}

// decode reads {"Events": …}, {"TreeDump": …}, {"TooNew": …}, or one of the answers that say why there is none.
func (a *answer) decode(value []byte) error {
	count, data, err := msgp.ReadMapHeaderBytes(value)
	if err != nil {
		return fmt.Errorf("recovery answer: %w", err)
	}
	if count != 1 {
		text, _ := wire.AppendJSON(nil, value) // a failure of the worker's request plane, most likely
		return fmt.Errorf("recovery answer: a map of %d members; want one: %.300s", count, text)
	}
	name, data, err := msgp.ReadMapKeyZC(data)
	if err != nil {
		return fmt.Errorf("recovery answer: %w", err)
	}
	var reset, message string
	switch string(name) {
	case "Events":
		a.kind = answerEvents
	case "TreeDump":
		a.kind = answerDump
	case "TooNew":
		a.kind = answerTooNew
	case "InvalidRange":
		return errors.New("the worker refuses the range that was asked for")
	case "Error":
		text, _, err := msgp.ReadStringZC(data)
		if err != nil {
			return fmt.Errorf("recovery answer: Error: %w", err)
		}
		return fmt.Errorf("the worker says: %.300s", text)
	case "TreeDumpFailed":
	default:
		return fmt.Errorf("recovery answer of the unknown kind %.50q", name)
	}
	hasEvents, hasLast := false, false
	_, err = packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "events":
			hasEvents = true
			return a.batch.decode(value)
		case "last_event_id", "newest_available":
			hasLast = true
			a.last, rest, err = readUint(value)
			return rest, err
		case "reset_scope":
			reset, rest, err = msgp.ReadStringBytes(value)
			return rest, err
		case "message":
			message, rest, err = msgp.ReadStringBytes(value)
			return rest, err
		}
		return msgp.Skip(value)
	})
	switch {
	case err != nil:
		return fmt.Errorf("recovery answer: %s: %w", name, err)
	case a.kind == 0:
		return fmt.Errorf("the worker could not dump its blocks: %.300s", message)
	case !hasLast || (!hasEvents && a.kind != answerTooNew):
		return fmt.Errorf("recovery answer: %s without its events or the id of the last", name)
	case a.kind == answerDump && reset != "all":
		return fmt.Errorf("recovery answer: a dump of scope %.50q; want \"all\"", reset)
	}
	return nil
}
