// Package admin answers the operators' routes: health, liveness, metrics, busy thresholds, the API description. It knows
// nothing of inference.
package admin

import (
	"encoding/json"
	"net/http"

	"signalbox/api/problem"
)

// Fleet tells which endpoints and instances discovery knows.
type Fleet interface {
	// Endpoints returns "dyn://namespace.component.endpoint" addresses, sorted, each once.
	Endpoints() []string
	// Instances returns the raw discovery records, without their type tag.
	Instances() []json.RawMessage
}

// Health answers /health and /live.
type Health struct {
	Fleet Fleet
	// Draining and Stopping tell how far a shutdown has come.
	Draining func() bool
	Stopping func() bool
}

// ServeHealth answers GET /health: 200 while serving, workers or not, and 503 from the moment a shutdown begins.
func (h *Health) ServeHealth(w http.ResponseWriter, _ *http.Request) {
	if h.Draining() {
		stage := "draining"
		if h.Stopping() {
			stage = "stopping"
		}
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "not_ready", "stage": stage, "message": "Service is not ready"})
		return
	}
	endpoints, instances := h.Fleet.Endpoints(), h.Fleet.Instances()
	if endpoints == nil {
		endpoints = []string{}
	}
	if instances == nil {
		instances = []json.RawMessage{}
	}
	writeJSON(w, http.StatusOK, struct {
		Status    string            `json:"status"`
		Endpoints []string          `json:"endpoints"`
		Instances []json.RawMessage `json:"instances"`
	}{"healthy", endpoints, instances})
}

// ServeLive answers GET /live.
func (h *Health) ServeLive(w http.ResponseWriter, _ *http.Request) {
	if h.Draining() {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "shutting_down", "message": "Service is shutting down"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "live", "message": "Service is live"})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		(&problem.Problem{Status: http.StatusInternalServerError, Message: "Internal server error", Cause: err}).Write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
