package toolcall

import "strings"

// gapRule says what becomes of the text outside of calls.
type gapRule uint8

const (
	// gapKeep shows all text. It is the rule of almost all formats.
	gapKeep gapRule = iota
	// gapFirst shows what stands before the calls and what follows the first block; from the second block on, text is dropped.
	gapFirst
	// gapBetween shows what stands before the calls and what is between the first two blocks.
	gapBetween
	// gapLead shows only what stands before the calls.
	gapLead
)

// maxHeldGap bounds the text that waits for the answer's end, in bytes; longer text is shown.
const maxHeldGap = 64 << 10

// gaps applies a rule.
type gaps struct {
	rule   gapRule
	blocks int
	shown  bool // text was shown since the last block
	silent bool // all further text is dropped
	held   strings.Builder

	afterBare bool // after a call without markup, white space waits for what follows
}

// bare tells of a call without markup. It counts as no block; white space between it and another, or the end, is dropped.
func (g *gaps) bare(out *sink) {
	if !g.afterBare {
		out.text(g.take())
	}
	g.held.Reset()
	g.afterBare = true
}

// text takes text outside of blocks.
func (g *gaps) text(text string, out *sink) {
	switch {
	case text == "" || g.silent:
	case g.afterBare:
		if g.held.WriteString(text); g.held.Len() > maxHeldGap || strings.TrimSpace(text) != "" {
			g.afterBare = false
			out.text(g.take())
		}
	case g.blocks == 0 || g.shown || g.rule == gapKeep || g.rule == gapFirst:
		out.text(text)
	case g.rule == gapBetween:
		g.held.WriteString(text)
		if g.held.Len() > maxHeldGap {
			g.shown = true
			out.text(g.take())
		}
	}
}

func (g *gaps) take() string {
	text := g.held.String()
	g.held.Reset()
	return text
}

// block tells that a block begins.
func (g *gaps) block(out *sink) {
	if g.afterBare {
		g.afterBare = false
		out.text(g.take())
	}
	if g.blocks > 0 {
		switch g.rule {
		case gapFirst:
			g.silent = true
		case gapBetween:
			out.text(g.take())
			g.silent = true
		}
	}
	g.blocks++
	g.shown = false
}
