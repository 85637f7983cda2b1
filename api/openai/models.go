package openai

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"signalbox/api/problem"
)

// ListModels answers GET /v1/models. Clients of the Anthropic API, known by their version header, get that API's list where it
// is switched on.
func (a *API) ListModels(w http.ResponseWriter, r *http.Request) {
	if a.draining() {
		problem.Draining().Write(w)
		return
	}
	list := a.models.List()
	var b []byte
	if a.anthropicClient(r) {
		b = append(b, `{"data":[`...)
		for i, entry := range list {
			if i > 0 {
				b = append(b, ',')
			}
			b = a.appendAnthropicModel(b, entry)
		}
		b = append(b, `],"has_more":false,"first_id":`...)
		b = appendEnd(b, list, 0)
		b = append(b, `,"last_id":`...)
		b = appendEnd(b, list, len(list)-1)
		b = append(b, '}')
	} else {
		b = append(b, `{"object":"list","data":[`...)
		for i, entry := range list {
			if i > 0 {
				b = append(b, ',')
			}
			b = a.appendModel(b, entry)
		}
		b = append(b, "]}"...)
	}
	writeJSON(w, http.StatusOK, b)
}

func appendEnd(b []byte, list []Listing, at int) []byte {
	if len(list) == 0 {
		return append(b, "null"...)
	}
	return appendString(b, list[at].Name)
}

// RetrieveModel answers GET /v1/models/{id…} and /v1/models/{id…}/ready; ids may hold slashes.
func (a *API) RetrieveModel(w http.ResponseWriter, r *http.Request, id string) {
	if a.draining() {
		problem.Draining().Write(w)
		return
	}
	for _, entry := range a.models.List() {
		if entry.Name != id {
			continue
		}
		if a.anthropicClient(r) {
			writeJSON(w, http.StatusOK, a.appendAnthropicModel(nil, entry))
		} else {
			writeJSON(w, http.StatusOK, a.appendModel(nil, entry))
		}
		return
	}
	if name, ok := strings.CutSuffix(id, "/ready"); ok {
		if state := a.models.Readiness(name); state != nil {
			status := http.StatusOK
			if model := a.models.Find(name); model == nil || !model.Ready() {
				status = http.StatusServiceUnavailable
			}
			writeJSON(w, status, state)
			return
		}
	}
	if model := a.models.Find(id); model != nil {
		problem.NotReady(id).Write(w)
		return
	}
	problem.ModelNotFound().Write(w)
}

func (a *API) anthropicClient(r *http.Request) bool {
	return a.options.AnthropicListing && r.Header.Get("Anthropic-Version") != ""
}

func (a *API) contextWindow(entry Listing) int {
	if a.options.ContextWindow > 0 {
		return a.options.ContextWindow
	}
	return entry.ContextWindow
}

func (a *API) appendModel(b []byte, entry Listing) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, entry.Name)
	b = append(b, `,"object":"model","created":`...)
	b = strconv.AppendInt(b, time.Now().Unix(), 10)
	b = append(b, `,"owned_by":"nvidia","context_window":`...)
	b = strconv.AppendInt(b, int64(a.contextWindow(entry)), 10)
	if a.options.MaxOutputTokens > 0 {
		b = append(b, `,"max_output_tokens":`...)
		b = strconv.AppendInt(b, int64(a.options.MaxOutputTokens), 10)
	}
	return append(b, '}')
}

func (a *API) appendAnthropicModel(b []byte, entry Listing) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, entry.Name)
	b = append(b, `,"display_name":`...)
	b = appendString(b, entry.Name)
	b = append(b, `,"type":"model","created_at":"`...)
	b = time.Now().UTC().AppendFormat(b, "2006-01-02T15:04:05Z")
	b = append(b, `","max_input_tokens":`...)
	b = strconv.AppendInt(b, int64(a.contextWindow(entry)), 10)
	if a.options.MaxOutputTokens > 0 {
		b = append(b, `,"max_tokens":`...)
		b = strconv.AppendInt(b, int64(a.options.MaxOutputTokens), 10)
	}
	return append(b, '}')
}

func writeJSON(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
