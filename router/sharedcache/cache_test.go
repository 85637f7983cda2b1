package sharedcache

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"signalbox/router/cost"
	"signalbox/transport/zmq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 20 s: %s", what)
		}
	}
}

// event is one of a master's.
type event struct{ kind, key, tenant, group string }

func appendEvent(b []byte, e event) []byte {
	b = msgp.AppendMapHeader(b, 4)
	b = msgp.AppendString(msgp.AppendString(b, "event_type"), e.kind)
	b = msgp.AppendString(b, "object_key")
	if e.key == "" {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendString(b, e.key)
	}
	b = msgp.AppendString(msgp.AppendString(b, "tenant_id"), e.tenant)
	b = msgp.AppendString(b, "group_id")
	if e.group == "" {
		return msgp.AppendNil(b)
	}
	return msgp.AppendString(b, e.group)
}

// message makes the frames of a batch.
func message(sequence uint64, events ...event) [][]byte {
	payload := msgp.AppendInt64(msgp.AppendArrayHeader(nil, 3), 1700000000000)
	payload = msgp.AppendArrayHeader(payload, uint32(len(events)))
	for _, e := range events {
		payload = appendEvent(payload, e)
	}
	return [][]byte{nil, binary.BigEndian.AppendUint64(nil, sequence), msgp.AppendUint32(payload, 0)}
}

// fakeMaster publishes as Mooncake's master does. It is a fake: no real one was at hand.
type fakeMaster struct {
	*zmq.Publisher
	sequence uint64
}

func newFakeMaster(t *testing.T) *fakeMaster {
	t.Helper()
	publisher, err := zmq.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = publisher.Close() })
	return &fakeMaster{Publisher: publisher}
}

func (m *fakeMaster) endpoint() string { return fmt.Sprintf("tcp://127.0.0.1:%d", m.Port()) }

func (m *fakeMaster) say(events ...event) {
	m.Publish(message(m.sequence, events...)...)
	m.sequence++
}

// stored are events of all objects of the pages from first on, up to last.
func objects(kind string, layout Layout, tokens []uint32, first, last int) (list []event) {
	for _, page := range AppendPages(nil, tokens, int(layout.PageSize), layout.Eagle)[first:last] {
		for _, key := range layout.AppendKeys(nil, page) {
			list = append(list, event{kind: kind, key: key, tenant: "default", group: "g"})
		}
	}
	return list
}

func data(layout Layout, endpoint string) json.RawMessage {
	text, err := json.Marshal(struct {
		Layout
		Endpoint string `json:"kv_events_endpoint"`
	}{layout, endpoint})
	if err != nil {
		panic(err)
	}
	return text
}

// cacheFixture is a cache with what it says and counts.
type cacheFixture struct {
	*Cache
	failures atomic.Int64
	log      lockedLog
}

type lockedLog struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

func newCache(t *testing.T, change func(*Options)) *cacheFixture {
	f := &cacheFixture{}
	options := Options{BlockSize: 4, Failed: func() { f.failures.Add(1) }, Logger: slog.New(slog.NewTextHandler(&f.log, nil))}
	if change != nil {
		change(&options)
	}
	f.Cache = New(options)
	t.Cleanup(f.Close)
	return f
}

var (
	testLayout = Layout{Backend: Backend, PageSize: 4, TensorParallel: 2, PipelineParallel: 1}
	testTokens = []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}
)

func runs(pairs ...uint32) (list []cost.Range) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, cost.Range{Start: pairs[i], End: pairs[i+1]})
	}
	return list
}

func (f *cacheFixture) expect(t *testing.T, what string, want []cost.Range) {
	t.Helper()
	eventually(t, what, func() bool { return slices.Equal(f.AppendRuns(nil, testTokens), want) })
}

func TestFollowingAMaster(t *testing.T) {
	master := newFakeMaster(t)
	cache := newCache(t, nil)
	cache.expect(t, "nothing is known", nil)
	cache.SetWorkers([]Worker{{ID: 1, Data: data(testLayout, master.endpoint())}, {ID: 2}, {ID: 3, Data: data(testLayout, "")}})
	eventually(t, "the master is heard", func() bool { return master.Subscribers() == 1 })
	master.say(objects("stored", testLayout, testTokens, 0, 2)...)
	cache.expect(t, "two pages are there", runs(0, 2))
	master.say(objects("stored", testLayout, testTokens, 3, 4)...)
	cache.expect(t, "and one behind a gap", runs(0, 2, 3, 4))

	others := objects("stored", testLayout, testTokens, 2, 3)
	for i := range others {
		others[i].tenant = "other"
	}
	last := objects("removed", testLayout, testTokens, 1, 2)[3]
	master.say(append(others, event{kind: "moved", key: others[0].key}, event{kind: "stored"}, event{kind: "stored", key: "somebody's"}, last)...)
	cache.expect(t, "a page without one of its parts is none, and other tenants are nobody", runs(0, 1, 3, 4))
	last.kind, last.tenant = "stored", ""
	master.say(last)
	cache.expect(t, "the part is back; no tenant is the default one", runs(0, 2, 3, 4))

	master.sequence--
	master.say(objects("removed", testLayout, testTokens, 0, 4)...)
	master.say(objects("removed", testLayout, testTokens, 3, 4)...)
	cache.expect(t, "a batch that comes twice counts once", runs(0, 2))

	master.sequence += 3
	master.say(objects("stored", testLayout, testTokens, 2, 3)...)
	cache.expect(t, "after a gap only what comes is known", runs(2, 3))
	if cache.failures.Load() != 0 || strings.Contains(cache.log.String(), "cannot be read") {
		t.Errorf("%d failures: %s", cache.failures.Load(), &cache.log)
	}
	master.Publish([]byte{}, []byte("short"), []byte{0x90})
	eventually(t, "a message that cannot be read is counted", func() bool { return cache.failures.Load() == 1 })
	cache.expect(t, "and changes nothing", runs(2, 3))
}

func TestMastersThatGo(t *testing.T) {
	master := newFakeMaster(t)
	cache := newCache(t, nil)
	cache.SetWorkers([]Worker{{ID: 1, Data: data(testLayout, master.endpoint())}})
	eventually(t, "the master is heard", func() bool { return master.Subscribers() == 1 })
	master.say(objects("stored", testLayout, testTokens, 0, 2)...)
	cache.expect(t, "two pages are there", runs(0, 2))
	_ = master.Close()
	cache.expect(t, "without its master nothing is known", nil)
	eventually(t, "that counts as a failure", func() bool { return cache.failures.Load() > 0 })

	next := newFakeMaster(t)
	cache.SetWorkers([]Worker{{ID: 1, Data: data(testLayout, next.endpoint())}})
	eventually(t, "the next master is heard", func() bool { return next.Subscribers() == 1 })
	next.sequence = 77
	next.say(objects("stored", testLayout, testTokens, 1, 2)...)
	cache.expect(t, "the next one begins where it is", runs(1, 2))

	changed := testLayout
	changed.TensorParallel = 1
	cache.SetWorkers([]Worker{{ID: 1, Data: data(changed, next.endpoint())}})
	cache.expect(t, "with another layout nothing is known", nil)
	cache.SetWorkers(nil)
	eventually(t, "without workers nobody listens", func() bool { return next.Subscribers() == 0 })
}

// One message too many, and the index starts over.
func TestIndexesDoNotGrowWithoutBound(t *testing.T) {
	f := &follower{index: &index{}, layout: testLayout, limit: 9, logger: slog.New(slog.DiscardHandler)}
	f.index.reset(int(testLayout.Parts()))
	for sequence, page := range []int{0, 1} {
		f.message(message(uint64(sequence), objects("stored", testLayout, testTokens, page, page+1)...))
	}
	if f.index.objects != 8 {
		t.Fatalf("%d objects, want 8", f.index.objects)
	}
	f.message(message(2, objects("stored", testLayout, testTokens, 2, 3)...))
	if f.index.objects != 0 {
		t.Fatalf("%d objects beyond the limit of 9", f.index.objects)
	}
	f.message(message(9, objects("stored", testLayout, testTokens, 2, 3)...))
	if f.index.objects != 4 {
		t.Errorf("%d objects after starting over, want 4", f.index.objects)
	}
}

func TestWorkersThatDoNotAgree(t *testing.T) {
	master := newFakeMaster(t)
	other := testLayout
	other.MLA = true
	wrong := testLayout
	wrong.PageSize = 8
	file := testLayout
	file.Backend = "file"
	for _, c := range []struct {
		name    string
		workers []Worker
		says    string
	}{
		{"layouts", []Worker{{ID: 1, Data: data(testLayout, master.endpoint())}, {ID: 2, Data: data(other, master.endpoint())}}, "in different ways"},
		{"masters", []Worker{{ID: 1, Data: data(testLayout, master.endpoint())}, {ID: 2, Data: data(testLayout, "tcp://127.0.0.1:1")}}, "different places"},
		{"page size", []Worker{{ID: 1, Data: data(wrong, master.endpoint())}}, "a page has 8 tokens, a block of the router 4"},
		{"backend", []Worker{{ID: 1, Data: data(file, master.endpoint())}}, "only \\\"mooncake\\\" is followed"},
		{"no master", []Worker{{ID: 1, Data: data(testLayout, "")}}, "no worker says where"},
		{"not read", []Worker{{ID: 1, Data: json.RawMessage(`{"backend":"mooncake"}`)}}, "page_size is missing"},
	} {
		cache := newCache(t, nil)
		cache.SetWorkers(c.workers)
		cache.SetWorkers(c.workers)
		if !strings.Contains(cache.log.String(), c.says) || cache.stop != nil {
			t.Errorf("%s: follows %v, says %s", c.name, cache.stop != nil, &cache.log)
		}
	}
	cache := newCache(t, func(o *Options) { o.Endpoint = master.endpoint() })
	cache.SetWorkers([]Worker{{ID: 1, Data: data(testLayout, "tcp://127.0.0.1:1")}, {ID: 2, Data: data(testLayout, "tcp://127.0.0.1:2")}})
	eventually(t, "what the operator says is stronger than what workers say", func() bool { return master.Subscribers() == 1 })
	bad := newCache(t, func(o *Options) { o.Endpoint = "ipc:///x" })
	bad.SetWorkers([]Worker{{ID: 1, Data: data(testLayout, "")}})
	eventually(t, "an endpoint that cannot be is a failure", func() bool { return bad.failures.Load() == 1 })
	bad.Close()
	bad.SetWorkers([]Worker{{ID: 1, Data: data(testLayout, "")}})
	if bad.stop != nil {
		t.Error("a closed cache follows again")
	}
}

func TestMessagesThatAreNotRight(t *testing.T) {
	right := message(3, event{kind: "stored", key: "k", tenant: "default"}, event{kind: "removed", key: "l"})
	sequence, changes, err := parseBatch(nil, right)
	if err != nil || sequence != 3 || len(changes) != 2 || string(changes[0].key) != "k" || changes[0].removed || !changes[1].removed {
		t.Fatalf("%d, %v, %v", sequence, changes, err)
	}
	inOrder := msgp.AppendInt64(msgp.AppendArrayHeader(nil, 3), 1)
	inOrder = msgp.AppendArrayHeader(msgp.AppendArrayHeader(inOrder, 1), 4)
	inOrder = msgp.AppendString(msgp.AppendString(msgp.AppendString(inOrder, "removed"), "k"), "default")
	inOrder = msgp.AppendUint32(msgp.AppendNil(inOrder), 0)
	if _, changes, err := parseBatch(nil, [][]byte{nil, right[1], inOrder}); err != nil || len(changes) != 1 || !changes[0].removed {
		t.Errorf("members in order: %v, %v", changes, err)
	}
	payload := right[2]
	for cut := range payload {
		if _, _, err := parseBatch(nil, [][]byte{nil, right[1], payload[:cut]}); err == nil {
			t.Errorf("%d bytes of %d are accepted", cut, len(payload))
		}
	}
	for name, parts := range map[string][][]byte{
		"two frames": right[:2], "sequence": {nil, right[1][:7], payload}, "more": {nil, right[1], append(slices.Clone(payload), 0)},
		"two members": {nil, right[1], {0x92, 1, 0x90}}, "no kind": {nil, right[1], {0x93, 1, 0x91, 0x80, 0}}, "kind": {nil, right[1], {0x93, 1, 0x91, 0x81, 0xaa, 'e', 'v', 'e', 'n', 't', '_', 't', 'y', 'p', 'e', 1, 0}},
	} {
		if _, _, err := parseBatch(nil, parts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzBatches(f *testing.F) {
	right := message(3, event{kind: "stored", key: "k"}, event{kind: "removed", key: "l", group: "g"})
	f.Add(right[1], right[2])
	f.Fuzz(func(t *testing.T, sequence, payload []byte) {
		follower := &follower{index: &index{}, layout: testLayout, limit: 100, logger: slog.New(slog.DiscardHandler)}
		follower.index.reset(int(testLayout.Parts()))
		follower.message([][]byte{nil, sequence, payload})
		if follower.index.objects > 100 {
			t.Fatalf("%d objects", follower.index.objects)
		}
	})
}
