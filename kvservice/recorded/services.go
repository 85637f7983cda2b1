package recorded

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"signalbox/inference"
	"signalbox/internal/rawengine"
	"signalbox/kvservice"
	"signalbox/router/kv"
	"signalbox/router/selection"
	"signalbox/transport/zmq"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// local is an address at which a service tells its replicas what it does.
const local = "127.0.0.1:0"

func replaySlots(path string) (Result, error) {
	session, err := Read(path)
	if err != nil {
		return Result{}, err
	}
	slots, err := kvservice.NewSlots(kvservice.SlotOptions{SyncAddress: local, Logger: quiet})
	if err != nil {
		return Result{}, err
	}
	defer slots.Close()
	return withReplica(slots, &session, func() Result { return replay(slots, &session, nil) })
}

// The recorded engines' ports.
const (
	firstIndexed, secondIndexed = ":44859", ":40361"
	selected                    = ":33277"
)

// replayIndexer has engines that publish what those of the recording did: worker 1 holds three blocks and a fourth in host memory, worker
// 2 holds one; later worker 1 loses the third.
func replayIndexer(path string) (Result, error) {
	var engines [2]*rawengine.Engine
	for i := range engines {
		engine, err := rawengine.New()
		if err != nil {
			return Result{}, err
		}
		defer engine.Close()
		engines[i] = engine
	}
	session, err := Read(path, firstIndexed, fmt.Sprint(":", engines[0].Port()), secondIndexed, fmt.Sprint(":", engines[1].Port()))
	if err != nil {
		return Result{}, err
	}
	indexer := kvservice.NewIndexer(kvservice.IndexerOptions{Logger: quiet})
	defer indexer.Close()
	held := func(worker string) uint64 {
		var found struct {
			Instances map[string]struct {
				Longest uint64 `json:"longest_matched"`
			}
		}
		question(indexer, "/query", `{"model_name":"m","token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`, &found)
		return found.Instances[worker].Longest
	}
	queries, published := 0, false
	return replay(indexer, &session, func(_ int, e *Exchange) error {
		switch {
		case e.Path == "/workers" && !published && registered(&session, e) > 1:
			published = true
			if err := Await("the engines are listened to", func() bool { return engines[0].Subscribers() == 1 && engines[1].Subscribers() == 1 }); err != nil {
				return err
			}
			parent := uint64(13)
			engines[0].Send(rawengine.Stored("GPU", nil, 1, 11, 12, 13), rawengine.Stored("CPU_PINNED", &parent, 13, 14))
			engines[1].Send(rawengine.Stored("GPU", nil, 1, 11))
			return Await("what the engines hold is known", func() bool { return held("1") == 16 && held("2") == 4 })
		case e.Path == "/query" && e.Method == http.MethodPost && e.Status == http.StatusOK:
			if queries++; queries == 5 {
				engines[0].Send(rawengine.Removed(13))
				return Await("the removal is known", func() bool { return held("1") == 8 })
			}
		}
		return nil
	}), nil
}

// registered counts the registrations that succeeded before an exchange.
func registered(session *Session, until *Exchange) (count int) {
	for i := range session.Exchanges {
		e := &session.Exchanges[i]
		if e == until {
			break
		}
		if e.Path == "/register" && e.Status == http.StatusCreated {
			count++
		}
	}
	return count
}

// question asks a service something beside the session. What cannot be read leaves the answer as it is.
func question(service http.Handler, path, body string, into any) {
	w := httptest.NewRecorder()
	service.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	_ = json.Unmarshal(w.Body.Bytes(), into) // see above
}

// replaySelect has one engine that publishes for both workers that they hold two blocks.
func replaySelect(path string) (Result, error) {
	engine, err := rawengine.New()
	if err != nil {
		return Result{}, err
	}
	defer engine.Close()
	session, err := Read(path, selected, fmt.Sprint(":", engine.Port()))
	if err != nil {
		return Result{}, err
	}
	ties := &tieBreaker{}
	service, err := kvservice.NewSelector(kvservice.SelectOptions{Config: kv.DefaultConfig(), SyncAddress: local, Logger: quiet,
		NewPolicy: func() (selection.Policy, string, error) { return ties, selection.DefaultName, nil }})
	if err != nil {
		return Result{}, err
	}
	defer service.Close()
	stored := false
	return withReplica(service, &session, func() Result {
		return replay(service, &session, func(_ int, e *Exchange) error {
			ties.follow(e)
			if stored || e.Path != "/overlap_scores" {
				return nil
			}
			stored = true
			if err := Await("the engine is listened to", func() bool { return engine.Subscribers() == 2 }); err != nil {
				return err
			}
			engine.Send(rawengine.Stored("GPU", nil, 1, 11, 12))
			return Await("what the engine holds is known", func() bool {
				var found struct {
					Workers []struct {
						Device int `json:"device_blocks"`
					}
				}
				question(service, e.Path, string(e.Request), &found)
				return len(found.Workers) == 2 && found.Workers[0].Device == 2 && found.Workers[1].Device == 2
			})
		})
	})
}

// tieBreaker is the built-in policy with the recording's luck: of ranks that cost the same it takes the recorded one. A dearer one it
// does not take.
type tieBreaker struct {
	selection.Default

	mutex  sync.Mutex
	wanted *inference.Rank
}

// follow notes which rank an exchange chose.
func (t *tieBreaker) follow(e *Exchange) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.wanted = nil
	var chosen struct {
		WorkerID *uint64 `json:"worker_id"`
		Rank     uint32  `json:"dp_rank"`
	}
	if json.Unmarshal(e.Response, &chosen) == nil && chosen.WorkerID != nil {
		t.wanted = &inference.Rank{WorkerID: *chosen.WorkerID, DPRank: chosen.Rank}
	}
}

// Select implements selection.Policy.
func (t *tieBreaker) Select(table *selection.Table) (int, error) {
	row, err := t.Default.Select(table)
	if err != nil {
		return row, err
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for i := range table.Rows {
		if t.wanted != nil && table.Rows[i].Rank == *t.wanted && table.Costs[i] == slices.Min(table.Costs) {
			return i, nil
		}
	}
	return row, nil
}

// told is a service that tells replicas what it does.
type told interface {
	SyncPort() int
	SyncListeners() int
}

// withReplica listens to what the service tells its replicas while a session runs, and compares that with the recorded messages.
func withReplica(service told, session *Session, run func() Result) (Result, error) {
	ctx, leave := context.WithCancel(context.Background())
	var mutex sync.Mutex
	var heard [][2][]byte
	ended := make(chan error, 1)
	go func() { // ends with ctx
		ended <- zmq.Subscribe(ctx, fmt.Sprintf("tcp://127.0.0.1:%d", service.SyncPort()), "", zmq.Events{Message: func(parts [][]byte) {
			if len(parts) == 2 {
				mutex.Lock()
				heard = append(heard, [2][]byte{slices.Clone(parts[0]), slices.Clone(parts[1])})
				mutex.Unlock()
			}
		}})
	}()
	defer func() { leave(); <-ended }()
	if err := Await("the replica listens", func() bool { return service.SyncListeners() == 1 }); err != nil {
		return Result{}, err
	}
	result := run()
	err := Await("all messages came", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return len(heard) >= len(session.Messages)
	})
	mutex.Lock()
	defer mutex.Unlock()
	if err != nil || len(heard) != len(session.Messages) {
		result.fail("%d messages to replicas, recorded %d", len(heard), len(session.Messages))
		return result, nil
	}
	for i := range session.Messages {
		if err := session.Messages[i].compare(heard[i][0], heard[i][1]); err != nil {
			result.fail("message %d: %v", i, err)
		} else {
			result.Passed++
		}
	}
	return result, nil
}

// compare compares a message with the recorded one. Router ids and made-up request ids are each one's own. A booking without prompt work
// may say so in two ways.
func (m *Message) compare(topic, payload []byte) error {
	if len(m.Frames) != 2 || m.Frames[0] != hex.EncodeToString(topic) {
		return fmt.Errorf("topic %q, recorded frames %q", topic, m.Frames)
	}
	var want, got any
	if err := decode(m.Decoded, &want); err != nil {
		return err
	}
	var text strings.Builder
	if _, err := msgp.UnmarshalAsJSON(&text, payload); err != nil {
		return err
	}
	if err := decode([]byte(text.String()), &got); err != nil {
		return err
	}
	if canonical(want); !reflect.DeepEqual(want, canonical(got)) {
		return fmt.Errorf("told %s\nrecorded %s", text.String(), m.Decoded)
	}
	return nil
}

// canonical takes out of a message what is each service's own.
func canonical(message any) any {
	at := func(value any, name string) map[string]any {
		members, _ := value.(map[string]any)
		inner, _ := members[name].(map[string]any)
		return inner
	}
	event := at(message, "event")
	if event == nil {
		return message
	}
	event["router_id"] = "one's own"
	if id, _ := event["request_id"].(string); madeUp.MatchString(id) {
		event["request_id"] = "made up"
	}
	if booked := at(event["data"], "AddRequest"); booked != nil && booked["prefill_load_hint"] == nil {
		delete(booked, "track_prefill_tokens")
	}
	return message
}

// patience is how long a condition may take to come true.
const patience = 10 * time.Second

// Await waits until a condition is true.
func Await(what string, condition func() bool) error {
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("it did not come true in time: " + what)
		}
	}
	return nil
}
