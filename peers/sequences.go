package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tinylib/msgp/msgp"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/internal/packed"
	"signalbox/router/kv"
)

// SequencesTopic carries what routers have booked on workers, and when workers have computed a prompt.
const SequencesTopic = "active_sequences_events"

const (
	// sequencesWaiting is how many events may wait to be told.
	sequencesWaiting = 16384
	// batchEvents and batchTime bound what is told together.
	batchEvents = 256
	batchTime   = time.Millisecond
	// maxBlocks bounds the blocks of one request that is told of.
	maxBlocks = 1 << 20
)

// Sequences tells other routers of an endpoint what this one books. It implements kv.Replicas.
type Sequences struct {
	channel  *channel
	routerID uint64
	waiting  chan []byte
	heard    *atomic.Uint64 // events of others
}

var _ kv.Replicas = (*Sequences)(nil)

// Sequences joins the routers of an endpoint. apply is told what they and the workers report, from several goroutines; it must not
// keep the slice. Close ends it.
func (p *Plane) Sequences(endpoint discovery.EndpointID, apply func([]kv.Remote)) (*Sequences, error) {
	routerID := p.Backend.InstanceID()
	heard := new(atomic.Uint64)
	c, ctx, err := p.open(endpoint, SequencesTopic, func(payload []byte) error {
		reports, err := ParseSequences(payload, routerID)
		if err == nil && len(reports) > 0 {
			heard.Add(uint64(len(reports)))
			apply(reports)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &Sequences{channel: c, routerID: routerID, waiting: make(chan []byte, sequencesWaiting), heard: heard}
	c.wait.Go(func() { s.tell(ctx) }) // ends with ctx
	return s, nil
}

// Dropped returns how many events were not told because too many waited.
func (s *Sequences) Dropped() uint64 { return s.channel.dropped.Load() }

// Counters tell how well the others are heard.
func (s *Sequences) Counters() Counters {
	c := s.channel.counters.snapshot()
	c.Events = s.heard.Load()
	return c
}

// Close leaves the others.
func (s *Sequences) Close() { s.channel.close() }

// tell sends what waits, in batches.
func (s *Sequences) tell(ctx context.Context) {
	batch := make([][]byte, 0, batchEvents)
	for {
		batch = batch[:0]
		select {
		case event := <-s.waiting:
			batch = append(batch, event)
		case <-ctx.Done():
			return
		}
		full := time.NewTimer(batchTime)
	gather:
		for len(batch) < batchEvents {
			select {
			case event := <-s.waiting:
				batch = append(batch, event)
			case <-full.C:
				break gather
			case <-ctx.Done():
				break gather
			}
		}
		full.Stop()
		if s.channel.record.Transport.NATSSubjectPrefix != "" {
			for _, event := range batch { // over NATS each event is a message
				s.channel.send(event)
			}
			continue
		}
		s.channel.send(appendBatch(nil, batch))
	}
}

func appendBatch(dst []byte, events [][]byte) []byte {
	dst = msgp.AppendMapHeader(dst, 1)
	dst = msgp.AppendString(dst, "events")
	dst = msgp.AppendArrayHeader(dst, uint32(len(events)))
	for _, event := range events {
		dst = append(dst, event...)
	}
	return dst
}

func (s *Sequences) put(event []byte) {
	select {
	case s.waiting <- event:
	default:
		s.channel.dropped.Add(1)
	}
}

// Booked implements kv.Replicas.
func (s *Sequences) Booked(event kv.Booked) {
	s.put(AppendEvent(make([]byte, 0, 320+9*(len(event.Hashes)+event.Exclusive)), s.routerID, &kv.Remote{Kind: kv.RemoteBooked, Booked: event}))
}

// PrefillCompleted implements kv.Replicas.
func (s *Sequences) PrefillCompleted(event kv.Step) { s.step(event, kv.RemotePrefillCompleted) }

// Freed implements kv.Replicas.
func (s *Sequences) Freed(event kv.Step) { s.step(event, kv.RemoteFreed) }

func (s *Sequences) step(event kv.Step, kind kv.RemoteKind) {
	s.put(AppendEvent(make([]byte, 0, 192), s.routerID, &kv.Remote{Kind: kind, Booked: kv.Booked{Step: event}}))
}

// AppendEvent appends one event of the topic, as the router called routerID tells it.
func AppendEvent(dst []byte, routerID uint64, event *kv.Remote) []byte {
	return appendEvent(dst, routerID, event.Step, func(dst []byte) []byte {
		switch event.Kind {
		case kv.RemoteBooked:
			return appendBooked(dst, &event.Booked)
		case kv.RemotePrefillCompleted:
			return msgp.AppendString(dst, "MarkPrefillCompleted")
		}
		return msgp.AppendString(dst, "Free")
	})
}

// appendEvent appends one event of the topic.
func appendEvent(dst []byte, routerID uint64, step kv.Step, data func([]byte) []byte) []byte {
	dst = msgp.AppendMapHeader(dst, 5)
	dst = msgp.AppendString(dst, "request_id")
	dst = msgp.AppendString(dst, step.RequestID)
	dst = msgp.AppendString(dst, "worker")
	dst = msgp.AppendMapHeader(dst, 2)
	dst = msgp.AppendString(dst, "worker_id")
	dst = msgp.AppendUint64(dst, step.Rank.WorkerID)
	dst = msgp.AppendString(dst, "dp_rank")
	dst = msgp.AppendUint32(dst, step.Rank.DPRank)
	dst = msgp.AppendString(dst, "data")
	dst = data(dst)
	dst = msgp.AppendString(dst, "router_id")
	dst = msgp.AppendUint64(dst, routerID)
	dst = msgp.AppendString(dst, "lora_name")
	if step.LoRA == "" {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendString(dst, step.LoRA)
}

func appendBooked(dst []byte, event *kv.Booked) []byte {
	dst = msgp.AppendMapHeader(dst, 1)
	dst = msgp.AppendString(dst, "AddRequest")
	dst = msgp.AppendMapHeader(dst, 4)
	dst = msgp.AppendString(dst, "token_sequence")
	switch {
	case len(event.Hashes) > 0:
		dst = msgp.AppendArrayHeader(dst, uint32(len(event.Hashes)))
		for _, hash := range event.Hashes {
			dst = msgp.AppendUint64(dst, hash)
		}
	case event.Exclusive > 0:
		// Blocks that nobody shares: identities that nobody else has say so.
		dst = msgp.AppendArrayHeader(dst, uint32(event.Exclusive))
		for range event.Exclusive {
			dst = msgp.AppendUint64(dst, rand.Uint64())
		}
	default:
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendString(dst, "track_prefill_tokens")
	dst = msgp.AppendBool(dst, event.PrefillTokens > 0)
	dst = msgp.AppendString(dst, "expected_output_tokens")
	if event.ExpectedOutputTokens != nil {
		dst = msgp.AppendUint32(dst, *event.ExpectedOutputTokens)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendString(dst, "prefill_load_hint")
	if event.PrefillTokens == 0 {
		return msgp.AppendNil(dst)
	}
	dst = msgp.AppendMapHeader(dst, 2)
	dst = msgp.AppendString(dst, "initial_effective_prefill_tokens")
	dst = msgp.AppendUint64(dst, event.PrefillTokens)
	dst = msgp.AppendString(dst, "expected_prefill_duration")
	if !event.Modelled {
		return msgp.AppendNil(dst)
	}
	dst = msgp.AppendMapHeader(dst, 2)
	dst = msgp.AppendString(dst, "secs")
	dst = msgp.AppendUint64(dst, uint64(event.Expected/time.Second))
	dst = msgp.AppendString(dst, "nanos")
	return msgp.AppendUint32(dst, uint32(event.Expected%time.Second))
}

// ParseSequences reads the events of a message, without those of the router itself. A message is a batch or, over NATS, one event.
func ParseSequences(payload []byte, self uint64) (reports []kv.Remote, err error) {
	if count, _, err := msgp.ReadMapHeaderBytes(payload); err == nil && count > 1 {
		report, from, _, err := ParseEvent(payload)
		if err != nil {
			return nil, fmt.Errorf("active sequences: %w", err)
		}
		if from == self {
			return nil, nil
		}
		return []kv.Remote{report}, nil
	}
	rest, err := packed.Each(payload, func(key, value []byte) ([]byte, error) {
		if string(key) != "events" {
			return msgp.Skip(value)
		}
		count, rest, err := msgp.ReadArrayHeaderBytes(value)
		if err != nil {
			return nil, err
		}
		if count > batchEvents {
			return nil, fmt.Errorf("%d events at once; at most %d are allowed", count, batchEvents)
		}
		for range count {
			var report kv.Remote
			var from uint64
			if report, from, rest, err = ParseEvent(rest); err != nil {
				return nil, err
			}
			if from != self {
				reports = append(reports, report)
			}
		}
		return rest, nil
	})
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after their end", len(rest))
	}
	if err != nil {
		return nil, fmt.Errorf("active sequences: %w", err)
	}
	return reports, nil
}

// ParseEvent reads one event of the topic. from is the router, or the worker, that told it; rest is what follows.
func ParseEvent(data []byte) (report kv.Remote, from uint64, rest []byte, err error) {
	hasData := false
	rest, err = packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "request_id":
			report.RequestID, rest, err = msgp.ReadStringBytes(value)
		case "worker":
			report.Rank, rest, err = parseRank(value)
		case "data":
			hasData = true
			rest, err = parseData(&report, value)
		case "router_id":
			from, rest, err = msgp.ReadUint64Bytes(value)
		case "lora_name":
			report.LoRA, _, rest, err = optional(value, msgp.ReadStringBytes)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	if err == nil && (report.RequestID == "" || !hasData) {
		err = errors.New("request_id and data must be there")
	}
	return report, from, rest, err
}

func parseRank(data []byte) (rank inference.Rank, rest []byte, err error) {
	rest, err = packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "worker_id":
			rank.WorkerID, rest, err = msgp.ReadUint64Bytes(value)
		case "dp_rank":
			rank.DPRank, rest, err = msgp.ReadUint32Bytes(value)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	return rank, rest, err
}

func parseData(report *kv.Remote, data []byte) (rest []byte, err error) {
	if msgp.NextType(data) == msgp.StrType {
		word, rest, err := msgp.ReadStringBytes(data)
		switch {
		case err != nil:
			return nil, err
		case word == "MarkPrefillCompleted":
			report.Kind = kv.RemotePrefillCompleted
		case word == "Free":
			report.Kind = kv.RemoteFreed
		default:
			return nil, fmt.Errorf("no event is called %.100q", word)
		}
		return rest, nil
	}
	known := false
	rest, err = packed.Each(data, func(key, value []byte) ([]byte, error) {
		if string(key) != "AddRequest" {
			return nil, fmt.Errorf("no event is called so")
		}
		known = true
		return parseBooked(report, value)
	})
	if err == nil && !known {
		err = errors.New("an event without name")
	}
	return rest, err
}

func parseBooked(report *kv.Remote, data []byte) (rest []byte, err error) {
	tracks := true
	rest, err = packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "token_sequence":
			report.Hashes, _, rest, err = optional(value, readHashes)
		case "track_prefill_tokens":
			tracks, rest, err = msgp.ReadBoolBytes(value)
		case "expected_output_tokens":
			var tokens uint32
			var given bool
			if tokens, given, rest, err = optional(value, msgp.ReadUint32Bytes); given {
				report.ExpectedOutputTokens = &tokens
			}
		case "prefill_load_hint":
			if msgp.IsNil(value) {
				return msgp.ReadNilBytes(value)
			}
			rest, err = parseHint(report, value)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	if !tracks {
		report.PrefillTokens, report.Modelled, report.Expected = 0, false, 0
	}
	return rest, err
}

func parseHint(report *kv.Remote, data []byte) ([]byte, error) {
	return packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "initial_effective_prefill_tokens":
			report.PrefillTokens, rest, err = msgp.ReadUint64Bytes(value)
		case "expected_prefill_duration":
			report.Expected, report.Modelled, rest, err = optional(value, readDuration)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
}

// readDuration reads seconds and nanoseconds.
func readDuration(data []byte) (duration time.Duration, rest []byte, err error) {
	var seconds uint64
	var nanos uint32
	rest, err = packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "secs":
			seconds, rest, err = msgp.ReadUint64Bytes(value)
		case "nanos":
			nanos, rest, err = msgp.ReadUint32Bytes(value)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	const longest = uint64(24 * time.Hour / time.Second)
	return time.Duration(min(seconds, longest))*time.Second + time.Duration(nanos), rest, err
}

func readHashes(data []byte) ([]uint64, []byte, error) { return packed.Hashes(data, maxBlocks) }
