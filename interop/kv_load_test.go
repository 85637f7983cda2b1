package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// openStream is a stream that is kept open.
type openStream struct {
	worker string
	blocks int // that its prompt holds on the worker
	leave  context.CancelFunc
	scan   *bufio.Scanner
}

// hold starts a long stream and returns once its first token has come.
func (f *frontend) hold(t *testing.T, model string, tokens []uint32) *openStream {
	t.Helper()
	text, err := json.Marshal(tokens)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/completions", strings.NewReader(
		fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":20000,"stream":true,"nvext":{"extra_fields":["worker_id"]}}`, model, text)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	s := &openStream{blocks: len(tokens) / kvBlock, scan: bufio.NewScanner(response.Body)}
	s.leave = func() {
		leave()
		response.Body.Close()
	}
	t.Cleanup(s.leave)
	for s.scan.Scan() {
		var chunk struct {
			NVExt struct {
				Worker struct {
					ID json.Number `json:"decode_worker_id"`
				} `json:"worker_id"`
			} `json:"nvext"`
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(s.scan.Text(), "data: ")), &chunk) == nil && chunk.NVExt.Worker.ID != "" {
			s.worker = chunk.NVExt.Worker.ID.String()
			return s
		}
	}
	t.Fatalf("a stream ended before its first token: status %d", response.StatusCode)
	return nil
}

// activeBlocks reads the blocks in use of every worker from the metrics.
func (f *frontend) activeBlocks() map[string]int {
	_, text, _ := get(f.url + "/metrics")
	active := map[string]int{}
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, "dynamo_frontend_worker_active_decode_blocks{")
		labels, value, ok := strings.Cut(rest, "} ")
		if !found || !ok {
			continue
		}
		_, id, _ := strings.Cut(labels, `worker_id="`)
		id, _, _ = strings.Cut(id, `"`)
		number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err == nil {
			active[id] += int(number)
		}
	}
	return active
}

// Requests whose prompts have nothing in common go to the worker that is least busy. Both routers count the same blocks, while
// streams run and after they are left, and choose alike; only the first request on each idle worker is a tie.
func TestPlacementsByLoadAgree(t *testing.T) {
	const workers = 3
	// Sizes in blocks. No two workers are ever equally busy once each has one.
	sizes := []int{7, 12, 20, 6, 20, 29, 27, 26, 4, 10, 5, 17, 26, 16, 17, 22}
	for _, r := range releases(t) {
		for _, side := range []string{"theirs", "ours"} {
			t.Run(r.name+"/"+side, func(t *testing.T) {
				s := fileStore(t)
				startMocker(t, r, s, modelDirectory(t), "--num-workers", strconv.Itoa(workers), "--block-size", strconv.Itoa(kvBlock))
				var f *frontend
				if side == "theirs" {
					f = startTheirs(t, r, s, "--router-mode", "kv")
				} else {
					f = startOurs(t, s, "--router-mode", "kv")
				}
				model := f.serve(t)
				eventually(t, "all workers are known", func() bool {
					_, text, _ := get(f.url + "/health")
					return strings.Count(text, `"generate"`) >= workers
				})
				followLoad(t, f, model, workers, sizes)
			})
		}
	}
}

func followLoad(t *testing.T, f *frontend, model string, workers int, sizes []int) {
	random := rand.New(rand.NewPCG(7, 7))
	busy := map[string]int{}
	var streams []*openStream
	for i, size := range sizes {
		tokens := make([]uint32, size*kvBlock+1+random.IntN(kvBlock-1))
		for j := range tokens {
			tokens[j] = 1 + random.Uint32N(4000)
		}
		stream := f.hold(t, model, tokens)
		streams = append(streams, stream)
		before, known := busy[stream.worker]
		if known == (i < workers) {
			t.Fatalf("request %d went to worker %s; busy until then: %v", i, stream.worker, busy)
		}
		for id, blocks := range busy {
			if known && id != stream.worker && blocks <= before {
				t.Errorf("request %d went to worker %s with %d blocks, but worker %s has %d", i, stream.worker, before, id, blocks)
			}
		}
		busy[stream.worker] += stream.blocks
		f.awaitBlocks(t, busy)
		if i%4 == 3 { // somebody leaves: the oldest stream
			oldest := streams[0]
			streams = streams[1:]
			oldest.leave()
			busy[oldest.worker] -= oldest.blocks
			f.awaitBlocks(t, busy)
		}
	}
}

// awaitBlocks waits until the frontend counts these blocks in use.
func (f *frontend) awaitBlocks(t *testing.T, busy map[string]int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the workers' blocks in use are %v", busy), func() bool {
		active := f.activeBlocks()
		for id, blocks := range busy {
			if active[id] != blocks {
				return false
			}
		}
		return true
	})
}
