// Package piece says which stretches of a prompt are special tokens and which are text, whatever they spell. Encoders that write prompts
// without a template write pieces, and the tokenizer encodes each on its own, so that what a user writes never becomes a special token.
// It knows neither tokens nor formats.
package piece

import "strings"

// Piece is a stretch of a prompt, from the end of the one before it.
type Piece struct {
	// End is where it ends, in bytes of the prompt.
	End int
	// Special says that it is a special token; otherwise it is text.
	Special bool
}

// Prompt is a prompt as a model reads it.
type Prompt struct {
	Text string
	// Pieces are encoded one by one. None: the text is encoded as one, and special tokens that it spells out are such.
	Pieces []Piece
}

// Cut returns the prompt's first bytes.
func (p Prompt) Cut(bytes int) Prompt {
	if bytes >= len(p.Text) {
		return p
	}
	cut := Prompt{Text: p.Text[:bytes]}
	for _, piece := range p.Pieces {
		if piece.End >= bytes {
			piece.End = bytes
			if bytes > cut.end() {
				cut.Pieces = append(cut.Pieces, piece)
			}
			break
		}
		cut.Pieces = append(cut.Pieces, piece)
	}
	return cut
}

func (p Prompt) end() int {
	if len(p.Pieces) == 0 {
		return 0
	}
	return p.Pieces[len(p.Pieces)-1].End
}

// Writer writes a prompt. The zero value is ready for use.
type Writer struct {
	text   strings.Builder
	pieces []Piece
}

// Text writes text, a piece of its own; none where it is empty.
func (w *Writer) Text(text string) { w.write(text, false) }

// Special writes a special token.
func (w *Writer) Special(token string) { w.write(token, true) }

func (w *Writer) write(text string, special bool) {
	if text == "" {
		return
	}
	w.text.WriteString(text)
	w.pieces = append(w.pieces, Piece{w.text.Len(), special})
}

// Prompt returns what was written.
func (w *Writer) Prompt() Prompt { return Prompt{Text: w.text.String(), Pieces: w.pieces} }
