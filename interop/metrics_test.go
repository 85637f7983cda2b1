package interop

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// family is what dashboards rely on: the type, the labels and the bounds of a metric.
type family struct {
	kind   string
	labels []string
	bounds []float64
}

func scrape(t *testing.T, f *frontend) map[string]family {
	t.Helper()
	response, err := http.Get(f.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	families := make(map[string]family)
	for name, metric := range parsed {
		found := family{kind: metric.GetType().String()}
		for _, label := range metric.GetMetric()[0].GetLabel() {
			found.labels = append(found.labels, label.GetName())
		}
		slices.Sort(found.labels)
		for _, bucket := range metric.GetMetric()[0].GetHistogram().GetBucket() {
			found.bounds = append(found.bounds, bucket.GetUpperBound())
		}
		families[name] = found
	}
	return families
}

// notMeasured are metrics of the real frontend that say nothing here: its runtime's, and those of the inside of parts that are built
// differently.
var notMeasured = []string{
	"dynamo_tokio_",
	"dynamo_component_ckf_mutation_total",                  // its index
	"dynamo_component_kv_cache_event_warnings",             // its index
	"dynamo_component_router_active_sequence_",             // its queues of events between routers
	"dynamo_component_router_approximate_",                 // its index of predictions
	"dynamo_component_router_kv_zmq_ingress_batches_total", // its queue of events
	"dynamo_component_router_kv_best_eligible_cached_prefix_tokens_total",
	"dynamo_component_router_kv_selected_cached_prefix_tokens_total",
	"dynamo_component_router_kv_worker_reused_tokens_total",
	"dynamo_frontend_image_tokens_per_request", // pictures are not looked at
	"dynamo_frontend_router_admission_",        // deadlines at admission
	"dynamo_transport_tcp_accept_backoff_total", "dynamo_transport_tcp_bytes_",
}

// TestMetricsAreThoseOfTheRealFrontend compares names, types, labels and bounds after the same requests.
func TestMetricsAreThoseOfTheRealFrontend(t *testing.T) {
	peer := releases(t)[0]
	if peer.name != "1.6.1" {
		t.Skip("the metrics are compared with those of 1.6.1")
	}
	s := fileStore(t)
	startMocker(t, peer, s, modelDirectory(t), "--speedup-ratio", "100")
	theirs, ours := startTheirs(t, peer, s, "--router-mode", "kv"), startOurs(t, s, "--router-mode", "kv")
	for _, f := range []*frontend{theirs, ours} {
		name := f.serve(t)
		for _, stream := range []bool{true, false} {
			body := `{"model":"` + name + `","max_tokens":40,"stream":` + strconv.FormatBool(stream) + `,"messages":[{"role":"user","content":"` + strings.Repeat("hello there ", 40) + `"}]}`
			if status, text, err := f.post("/v1/chat/completions", body); err != nil || status != 200 {
				t.Fatalf("%d %s %v", status, text, err)
			}
		}
		for _, body := range []string{`{`, `{"model":"nope","prompt":"x"}`} {
			if status, _, err := f.post("/v1/completions", body); err != nil || status < 400 {
				t.Fatalf("%s: %d %v", body, status, err)
			}
		}
	}
	want, got := scrape(t, theirs), scrape(t, ours)
	if len(want) < 80 {
		t.Errorf("the real frontend shows only %d metrics", len(want))
	}
	for name, real := range want {
		if slices.ContainsFunc(notMeasured, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		mine, there := got[name]
		switch {
		case !there:
			t.Errorf("%s is missing", name)
		case !reflect.DeepEqual(mine, real):
			t.Errorf("%s is %+v, theirs is %+v", name, mine, real)
		}
	}
}
