package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeStep changes the texts of tokens on their way to joined text. It may work in place.
type decodeStep func(tokens []string) []string

func decodeSequence(steps []decodeStep) decodeStep {
	return func(tokens []string) []string {
		for _, step := range steps {
			tokens = step(tokens)
		}
		return tokens
	}
}

// eachToken makes a step of a change to single tokens; i is the token's index.
func eachToken(change func(i int, token string) string) decodeStep {
	return func(tokens []string) []string {
		for i, token := range tokens {
			tokens[i] = change(i, token)
		}
		return tokens
	}
}

func fuse(tokens []string) []string { return []string{strings.Join(tokens, "")} }

// decodeBytes undoes the byte-level alphabet. A token with a character that is not in it stands for itself.
func decodeBytes(tokens []string) []string {
	var b []byte
	for _, token := range tokens {
		b = appendBytes(b, token)
	}
	return []string{lossy(b)}
}

func appendBytes(dst []byte, token string) []byte {
	out, ok := unalphabet(dst, []byte(token))
	if !ok {
		return append(dst, token...)
	}
	return out
}

// byteFallback joins runs of <0xNN> tokens to characters, or to one U+FFFD a byte where they are none.
func byteFallback(tokens []string) []string {
	var out []string
	var run []byte
	flush := func() {
		switch {
		case len(run) == 0:
		case utf8.Valid(run):
			out = append(out, string(run))
		default:
			for range run {
				out = append(out, "\uFFFD")
			}
		}
		run = run[:0]
	}
	for _, token := range tokens {
		if len(token) == 6 && token[:3] == "<0x" && token[5] == '>' {
			if b, err := strconv.ParseUint(token[3:5], 16, 8); err == nil {
				run = append(run, byte(b))
				continue
			}
		}
		flush()
		out = append(out, token)
	}
	flush()
	return out
}

// stripDecoder takes up to start and stop copies of content from the ends of each token.
func stripDecoder(content string, start, stop int) decodeStep {
	return eachToken(func(_ int, token string) string {
		for range start {
			token = strings.TrimPrefix(token, content)
		}
		for range stop {
			token = strings.TrimSuffix(token, content)
		}
		return token
	})
}

func replaceDecoder(p pattern, content string) decodeStep {
	change := replaced(p, content)
	return eachToken(func(_ int, token string) string { return change(text{s: token}).s })
}

func metaspaceDecoder(m metaspace) decodeStep {
	return eachToken(func(i int, token string) string {
		if i == 0 && m.prepend != "never" {
			return strings.ReplaceAll(token, m.replacement, "")
		}
		return strings.ReplaceAll(token, m.replacement, " ")
	})
}

func wordPieceDecoder(prefix string, cleanup bool) decodeStep {
	return eachToken(func(i int, token string) string {
		if i > 0 {
			if rest, inside := strings.CutPrefix(token, prefix); inside {
				token = rest
			} else {
				token = " " + token
			}
		}
		if cleanup {
			token = cleanUp(token)
		}
		return token
	})
}

// cleanUp takes out the spaces that English has none of. The replacements come one after another.
func cleanUp(s string) string {
	for _, r := range [...][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
		{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}} {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	return s
}

func suffixDecoder(suffix string) decodeStep {
	return func(tokens []string) []string {
		for i, token := range tokens {
			replacement := " "
			if i == len(tokens)-1 {
				replacement = ""
			}
			tokens[i] = strings.ReplaceAll(token, suffix, replacement)
		}
		return tokens
	}
}

func ctcDecoder(pad, delimiter string, cleanup bool) decodeStep {
	return func(tokens []string) []string {
		var out []string
		last := ""
		for i, token := range tokens {
			if i > 0 && token == last {
				continue
			}
			last = token
			token = strings.ReplaceAll(token, pad, "")
			if cleanup {
				token = strings.ReplaceAll(cleanUp(token), delimiter, " ")
			}
			if token != "" {
				out = append(out, token)
			}
		}
		return out
	}
}

// Decode returns the text of the ids, without special tokens if skipSpecial. Ids that have no token decode to nothing; bytes that are no
// character decode to U+FFFD.
func (t *Tokenizer) Decode(ids []uint32, skipSpecial bool) string {
	if t.byteDecoder {
		var b []byte
		for _, id := range ids {
			if !skipSpecial || !t.special.has(id) {
				b = t.appendToken(b, id)
			}
		}
		return lossy(b)
	}
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		if skipSpecial && t.special.has(id) {
			continue
		}
		if added, ok := t.addedByID[id]; ok {
			tokens = append(tokens, added.Content)
		} else if t.vocab.has(id) {
			tokens = append(tokens, string(t.vocab.token(id)))
		}
	}
	if t.decode == nil {
		return strings.Join(tokens, " ")
	}
	return strings.Join(t.decode(tokens), "")
}

// appendToken appends the bytes of a token to b, for byte-level decoders.
func (t *Tokenizer) appendToken(b []byte, id uint32) []byte {
	if added, ok := t.addedByID[id]; ok {
		return appendBytes(b, added.Content)
	}
	if t.raw {
		return append(b, t.vocab.token(id)...)
	}
	return appendBytes(b, string(t.vocab.token(id)))
}

// Token returns the text of one token alone.
func (t *Tokenizer) Token(id uint32) string { return t.Decode([]uint32{id}, false) }

// contextTokens is how many tokens of the prompt a decoder looks back at: so many that a character or a word that the prompt ends in
// the middle of comes out right.
const contextTokens = 5

// Decoder turns tokens into text one by one. Texts that it has returned, joined, are what the tokens decode to behind the prompt. It
// never returns a part of a character. A decoder belongs to one goroutine.
type Decoder struct {
	tokenizer   *Tokenizer
	skipSpecial bool

	// Where each token stands for bytes of its own, these are the ones not returned yet.
	pending []byte

	// Else the tokens that still matter: up to read their text is out, and it was in context.
	ids  []uint32
	read int
	prev string // the text of ids[:read]
}

// NewDecoder returns a decoder of the tokens that follow prompt, which may be empty.
func (t *Tokenizer) NewDecoder(prompt []uint32, skipSpecial bool) *Decoder {
	d := &Decoder{tokenizer: t, skipSpecial: skipSpecial}
	prompt = prompt[max(0, len(prompt)-contextTokens):]
	if t.byteDecoder && !strings.HasSuffix(t.Decode(prompt, skipSpecial), "\uFFFD") {
		return d
	}
	d.ids = append(make([]uint32, 0, 2*contextTokens), prompt...)
	d.read = len(d.ids)
	d.prev = t.Decode(d.ids, skipSpecial)
	return d
}

// Step returns the text that the token completes; "" while a character is incomplete.
func (d *Decoder) Step(id uint32) string {
	if d.tokenizer.byteDecoder && d.ids == nil {
		return d.stepBytes(id)
	}
	t := d.tokenizer
	d.ids = append(d.ids, id)
	all := t.Decode(d.ids, d.skipSpecial)
	if len(all) <= len(d.prev) || strings.HasSuffix(all, "\uFFFD") {
		if len(d.ids) > maxWindow {
			return d.Flush()
		}
		return ""
	}
	return d.emit(all)
}

// maxWindow bounds the tokens that wait for a character to become complete.
const maxWindow = 256

func (d *Decoder) emit(all string) string {
	out, known := strings.CutPrefix(all, d.prev)
	if !known { // the tokens changed what is out already; go on with what they say themselves
		out = d.tokenizer.Decode(d.ids[d.read:], d.skipSpecial)
	}
	d.ids = d.ids[:copy(d.ids, d.ids[d.read:])]
	d.read = len(d.ids)
	d.prev = d.tokenizer.Decode(d.ids, d.skipSpecial)
	return out
}

// stepBytes is Step where tokens are bytes: nothing has to be decoded twice.
func (d *Decoder) stepBytes(id uint32) string {
	if d.skipSpecial && d.tokenizer.special.has(id) {
		return ""
	}
	d.pending = d.tokenizer.appendToken(d.pending, id)
	if incomplete(d.pending) {
		if len(d.pending) > maxWindow*16 {
			return d.Flush()
		}
		return ""
	}
	return d.Flush()
}

// incomplete tells whether the text of b would end in U+FFFD.
func incomplete(b []byte) bool {
	if len(b) == 0 || b[len(b)-1] < utf8.RuneSelf {
		return false
	}
	r, _ := utf8.DecodeLastRune(b)
	return r == utf8.RuneError
}

// Flush returns the text of what is left, incomplete characters replaced. A token may still follow.
func (d *Decoder) Flush() string {
	if d.ids == nil {
		out := lossy(d.pending)
		d.pending = d.pending[:0]
		return out
	}
	all := d.tokenizer.Decode(d.ids, d.skipSpecial)
	if len(all) <= len(d.prev) {
		return ""
	}
	return d.emit(all)
}

// lossy makes text of bytes. Each longest beginning of a character that is not complete becomes one U+FFFD.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+8)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r != utf8.RuneError || size > 1 {
			out = append(out, b[:size]...)
			b = b[size:]
			continue
		}
		out = append(out, "\uFFFD"...)
		b = b[badLength(b):]
	}
	return string(out)
}

// badLength is the length of the ill-formed sequence that b begins with: a cut character counts as one.
func badLength(b []byte) int {
	need := 0
	low, high := byte(0x80), byte(0xBF)
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		need = 1
	case c >= 0xE0 && c <= 0xEF:
		need = 2
		if c == 0xE0 {
			low = 0xA0
		}
		if c == 0xED {
			high = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		need = 3
		if c == 0xF0 {
			low = 0x90
		}
		if c == 0xF4 {
			high = 0x8F
		}
	}
	n := 1
	for n <= need && n < len(b) && b[n] >= low && b[n] <= high {
		n++
		low, high = 0x80, 0xBF
	}
	return n
}
