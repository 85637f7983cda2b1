package interop

import (
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// family is what dashboards rely on: the type, the labels and the bounds of a metric.
type family struct {
	kind   string
	labels []string
	bounds []float64
}

// scraped is what /metrics says.
type scraped map[string]*dto.MetricFamily

func scrape(t *testing.T, f *frontend) scraped {
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
	return parsed
}

// family returns the shape of a metric.
func (s scraped) family(name string) (family, bool) {
	metric, there := s[name]
	if !there || len(metric.GetMetric()) == 0 {
		return family{}, false
	}
	found := family{kind: metric.GetType().String()}
	for _, label := range metric.GetMetric()[0].GetLabel() {
		found.labels = append(found.labels, label.GetName())
	}
	slices.Sort(found.labels)
	for _, bucket := range metric.GetMetric()[0].GetHistogram().GetBucket() {
		found.bounds = append(found.bounds, bucket.GetUpperBound())
	}
	return found, true
}

// identities are labels that say who counts; the real frontend counts all its routers under the component of the first.
var identities = []string{"worker_id", "router_id", "router_worker_id", "dynamo_component"}

// values returns the series of a metric without who counted them: values of counters and gauges, counts of histograms, and of those
// that measure tokens the sums.
func (s scraped) values(name string) map[string]float64 {
	values := make(map[string]float64)
	for _, metric := range s[name].GetMetric() {
		var labels []string
		for _, label := range metric.GetLabel() {
			if !slices.Contains(identities, label.GetName()) {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
		}
		slices.Sort(labels)
		key := strings.Join(labels, ",")
		switch histogram := metric.GetHistogram(); {
		case histogram != nil:
			values[key+" count"] += float64(histogram.GetSampleCount())
			if strings.HasSuffix(name, "_tokens") || strings.HasSuffix(name, "_rate") {
				values[key+" sum"] += math.Round(histogram.GetSampleSum()*1e6) / 1e6
			}
		case metric.GetCounter() != nil:
			values[key] += metric.GetCounter().GetValue()
		default:
			values[key] += metric.GetGauge().GetValue()
		}
	}
	return values
}

// notMeasured are metrics of the real frontend that say nothing here: its runtime's, and those of the inside of parts that are built
// differently.
var notMeasured = []string{
	"dynamo_tokio_",
	"dynamo_component_router_approximate_lru_messages_per_request", // its queue of changes: here they are made at once
	"dynamo_component_router_approximate_lru_mutation_wait_seconds",
	"dynamo_frontend_image_tokens_per_request", // pictures are not looked at
}

// notSteady are metrics whose values follow time, chance or who came first; only their shape is compared.
var notSteady = []string{
	"dynamo_frontend_event_loop_", "dynamo_frontend_detokenize_total_us", "dynamo_component_uptime_seconds",
	"dynamo_frontend_worker_last_time_", "dynamo_frontend_worker_last_inter_",
	"dynamo_frontend_tokenizer_cache_",                                              // which parts of a prompt are remembered
	"dynamo_request_plane_", "dynamo_frontend_stage_duration_", "dynamo_transport_", // their questions for events go the same way
	"dynamo_component_kv_cache_events_applied", "dynamo_component_router_kv_zmq_", // what came as an event and what in the first picture
	"dynamo_component_router_active_sequence_",                                       // they hear workers, too
	"dynamo_component_router_kv_event_source_mismatch_workers",                       // of decode workers they keep no row
	"dynamo_component_router_approximate_cache_",                                     // one for each component here, one in all there
	"dynamo_frontend_tokenizer_latency_ms", "dynamo_frontend_detokenize_token_count", // tests of a model's readiness are in it
}

func listed(list []string, name string) bool {
	return slices.ContainsFunc(list, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// grown returns by how much the series grew; gauges are as they are.
func grown(before, after scraped, name string) map[string]float64 {
	values := after.values(name)
	if kind := after[name].GetType(); kind == dto.MetricType_GAUGE {
		return values
	}
	for key, old := range before.values(name) {
		values[key] = math.Round((values[key]-old)*1e6) / 1e6
	}
	return values
}

// ask sends the same requests that both frontends get; the prompts begin with the salt, so that neither profits from the other's.
func ask(t *testing.T, f *frontend, name string, salt int) {
	t.Helper()
	tokens := make([]string, 300)
	for i := range tokens {
		tokens[i] = fmt.Sprint(1 + (i*7+salt)%4000)
	}
	for _, stream := range []bool{true, false, true} {
		text := fmt.Sprintf(`{"model":%q,"max_tokens":40,"stream":%v,"messages":[{"role":"user","content":"%d %s"}]}`, name, stream, salt, strings.Repeat("hello there ", 60))
		if status, answer, err := f.post("/v1/chat/completions", text); err != nil || status != 200 {
			t.Fatalf("%d %s %v", status, answer, err)
		}
		f.awaitQuiet(t) // so that what is cached of the next prompt is no race
	}
	for range 2 {
		text := fmt.Sprintf(`{"model":%q,"max_tokens":12,"prompt":[%s]}`, name, strings.Join(tokens, ","))
		if status, answer, err := f.post("/v1/completions", text); err != nil || status != 200 {
			t.Fatalf("%d %s %v", status, answer, err)
		}
		f.awaitQuiet(t) // so that what is cached of the next prompt is no race
	}
	for _, body := range []string{`{`, `{"model":"nope","prompt":"x"}`} {
		if status, _, err := f.post("/v1/completions", body); err != nil || status < 400 {
			t.Fatalf("%s: %d %v", body, status, err)
		}
	}
}

// earlier tells whether all that a metric, or one series of it, has to say is from before the compared requests, when this frontend may have
// been asked for something that the other one was not, such as a worker that had not come yet.
func earlier(before, after scraped, name, key string) bool {
	was := before.values(name)
	said := false
	for series, growth := range grown(before, after, name) {
		if key != "" && series != key {
			continue
		}
		if growth != 0 {
			return false
		}
		said = said || was[series] > 0
	}
	return said && after[name].GetType() != dto.MetricType_GAUGE
}

// differences compares what both say after the same requests.
func differences(before, after [2]scraped) (list []string) {
	for name := range after[0] {
		if listed(notMeasured, name) {
			continue
		}
		theirs, there := after[0].family(name)
		if !there {
			continue
		}
		ours, there := after[1].family(name)
		switch {
		case !there && earlier(before[0], after[0], name, ""):
		case !there:
			list = append(list, name+" is missing")
		case !reflect.DeepEqual(ours, theirs):
			list = append(list, fmt.Sprintf("%s is %+v, theirs is %+v", name, ours, theirs))
		case after[1][name].GetHelp() == "":
			list = append(list, name+" explains nothing")
		case !listed(notSteady, name):
			want, got := grown(before[0], after[0], name), grown(before[1], after[1], name)
			for key, value := range want {
				if mine, there := got[key]; (!there || mine != value) && (there || !earlier(before[0], after[0], name, key)) {
					list = append(list, fmt.Sprintf("%s{%s} is %v (there: %v), theirs is %v", name, key, mine, there, value))
				}
			}
		}
	}
	slices.Sort(list)
	return list
}

func compareMetrics(t *testing.T, theirs, ours *frontend, ready func(f *frontend, name string) bool) (after [2]scraped) {
	t.Helper()
	var before [2]scraped
	for i, f := range []*frontend{theirs, ours} {
		name := f.serve(t)
		eventually(t, "all workers take part", func() bool { return ready(f, name) })
		before[i] = scrape(t, f)
		ask(t, f, name, 1+i)
	}
	var list []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(200 * time.Millisecond) { // both count some things after the answer
		after = [2]scraped{scrape(t, theirs), scrape(t, ours)}
		if list = differences(before, after); len(list) == 0 {
			break
		}
	}
	for _, difference := range list {
		t.Error(difference)
	}
	if len(after[0]) < 80 {
		t.Errorf("the real frontend shows only %d metrics", len(after[0]))
	}
	return after
}

// comparedRelease is the one that the metrics are compared with.
func comparedRelease(t *testing.T) release {
	t.Helper()
	peer := releases(t)[0]
	if peer.name != "1.6.1" {
		t.Skip("the metrics are compared with those of 1.6.1")
	}
	return peer
}

// TestMetricsAreThoseOfTheRealFrontend compares names, types, labels and bounds after the same requests, and the values that do not
// depend on time.
func TestMetricsAreThoseOfTheRealFrontend(t *testing.T) {
	peer := comparedRelease(t)
	s := fileStore(t)
	startMocker(t, peer, s, modelDirectory(t), "--speedup-ratio", "100")
	theirs, ours := startTheirs(t, peer, s, "--router-mode", "kv"), startOurs(t, s, "--router-mode", "kv")
	compareMetrics(t, theirs, ours, func(*frontend, string) bool { return true })
}

// TestMetricsOfADisaggregatedModel compares where one worker computes prompts and another one generates.
func TestMetricsOfADisaggregatedModel(t *testing.T) {
	peer := comparedRelease(t)
	s, directory := fileStore(t), modelDirectory(t)
	startMocker(t, peer, s, directory, "--speedup-ratio", "20", "--disaggregation-mode", "prefill", "--endpoint", "dyn://dynamo.prefill.generate")
	startMocker(t, peer, s, directory, "--speedup-ratio", "20", "--disaggregation-mode", "decode")
	theirs, ours := startTheirs(t, peer, s, "--router-mode", "kv"), startOurs(t, s, "--router-mode", "kv")
	after := compareMetrics(t, theirs, ours, func(f *frontend, name string) bool {
		_, answer, err := f.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"ready","max_tokens":1,"nvext":{"extra_fields":["worker_id"]}}`, name))
		return err == nil && strings.Contains(answer, `"prefill_worker_id"`)
	})
	for i, of := range []string{"theirs", "ours"} {
		transfers := after[i].values("dynamo_component_router_kv_transfer_estimated_latency_seconds")
		if transfers["dynamo_namespace=dynamo count"] < 5 {
			t.Errorf("%s: the hand-over was measured %v times, want once for each of 5 answers", of, transfers)
		}
	}
}
