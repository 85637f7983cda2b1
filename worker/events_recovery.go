package worker

import (
	"context"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"signalbox/inference"
	"signalbox/transport/tcp"
	"signalbox/transport/wire"
	"signalbox/worker/sim"
)

// recoveryQuery is a subscriber's request for the events that it missed.
type recoveryQuery struct {
	workerID   uint64
	rank       uint32
	start, end *uint64 // nil start: everything
	kind       string
}

func parseRecoveryQuery(body []byte) (query recoveryQuery, err error) {
	count, body, err := msgp.ReadMapHeaderBytes(body)
	if err != nil {
		return query, err
	}
	optional := func(value **uint64) {
		if msgp.IsNil(body) {
			body, err = msgp.ReadNilBytes(body)
			return
		}
		*value = new(uint64)
		**value, body, err = msgp.ReadUint64Bytes(body)
	}
	for range count {
		var key []byte
		if key, body, err = msgp.ReadMapKeyZC(body); err != nil {
			return query, err
		}
		name := string(key)
		switch name {
		case "worker_id":
			query.workerID, body, err = msgp.ReadUint64Bytes(body)
		case "dp_rank":
			query.rank, body, err = msgp.ReadUint32Bytes(body)
		case "start_event_id":
			optional(&query.start)
		case "end_event_id":
			optional(&query.end)
		case "kind":
			query.kind, body, err = msgp.ReadStringBytes(body)
		default:
			body, err = msgp.Skip(body)
		}
		if err != nil {
			return query, fmt.Errorf("%.50s: %w", name, err)
		}
	}
	return query, nil
}

// recover answers a recovery query.
func (r *rankPublisher) recover(_ context.Context, call *tcp.Call) error {
	body := call.Body
	if call.Codec == inference.JSON {
		packed, err := wire.AppendMessagePack(nil, body)
		if err != nil {
			return &inference.Error{Kind: inference.InvalidArgument, Message: "recovery query: " + err.Error(), Cause: err}
		}
		body = packed
	}
	query, err := parseRecoveryQuery(body)
	if err != nil {
		return &inference.Error{Kind: inference.InvalidArgument, Message: "recovery query: " + err.Error(), Cause: err}
	}
	value := r.answer(query)
	if call.Codec == inference.JSON {
		if value, err = wire.AppendJSON(nil, value); err != nil {
			return err
		}
	}
	call.EmitValue(value)
	return call.Flush()
}

// answer writes the answer to a query: the recent events from the one asked for to the newest, or everything that is held when
// that one is no longer there.
func (r *rankPublisher) answer(query recoveryQuery) []byte {
	refuse := func(format string, args ...any) []byte {
		return msgp.AppendString(appendAnswer(nil, "Error"), fmt.Sprintf(format, args...))
	}
	switch {
	case query.workerID != r.workerID:
		return refuse("worker_id mismatch: the query names %d, this worker is %d", query.workerID, r.workerID)
	case query.rank != r.rank:
		return refuse("dp_rank mismatch: the query names %d, this endpoint is of rank %d", query.rank, r.rank)
	case query.kind != "" && query.kind != "recovery":
		return refuse("query kind %q is not supported", query.kind)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	newest := r.eventID
	if query.start == nil {
		return r.appendDump(nil)
	}
	start := *query.start
	if query.end != nil && *query.end < start {
		dst := msgp.AppendMapHeader(appendAnswer(nil, "InvalidRange"), 2)
		dst = msgp.AppendUint64(msgp.AppendString(dst, "start_id"), start)
		return msgp.AppendUint64(msgp.AppendString(dst, "end_id"), *query.end)
	}
	if start > newest && newest > 0 {
		end := newest
		if query.end != nil {
			end = *query.end
		}
		dst := msgp.AppendMapHeader(appendAnswer(nil, "TooNew"), 3)
		dst = msgp.AppendUint64(msgp.AppendString(dst, "requested_start"), start)
		dst = msgp.AppendUint64(msgp.AppendString(dst, "requested_end"), end)
		return msgp.AppendUint64(msgp.AppendString(dst, "newest_available"), newest)
	}
	if start == 0 || newest == 0 || newest-start >= recentEvents {
		return r.appendDump(nil)
	}
	dst := msgp.AppendMapHeader(appendAnswer(nil, "Events"), 2)
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "events"), uint32(newest-start+1))
	for id := start; id <= newest; id++ {
		dst = append(dst, r.recent[id%recentEvents]...)
	}
	return msgp.AppendUint64(msgp.AppendString(dst, "last_event_id"), newest)
}

func appendAnswer(dst []byte, kind string) []byte {
	return msgp.AppendString(msgp.AppendMapHeader(dst, 1), kind)
}

// appendDump writes all that is held as a script that works from an empty index: parents before children, chains in one event.
// The caller holds mu.
func (r *rankPublisher) appendDump(dst []byte) []byte {
	var events []byte
	count := uint32(0)
	seen := make(map[uint64]bool, len(r.held))
	var run []sim.Block
	var first heldBlock // of the run
	flush := func() {
		if len(run) > 0 {
			count++
			events = r.appendStored(events, uint64(count), first.parent, first.hasParent, run)
			run = run[:0]
		}
	}
	for _, hash := range r.order {
		block, ok := r.held[hash]
		if !ok || seen[hash] {
			continue
		}
		seen[hash] = true
		if len(run) == 0 || !block.hasParent || block.parent != run[len(run)-1].Hash {
			flush()
			first = block
		}
		run = append(run, sim.Block{Hash: hash, Local: block.local})
	}
	flush()
	dst = msgp.AppendMapHeader(appendAnswer(dst, "TreeDump"), 3)
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "events"), count)
	dst = append(dst, events...)
	dst = msgp.AppendUint64(msgp.AppendString(dst, "last_event_id"), r.eventID)
	return msgp.AppendString(msgp.AppendString(dst, "reset_scope"), "all")
}
