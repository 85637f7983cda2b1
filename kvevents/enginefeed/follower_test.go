package enginefeed

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"signalbox/internal/rawengine"
	"signalbox/kvevents/engine"
	"signalbox/kvhash"
	"signalbox/kvindex"
)

// toldEngine is an engine with a follower: the batches that it has published, and those that it can tell again.
type toldEngine struct {
	*Follower
	batches [][]byte
	oldest  uint64 // what it can tell again begins here
	empty   int    // how many empty parts it puts in front
	asked   []uint64
	broken  error
}

func newToldEngine(t *testing.T, replay string) *toldEngine {
	t.Helper()
	e := &toldEngine{empty: 1}
	index, err := kvindex.New(kvindex.Options{Replay: true})
	if err != nil {
		t.Fatal(err)
	}
	normalizer, err := engine.New(engine.Options{WorkerID: 1, BlockSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	e.Follower = &Follower{source: Source{Rank: kvindex.Rank{WorkerID: 1}, ReplayEndpoint: replay}, index: index, normalizer: normalizer, logger: slog.New(slog.DiscardHandler),
		ask: func(_ context.Context, endpoint string, request [][]byte, more func([][]byte) bool) error {
			if endpoint != replay || len(request) != 2 || len(request[0]) != 0 {
				t.Errorf("%s is asked %q", endpoint, request)
			}
			from := binary.BigEndian.Uint64(request[1])
			e.asked = append(e.asked, from)
			for sequence := max(from, e.oldest); sequence < uint64(len(e.batches)); sequence++ {
				message := append(make([][]byte, e.empty), binary.BigEndian.AppendUint64(nil, sequence), e.batches[sequence])
				if e.broken != nil || !more(message) {
					return e.broken
				}
			}
			more(append(make([][]byte, e.empty), binary.BigEndian.AppendUint64(nil, replayEnd), nil))
			return e.broken
		}}
	for i := range uint64(6) { // a chain of blocks 1, 2, …
		parent := &i
		if i == 0 {
			parent = nil
		}
		e.batches = append(e.batches, rawengine.Batch(rawengine.Stored("GPU", parent, uint32(4*i+1), i+1)))
	}
	return e
}

// publish has the follower hear the batches with these numbers.
func (e *toldEngine) publish(sequences ...uint64) {
	for _, sequence := range sequences {
		e.take(context.Background(), sequence, e.batches[sequence])
	}
}

// held returns how many blocks of the chain are known, from the root on.
func (e *toldEngine) held(t *testing.T) uint32 {
	t.Helper()
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([]uint32, 24)
	for i := range tokens {
		tokens[i] = uint32(i + 1)
	}
	var matches kvindex.Matches
	e.index.Find(&matches, kvindex.Query{Locals: hasher.AppendBlocks(nil, tokens)})
	if len(matches.Ranks) == 0 {
		return 0
	}
	return matches.Ranks[0].Blocks[kvindex.Device]
}

func (e *toldEngine) expect(t *testing.T, what string, held uint32, asked ...uint64) {
	t.Helper()
	if got := e.held(t); got != held {
		t.Errorf("%s: %d blocks are known, want %d", what, got, held)
	}
	if len(e.asked) != len(asked) {
		t.Errorf("%s: asked from %d, want %d", what, e.asked, asked)
		return
	}
	for i := range asked {
		if e.asked[i] != asked[i] {
			t.Errorf("%s: asked from %d, want %d", what, e.asked, asked)
		}
	}
}

func TestLostEventsAreToldAgain(t *testing.T) {
	for _, empty := range []int{1, 2} {
		e := newToldEngine(t, "tcp://replay:1")
		e.empty = empty
		e.batches = e.batches[:4]
		e.publish(0, 1)
		e.expect(t, "nothing is lost", 2)
		e.publish(3)
		e.expect(t, "batch 2 is lost", 4, 2)
	}

	e := newToldEngine(t, "tcp://replay:1")
	e.publish(3)
	e.expect(t, "the follower came late, and the engine tells more than it has published", 6, 0)
	e.publish(4, 5)
	e.expect(t, "what was told is published", 6, 0)
}

func TestEventsThatStayLost(t *testing.T) {
	e := newToldEngine(t, "")
	e.publish(0, 1, 3)
	e.expect(t, "nobody to ask", 0)
	e.publish(0, 1)
	e.expect(t, "the engine begins anew", 2)

	e = newToldEngine(t, "")
	e.publish(0)
	e.publish(0)
	e.expect(t, "the engine begins anew at once", 1)

	e = newToldEngine(t, "tcp://replay:1")
	e.publish(0)
	e.oldest = 2
	e.publish(3)
	e.expect(t, "the engine has batch 1 no more", 0, 1)

	e = newToldEngine(t, "tcp://replay:1")
	e.oldest = 6
	e.publish(0, 2)
	e.expect(t, "the engine has nothing", 0, 1)

	e = newToldEngine(t, "tcp://replay:1")
	e.broken = errors.New("no answer")
	e.publish(0, 2)
	e.expect(t, "the engine does not answer", 0, 1)

	e = newToldEngine(t, "tcp://replay:1")
	e.oldest = 2
	e.publish(2)
	e.expect(t, "the follower came too late for what the engine has", 0, 0)

	e = newToldEngine(t, "tcp://replay:1")
	e.publish(0, 1, 2)
	e.batches = e.batches[:2]
	e.publish(1)
	e.expect(t, "the engine began anew and its first batch is lost", 2, 0)

	e = newToldEngine(t, "")
	e.publish(0, 1)
	e.take(context.Background(), 2, []byte{0xc1})
	e.expect(t, "a batch cannot be read", 0)
}

func TestWhatWasToldBeforeTheConnection(t *testing.T) {
	e := newToldEngine(t, "tcp://replay:1")
	e.Follower.ready = make(chan struct{})
	e.source.CatchUp = true
	e.connected(t.Context())
	e.expect(t, "all was told before", 6, 0)
	select {
	case <-e.Ready():
	default:
		t.Error("the follower is not ready")
	}
	e.publish(4, 5)
	e.expect(t, "what was told is published", 6, 0)
	e.connected(t.Context())
	e.expect(t, "the connection broke, and nothing was missed", 6, 0, 6)

	e = newToldEngine(t, "tcp://replay:1")
	e.Follower.ready = make(chan struct{})
	e.source.CatchUp = true
	e.connected(t.Context())
	e.batches = e.batches[:2]
	e.connected(t.Context())
	e.expect(t, "another engine, of which nothing was published meanwhile", 2, 0, 0)
	e.publish(1)
	e.expect(t, "and which goes on", 2, 0, 0)
}

func TestWhatIsWrongIsSaidOnce(t *testing.T) {
	e := newToldEngine(t, "")
	var said strings.Builder
	e.logger = slog.New(slog.NewTextHandler(&said, nil))
	normalizer, err := engine.New(engine.Options{WorkerID: 1, BlockSize: 8}) // the engine has blocks of 4
	if err != nil {
		t.Fatal(err)
	}
	e.normalizer = normalizer
	e.publish(0, 1)
	e.expect(t, "blocks of another size", 0)
	for range 3 {
		e.lostConnection(errors.New("refused"))
	}
	e.setActive(true)
	e.lostConnection(errors.New("reset"))
	for text, want := range map[string]int{"another size": 1, "refused": 1, "reset": 1} {
		if got := strings.Count(said.String(), text); got != want {
			t.Errorf("%q is said %d times:\n%s", text, got, said.String())
		}
	}
}
