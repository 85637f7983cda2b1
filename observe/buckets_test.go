package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Dashboards join series by their bucket bounds: a bound that moves breaks them.
func TestBucketsAreThoseOfTheBoards(t *testing.T) {
	cases := map[string]struct {
		got, want []float64
	}{
		"duration": {logBuckets(1, 512, 10), []float64{0, 2, 4, 8, 16, 32, 64, 130, 260, 510}},
		"input":    {logBuckets(50, 128000, 12), []float64{0, 100, 210, 430, 870, 1800, 3600, 7400, 15000, 31000, 63000, 130000}},
		"output":   {logBuckets(50, 32000, 10), []float64{0, 100, 210, 430, 880, 1800, 3700, 7600, 16000, 32000}},
		"ttft":     {logBuckets(0.001, 480, 18), []float64{0, .0022, .0047, .01, .022, .047, .1, .22, .47, 1, 2.2, 4.7, 10, 22, 48, 100, 220, 480}},
		"itl":      {logBuckets(0.001, 80, 20), []float64{0, .0018, .0033, .0059, .011, .02, .035, .064, .12, .21, .38, .69, 1.2, 2.3, 4.1, 7.4, 13, 24, 44, 80}},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
