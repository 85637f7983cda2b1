package observe

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// Handler answers scrapes in the Prometheus text format, under the content type that existing scrapers of this service see.
func Handler(gatherer prometheus.Gatherer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		families, err := gatherer.Gather()
		if err != nil && len(families) == 0 {
			http.Error(w, "metrics cannot be gathered: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		encoder := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
		for _, family := range families {
			if encoder.Encode(family) != nil {
				return // the scraper is gone
			}
		}
	})
}
