package toolcall

import (
	"strings"
	"unicode/utf8"

	"signalbox/postprocess/internal/marker"
)

const (
	// maxBlock bounds one block of calls, in bytes. What is longer is no call: it is shown as text.
	maxBlock = 16 << 20
	// blockStep is how much text is added to a block before its end is looked for, so that a text that comes whole with many
	// blocks costs no more than one that comes in pieces.
	blockStep = 512
)

// closing is how the end of a block stands.
type closing uint8

const (
	closingMore   closing = iota // more text is needed
	closingDone                  // the block is complete
	closingBroken                // what came is no block
	closingText                  // what came is not even the beginning of one: the opener was ordinary text
)

// closer finds the end of one block; each byte is looked at once.
type closer interface {
	// find is given the block so far, which only grows. content is where the calls end, next where the text goes on.
	find(block string) (content, next int, status closing)
}

// completer is a closer that knows of a block whose end is optional that it could end here.
type completer interface {
	complete() (content int, ok bool)
}

// opener is a word that begins a block.
type opener struct {
	word   string
	closer func() closer
	// read returns the calls of a block; ok is false when there should be some and are none. cut tells that the answer ended
	// inside the block.
	read func(block string, cut bool, tools []Tool) (calls []found, ok bool)
	// bare blocks stand without their usual wrapping; nothing after them is text, up to a block that has it.
	bare bool
	// verbatim shows a block that cannot be read.
	verbatim bool
	// instead is shown in the place of a block that cannot be read.
	instead string
	// strict drops all that follows a broken block.
	strict bool
	// markup is no block but a word without meaning of its own (closer nil), or with content that nobody is shown.
	markup bool
}

// grammar is a format whose calls stand in blocks between words.
type grammar struct {
	openers []opener
	rule    gapRule
	// bare reads calls that are JSON without any markup; nil when there is no such thing.
	bare func(text string, cut bool) ([]found, bool)
	// lost tells that an answer that ends inside a block ran out of tokens.
	lost bool
	// reserved is the beginning of a cut-off word that is surely markup and not shown at the end.
	reserved string

	markers, bareMarkers *marker.Set
	byWord               map[string]*opener
}

// prepare builds what all parsers of the grammar share.
func (g *grammar) prepare() *grammar {
	g.byWord = make(map[string]*opener)
	var words []string
	for i := range g.openers {
		words = append(words, g.openers[i].word)
		g.byWord[g.openers[i].word] = &g.openers[i]
	}
	g.markers = marker.NewSet(words...)
	g.bareMarkers = g.markers
	if g.bare != nil {
		g.bareMarkers = marker.NewSet(append(words, "{", "[")...)
	}
	return g
}

// blocks reads one answer in a grammar.
type blocks struct {
	grammar *grammar
	gaps    gaps
	held    string // text that may be the beginning of an opener
	current *opener
	closer  closer
	block   strings.Builder
	bare    bareState
	scanner jsonScanner
	scanned int // of the bare value
	plain   bool
	hushed  bool // a bare block silenced the text
}

type bareState uint8

const (
	barePossible bareState = iota
	bareInside             // inside a value
	bareAfter              // after a value that is a call only when nothing but white space follows
	bareOver               // after a value that was none
)

func (g *grammar) machine() machine {
	b := &blocks{grammar: g}
	b.gaps.rule = g.rule
	if g.bare == nil {
		b.bare = bareOver
	}
	return b
}

func (b *blocks) feed(text string, out *sink) { b.run(text, true, out) }

// run takes text; more tells that further text may follow.
func (b *blocks) run(text string, more bool, out *sink) {
	for text != "" || !more && b.held != "" {
		switch {
		case b.plain:
			out.text(text)
			return
		case b.current != nil:
			text = b.inside(text, more, out)
		case b.bare == bareInside || b.bare == bareAfter:
			text = b.bareValue(text, more, out)
		default:
			text = b.outside(text, more, out)
		}
	}
}

// outside takes text up to the next opener and returns the rest.
func (b *blocks) outside(text string, more bool, out *sink) string {
	if b.held != "" {
		text, b.held = b.held+text, ""
	}
	markers := b.grammar.markers
	if b.bare == barePossible {
		markers = b.grammar.bareMarkers
	}
	m := markers.Search(text, more)
	if m.Word == "" {
		b.gaps.text(text[:m.At], out)
		b.held = text[m.At:]
		return ""
	}
	b.gaps.text(text[:m.At], out)
	if m.Word == "{" || m.Word == "[" {
		b.bare, b.scanner, b.scanned = bareInside, jsonScanner{}, 0
		b.block.Reset()
		return text[m.At:]
	}
	o := b.grammar.byWord[m.Word]
	if !o.markup {
		if b.hushed && !o.bare {
			b.hushed, b.gaps.silent = false, false
		}
		b.gaps.block(out)
	}
	if o.closer != nil {
		b.current, b.closer = o, o.closer()
		b.block.Reset()
	}
	return text[m.At+len(m.Word):]
}

// inside takes text of a block and returns what follows it.
func (b *blocks) inside(text string, more bool, out *sink) string {
	step := text
	if len(step) > blockStep {
		end := blockStep
		for end < len(text) && end < blockStep+utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end++
		}
		step = text[:end]
	}
	before := b.block.Len()
	b.block.WriteString(step)
	block := b.block.String()
	content, next, status := b.closer.find(block)
	if status == closingMore {
		if len(block) > maxBlock {
			b.plain = true
			out.text(b.current.word + block)
			b.current = nil
		}
		return text[len(step):]
	}
	o := b.current
	b.current, b.closer = nil, nil
	b.finishBlock(o, block, content, next, status, out)
	if next < before {
		b.run(block[next:before], more, out)
		next = before
	}
	return text[next-before:]
}

func (b *blocks) finishBlock(o *opener, block string, content, next int, status closing, out *sink) {
	if status == closingText {
		b.gaps.blocks--
		b.gaps.text(o.word+block[:next], out)
		return
	}
	if status == closingDone {
		calls, ok := o.read(block[:content], false, out.tools)
		if ok {
			out.call(calls...)
			if o.bare && !b.gaps.silent {
				b.hushed, b.gaps.silent = true, true
			}
			return
		}
	}
	switch {
	case o.verbatim && !b.gaps.silent:
		b.gaps.blocks--
		b.gaps.text(o.word+block[:next], out)
	case o.instead != "":
		b.gaps.blocks--
		b.gaps.text(o.instead, out)
	case o.strict:
		b.gaps.silent = true
	}
}

// bareValue takes text of a JSON value that may be a call and returns what follows it.
func (b *blocks) bareValue(text string, more bool, out *sink) string {
	before := b.block.Len()
	b.block.WriteString(text)
	all := b.block.String()
	if b.bare == bareInside {
		at, done, bad := b.scanner.scan(all, b.scanned)
		b.scanned = at
		switch {
		case bad || at > maxBlock:
			return b.notBare(all, at, before, text, out)
		case !done:
			return ""
		}
		b.bare = bareAfter
		if strings.Contains(all[:at], `"arguments"`) {
			if calls, ok := b.grammar.bare(all[:at], false); ok {
				b.bare = barePossible
				b.block.Reset()
				b.gaps.bare(out)
				out.call(calls...)
				return text[at-before:]
			}
		}
	}
	b.scanned += leadingSpace(all[b.scanned:])
	if b.scanned < len(all) {
		return b.notBare(all, b.scanned, before, text, out)
	}
	return ""
}

// notBare shows a value that was no call, up to at, and returns the text after it.
func (b *blocks) notBare(all string, at, before int, text string, out *sink) string {
	b.bare = bareOver
	b.block.Reset()
	b.gaps.text(all[:at], out)
	return text[at-before:]
}

// finish reads what is incomplete.
func (b *blocks) finish(out *sink) (truncated bool) {
	if held := b.held; held != "" && b.current == nil && b.grammar.reserved != "" && strings.HasPrefix(held, b.grammar.reserved) {
		b.held = ""
	}
	b.run("", false, out)
	if b.bare == bareInside || b.bare == bareAfter {
		text := b.block.String()
		if calls, ok := b.grammar.bare(text, b.bare == bareInside); ok {
			b.gaps.bare(out)
			out.call(calls...)
			text = ""
		} else {
			out.open = b.bare == bareInside
		}
		b.gaps.text(text, out)
	}
	if o := b.current; o != nil {
		block, cut := b.block.String(), true
		if c, ok := b.closer.(completer); ok {
			if content, ok := c.complete(); ok {
				block, cut = block[:content], false // no more than white space or the beginning of an optional end follows
			}
		}
		calls, ok := o.read(block, cut, out.tools)
		switch {
		case ok && len(calls) > 0:
			out.call(calls...)
		case !o.markup:
			out.open = true
			truncated = b.grammar.lost
		}
		b.current = nil
	}
	return truncated
}
