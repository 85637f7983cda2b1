package frontend

import (
	"context"

	"signalbox/api/openai"
	"signalbox/inference"
	"signalbox/pipeline"
)

// pending is a model whose workers are registered and whose pipeline is not ready yet.
type pending string

// Name implements openai.Model.
func (p pending) Name() string { return string(p) }

// Ready implements openai.Model.
func (pending) Ready() bool { return false }

// Serves implements openai.Model.
func (pending) Serves(openai.Kind) bool { return true }

// Generate implements openai.Model.
func (pending) Generate(context.Context, *pipeline.Job) (openai.Generation, error) {
	return nil, pipeline.ErrNoWorkers
}

// Forward implements openai.Model.
func (pending) Forward(context.Context, string, []byte) (inference.Stream, error) {
	return nil, pipeline.ErrNoWorkers
}
