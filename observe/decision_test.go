package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/router"
)

func someDecision() router.Decision {
	return router.Decision{Mode: "kv", Policy: "default", Reason: `lowest cost, one of 2 "equals"`, InputTokens: 40, RequestBlocks: 10, Temperature: 0.5,
		Candidates: []router.Candidate{
			{WorkerID: 18446744073709551615, Rank: 1, DeviceBlocks: 6, CachedTokens: 24, PrefillCost: 4, Credit: 6, DecodeCost: 10, TaintMultiplier: 1, Cost: 14, Probability: 0.75},
			{WorkerID: 7, PrefillCost: 10, DecodeCost: 10, TaintMultiplier: 1, Cost: 20, Probability: 0.25},
		}, Excluded: []router.Exclusion{{WorkerID: 9, Reason: "overloaded"}}}
}

// What the frontend logs can be read back, in both formats, from between other lines.
func TestLoggedDecisionsAreReadBack(t *testing.T) {
	want := someDecision()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		logger := slog.New(handler)
		logger.Info("request", "model", "a decision= of \"mine\"")
		logger.Info("decision", "request_id", "r 1", "model", "m", "decision", string(text))
	}
	fmt.Fprintf(&log, "panic: something else\n{\"a\":1}\n%s\n", text)
	var got []DecisionRecord
	if err := ReadDecisions(&log, func(record DecisionRecord) bool { got = append(got, record); return true }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Fatalf("%d decisions were read", len(got))
	}
	for i, record := range got {
		if diff := cmp.Diff(want, record.Decision); diff != "" {
			t.Errorf("decision %d (-want +got):\n%s", i, diff)
		}
		if i < 2 && (record.RequestID != "r 1" || record.Model != "m" || time.Since(record.Time) > time.Hour) {
			t.Errorf("record %d: %+v", i, record)
		}
	}
	if err := ReadDecisions(strings.NewReader("x\nlevel=DEBUG msg=decision request_id=1 decision={broken\n"), func(DecisionRecord) bool { return true }); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a broken line: %v", err)
	}
}

func TestTheNewestDecisionsAreKept(t *testing.T) {
	kept := NewDecisions(3)
	for i := range 5 {
		kept.Add(DecisionRecord{RequestID: fmt.Sprint(i / 2)})
	}
	var ids []string
	for _, record := range kept.Of("") {
		ids = append(ids, record.RequestID)
	}
	if diff := cmp.Diff([]string{"1", "1", "2"}, ids); diff != "" {
		t.Error(diff)
	}
	if len(kept.Of("1")) != 2 || len(kept.Of("0")) != 0 {
		t.Errorf("of request 1: %d, of request 0: %d", len(kept.Of("1")), len(kept.Of("0")))
	}
}

func TestADecisionIsExplained(t *testing.T) {
	for name, c := range map[string]struct {
		decision router.Decision
		parts    []string
	}{
		"kv": {someDecision(), []string{"worker 18446744073709551615 rank 1 — lowest cost", "prompt of 40 tokens in 10 blocks", "temperature 0.5", "0.750", "not considered: worker 9, overloaded"}},
		"load": {router.Decision{Mode: "least-loaded", Reason: "least loaded", Candidates: []router.Candidate{{WorkerID: 5, Load: 3}}},
			[]string{"worker 5 rank 0 — least loaded", "requests in flight"}},
		"nobody": {router.Decision{Mode: "kv", Phase: "prefill", Reason: "r", Winner: -1}, []string{"nobody", "prefill leg"}},
	} {
		var b strings.Builder
		if err := WriteDecision(&b, &DecisionRecord{RequestID: "id", Decision: c.decision}); err != nil {
			t.Fatal(err)
		}
		for _, part := range c.parts {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s: %q is missing in\n%s", name, part, b.String())
			}
		}
	}
}

// A log holds whatever anybody wrote.
func FuzzReadDecisions(f *testing.F) {
	text, _ := json.Marshal(someDecision())
	f.Add([]byte(`time=2026-12-02T01:23:15.709Z level=DEBUG msg=decision request_id=1 decision="{\"mode\":\"kv\",\"winner\":7}"`))
	f.Add(text)
	f.Fuzz(func(t *testing.T, log []byte) {
		_ = ReadDecisions(bytes.NewReader(log), func(record DecisionRecord) bool {
			if err := WriteDecision(&strings.Builder{}, &record); err != nil {
				t.Error(err)
			}
			return true
		})
	})
}
