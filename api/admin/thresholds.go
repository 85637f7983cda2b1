package admin

import (
	"fmt"
	"math"
	"net/http"

	"signalbox/api/body"
	"signalbox/internal/jsontape"
)

// Thresholds are the limits beyond which a model's workers count as busy; nil means unset.
type Thresholds struct {
	// ActiveDecodeBlocks is a fraction of a worker's KV blocks, 0 to 1.
	ActiveDecodeBlocks *float64 `json:"active_decode_blocks_threshold"`
	// ActivePrefillTokens is a number of tokens.
	ActivePrefillTokens *uint64 `json:"active_prefill_tokens_threshold"`
	// ActivePrefillTokensFraction is a fraction of a worker's max_num_batched_tokens, 0 or more.
	ActivePrefillTokensFraction *float64 `json:"active_prefill_tokens_threshold_frac"`
}

// ThresholdStore keeps the thresholds of discovered models.
type ThresholdStore interface {
	// Thresholds returns a model's thresholds; known is false for a model that discovery does not know.
	Thresholds(model string) (thresholds Thresholds, known bool)
	// Update sets the members that are not nil and returns the result.
	Update(model string, change Thresholds) Thresholds
	// Models returns the known models.
	Models() []string
}

type modelThresholds struct {
	Model string `json:"model"`
	Thresholds
}

// BusyThresholds answers GET and POST /busy_threshold.
type BusyThresholds struct {
	Store  ThresholdStore
	Reader body.Reader
}

// ServeHTTP implements http.Handler.
func (b *BusyThresholds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		b.post(w, r)
		return
	}
	list := []modelThresholds{}
	for _, model := range b.Store.Models() {
		thresholds, _ := b.Store.Thresholds(model)
		list = append(list, modelThresholds{model, thresholds})
	}
	writeJSON(w, http.StatusOK, map[string]any{"thresholds": list})
}

func (b *BusyThresholds) post(w http.ResponseWriter, r *http.Request) {
	document, plain := b.Reader.LooseDocument(w, r)
	if plain != nil {
		plain.Write(w)
		return
	}
	model, change, mistake := readThresholds(document)
	if mistake != "" {
		thresholdError(w, http.StatusUnprocessableEntity, mistake)
		return
	}
	if text := change.mistake(); text != "" {
		thresholdError(w, http.StatusBadRequest, text)
		return
	}
	current, known := b.Store.Thresholds(model)
	if change == (Thresholds{}) {
		writeJSON(w, http.StatusOK, modelThresholds{model, current})
		return
	}
	if !known {
		thresholdError(w, http.StatusNotFound, fmt.Sprintf("Model '%s' not found. Thresholds can only be set for discovered models.", model))
		return
	}
	writeJSON(w, http.StatusOK, modelThresholds{model, b.Store.Update(model, change)})
}

func readThresholds(document *jsontape.Document) (model string, change Thresholds, mistake string) {
	f := body.NewFields(document.Root(), "")
	if f.Problem == nil {
		model = f.RequiredString("model")
		change.ActiveDecodeBlocks = f.Float64("active_decode_blocks_threshold")
		change.ActivePrefillTokens = f.Uint64("active_prefill_tokens_threshold")
		change.ActivePrefillTokensFraction = f.Float64("active_prefill_tokens_threshold_frac")
	}
	if f.Problem != nil {
		return "", Thresholds{}, f.Problem.Message
	}
	return model, change, ""
}

func (t Thresholds) mistake() string {
	if v := t.ActiveDecodeBlocks; v != nil && !(*v >= 0 && *v <= 1) {
		return fmt.Sprintf("active_decode_blocks_threshold must be between 0.0 and 1.0, got %v", *v)
	}
	if v := t.ActivePrefillTokensFraction; v != nil && !(*v >= 0 && !math.IsInf(*v, 0)) {
		return fmt.Sprintf("active_prefill_tokens_threshold_frac must be a finite value greater than or equal to 0.0, got %v", *v)
	}
	return ""
}

func thresholdError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]string{"error": message})
}
