package tokenizer

import "unicode/utf8"

// text is a stretch of normalised text on its way to the model. When offsets are wanted it knows where in the original its bytes
// come from.
type text struct {
	s string
	// base is the offset of s in the original; it counts while from is nil, that is, while nothing has been changed.
	base int
	// from and to hold, by byte of s, the range of the original that the byte stands for.
	from, to []int32
	// first tells that the stretch is at the beginning of the original.
	first bool
	track bool
}

// slice returns the part from i to j.
func (t text) slice(i, j int) text {
	part := text{s: t.s[i:j], base: t.base + i, first: t.first && i == 0, track: t.track}
	if t.from != nil {
		part.from, part.to = t.from[i:j], t.to[i:j]
	}
	return part
}

// span returns the range of the original that the bytes from i to j stand for.
func (t text) span(i, j int) Span {
	if t.from == nil {
		return Span{t.base + i, t.base + j}
	}
	if i >= j {
		at := 0
		if i < len(t.from) {
			at = int(t.from[i])
		} else if len(t.to) > 0 {
			at = int(t.to[len(t.to)-1])
		}
		return Span{at, at}
	}
	return Span{int(t.from[i]), int(t.to[j-1])}
}

// rewriter makes a changed copy of a text.
type rewriter struct {
	in       text
	out      []byte
	from, to []int32
}

func rewrite(in text) *rewriter {
	return &rewriter{in: in, out: make([]byte, 0, len(in.s)+len(in.s)/4+8)}
}

// put appends s, which stands for the bytes of the input from i to j.
func (w *rewriter) put(s string, i, j int) {
	w.out = append(w.out, s...)
	w.trace(i, j)
}

// rune appends a character that stands for the bytes of the input from i to j.
func (w *rewriter) rune(r rune, i, j int) {
	w.out = utf8.AppendRune(w.out, r)
	w.trace(i, j)
}

// keep appends the bytes of the input from i to j as they are.
func (w *rewriter) keep(i, j int) {
	w.out = append(w.out, w.in.s[i:j]...)
	if !w.in.track {
		return
	}
	for k := i; k < j; k++ {
		s := w.in.span(k, k+1)
		w.from, w.to = append(w.from, int32(s.Start)), append(w.to, int32(s.End))
	}
}

func (w *rewriter) trace(i, j int) {
	if !w.in.track {
		return
	}
	s := w.in.span(i, j)
	for len(w.from) < len(w.out) {
		w.from, w.to = append(w.from, int32(s.Start)), append(w.to, int32(s.End))
	}
}

func (w *rewriter) done() text {
	return text{s: string(w.out), from: w.from, to: w.to, base: w.in.base, first: w.in.first, track: w.in.track}
}

// result collects what an encoding yields.
type result struct {
	ids   []uint32
	spans []Span
	track bool
}

func (r *result) add(id uint32, from text, i, j int) {
	r.ids = append(r.ids, id)
	if r.track {
		r.spans = append(r.spans, from.span(i, j))
	}
}
