package interop

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// TestReportsOfRealWorkersMakeThemBusy fills a real mock worker's cache beyond the threshold with one stream: another request is refused
// while it runs, by what the worker reports, and taken when it has ended. In mode round-robin the report is all that is known.
func TestReportsOfRealWorkersMakeThemBusy(t *testing.T) {
	for _, r := range releases(t) {
		for _, plane := range []string{"zmq", "nats"} {
			t.Run(r.name+"/"+plane, func(t *testing.T) {
				s := fileStore(t).over(t, "tcp", plane)
				startMocker(t, r, s, modelDirectory(t), "--speedup-ratio", "1", "--block-size", "16", "--num-gpu-blocks-override", "64")
				ours := startOurs(t, s, "--active-decode-blocks-threshold", "0.3")
				name := ours.serve(t)
				tokens, _ := prompt(t, rand.New(rand.NewPCG(1, 9)), nil, 30)
				long := fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":400,"stream":true}`, name, strings.Join(strings.Fields(fmt.Sprint(tokens)), ","))
				response, err := http.Post(ours.url+"/v1/completions", "application/json", strings.NewReader(long))
				if err != nil || response.StatusCode != 200 {
					t.Fatalf("%v, %v", err, response)
				}
				defer response.Body.Close()
				short := fmt.Sprintf(`{"model":%q,"prompt":"short","max_tokens":1}`, name)
				eventually(t, "a request is refused", func() bool {
					status, text, _ := ours.post("/v1/completions", short)
					return status == 529 && strings.Contains(text, "overloaded")
				})
				_ = response.Body.Close() // the worker is free again, and says so
				eventually(t, "a request is taken", func() bool {
					status, _, _ := ours.post("/v1/completions", short)
					return status == 200
				})
			})
		}
	}
}
