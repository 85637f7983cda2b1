package pipeline

import (
	"encoding/json"
	"strings"

	"signalbox/inference"
	"signalbox/internal/jsontape"
)

// completeExtraArgs adds what engines read from extra_args beside their own options: the cache salt, which separates tenants, and for a
// prompt with media the conversation and the rendered prompt, from which some engines prepare the media themselves.
func completeExtraArgs(job *Job, text string) {
	r := job.Request
	media := len(r.MultiModal) > 0 && job.Prompt.Chat != nil
	if r.Routing.CacheSalt == "" && !media {
		return
	}
	all := make(map[string]json.RawMessage)
	own := make(map[string]json.RawMessage)
	if r.ExtraArgs != nil && json.Unmarshal(r.ExtraArgs, &all) == nil && all["nvext"] != nil {
		_ = json.Unmarshal(all["nvext"], &own) // the API wrote an object
	}
	set := func(into map[string]json.RawMessage, name string, value any) {
		if raw, err := json.Marshal(value); err == nil {
			into[name] = raw
		}
	}
	if salt := r.Routing.CacheSalt; salt != "" {
		set(own, "cache_salt", salt)
	}
	if len(own) > 0 {
		set(all, "nvext", own)
	}
	if media {
		all["messages"] = withoutInlineMedia(job.Prompt.Chat.Messages, r)
		set(all, "formatted_prompt", text)
	}
	if raw, err := json.Marshal(all); err == nil {
		r.ExtraArgs = raw
	}
}

// withoutInlineMedia empties the URLs that hold the media themselves: the request has them once already.
func withoutInlineMedia(messages []byte, r *inference.Request) []byte {
	document, err := jsontape.Parse(messages)
	if err != nil {
		return messages
	}
	var out []byte
	copied := 0
	for _, message := range document.Root().Elements {
		for _, part := range message.Get("content").Elements {
			source := part.Get(part.Get("type").Text())
			if _, isMedia := r.MultiModal[part.Get("type").Text()]; !isMedia {
				continue
			}
			if source.Kind() == jsontape.Object {
				source = source.Get("url")
			}
			if source.Kind() != jsontape.String || !strings.HasPrefix(source.Text(), "data:") {
				continue
			}
			out = append(out, messages[copied:source.Offset()-len(source.Raw())]...)
			out = append(out, `""`...)
			copied = source.Offset()
		}
	}
	return append(out, messages[copied:]...)
}
