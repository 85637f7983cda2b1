package openai

import (
	"context"
	"errors"
	"net/http"

	"signalbox/api/nvext"
	"signalbox/api/problem"
	"signalbox/api/sse"
	"signalbox/inference"
	"signalbox/internal/jsonbody"
	"signalbox/pipeline"
)

// annotate sends the annotations that the frontend itself answers, all before the first chunk.
func (a *API) annotate(out *sse.Writer, e *nvext.Extension, job *pipeline.Job, g Generation) {
	for _, name := range e.Annotations {
		switch name {
		case "request_id":
			a.annotation(out, name, []string{string(appendString(nil, job.Request.ID))})
		case "formatted_prompt":
			if job.Prompt.Chat != nil {
				a.annotation(out, name, []string{string(appendString(nil, g.FormattedPrompt()))})
			}
		case "token_ids":
			ids := jsonbody.AppendIDs(nil, g.PromptTokenIDs())
			a.annotation(out, name, []string{string(appendString(nil, string(ids)))})
		}
	}
}

func (a *API) annotation(out *sse.Writer, name string, comments []string) {
	if a.options.AnnotationsAsComments {
		for _, comment := range comments {
			out.Comment(name + " " + comment)
		}
		return
	}
	out.Annotation(name, comments...)
}

// finishStream ends a stream: usage and the end marker after a clean end, else an error event and the end marker.
func (a *API) finishStream(ctx context.Context, r *http.Request, out *sse.Writer, err error, usage func(), observed RequestObserver, g Generation) {
	var gone *clientGone
	switch {
	case err == nil:
		usage()
		if doneErr := out.Done(); doneErr != nil {
			observed.End(g.Usage(), clientClosed(doneErr), true)
			return
		}
		observed.End(g.Usage(), nil, false)
	case errors.As(err, &gone), problem.ClientGone(r.Context()):
		observed.End(g.Usage(), clientClosed(err), true)
	default:
		reason := problem.Reason(ctx, err)
		out.Data(a.mapper.InStream(reason).AppendJSON(nil))
		_ = out.Done()
		observed.End(g.Usage(), a.mapper.FromError(reason, true), inference.KindOf(reason) == inference.Cancelled)
	}
}

func clientClosed(cause error) *problem.Problem {
	return &problem.Problem{Status: problem.StatusClientClosed, Message: "Request cancelled", Class: "Cancelled", Reason: "request.cancelled", Cause: cause}
}
