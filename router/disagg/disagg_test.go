package disagg_test

import (
	"strings"
	"testing"

	"signalbox/router/disagg"
)

func TestSettings(t *testing.T) {
	config, err := disagg.Parse([]byte(`{"policy":"isl_or_load","eff_isl_threshold":100,"eff_isl_ratio_threshold":0.5,"decode_busy_threshold":0.9}`))
	if err != nil || config.Policy != disagg.ISLOrLoad || config.UncachedTokens != 100 || config.UncachedRatio != 0.5 || *config.DecodeBusy != 0.9 || config.PrefillBusy != nil {
		t.Errorf("%+v, %v", config, err)
	}
	if err := config.Check(nil); err == nil || err.Error() != "conditional_disagg policy='isl_or_load' needs prefill_busy_threshold, but neither prefill_busy_threshold nor --router-queue-threshold is set" {
		t.Error(err)
	}
	queue := 0.7
	if err := config.Check(&queue); err != nil || !config.PrefillIsBusy(701, 1000) || config.PrefillIsBusy(700, 1000) {
		t.Errorf("%v, %+v", err, config)
	}
	if config, err := disagg.Parse([]byte(`{}`)); err != nil || config != disagg.Default() {
		t.Errorf("%+v, %v", config, err)
	}
	for text, want := range map[string]string{
		"[]": "must be a JSON object", "null": "must be a JSON object", `{"b":1,"a":2}`: "has unknown field(s): a, b", `{"policy":"x"}`: "must be one of isl_bounding",
		`{"eff_isl_threshold":-1}`: "eff_isl_threshold", `{"eff_isl_ratio_threshold":1.5}`: "between 0 and 1", `{"decode_busy_threshold":-1}`: "decode_busy_threshold must be",
	} {
		if _, err := disagg.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
