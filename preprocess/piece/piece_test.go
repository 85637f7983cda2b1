package piece

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func written() Prompt {
	var w Writer
	w.Special("<a>")
	w.Text("")
	w.Text("one")
	w.Text("two")
	w.Special("<b>")
	return w.Prompt()
}

func TestAPromptIsItsPieces(t *testing.T) {
	p := written()
	if want := []Piece{{3, true}, {6, false}, {9, false}, {12, true}}; p.Text != "<a>onetwo<b>" || !slices.Equal(p.Pieces, want) {
		t.Fatalf("got %+v", p)
	}
}

// A prompt that is cut has the pieces that its text had there, none empty and none beyond the end.
func TestCutKeepsKinds(t *testing.T) {
	kinds := func(p Prompt) (list []bool) {
		for _, piece := range p.Pieces {
			for len(list) < piece.End {
				list = append(list, piece.Special)
			}
		}
		return list
	}
	rapid.Check(t, func(t *rapid.T) {
		var w Writer
		for range rapid.IntRange(0, 6).Draw(t, "pieces") {
			w.write(rapid.StringN(0, 4, -1).Draw(t, "text"), rapid.Bool().Draw(t, "special"))
		}
		p := w.Prompt()
		at := rapid.IntRange(0, len(p.Text)+1).Draw(t, "at")
		cut := p.Cut(at)
		at = min(at, len(p.Text))
		if cut.Text != p.Text[:at] || !slices.Equal(kinds(cut), kinds(p)[:at]) {
			t.Fatalf("%+v cut at %d: %+v", p, at, cut)
		}
		previous := 0
		for _, piece := range cut.Pieces {
			if piece.End <= previous {
				t.Fatalf("%+v has an empty piece", cut)
			}
			previous = piece.End
		}
	})
}
