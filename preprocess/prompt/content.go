package prompt

import (
	"strconv"
	"strings"

	"signalbox/preprocess/chattemplate"
)

// normalise brings a message's content into the template's form: text alone becomes one string, or one part for templates
// that read only parts, and media become parts without their address.
func (u contentUse) normalise(content chattemplate.Value) chattemplate.Value {
	switch content.Kind() {
	case chattemplate.KindString:
		if u.partsOnly {
			return chattemplate.List([]chattemplate.Value{textPart(content.Str())})
		}
		return content
	case chattemplate.KindList:
	default:
		return content
	}
	parts := content.Items()
	if len(parts) == 0 {
		return content // templates tell an empty list from an empty text
	}
	parts, onlyText := withoutAddresses(parts)
	switch {
	case u.partsOnly:
		return chattemplate.List(parts)
	case onlyText:
		return chattemplate.String(joinTexts(parts))
	case u.media != mediaParts:
		return chattemplate.String(u.flatten(parts))
	}
	return chattemplate.List(parts)
}

// mediaKinds are the parts that carry media, with what is left of them in the prompt.
var mediaKinds = map[string]chattemplate.Value{
	"image_url": mediaPart("image"), "video_url": mediaPart("video"), "audio_url": mediaPart("audio"),
}

func mediaPart(kind string) chattemplate.Value {
	part := chattemplate.NewDict(1)
	part.Set("type", chattemplate.String(kind))
	return part.Value()
}

func textPart(text string) chattemplate.Value {
	part := chattemplate.NewDict(2)
	part.Set("type", chattemplate.String("text"))
	part.Set("text", chattemplate.String(text))
	return part.Value()
}

// withoutAddresses replaces media by their kind, and tells whether there are none but text parts.
func withoutAddresses(parts []chattemplate.Value) (kept []chattemplate.Value, onlyText bool) {
	kept, onlyText = make([]chattemplate.Value, len(parts)), true
	for i, part := range parts {
		kind, _ := part.Get("type")
		if marker, ok := mediaKinds[kind.Str()]; ok {
			part = marker
		}
		onlyText = onlyText && kind.Str() == "text"
		kept[i] = part
	}
	return kept, onlyText
}

func joinTexts(parts []chattemplate.Value) string {
	texts := make([]string, 0, len(parts))
	for _, part := range parts {
		if text, ok := part.Get("text"); ok && text.Kind() == chattemplate.KindString {
			texts = append(texts, text.Str())
		}
	}
	return strings.Join(texts, "\n")
}

// flatten makes one text of parts, with a mark for everything that is no text.
func (u contentUse) flatten(parts []chattemplate.Value) string {
	var b strings.Builder
	media := 0
	for _, part := range parts {
		switch kind, _ := part.Get("type"); kind.Str() {
		case "text":
			text, _ := part.Get("text")
			b.WriteString(text.Str())
		case "":
		default:
			media++
			switch u.media {
			case mediaNumbered:
				b.WriteString("<|image_" + strconv.Itoa(media) + "|>")
			case mediaTagged:
				b.WriteString("<image>")
			}
		}
	}
	return b.String()
}
