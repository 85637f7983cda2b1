package otlp

import (
	"strings"
	"testing"
)

func truthy(text string) bool { return text == "1" }

func TestTheEnvironmentSaysWhatIsExported(t *testing.T) {
	for name, test := range map[string]struct {
		environment map[string]string
		made        bool
		want        string
	}{
		"off":      {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, false, ""},
		"on":       {map[string]string{"OTEL_EXPORT_ENABLED": "1"}, true, ""},
		"endpoint": {map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_SAMPLE_RATIO": "0.5"}, true, ""},
		"protocol": {map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, false, "only grpc"},
		"ratio":    {map[string]string{"OTEL_EXPORT_ENABLED": "1", "OTEL_TRACES_SAMPLE_RATIO": "2"}, false, "from 0 to 1"},
	} {
		tracer, err := FromEnvironment(t.Context(), func(key string) string { return test.environment[key] }, truthy)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || (tracer != nil) != test.made {
			t.Errorf("%s: %v, %v", name, tracer, err)
		}
		if tracer != nil {
			if err := tracer.Close(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
