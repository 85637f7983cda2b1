package openai

import (
	"reflect"
	"strings"
	"testing"

	"signalbox/inference"
)

// TestMediaReachTheWorker reads media of users and tools; a part that says nothing of where its medium is is refused.
func TestMediaReachTheWorker(t *testing.T) {
	chat, mistake := readChatBody(t, `{"model":"m","messages":[
		{"role":"system","content":[{"type":"text","text":"s"}]},
		{"role":"user","content":[{"type":"image_url","image_url":{"url":"u1"},"uuid":"name"},{"type":"text","text":"t"},{"type":"image_url","image_url":"u2"},{"type":"image_url","uuid":"cached"}]},
		{"role":"user","content":[{"type":"video_url","video_url":{"url":"v"}},{"type":"audio_url","audio_url":{"url":"a"}}]}]}`)
	if mistake != "" {
		t.Fatal(mistake)
	}
	want := map[string][]inference.Media{"image_url": {{URL: "u1", UUID: "name"}, {URL: "u2"}, {UUID: "cached"}}, "video_url": {{URL: "v"}}, "audio_url": {{URL: "a"}}}
	if got := chat.job.Request.MultiModal; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for part, want := range map[string]string{
		`{"type":"video_url","video_url":{"url":"v"},"uuid":"x"}`: "supported only for image_url",
		`{"type":"image_url","image_url":{"url":"v"},"uuid":""}`:  "must be a non-empty string",
		`{"type":"image_url","image_url":{"url":""}}`:             "neither `url` nor `uuid`",
	} {
		if _, mistake := readChatBody(t, `{"model":"m","messages":[{"role":"user","content":[`+part+`]}]}`); !strings.Contains(mistake, want) {
			t.Errorf("%s: %q, want %q", part, mistake, want)
		}
	}
}
