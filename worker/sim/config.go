// Package sim is a simulated inference engine: continuous batching with a timing model, a paged KV cache with prefix reuse and
// eviction, real KV events, deterministic text, and scripted outputs for tests. It serves a laptop without a GPU exactly as a
// fleet would behave, and knows nothing of any wire.
package sim

import (
	"fmt"
	"time"
)

// Config describes one simulated engine. The defaults are those of Dynamo's mock worker.
type Config struct {
	// BlockSize is the tokens per KV block.
	BlockSize int
	// Blocks is the KV capacity of each data-parallel rank, in blocks.
	Blocks int
	// MaxSequences bounds the sequences in one step; MaxBatchedTokens the tokens computed in one step.
	MaxSequences     int
	MaxBatchedTokens int
	// MaxModelLength bounds prompt plus output, in tokens; 0 for no bound.
	MaxModelLength int
	PrefixCaching  bool
	ChunkedPrefill bool
	// SpeedupRatio divides all simulated times; 0 means no waiting at all. DecodeSpeedupRatio divides decode times once more.
	SpeedupRatio       float64
	DecodeSpeedupRatio float64
	// Ranks is the number of data-parallel ranks, each with a cache and a batch of its own.
	Ranks int
	// Timing is the time model; the zero value means DefaultTiming.
	Timing Timing
	// Vocabulary is the half-open range of token ids that outputs are drawn from; it should hold plain words.
	Vocabulary [2]uint32
	// Words, when not empty, are the token ids that outputs are drawn from instead.
	Words []uint32
	// Numbered makes each output token tell its position: the one at position p of the sequence, prompt included, is number p modulo
	// the words (or the vocabulary). A stream that moves to another worker shows any token that is lost or doubled.
	Numbered bool
	// DefaultMaxTokens is the output length when the request names none; 0 refuses such requests, as Dynamo's mock worker does.
	DefaultMaxTokens int
	// QueueLimit bounds the requests that wait for a place in the batch, per rank; one more is refused as overloaded.
	QueueLimit int
	// Prefill makes the engine a prefill worker: it answers one token and the parameters for the decode worker.
	Prefill bool
	// Scripts are scripted outputs; nil for none.
	Scripts *Scripts
}

// DefaultConfig returns the mock worker's defaults.
func DefaultConfig() Config {
	return Config{BlockSize: 64, Blocks: 16384, MaxSequences: 256, MaxBatchedTokens: 8192, PrefixCaching: true, ChunkedPrefill: true,
		SpeedupRatio: 1, DecodeSpeedupRatio: 1, Ranks: 1, Timing: DefaultTiming(), Vocabulary: [2]uint32{1000, 2000}, QueueLimit: 10000}
}

// Validate tells what is wrong with the configuration.
func (c Config) Validate() error {
	switch {
	case c.BlockSize < 1:
		return fmt.Errorf("block size %d: at least 1 token is needed", c.BlockSize)
	case c.Blocks < 1:
		return fmt.Errorf("KV capacity %d: at least 1 block is needed", c.Blocks)
	case c.MaxSequences < 1:
		return fmt.Errorf("max sequences %d: at least 1 is needed", c.MaxSequences)
	case c.MaxBatchedTokens < 1:
		return fmt.Errorf("max batched tokens %d: at least 1 is needed", c.MaxBatchedTokens)
	case c.Ranks < 1:
		return fmt.Errorf("data parallel size %d: at least 1 is needed", c.Ranks)
	case c.SpeedupRatio < 0 || c.DecodeSpeedupRatio < 0:
		return fmt.Errorf("speedup ratios %v and %v: they cannot be negative", c.SpeedupRatio, c.DecodeSpeedupRatio)
	case c.Vocabulary[1] <= c.Vocabulary[0]:
		return fmt.Errorf("vocabulary range [%d, %d) is empty", c.Vocabulary[0], c.Vocabulary[1])
	}
	return nil
}

// Timing is the time model: a step takes Step, plus PrefillToken per uncached prompt token, plus DecodeSequence per decoding
// sequence, plus DecodeKVToken per token in those sequences' caches.
type Timing struct {
	Step           time.Duration
	PrefillToken   time.Duration
	DecodeSequence time.Duration
	DecodeKVToken  time.Duration
}

// DefaultTiming is roughly an 8-billion-parameter model on one current accelerator: 20,000 prompt tokens per second, and 7 ms
// per output token for a lone sequence.
func DefaultTiming() Timing {
	return Timing{Step: 6 * time.Millisecond, PrefillToken: 50 * time.Microsecond, DecodeSequence: 60 * time.Microsecond, DecodeKVToken: 40 * time.Nanosecond}
}

// Prefill returns how long an otherwise idle engine takes for the prompt tokens that its cache lacks.
func (t Timing) Prefill(tokens int) time.Duration {
	return t.Step + time.Duration(tokens)*t.PrefillToken
}

// step returns how long one step takes.
func (c *Config) step(prefillTokens, decodeSequences, decodeKVTokens int) time.Duration {
	if c.SpeedupRatio == 0 {
		return 0
	}
	t := c.Timing
	prefill := time.Duration(prefillTokens) * t.PrefillToken
	decode := time.Duration(decodeSequences)*t.DecodeSequence + time.Duration(decodeKVTokens)*t.DecodeKVToken
	base := t.Step
	if c.DecodeSpeedupRatio > 0 {
		decode = time.Duration(float64(decode) / c.DecodeSpeedupRatio)
		if prefillTokens == 0 {
			base = time.Duration(float64(base) / c.DecodeSpeedupRatio)
		}
	} else {
		decode = 0
		if prefillTokens == 0 {
			base = 0
		}
	}
	return time.Duration(float64(base+prefill+decode) / c.SpeedupRatio)
}
