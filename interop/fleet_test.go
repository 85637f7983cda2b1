package interop

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// fleetModel is one model of the mixed fleet: who plays its workers, and whether prefill and decode are apart.
type fleetModel struct {
	name  string // as frontends list it
	split bool
}

// TestEveryPairOnEveryPlane is the whole matrix: both releases, both stores, both request planes, both event planes. On each there are a
// real frontend and one of ours, and four models, of real workers and of ours, in one part and in two. Both frontends serve all four by
// blocks: what they know of the workers' caches has come over the event plane. Without SIGNALBOX_INTEROP_ALL it is half of the planes,
// so that every two values meet.
func TestEveryPairOnEveryPlane(t *testing.T) {
	for _, r := range releases(t) {
		for kind, open := range map[string]func(t *testing.T) store{"file": fileStore, "etcd": etcdStore} {
			for _, requests := range []string{"tcp", "nats"} {
				for _, events := range []string{"zmq", "nats"} {
					odd := (kind == "etcd") != (requests == "nats") != (events == "nats")
					if odd && os.Getenv("SIGNALBOX_INTEROP_ALL") == "" {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s-%s-%s", r.name, kind, requests, events), func(t *testing.T) {
						mixedFleet(t, r, open(t).over(t, requests, events))
					})
				}
			}
		}
	}
}

func mixedFleet(t *testing.T, r release, s store) {
	var models []fleetModel
	ours := func(name, namespace string, roles ...string) {
		models = append(models, fleetModel{name, len(roles) > 1})
		for _, role := range roles {
			start(t, s.environment(), program, append([]string{"worker", "--model-name", name, "--model-path", modelDirectory(t), "--speedup-ratio", "10",
				"--disaggregation-mode", role, "--endpoint", "dyn://" + namespace + "." + component(role) + ".generate"}, s.flags()...)...)
		}
	}
	theirs := func(name, namespace string, roles ...string) {
		path := modelDirectory(t)
		named := r
		if named.servedName == "" {
			name = path
		} else {
			named.servedName = name
		}
		models = append(models, fleetModel{name, len(roles) > 1})
		for _, role := range roles {
			startMocker(t, named, s, path, "--speedup-ratio", "10", "--disaggregation-mode", role, "--endpoint", "dyn://"+namespace+"."+component(role)+".generate")
		}
	}
	theirs("whole", "one", "agg")
	theirs("split", "two", "prefill", "decode")
	real := startTheirs(t, r, s, "--router-mode", "kv")
	ours("our-whole", "three", "agg")
	ours("our-split", "four", "prefill", "decode")
	own := startOurs(t, s, "--router-mode", "kv")
	for _, m := range models {
		for _, f := range []struct {
			who string
			*frontend
		}{{"our frontend", own}, {"their frontend", real}} {
			eventually(t, fmt.Sprintf("%s lists %s", f.who, m.name), func() bool { return slices.Contains(f.models(), m.name) })
			exerciseByBlocks(t, f.frontend, f.who, m)
		}
	}
}

func component(role string) string {
	if role == "prefill" {
		return "prefill"
	}
	return "backend"
}

// exerciseByBlocks sends requests until the model answers as it should, by both parts where it has two, and the frontend knows that the
// prompt is cached.
func exerciseByBlocks(t *testing.T, f *frontend, who string, m fleetModel) {
	t.Helper()
	prompt := strings.TrimSuffix(strings.Repeat("17,", 300), ",")
	body := fmt.Sprintf(`{"model":%q,"prompt":[%s],"max_tokens":5,"nvext":{"extra_fields":["worker_id","timing"]}}`, m.name, prompt)
	var text string
	defer func() {
		if t.Failed() {
			t.Logf("%s, %s: %s", who, m.name, text)
		}
	}()
	eventually(t, fmt.Sprintf("%s serves %s by blocks", who, m.name), func() bool {
		status, answer, err := f.postWithin(15*time.Second, "/v1/completions", body)
		text = fmt.Sprint(status, " ", err, " ", answer)
		_, prefill, _ := strings.Cut(text, `"prefill_worker_id":`)
		_, decode, found := strings.Cut(text, `"decode_worker_id":`)
		_, rate, known := strings.Cut(text, `"kv_hit_rate":`)
		return err == nil && status == 200 && found && known && strings.Contains(text, `"completion_tokens":5`) &&
			(digits(prefill) != digits(decode)) == m.split && !strings.HasPrefix(rate, "0,") && !strings.HasPrefix(rate, "0.0,") && !strings.HasPrefix(rate, "0}") && !strings.HasPrefix(rate, "0.0}")
	})
}
