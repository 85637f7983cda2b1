package sim

import (
	"context"
	"encoding/binary"
	"io"
	"sync"

	"github.com/zeebo/xxh3"

	"signalbox/inference"
	"signalbox/kvhash"
)

// sequence is one request inside the engine. The scheduler owns everything but the outbox.
type sequence struct {
	request   *inference.Request
	outbox    *outbox
	prompt    []uint32
	maxTokens int
	minTokens int

	hasher    *kvhash.Stream
	locals    []uint64 // of complete blocks so far, prompt and output
	hashes    []uint64
	held      int // leading hashes that the cache holds for us
	private   int // reserved blocks without identity
	computed  int // tokens in the KV cache
	cached    int // prompt tokens found in the cache at admission
	generated int
	seed      uint64
	replay    []uint32 // scripted output tokens; nil draws them
	preempted bool
}

func newSequence(request *inference.Request, hasher kvhash.Hasher, maxTokens int) *sequence {
	s := &sequence{request: request, outbox: newOutbox(), prompt: request.TokenIDs, maxTokens: maxTokens, hasher: hasher.Stream()}
	if request.Stop.MinTokens != nil {
		s.minTokens = int(*request.Stop.MinTokens)
	}
	s.locals, s.hashes = s.hasher.Append(nil, nil, s.prompt...)
	s.seed = xxh3.Hash(packTokens(s.prompt))
	if request.Sampling.Seed != nil {
		s.seed ^= uint64(*request.Sampling.Seed)
	}
	return s
}

func packTokens(tokens []uint32) []byte {
	packed := make([]byte, 0, 4*len(tokens))
	for _, token := range tokens {
		packed = binary.LittleEndian.AppendUint32(packed, token)
	}
	return packed
}

// length returns the tokens so far, prompt and output.
func (s *sequence) length() int { return len(s.prompt) + s.generated }

// nextToken draws the next output token: the same prompt always gives the same text.
func (s *sequence) nextToken(config *Config) uint32 {
	vocabulary, words := config.Vocabulary, config.Words
	if s.replay != nil {
		return s.replay[s.generated]
	}
	if config.Numbered {
		if len(words) > 0 {
			return words[s.length()%len(words)]
		}
		return vocabulary[0] + uint32(s.length())%(vocabulary[1]-vocabulary[0])
	}
	var key [16]byte
	binary.LittleEndian.PutUint64(key[:8], s.seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(s.generated))
	if len(words) > 0 {
		return words[xxh3.Hash(key[:])%uint64(len(words))]
	}
	return vocabulary[0] + uint32(xxh3.Hash(key[:])%uint64(vocabulary[1]-vocabulary[0]))
}

// outbox hands the outputs of one sequence to its reader. It is bounded by the sequence's own length: the engine never waits
// for a slow reader, as a real one does not.
type outbox struct {
	mu     sync.Mutex
	items  []*inference.Output
	next   int
	err    error // set at the end; io.EOF for a clean one
	signal chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newOutbox() *outbox {
	return &outbox{signal: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (o *outbox) put(item *inference.Output) {
	o.mu.Lock()
	o.items = append(o.items, item)
	o.mu.Unlock()
	o.wake()
}

func (o *outbox) end(err error) {
	o.mu.Lock()
	if o.err == nil {
		o.err = err
	}
	o.mu.Unlock()
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// Next implements inference.Stream.
func (o *outbox) Next(ctx context.Context) (*inference.Output, error) {
	for {
		o.mu.Lock()
		if o.next < len(o.items) {
			item := o.items[o.next]
			o.items[o.next] = nil
			o.next++
			o.mu.Unlock()
			return item, nil
		}
		err := o.err
		o.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-o.signal:
		case <-ctx.Done():
			_ = o.Close()
			return nil, ctx.Err()
		case <-o.closed:
			return nil, inference.Errorf(inference.Cancelled, "stream closed")
		}
	}
}

// Buffered implements inference.Stream.
func (o *outbox) Buffered() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next < len(o.items) || o.err != nil
}

// Close implements inference.Stream: the engine drops the sequence at its next step.
func (o *outbox) Close() error {
	o.once.Do(func() { close(o.closed) })
	return nil
}

func (o *outbox) isClosed() bool {
	select {
	case <-o.closed:
		return true
	default:
		return false
	}
}

var _ inference.Stream = (*outbox)(nil)

var errEnd = io.EOF
