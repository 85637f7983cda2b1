package kvservice

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"signalbox/internal/golden"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// What the real services tell their replicas is understood, and told again it is the same to the byte.
func TestReplicaMessages(t *testing.T) {
	for _, name := range []string{"slot-tracker-http-1.6.1.json", "select-service-http-1.6.1.json"} {
		text, err := os.ReadFile(filepath.Join(golden.Dir(t, "kv_services"), name))
		if err != nil {
			t.Fatal(err)
		}
		var session struct {
			Messages []struct {
				Frames []string `json:"frames_hex"`
			} `json:"replica_sync_messages"`
		}
		if err := json.Unmarshal(text, &session); err != nil || len(session.Messages) < 3 {
			t.Fatalf("%s: %d messages, %v", name, len(session.Messages), err)
		}
		for i, message := range session.Messages {
			topic, _ := hex.DecodeString(message.Frames[0])
			payload, err := hex.DecodeString(message.Frames[1])
			if err != nil || string(topic) != replicaTopic {
				t.Fatalf("%s, message %d: topic %q, %v", name, i, topic, err)
			}
			where, blockSize, event, from, err := parseReplicaMessage(payload)
			if err != nil || where != (pool{"m", "default"}) || blockSize != 4 || event.RequestID == "" || event.Rank.WorkerID == 0 {
				t.Errorf("%s, message %d: %+v in %+v, %v", name, i, event, where, err)
			}
			if bytes.Contains(payload, []byte("prefill_load_hint\xc0")) {
				continue // a request without prompt work; told again it says so in another way
			}
			if again := appendReplicaMessage(nil, from, where, 4, &event); !bytes.Equal(again, payload) {
				t.Errorf("%s, message %d told again:\n%x\nrecorded\n%x", name, i, again, payload)
			}
		}
	}
}
