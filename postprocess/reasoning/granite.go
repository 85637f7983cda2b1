package reasoning

import (
	"strings"

	"signalbox/postprocess/internal/marker"
)

// Granite announces its parts in plain words. The first reasoning and the first answer are shown as they are; the parts after them
// come without the white space around them, answers with a space between.

var (
	graniteStarts = []string{"Here's my thought process:", "Here is my thought process:"}
	graniteEnds   = []string{"Here's my response:", "Here is my response:"}
	graniteWords  = marker.NewSet(append(append([]string{}, graniteStarts...), graniteEnds...)...)
	graniteInside = marker.NewSet(graniteEnds...)
)

type granite struct {
	inside   bool
	held     string
	space    strings.Builder // white space that waits for what follows it
	thoughts int             // reasoning parts so far, this one included
	answers  int             // answer parts that showed something
	spoke    bool            // this part showed something
}

func (g *granite) feed(text string, out *Parser) { g.run(text, true, out) }

func (g *granite) run(text string, more bool, out *Parser) {
	for text != "" {
		text, g.held = g.held+text, ""
		set := graniteWords
		if g.inside {
			set = graniteInside
		}
		m := set.Search(text, more)
		g.take(text[:m.At], out)
		if m.Word == "" {
			g.held = text[m.At:]
			return
		}
		text = text[m.At+len(m.Word):]
		g.part(strings.HasSuffix(m.Word, "process:"), out)
	}
}

// part begins a part of the answer.
func (g *granite) part(inside bool, out *Parser) {
	if g.inside && g.thoughts <= 1 {
		out.reasoning(g.takeSpace()) // the first reasoning keeps its end
	}
	g.space.Reset()
	if !g.inside && g.spoke {
		g.answers++
	}
	g.inside, g.spoke = inside, false
	if inside {
		g.thoughts++
	}
}

func (g *granite) takeSpace() string {
	text := g.space.String()
	g.space.Reset()
	return text
}

func (g *granite) take(text string, out *Parser) {
	if text == "" {
		return
	}
	shown := strings.TrimRight(text, " \n\t\r")
	space := text[len(shown):]
	if shown == "" {
		g.space.WriteString(space)
		return
	}
	shown = g.takeSpace() + shown
	g.space.WriteString(space)
	if !g.spoke {
		switch {
		case g.inside && g.thoughts > 1:
			shown = strings.TrimLeft(shown, " \n\t\r")
			if g.thoughts > 2 {
				shown = " " + shown
			}
		case !g.inside && g.answers > 0:
			shown = " " + strings.TrimLeft(shown, " \n\t\r")
		}
	}
	g.spoke = true
	if g.inside {
		out.reasoning(shown)
	} else {
		out.content(shown)
	}
}

func (g *granite) finish(out *Parser) {
	held := g.held
	g.held = ""
	g.run(held, false, out)
	switch {
	case g.inside:
		out.reasoning(g.takeSpace())
	case g.answers == 0:
		out.content(g.takeSpace())
	}
}
