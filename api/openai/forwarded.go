package openai

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// forwarded is a request that goes to its worker in the API's own shape: media, scores and pooled vectors.
type forwarded struct {
	api      *API
	endpoint string // metric label
	kind     Kind
	fields   *body.Fields
	name     string // the model's, as the client wrote it
	stream   bool
	observed RequestObserver
	items    inference.Stream
}

// acceptForward reads and judges a body; judge looks at what the endpoint has of its own. False when the request is answered.
func (a *API) acceptForward(w http.ResponseWriter, r *http.Request, endpoint string, kind Kind, judge func(f *forwarded) *problem.Problem) (*forwarded, bool) {
	document, p := a.reader.Document(w, r)
	if p == nil && a.draining() {
		p = problem.Draining()
	}
	if p != nil {
		a.refuse(w, p)
		return nil, false
	}
	f := &forwarded{api: a, endpoint: endpoint, kind: kind, fields: body.NewFields(document.Root(), "")}
	if f.fields.Problem == nil {
		p = judge(f)
	}
	if p == nil {
		p = f.fields.Problem
	}
	request := newRequest(r.Header)
	f.observed = a.observer.Begin(endpoint, f.name, f.stream)
	f.observed.Named(request.ID, request.ClientRequestID, request.TraceParent)
	var model Model
	if p == nil {
		model, p = a.find(f.name, kind)
	}
	if p != nil {
		f.observed.End(pipeline.Usage{}, p, false)
		p.Write(w)
		return nil, false
	}
	f.observed.Model(model.Name())
	f.observed.Dispatched()
	var err error
	if f.items, err = model.Forward(r.Context(), request.ID, f.bodyFor(model.Name())); err != nil {
		f.fail(w, r, err)
		return nil, false
	}
	return f, true
}

// bodyFor is what the worker gets: the canonical model name, and no extensions where those are switched off.
func (f *forwarded) bodyFor(model string) []byte {
	return forwardBody(f.fields.Object(), model, f.api.options.DisableExtensions)
}

// forwardBody rewrites a body for its worker.
func forwardBody(root jsontape.Node, model string, dropExtensions bool) []byte {
	extensions := dropExtensions && root.Get("nvext").Exists()
	if root.Get("model").Text() == model && !extensions {
		return root.Raw()
	}
	b := append([]byte(`{"model":`), appendString(nil, model)...)
	for key, value := range root.Members {
		if key == "model" || key == "nvext" && dropExtensions {
			continue
		}
		b = append(b, ',')
		b = appendString(b, key)
		b = append(b, ':')
		b = append(b, value.Raw()...)
	}
	return append(b, '}')
}

// fail answers a request that has not been answered yet.
func (f *forwarded) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := f.api.mapper.FromError(problem.Reason(r.Context(), err), false)
	f.observed.End(pipeline.Usage{}, p, problem.ClientGone(r.Context()))
	p.Write(w)
}

// next returns the next item's body; io.EOF at the end. The body is the caller's until the following call.
func (f *forwarded) next(ctx context.Context) ([]byte, error) {
	for {
		item, err := f.items.Next(ctx)
		if err != nil {
			return nil, err
		}
		if item.Body != nil {
			f.observed.Tokens(0)
			return item.Body, nil
		}
	}
}

// whole gathers the answer: workers may send its data in several items.
func (f *forwarded) whole(ctx context.Context) ([]byte, error) {
	var answer []byte
	for {
		item, err := f.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if answer == nil {
			answer = slices.Clone(item)
			continue
		}
		if answer, err = joinData(answer, item); err != nil {
			return nil, err
		}
	}
	if answer == nil {
		return nil, errors.New("the worker answered nothing")
	}
	return answer, nil
}

// joinData puts the elements of the second answer's data behind the first's.
func joinData(first, second []byte) ([]byte, error) {
	into, err := jsontape.Parse(first)
	if err != nil {
		return nil, err
	}
	from, err := jsontape.Parse(second)
	if err != nil {
		return nil, err
	}
	have, more := into.Root().Get("data"), from.Root().Get("data")
	if have.Kind() != jsontape.Array || more.Kind() != jsontape.Array || more.Len() == 0 {
		return first, nil
	}
	end := have.Offset() - 1 // before the bracket
	b := append([]byte(nil), first[:end]...)
	if have.Len() > 0 {
		b = append(b, ',')
	}
	elements := more.Raw()
	b = append(b, elements[1:len(elements)-1]...)
	return append(b, first[end:]...), nil
}

// answerJSON gathers the answer and writes it as it is.
func (f *forwarded) answerJSON(w http.ResponseWriter, r *http.Request) {
	answer, err := f.whole(r.Context())
	if err != nil {
		f.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
	f.observed.End(embeddingUsage(answer), nil, false)
}

// firstMedium decodes the first element of an answer's data; nil when it holds none itself, as an answer by URL.
func firstMedium(answer []byte) (medium []byte, format string) {
	var read struct {
		Data []struct {
			Format string  `json:"output_format"`
			Base64 *string `json:"b64_json"`
		}
	}
	if json.Unmarshal(answer, &read) != nil || len(read.Data) == 0 || read.Data[0].Base64 == nil {
		return nil, ""
	}
	medium, err := base64.StdEncoding.DecodeString(*read.Data[0].Base64)
	if err != nil {
		return nil, ""
	}
	return medium, read.Data[0].Format
}
