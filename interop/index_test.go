package interop

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// One frontend serves its index, the other asks it, in both directions: what the asking one places follows the caches, of which it has no
// index of its own.
func TestARemoteIndexOfTheOther(t *testing.T) {
	const workers = 3
	r := releases(t)[0]
	for _, side := range []string{"ours serves", "theirs serves"} {
		t.Run(side, func(t *testing.T) {
			s := fileStore(t)
			startMocker(t, r, s, modelDirectory(t), "--num-workers", strconv.Itoa(workers), "--block-size", strconv.Itoa(kvBlock))
			var serving, asking *frontend
			if side == "ours serves" {
				serving = startOurs(t, s, "--router-mode", "kv", "--serve-indexer")
				serving.serve(t)
				asking = startTheirs(t, r, s, "--router-mode", "kv", "--use-remote-indexer")
			} else {
				serving = startTheirs(t, r, s, "--router-mode", "kv", "--serve-indexer")
				serving.serve(t)
				asking = startOurs(t, s, "--router-mode", "kv", "--use-remote-indexer")
			}
			model := serving.serve(t)
			asking.serve(t)
			for _, f := range []*frontend{serving, asking} {
				eventually(t, "all workers are known", func() bool {
					_, text, _ := get(f.url + "/health")
					return strings.Count(text, `"generate"`) >= workers
				})
			}
			random := rand.New(rand.NewPCG(5, 5))
			homes := map[string]bool{}
			for range 6 {
				tokens := randomTokens(random, 20*kvBlock)
				home := serving.inSession(t, model, "", tokens)
				homes[home] = true
				// What the worker has stored is known a moment later. Ten times in a row is no chance.
				eventually(t, "the asking frontend follows the cache", func() bool {
					for range 10 {
						if asking.inSession(t, model, "", tokens) != home {
							return false
						}
					}
					return true
				})
			}
			if len(homes) < 2 {
				t.Errorf("all prompts are on %v", homes)
			}
		})
	}
}
