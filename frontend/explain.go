package frontend

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"signalbox/api/frontdoor"
	"signalbox/inference"
	"signalbox/observe"
	"signalbox/router"
)

// decisionsKept is how many placements can be asked about afterwards.
const decisionsKept = 512

// decisionsPath is where a running frontend tells why requests went where they did.
const decisionsPath = "/signalbox/decisions"

// explainer keeps decisions for whoever asks, and writes them to the log.
type explainer struct {
	kept *observe.Decisions
	log  func(*inference.Request, *router.Decision)
}

func (e *explainer) onDecision(request *inference.Request, d *router.Decision) {
	e.kept.Add(observe.DecisionRecord{Time: time.Now(), RequestID: request.ID, Model: request.Model, Decision: *d})
	e.log(request, d)
}

// routes serves the kept decisions: all of them, or those about one request.
func (e *explainer) routes() []frontdoor.Route {
	get := []string{http.MethodGet}
	return []frontdoor.Route{
		{Path: decisionsPath, Methods: get, Handler: http.HandlerFunc(e.serve), Summary: "The newest routing decisions"},
		{Path: decisionsPath + "/", Prefix: true, Methods: get, Handler: http.HandlerFunc(e.serve), Summary: "The routing decisions about one request", Described: []string{"{id}"}},
	}
}

func (e *explainer) serve(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, decisionsPath), "/")
	records := e.kept.Of(id)
	w.Header().Set("Content-Type", "application/json")
	if id != "" && len(records) == 0 {
		w.WriteHeader(http.StatusNotFound)
	}
	_ = json.NewEncoder(w).Encode(struct {
		Decisions []observe.DecisionRecord `json:"decisions"`
	}{records}) // whoever asked may have gone
}
