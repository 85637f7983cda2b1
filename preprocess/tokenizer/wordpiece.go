package tokenizer

import "unicode/utf8"

// wordPiece takes the longest token that a word begins with, again and again.
type wordPiece struct {
	vocab   *vocabulary
	unknown uint32
	prefix  string // of tokens inside of a word
	longest int    // words of more characters are unknown
}

func (w *wordPiece) tokenize(out *result, piece text) {
	if utf8.RuneCountInString(piece.s) > w.longest {
		out.add(w.unknown, piece, 0, len(piece.s))
		return
	}
	ids, spans := len(out.ids), len(out.spans)
	buf := make([]byte, 0, len(w.prefix)+len(piece.s))
	for start := 0; start < len(piece.s); {
		end := len(piece.s)
		for ; end > start; end-- {
			if end < len(piece.s) && !utf8.RuneStart(piece.s[end]) {
				continue
			}
			buf = buf[:0]
			if start > 0 {
				buf = append(buf, w.prefix...)
			}
			buf = append(buf, piece.s[start:end]...)
			if id, ok := w.vocab.id(string(buf)); ok {
				out.add(id, piece, start, end)
				break
			}
		}
		if end == start {
			out.ids, out.spans = out.ids[:ids], out.spans[:spans]
			out.add(w.unknown, piece, 0, len(piece.s))
			return
		}
		start = end
	}
}
