package openai

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"signalbox/api/problem"
	"signalbox/api/sse"
	"signalbox/pipeline"
)

// defaultImageModel serves image requests that name no model.
const defaultImageModel = "diffusion"

// Images answers POST /v1/images/generations.
func (a *API) Images(w http.ResponseWriter, r *http.Request) { a.images(w, r, judgeImages) }

// ImageEdits answers POST /v1/images/edits, which needs an image to start from.
func (a *API) ImageEdits(w http.ResponseWriter, r *http.Request) {
	a.images(w, r, func(f *forwarded) *problem.Problem {
		p := judgeImages(f)
		if p == nil && f.fields.Problem == nil && !f.fields.Node("input_reference").Exists() {
			p = problem.Invalid("input_reference", "input_reference is required for /v1/images/edits")
		}
		return p
	})
}

func (a *API) images(w http.ResponseWriter, r *http.Request, judge func(f *forwarded) *problem.Problem) {
	f, ok := a.acceptForward(w, r, "images", Images, judge)
	if !ok {
		return
	}
	defer f.items.Close()
	f.answerJSON(w, r)
}

func judgeImages(f *forwarded) *problem.Problem {
	f.fields.RequiredString("prompt")
	f.name = defaultImageModel
	if name := f.fields.String("model"); name != nil {
		f.name = *name
	}
	f.fields.Uint8("n")
	for _, name := range []string{"input_reference", "size", "quality", "response_format", "output_format", "style", "background", "moderation", "user"} {
		f.fields.String(name)
	}
	return nil
}

func judgeVideos(f *forwarded) *problem.Problem {
	f.fields.RequiredString("prompt")
	f.name = f.fields.RequiredString("model")
	for _, name := range []string{"input_reference", "size", "user", "response_format", "output_format"} {
		f.fields.String(name)
	}
	f.fields.Int64("seconds")
	if stream := f.fields.Bool("stream"); stream != nil {
		f.stream = *stream
	}
	return nil
}

// Videos answers POST /v1/videos/generations, whole or as a stream of events.
func (a *API) Videos(w http.ResponseWriter, r *http.Request) {
	f, ok := a.acceptForward(w, r, "videos", Videos, judgeVideos)
	if !ok {
		return
	}
	defer f.items.Close()
	if !f.stream {
		f.answerJSON(w, r)
		return
	}
	out := sse.NewWriter(w, a.options.WriteTimeout)
	_ = out.Start()
	for {
		item, err := f.next(r.Context())
		switch {
		case errors.Is(err, io.EOF):
			err = out.Done()
			f.end(r, err, nil)
			return
		case err != nil && !problem.ClientGone(r.Context()):
			out.Data(a.mapper.InStream(problem.Reason(r.Context(), err)).AppendJSON(nil))
			_ = out.Done()
			f.end(r, nil, err)
			return
		case err == nil:
			out.Data(item)
			err = out.Flush()
		}
		if err != nil {
			f.end(r, err, nil)
			return
		}
	}
}

// end tells how a stream ended: gone is set when the client did not take it all, failure when the worker broke off.
func (f *forwarded) end(r *http.Request, gone, failure error) {
	switch {
	case gone != nil || problem.ClientGone(r.Context()):
		f.observed.End(pipeline.Usage{}, clientClosed(gone), true)
	case failure != nil:
		f.observed.End(pipeline.Usage{}, f.api.mapper.FromError(problem.Reason(r.Context(), failure), true), false)
	default:
		f.observed.End(pipeline.Usage{}, nil, false)
	}
}

// VideoFrames answers POST /v1/videos/generations/stream: each item is a JPEG picture, written as a part of a body whose parts
// replace each other, which browsers show as they come.
func (a *API) VideoFrames(w http.ResponseWriter, r *http.Request) {
	f, ok := a.acceptForward(w, r, "videos", Videos, func(f *forwarded) *problem.Problem {
		p := judgeVideos(f)
		f.stream = true
		return p
	})
	if !ok {
		return
	}
	defer f.items.Close()
	timeout := a.options.WriteTimeout
	if timeout <= 0 {
		timeout = sse.DefaultWriteTimeout
	}
	controller := http.NewResponseController(w)
	w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=frame")
	w.WriteHeader(http.StatusOK)
	for {
		item, err := f.next(r.Context())
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			f.end(r, nil, err)
			return
		}
		frame, _ := firstMedium(item)
		if frame == nil {
			continue // no picture in it: the next one may have one
		}
		part := append([]byte("--frame\r\nContent-Type: image/jpeg\r\nContent-Length: "), strconv.Itoa(len(frame))...)
		part = append(append(append(part, "\r\n\r\n"...), frame...), "\r\n"...)
		_ = controller.SetWriteDeadline(time.Now().Add(timeout)) // not supported by recorders in tests
		_, err = w.Write(part)
		if err == nil {
			err = controller.Flush()
		}
		if err != nil {
			f.end(r, err, nil)
			return
		}
	}
}

// audioTypes are the content types of audio by the worker's word for its format.
var audioTypes = map[string]string{"mp3": "audio/mpeg", "flac": "audio/flac", "pcm": "audio/pcm", "aac": "audio/aac", "opus": "audio/ogg; codecs=opus"}

// Speech answers POST /v1/audio/speech with the sound itself, or with JSON when the worker answers by URL.
func (a *API) Speech(w http.ResponseWriter, r *http.Request) {
	f, ok := a.acceptForward(w, r, "audios", Audios, func(f *forwarded) *problem.Problem {
		f.fields.RequiredString("input")
		for _, name := range []string{"voice", "data_source", "response_format", "task_type", "language", "instructions", "ref_audio", "ref_text", "user"} {
			f.fields.String(name)
		}
		f.fields.Float64("speed")
		f.fields.Int64("max_new_tokens")
		if name := f.fields.String("model"); name != nil {
			f.name = *name
		} else if list := a.models.List(); len(list) > 0 {
			at := slices.IndexFunc(list, func(l Listing) bool { m := a.models.Find(l.Name); return m != nil && m.Serves(Audios) })
			f.name = list[max(at, 0)].Name
		}
		return nil
	})
	if !ok {
		return
	}
	defer f.items.Close()
	answer, err := f.whole(r.Context())
	if err != nil {
		f.fail(w, r, err)
		return
	}
	if audioFailed(answer) {
		p := &problem.Problem{Status: http.StatusBadRequest, Message: "Invalid request", Class: "InvalidRequest", Reason: "backend.invalid_argument"}
		writeJSON(w, http.StatusBadRequest, answer)
		f.observed.End(pipeline.Usage{}, p, false)
		return
	}
	if sound, format := firstMedium(answer); sound != nil {
		kind := audioTypes[format]
		if kind == "" {
			kind = "audio/wav"
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(sound)
	} else {
		writeJSON(w, http.StatusOK, answer)
	}
	f.observed.End(pipeline.Usage{}, nil, false)
}
