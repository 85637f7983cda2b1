package toolcall

import "strings"

// gapRule says what becomes of the text outside of calls. The rules look arbitrary and are: each is what the format's parsers
// in the field make of an answer that they see whole, and here it is the same however the answer is cut.
type gapRule uint8

const (
	// gapKeep shows all text.
	gapKeep gapRule = iota
	// gapFirst shows what stands before the calls and what follows the first block; from the second block on, text is dropped.
	gapFirst
	// gapFirstMerge is gapFirst with blocks that only white space separates counting as one.
	gapFirstMerge
	// gapOutside shows what stands before the first and after the last block, and drops what is between blocks.
	gapOutside
	// gapBetween shows what stands before the calls and what is between the first two blocks.
	gapBetween
	// gapLead shows only what stands before the calls.
	gapLead
	// gapTail is gapOutside, and the blocks after the first count only when text follows the last one.
	gapTail
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
	late   []found
}

// text takes text outside of blocks.
func (g *gaps) text(text string, out *sink) {
	switch {
	case text == "" || g.silent:
	case g.blocks == 0 || g.rule == gapKeep || g.shown:
		out.text(text)
	case g.rule == gapLead:
	case g.rule == gapFirst:
		g.shown = true
		out.text(text)
	case g.rule == gapFirstMerge && strings.TrimSpace(text) != "":
		g.shown = true
		out.text(g.take() + text)
	default:
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
	if g.blocks > 0 {
		switch g.rule {
		case gapFirst:
			g.silent = true
		case gapFirstMerge:
			g.silent = g.silent || g.shown
		case gapBetween:
			out.text(g.take())
			g.silent = true
		}
	}
	g.held.Reset()
	g.blocks++
	g.shown = false
}

// calls passes on what a block held.
func (g *gaps) calls(list []found, out *sink) {
	if g.rule == gapTail && g.blocks > 1 {
		g.late = append(g.late, list...)
		return
	}
	out.call(list...)
}

// finish shows or drops what is held.
func (g *gaps) finish(out *sink) {
	switch g.rule {
	case gapBetween:
	case gapTail:
		if text := g.take(); strings.TrimSpace(text) != "" {
			out.call(g.late...)
			out.text(text)
		}
	default:
		out.text(g.take())
	}
}
