package interop

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// pair is a real frontend and one of ours on the same workers, whose planes are the store's.
func pair(t *testing.T, s store, workers int, args ...string) (frontends [2]*frontend, model string) {
	t.Helper()
	r := releases(t)[0]
	startMocker(t, r, s, modelDirectory(t), "--num-workers", strconv.Itoa(workers), "--block-size", strconv.Itoa(kvBlock))
	args = append([]string{"--router-mode", "kv"}, args...)
	frontends = [2]*frontend{startOurs(t, s, args...), startTheirs(t, r, s, args...)}
	for _, f := range frontends {
		model = f.serve(t)
		eventually(t, "all workers are known", func() bool {
			_, text, _ := get(f.url + "/health")
			return strings.Count(text, `"generate"`) >= workers
		})
	}
	return frontends, model
}

// inSession asks a question in a session, or in none, and returns the worker that answered.
func (f *frontend) inSession(t *testing.T, model, session string, tokens []uint32) string {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, f.url+"/v1/completions", strings.NewReader(
		fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":2,"nvext":{"extra_fields":["worker_id"]}}`, model, strings.Join(strings.Fields(fmt.Sprint(tokens)), ","))))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if session != "" {
		request.Header.Set("X-Dynamo-Session-Id", session)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	_, id, found := strings.Cut(string(text), `"decode_worker_id":`)
	if response.StatusCode != 200 || !found {
		t.Fatalf("status %d: %s", response.StatusCode, text)
	}
	end := strings.IndexFunc(id, func(c rune) bool { return c < '0' || c > '9' })
	return id[:end]
}

func randomTokens(random *rand.Rand, count int) []uint32 {
	tokens := make([]uint32, count)
	for i := range tokens {
		tokens[i] = 1 + random.Uint32N(4000)
	}
	return tokens
}

// A session that began at one frontend goes on at the other on the same worker, whichever of them is the real one.
func TestTwoFrontendsKeepASessionOnOneWorker(t *testing.T) {
	frontends, model := pair(t, fileStore(t), 4, "--router-session-affinity-ttl-secs", "600")
	keepSessions(t, frontends, model)
}

// Over NATS both frontends keep sessions together and count each other's streams, as they do over sockets.
func TestFrontendsHearEachOtherOverNATS(t *testing.T) {
	frontends, model := pair(t, fileStore(t).over(t, "tcp", "nats"), 4, "--router-session-affinity-ttl-secs", "600", "--router-replica-sync")
	t.Run("sessions", func(t *testing.T) { keepSessions(t, frontends, model) })
	t.Run("load", func(t *testing.T) { seeLoad(t, frontends, model) })
}

// keepSessions begins sessions at each frontend and goes on with them at both.
func keepSessions(t *testing.T, frontends [2]*frontend, model string) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 1))
	for first, f := range frontends {
		other := frontends[1-first]
		// Bindings that were told before the other one listened are lost: the first session only finds out when it does.
		probe := 0
		eventually(t, "the frontends hear each other", func() bool {
			together := 0
			for range 3 { // by chance it would be one time in 64
				probe++
				session := fmt.Sprint("probe ", first, " ", probe)
				if f.inSession(t, model, session, randomTokens(random, 40)) == other.inSession(t, model, session, randomTokens(random, 40)) {
					together++
				}
			}
			return together == 3
		})
		workers := map[string]bool{}
		for i := range 8 {
			session := fmt.Sprint("session ", first, " ", i)
			home := f.inSession(t, model, session, randomTokens(random, 40))
			workers[home] = true
			for range 3 {
				for _, at := range []*frontend{other, f} {
					if got := at.inSession(t, model, session, randomTokens(random, 40)); got != home {
						t.Errorf("%s went to %s after %s (began at frontend %d)", session, got, home, first)
					}
				}
			}
		}
		if len(workers) < 2 {
			t.Errorf("all sessions are on %v", workers)
		}
	}
}

// Each frontend counts the blocks that the other one's streams hold, and sends its own requests where there are fewest.
func TestFrontendsSeeEachOthersLoad(t *testing.T) {
	frontends, model := pair(t, fileStore(t), 2, "--router-replica-sync")
	seeLoad(t, frontends, model)
}

// seeLoad holds a stream at each frontend and looks where the other one sends requests meanwhile.
func seeLoad(t *testing.T, frontends [2]*frontend, model string) {
	t.Helper()
	random := rand.New(rand.NewPCG(9, 1))
	for first, f := range frontends {
		other := frontends[1-first]
		var stream *openStream
		eventually(t, "the other frontend hears of a stream", func() bool {
			if stream != nil {
				stream.leave()
			}
			stream = f.hold(t, model, randomTokens(random, 30*kvBlock+3))
			for range 20 {
				if other.activeBlocks()[stream.worker] == stream.blocks {
					return true
				}
			}
			return false
		})
		for range 4 {
			quick := other.hold(t, model, randomTokens(random, 2*kvBlock+3))
			if quick.worker == stream.worker {
				t.Errorf("frontend %d sent a request to the worker that frontend %d keeps busy", 1-first, first)
			}
			quick.leave()
			f.awaitBlocks(t, map[string]int{stream.worker: stream.blocks, quick.worker: 0})
		}
		stream.leave()
		for _, at := range frontends {
			at.awaitBlocks(t, map[string]int{stream.worker: 0})
		}
	}
}
