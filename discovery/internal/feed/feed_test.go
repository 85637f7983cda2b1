package feed

import (
	"fmt"
	"maps"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"signalbox/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func model(id uint64, version int) (key string, value []byte) {
	record := &discovery.Model{
		Namespace: fmt.Sprintf("ns%d", id%2), Component: "c", Endpoint: "e", InstanceID: id, Card: fmt.Appendf(nil, `{"v":%d}`, version),
	}
	value, err := discovery.Marshal(record)
	if err != nil {
		panic(err)
	}
	return record.Key(), value
}

// follower rebuilds the content from events, as every user of discovery does, and objects to events that are no news.
type follower struct {
	prefix string
	events <-chan discovery.Event
	seen   map[string]string
	synced bool
}

func (f *follower) take(t *rapid.T, event discovery.Event) {
	if event.Kind != discovery.Synced && !discovery.UnderPrefix(event.Key, f.prefix) {
		t.Fatalf("%v %s is not under %q", event.Kind, event.Key, f.prefix)
	}
	last, known := f.seen[event.Key]
	switch event.Kind {
	case discovery.Synced:
		if f.synced {
			t.Fatal("synced twice")
		}
		f.synced = true
	case discovery.Put:
		if known && last == string(event.Value) {
			t.Fatalf("put of %s changes nothing", event.Key)
		}
		f.seen[event.Key] = string(event.Value)
	case discovery.Delete:
		if !known || last != string(event.Value) {
			t.Fatalf("delete of %s = %s, but %q was known", event.Key, event.Value, last)
		}
		delete(f.seen, event.Key)
	}
}

// Whatever happens, and however late a receiver reads, it ends up with the feed's content: the twin is a plain map.
func TestFollowersEndUpWithTheContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		feed := New(discovery.Models, func(bad discovery.BadRecord) { t.Fatal(bad) })
		defer feed.Close()
		twin := make(map[string]string)
		var followers []*follower
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				key, value := model(rapid.Uint64Range(1, 6).Draw(t, "id"), rapid.IntRange(0, 2).Draw(t, "version"))
				twin[key] = string(value)
				feed.Put(key, value)
			},
			"delete": func(t *rapid.T) {
				key, _ := model(rapid.Uint64Range(1, 6).Draw(t, "id"), 0)
				delete(twin, key)
				feed.Delete(key)
			},
			"replace": func(t *rapid.T) {
				content := make(map[string][]byte)
				clear(twin)
				for _, id := range rapid.SliceOfDistinct(rapid.Uint64Range(1, 6), rapid.ID).Draw(t, "ids") {
					key, value := model(id, rapid.IntRange(0, 2).Draw(t, "version"))
					content[key], twin[key] = value, string(value)
				}
				feed.Replace(content)
			},
			"watch": func(t *rapid.T) {
				if len(followers) == 4 {
					t.Skip("enough")
				}
				prefix := rapid.SampledFrom([]string{"", "ns0", "ns1"}).Draw(t, "prefix")
				followers = append(followers, &follower{prefix: prefix, events: feed.Watch(t.Context(), prefix), seen: make(map[string]string)})
			},
			"read": func(t *rapid.T) {
				for _, f := range followers {
					select {
					case event := <-f.events:
						f.take(t, event)
					default:
					}
				}
			},
		})
		// Events of a watcher come in the order in which keys changed, so behind these marks nothing older can follow.
		feed.Replace(bytesOf(twin))
		for _, id := range []uint64{98, 99} {
			key, value := model(id, 0)
			twin[key] = string(value)
			feed.Put(key, value)
		}
		for _, f := range followers {
			mark := "ns1/c/e/63"
			if f.prefix == "ns0" {
				mark = "ns0/c/e/62"
			}
			for _, marked := f.seen[mark]; !marked; _, marked = f.seen[mark] {
				f.take(t, <-f.events)
			}
			want := make(map[string]string)
			for key, value := range twin {
				if discovery.UnderPrefix(key, f.prefix) {
					want[key] = value
				}
			}
			if !maps.Equal(f.seen, want) || !f.synced {
				t.Fatalf("follower of %q knows %v (synced %v), want %v", f.prefix, f.seen, f.synced, want)
			}
		}
	})
}

func bytesOf(content map[string]string) map[string][]byte {
	converted := make(map[string][]byte, len(content))
	for key, value := range content {
		converted[key] = []byte(value)
	}
	return converted
}

func TestCloseEndsWatchersThatAreNotRead(t *testing.T) {
	feed := New(discovery.Models, nil)
	events := feed.Watch(t.Context(), "")
	for id := range uint64(100) {
		key, value := model(id, 0)
		feed.Put(key, value)
	}
	feed.Close() // must not wait for the receiver
	for range events {
	}
	if _, open := <-feed.Watch(t.Context(), ""); open {
		t.Error("a closed feed sends")
	}
}

// BenchmarkReplaceUnchanged is the cost of reading a store again in which nothing has changed, per 1000 records.
func BenchmarkReplaceUnchanged(b *testing.B) {
	feed := New(discovery.Models, nil)
	defer feed.Close()
	content := make(map[string][]byte)
	for id := range uint64(1000) {
		key, value := model(id, 0)
		content[key] = value
	}
	feed.Replace(content)
	b.ReportAllocs()
	for b.Loop() {
		feed.Replace(content)
	}
}
