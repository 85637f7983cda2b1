package standalone

import (
	"errors"
	"time"

	"github.com/tinylib/msgp/msgp"

	"signalbox/inference"
	"signalbox/internal/packed"
	"signalbox/router"
	"signalbox/transport/wire"
)

// entry is a member of a map in MessagePack, both parts as they are written.
type entry struct{ key, value []byte }

// entries reads a map whose members are left as they are.
func entries(data []byte) (list []entry, err error) {
	rest, err := packed.Each(data, func(key, value []byte) ([]byte, error) {
		after, err := msgp.Skip(value)
		if err == nil {
			list = append(list, entry{key, value[:len(value)-len(after)]})
		}
		return after, err
	})
	if err == nil && len(rest) > 0 {
		err = errors.New("bytes after the end of the map")
	}
	return list, err
}

// appendEntries writes a map.
func appendEntries(dst []byte, list []entry) []byte {
	dst = msgp.AppendMapHeader(dst, uint32(len(list)))
	for _, e := range list {
		dst = msgp.AppendStringFromBytes(dst, e.key)
		dst = append(dst, e.value...)
	}
	return dst
}

// put replaces a member, or adds it.
func put(list []entry, key string, value []byte) []entry {
	for i := range list {
		if string(list[i].key) == key {
			list[i].value = value
			return list
		}
	}
	return append(list, entry{[]byte(key), value})
}

// get returns a member's value; nil when there is none or it is nil itself.
func get(list []entry, key string) []byte {
	for i := range list {
		if string(list[i].key) == key && !msgp.IsNil(list[i].value) {
			return list[i].value
		}
	}
	return nil
}

// emptyMembers are what workers insist on in a request, empty where whoever sent it left them out.
var emptyMembers = []struct {
	name  string
	empty []byte
}{
	{"stop_conditions", msgp.AppendMapHeader(nil, 0)}, {"sampling_options", msgp.AppendMapHeader(nil, 0)}, {"output_options", msgp.AppendMapHeader(nil, 0)},
	{"eos_token_ids", msgp.AppendArrayHeader(nil, 0)}, {"annotations", msgp.AppendArrayHeader(nil, 0)}, {"model", msgp.AppendString(nil, "unknown")},
}

// addressed returns a request for the rank that was chosen. Everything else is as it came.
func addressed(body []byte, placement *router.Placement) ([]byte, error) {
	members, err := entries(body)
	if err != nil {
		return nil, err
	}
	for _, m := range emptyMembers {
		if get(members, m.name) == nil {
			members = put(members, m.name, m.empty)
		}
	}
	if placement.HasRank {
		var routing []entry
		if text := get(members, "routing"); text != nil {
			if routing, err = entries(text); err != nil {
				return nil, err
			}
		}
		members = put(members, "routing", appendEntries(nil, put(routing, "dp_rank", msgp.AppendUint32(nil, placement.Rank))))
	}
	return appendEntries(nil, members), nil
}

// passing follows the answer of a worker: it reports to the placement, and tells in the first item where the request went and in the
// last one how long that took.
type passing struct {
	placement                   *router.Placement
	received, dispatched, first time.Time
	// failure is what the worker said of a failure; nil while it said nothing.
	failure *inference.Error
}

// outcome is how the request ended at the worker.
func (p *passing) outcome() error {
	if p.failure == nil {
		return nil
	}
	return p.failure
}

// noteFailure reads an item that reports a failure.
func (p *passing) noteFailure(item []byte) {
	frame := msgp.AppendMapHeader(nil, 1)
	frame = msgp.AppendString(frame, "data")
	decoder := wire.ItemDecoder{Codec: inference.MessagePack}
	read, err := decoder.Decode(append(frame, item...))
	if p.failure = read.Failure; p.failure == nil {
		p.failure = inference.Errorf(inference.Unknown, "the worker reports a failure that cannot be read: %v", err)
	}
}

// take is given each item, and returns what is to be passed on: most items as they are.
func (p *passing) take(item []byte) ([]byte, error) {
	wrapper, err := entries(item)
	if err != nil {
		return nil, err
	}
	if event, _, _ := msgp.ReadStringZC(get(wrapper, "event")); string(event) == "error" || get(wrapper, "error") != nil {
		p.noteFailure(item)
		return item, nil
	}
	text := get(wrapper, "data")
	if text == nil || msgp.NextType(text) != msgp.MapType {
		return item, nil
	}
	data, err := entries(text)
	if err != nil {
		return nil, err
	}
	tokens := uint32(0)
	if ids := get(data, "token_ids"); ids != nil {
		if tokens, _, err = msgp.ReadArrayHeaderBytes(ids); err != nil {
			return nil, err
		}
	}
	var told []byte
	count := uint32(0)
	if tokens > 0 {
		if p.first.IsZero() {
			p.first = time.Now()
			told, count = p.appendWorker(told), count+1
		}
		p.placement.Progress(int(tokens))
	}
	if get(data, "finish_reason") != nil {
		told, count = p.appendTiming(told), count+1
	}
	if count == 0 || get(data, "routing_data") != nil {
		return item, nil // a worker that tells so itself knows better
	}
	data = put(data, "routing_data", append(msgp.AppendMapHeader(nil, count), told...))
	return appendEntries(nil, put(wrapper, "data", appendEntries(nil, data))), nil
}

// appendWorker tells where the request went. One worker does both parts.
func (p *passing) appendWorker(dst []byte) []byte {
	dst = msgp.AppendString(dst, "worker_id")
	dst = msgp.AppendMapHeader(dst, 4)
	for _, part := range []string{"prefill", "decode"} {
		dst = msgp.AppendString(dst, part+"_worker_id")
		dst = msgp.AppendUint64(dst, p.placement.WorkerID)
		dst = msgp.AppendString(dst, part+"_dp_rank")
		dst = msgp.AppendUint32(dst, p.placement.Rank)
	}
	return dst
}

// appendTiming tells how long the request took so far.
func (p *passing) appendTiming(dst []byte) []byte {
	now := time.Now()
	first := p.first
	if first.IsZero() {
		first = now
	}
	milliseconds := func(from, to time.Time) float64 { return float64(to.Sub(from)) / float64(time.Millisecond) }
	dst = msgp.AppendString(dst, "timing")
	dst = msgp.AppendMapHeader(dst, 7)
	dst = msgp.AppendString(dst, "request_received_ms")
	dst = msgp.AppendInt64(dst, p.received.UnixMilli())
	for _, span := range []struct {
		name string
		ms   float64
	}{
		{"prefill_wait_time_ms", milliseconds(p.received, p.dispatched)}, {"prefill_time_ms", milliseconds(p.dispatched, first)},
		{"ttft_ms", milliseconds(p.received, first)}, {"total_time_ms", milliseconds(p.received, now)}, {"kv_hit_rate", p.placement.HitRate()},
	} {
		dst = msgp.AppendString(dst, span.name)
		dst = msgp.AppendFloat64(dst, span.ms)
	}
	dst = msgp.AppendString(dst, "router_queue_depth")
	return msgp.AppendInt(dst, p.placement.QueueDepth)
}
