package openai

import (
	"bytes"
	"slices"

	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
)

// mediaParts are the content parts that carry media, which the worker fetches.
var mediaParts = []string{"image_url", "video_url", "audio_url"}

// ReadMedia gathers the media of a conversation that another protocol was translated to.
func ReadMedia(messages []byte, r *inference.Request) *problem.Problem {
	if !bytes.Contains(messages, []byte(`_url"`)) {
		return nil
	}
	document, err := jsontape.Parse(messages)
	if err != nil {
		return problem.Invalid("messages", "messages: %v", err)
	}
	return readMedia(document.Root(), r)
}

// readMedia gathers the media of users' turns and of tools' results, in their order.
func readMedia(messages jsontape.Node, r *inference.Request) *problem.Problem {
	for _, message := range messages.Elements {
		if role := message.Get("role").Text(); role != "user" && role != "tool" {
			continue
		}
		for _, part := range message.Get("content").Elements {
			kind := part.Get("type").Text()
			if !slices.Contains(mediaParts, kind) {
				continue
			}
			source, name := part.Get(kind), part.Get("uuid")
			medium := inference.Media{URL: source.Text(), UUID: name.Text()}
			if source.Kind() == jsontape.Object {
				medium.URL = source.Get("url").Text()
			}
			switch {
			case name.Present() && kind != "image_url":
				return problem.Invalid("messages", "multimodal cache UUIDs are supported only for image_url parts with vLLM")
			case name.Present() && medium.UUID == "":
				return problem.Invalid("messages", "%s uuid must be a non-empty string", kind)
			case medium == inference.Media{}:
				return problem.Invalid("messages", "%s part has neither `url` nor `uuid`; at least one is required", kind)
			}
			if r.MultiModal == nil {
				r.MultiModal = make(map[string][]inference.Media)
			}
			r.MultiModal[kind] = append(r.MultiModal[kind], medium)
		}
	}
	return nil
}
