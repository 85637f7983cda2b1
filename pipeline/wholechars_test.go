package pipeline

import "unicode/utf8"

// wholeCharacters decodes bytes and holds incomplete characters back; invalid ones become U+FFFD.
type wholeCharacters struct{ held []byte }

func (d *wholeCharacters) Step(id uint32) string {
	if id > 255 {
		return ""
	}
	d.held = append(d.held, byte(id))
	text := ""
	for len(d.held) > 0 && (utf8.FullRune(d.held)) {
		r, size := utf8.DecodeRune(d.held)
		text += string(r)
		d.held = d.held[size:]
	}
	return text
}

func (d *wholeCharacters) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = nil
	return "\uFFFD"
}
