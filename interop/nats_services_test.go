package interop

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
)

// TestNATSListsWorkersOfBothKinds asks NATS what services there are: a worker of ours answers with the same members as a real one.
func TestNATSListsWorkersOfBothKinds(t *testing.T) {
	s := fileStore(t).over(t, "nats", "nats")
	nc, err := client.Connect(strings.TrimPrefix(s.bus, "NATS_SERVER="))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	startMocker(t, releases(t)[0], s, modelDirectory(t), "--endpoint", "dyn://real.backend.generate")
	start(t, s.environment(), program, append([]string{"worker", "--model-name", "interop", "--endpoint", "dyn://own.backend.generate"}, s.flags()...)...)
	// shape asks a service until it has an endpoint, and returns the members of the answer and of its endpoints, and an endpoint's name
	// and subject without what differs from worker to worker.
	shape := func(verb, service string) (members []string, example string) {
		t.Helper()
		eventually(t, service+" answers "+verb, func() bool {
			reply, err := nc.Request("$SRV."+verb+"."+service, nil, time.Second)
			if err != nil {
				return false
			}
			var answer map[string]any
			if err := json.Unmarshal(reply.Data, &answer); err != nil {
				t.Fatalf("%v: %s", err, reply.Data)
			}
			members = slices.Sorted(maps.Keys(answer))
			example = answer["type"].(string)
			if verb == "PING" {
				return true
			}
			for _, e := range answer["endpoints"].([]any) {
				endpoint := e.(map[string]any)
				if subject := endpoint["subject"].(string); strings.HasPrefix(subject, service+".generate-") {
					example = strings.Join([]string{example, strings.TrimPrefix(endpoint["name"].(string), service), strings.TrimPrefix(subject, service), endpoint["queue_group"].(string)}, " ")
					example = regexp.MustCompile(`generate-[0-9a-f]+`).ReplaceAllString(example, "generate-ID")
					for _, name := range slices.Sorted(maps.Keys(endpoint)) {
						members = append(members, "endpoint."+name)
					}
					return true
				}
			}
			return false
		})
		return members, example
	}
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		want, wantExample := shape(verb, "real_backend")
		got, example := shape(verb, "own_backend")
		if !slices.Equal(got, want) {
			t.Errorf("%s: members %v, want %v", verb, got, want)
		}
		if example != wantExample {
			t.Errorf("%s: %s, want %s", verb, example, wantExample)
		}
	}
}
