package openai

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// Embed answers POST /v1/embeddings. The worker answers in the API's own shape; only the encoding of vectors is adapted.
func (a *API) Embed(w http.ResponseWriter, r *http.Request) {
	document, p := a.reader.Document(w, r)
	if p != nil {
		a.refuse(w, p)
		return
	}
	if a.draining() {
		a.refuse(w, problem.Draining())
		return
	}
	root := document.Root()
	f := body.NewFields(root, "")
	name := f.RequiredString("model")
	if f.Problem == nil {
		checkEmbeddingInput(f)
	}
	format := f.String("encoding_format")
	if format != nil && !slices.Contains([]string{"float", "base64"}, *format) {
		f.Fail("encoding_format", "unknown variant `%s`, expected `float` or `base64`", *format)
	}
	f.Uint32("dimensions")
	request := newRequest(r.Header)
	observed := a.observer.Begin("embeddings", name, false)
	observed.Named(request.ID, request.ClientRequestID, request.TraceParent)
	p = f.Problem
	var model Model
	if p == nil {
		model, p = a.find(name, Embeddings)
	}
	if p != nil {
		observed.End(pipeline.Usage{}, p, false)
		p.Write(w)
		return
	}
	observed.Model(model.Name())
	observed.Dispatched()
	answer, err := a.embed(r.Context(), model, request.ID, forwardBody(root, model.Name(), a.options.DisableExtensions))
	if err != nil {
		p := a.mapper.FromError(problem.Reason(r.Context(), err), false)
		observed.End(pipeline.Usage{}, p, problem.ClientGone(r.Context()))
		p.Write(w)
		return
	}
	if format == nil || *format == "float" {
		answer = decodeVectors(answer)
	}
	writeJSON(w, http.StatusOK, answer)
	observed.End(embeddingUsage(answer), nil, false)
}

func checkEmbeddingInput(f *body.Fields) {
	node := f.Object().Get("input")
	switch node.Kind() {
	case jsontape.Invalid:
		f.Missing("input")
	case jsontape.String:
	case jsontape.Array:
		if !sameKind(node) {
			f.Fail("input", "data did not match any variant of untagged enum EmbeddingInput")
		}
	default:
		f.Fail("input", "data did not match any variant of untagged enum EmbeddingInput")
	}
}

// sameKind tells whether the list holds only strings, only token ids, or only lists of token ids.
func sameKind(list jsontape.Node) bool {
	if _, bad := body.TokenIDs(list); !bad.Exists() {
		return true
	}
	kinds := make(map[jsontape.Kind]bool)
	for _, element := range list.Elements {
		kinds[element.Kind()] = true
		if element.Kind() == jsontape.Array {
			if _, bad := body.TokenIDs(element); bad.Exists() {
				return false
			}
		}
	}
	return len(kinds) == 1 && (kinds[jsontape.String] || kinds[jsontape.Array])
}

// embed returns the worker's one answer.
func (a *API) embed(ctx context.Context, model Model, id string, request []byte) ([]byte, error) {
	stream, err := model.Forward(ctx, id, request)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var answer []byte
	for {
		item, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if item.Body != nil {
			answer = slices.Clone(item.Body)
		}
	}
	if answer == nil {
		return nil, errors.New("the worker answered nothing")
	}
	return answer, nil
}

func embeddingUsage(answer []byte) pipeline.Usage {
	document, err := jsontape.Parse(answer)
	if err != nil {
		return pipeline.Usage{}
	}
	prompt, _ := document.Root().Get("usage").Get("prompt_tokens").Uint()
	return pipeline.Usage{PromptTokens: int(prompt)}
}

// decodeVectors replaces base64 vectors (little-endian float32) by numbers, for clients that want numbers.
func decodeVectors(answer []byte) []byte {
	document, err := jsontape.Parse(answer)
	if err != nil {
		return answer
	}
	var out []byte
	copied := 0
	for _, entry := range document.Root().Get("data").Elements {
		vector := entry.Get("embedding")
		if vector.Kind() != jsontape.String {
			continue
		}
		packed, err := base64.StdEncoding.DecodeString(vector.Text())
		if err != nil || len(packed)%4 != 0 {
			continue
		}
		raw := vector.Raw()
		start := vector.Offset() - len(raw)
		out = append(out, answer[copied:start]...)
		out = append(out, '[')
		for i := 0; i < len(packed); i += 4 {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendFloat(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(packed[i:]))))
		}
		out = append(out, ']')
		copied = vector.Offset()
	}
	return append(out, answer[copied:]...)
}
