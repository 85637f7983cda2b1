package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// node is one normalizer, pre-tokenizer, post-processor or decoder of a file, with the fields of all kinds.
type node struct {
	Type string `json:"type"`

	Normalizers   []node `json:"normalizers"`
	Pretokenizers []node `json:"pretokenizers"`
	Processors    []node `json:"processors"`
	Decoders      []node `json:"decoders"`

	Pattern struct {
		String *string
		Regex  *string
	} `json:"pattern"`
	Content            string          `json:"content"`
	Prepend            string          `json:"prepend"`
	Replacement        string          `json:"replacement"`
	PrependScheme      string          `json:"prepend_scheme"`
	Split              *bool           `json:"split"`
	AddPrefixSpace     *bool           `json:"add_prefix_space"`
	UseRegex           *bool           `json:"use_regex"`
	Behavior           string          `json:"behavior"`
	Invert             bool            `json:"invert"`
	IndividualDigits   bool            `json:"individual_digits"`
	Delimiter          string          `json:"delimiter"`
	StripLeft          bool            `json:"strip_left"`
	StripRight         bool            `json:"strip_right"`
	CleanText          bool            `json:"clean_text"`
	HandleChineseChars bool            `json:"handle_chinese_chars"`
	StripAccents       *bool           `json:"strip_accents"`
	Lowercase          bool            `json:"lowercase"`
	Prefix             string          `json:"prefix"`
	Suffix             string          `json:"suffix"`
	Cleanup            bool            `json:"cleanup"`
	Start              json.RawMessage `json:"start"`
	Stop               json.RawMessage `json:"stop"`
	PadToken           string          `json:"pad_token"`
	WordDelimiter      string          `json:"word_delimiter_token"`

	Single        []templatePart             `json:"single"`
	SpecialTokens map[string]templateSpecial `json:"special_tokens"`
	Sep           json.RawMessage            `json:"sep"`
	Cls           json.RawMessage            `json:"cls"`
}

type templatePart struct {
	SpecialToken *struct {
		ID string `json:"id"`
	}
	Sequence *struct {
		ID string `json:"id"`
	}
}

type templateSpecial struct {
	IDs []uint32 `json:"ids"`
}

// is tells whether a flag is set; one that is not there has the value otherwise.
func is(flag *bool, otherwise bool) bool {
	if flag == nil {
		return otherwise
	}
	return *flag
}

// file is a tokenizer.json while it is read.
type file struct {
	added                                             []AddedToken
	normalizer, preTokenizer, postProcessor, decoding *node
	model                                             modelFile
}

// Parse reads the text of a tokenizer.json file. Truncation and padding that it may ask for are not applied. More holds special tokens
// that other files of the model declare. A part that is not supported is an error that names it.
func Parse(text []byte, more ...AddedToken) (*Tokenizer, error) {
	f, err := readFile(text)
	if err != nil {
		return nil, err
	}
	return f.build(more)
}

func readFile(text []byte) (*file, error) {
	f := new(file)
	r := &reader{text: text}
	seen := make(map[string]bool)
	var modelText json.RawMessage // where it comes before what says how to read it
	err := r.object(func(key []byte) error {
		var err error
		name := string(key)
		seen[name] = true
		switch name {
		case "added_tokens":
			err = r.into(&f.added)
		case "normalizer":
			err = r.into(&f.normalizer)
		case "pre_tokenizer":
			err = r.into(&f.preTokenizer)
		case "post_processor":
			err = r.into(&f.postProcessor)
		case "decoder":
			err = r.into(&f.decoding)
		case "model":
			if seen["pre_tokenizer"] && seen["decoder"] && seen["normalizer"] {
				err = f.model.read(r, f.rawTokens())
			} else {
				modelText, err = r.raw()
			}
		default:
			_, err = r.raw()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if r.peek() != 0 {
		return nil, r.fail("the end of the file")
	}
	if !seen["model"] {
		return nil, errors.New("the file has no model")
	}
	if modelText != nil {
		if err := f.model.read(&reader{text: modelText}, f.rawTokens()); err != nil {
			return nil, fmt.Errorf("model: %w", err)
		}
	}
	return f, nil
}

// rawTokens tells whether the tokens are to be kept as bytes: where both ways go through the byte-level alphabet.
func (f *file) rawTokens() bool {
	last := f.preTokenizer
	if last == nil || f.decoding == nil || f.decoding.Type != "ByteLevel" {
		return false
	}
	if last.Type == "Sequence" && len(last.Pretokenizers) > 0 {
		list := last.Pretokenizers
		last = &list[len(list)-1]
		for _, n := range list[:len(list)-1] {
			if n.Type == "ByteLevel" {
				return false
			}
		}
	}
	return last.Type == "ByteLevel" && !f.normalizer.has("ByteLevel")
}

// has tells whether a part is, or holds, one of the type.
func (n *node) has(kind string) bool {
	if n == nil {
		return false
	}
	for _, list := range [][]node{n.Normalizers, n.Pretokenizers, n.Decoders} {
		for i := range list {
			if list[i].has(kind) {
				return true
			}
		}
	}
	return n.Type == kind
}

func (f *file) build(more []AddedToken) (*Tokenizer, error) {
	t := &Tokenizer{vocab: f.model.vocab, raw: f.model.raw}
	var err error
	if t.model, err = f.model.build(); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	b, isBPE := t.model.(*bpe)
	if isBPE {
		defer b.making.Wait()
	}
	if t.normalize, err = f.normalizer.normalizer(); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if t.split, err = f.preTokenizer.splitter(t.raw); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if t.decode, err = f.decoding.decodeStep(); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	t.byteDecoder = f.decoding != nil && f.decoding.Type == "ByteLevel"
	t.addTokens(f.added, more)
	t.markDoubles()
	if t.prefix, t.suffix, err = t.template(f.postProcessor); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if isBPE {
		t.words = f.words(b)
		b.merges.pairs, b.merges.into = nil, nil
		t.findInline()
	}
	return t, nil
}

// words returns the fast way for the file; nil if it has none.
func (f *file) words(b *bpe) *wordEncoder {
	if !b.raw {
		return f.metaWords(b)
	}
	if scan := f.preTokenizer.scanner(); scan != nil {
		return newWordEncoder(scan, b, "")
	}
	return nil
}

// addTokens registers the added tokens of the file, then those of other files unless the file has them as special ones.
func (t *Tokenizer) addTokens(list, more []AddedToken) {
	t.size = len(t.vocab.spans)
	t.addedByID = make(map[uint32]AddedToken, len(list))
	t.addedByText = make(map[string]uint32, len(list))
	for i, token := range slices.Concat(list, more) {
		if token.ID > maxID || token.Content == "" {
			continue
		}
		if id, known := t.addedByText[token.Content]; known {
			if i < len(list) || !token.Special {
				continue
			}
			token = t.addedByID[id]
			token.Special = true
		}
		if id, ok := t.modelID(token.Content); ok {
			token.ID = id // the model's own id counts
		}
		t.addedByID[token.ID] = token
		t.addedByText[token.Content] = token.ID
		t.size = max(t.size, int(token.ID)+1)
		if token.Special {
			t.special.add(token.ID)
		}
		if !token.Normalized {
			t.added.add(token.Content, token)
			continue
		}
		content := text{s: token.Content, first: true}
		if t.normalize != nil {
			content = t.normalize(content)
		}
		t.addedNormalized.add(content.s, token)
	}
	t.added.prepare()
	t.addedNormalized.prepare()
}

// markDoubles makes ids special whose token is spelled like a special one. Only vocabularies that have a token twice have any.
func (t *Tokenizer) markDoubles() {
	if t.vocab.count == len(t.vocab.spans) {
		return
	}
	for id := range uint32(len(t.vocab.spans)) {
		if _, added := t.addedByID[id]; added || !t.vocab.has(id) {
			continue
		}
		if known, ok := t.addedByText[string(t.vocab.token(id))]; ok && t.special.has(known) {
			t.special.add(id)
		}
	}
}

// modelID is TokenToID without the added tokens.
func (t *Tokenizer) modelID(token string) (uint32, bool) {
	if t.raw {
		b, ok := unalphabet(nil, []byte(token))
		if !ok {
			return 0, false
		}
		token = string(b)
	}
	return t.vocab.id(token)
}

// template returns the ids that a post-processor puts before and behind a text.
func (t *Tokenizer) template(n *node) (before, after []uint32, err error) {
	if n == nil {
		return nil, nil, nil
	}
	switch n.Type {
	case "ByteLevel":
	case "Sequence":
		for i := range n.Processors {
			b, a, err := t.template(&n.Processors[i])
			if err != nil {
				return nil, nil, err
			}
			before, after = append(b, before...), append(after, a...)
		}
	case "TemplateProcessing":
		text := 0
		for _, part := range n.Single {
			switch {
			case part.Sequence != nil && part.Sequence.ID == "A":
				text++
			case part.SpecialToken != nil:
				special, ok := n.SpecialTokens[part.SpecialToken.ID]
				if !ok {
					return nil, nil, fmt.Errorf("TemplateProcessing names the token %q, which its special_tokens have not", part.SpecialToken.ID)
				}
				if text == 0 {
					before = append(before, special.IDs...)
				} else {
					after = append(after, special.IDs...)
				}
			default:
				return nil, nil, errors.New("TemplateProcessing has a part of a single text that is neither $A nor a special token")
			}
		}
		if text != 1 {
			return nil, nil, fmt.Errorf("TemplateProcessing has the text %d times in single; only once is supported", text)
		}
	case "BertProcessing", "RobertaProcessing":
		for _, side := range []struct {
			raw json.RawMessage
			ids *[]uint32
		}{{n.Cls, &before}, {n.Sep, &after}} {
			var name string
			var id uint32
			if err := json.Unmarshal(side.raw, &[]any{&name, &id}); err != nil {
				return nil, nil, fmt.Errorf("%s: %q is no token with its id", n.Type, side.raw)
			}
			*side.ids = append(*side.ids, id)
		}
	default:
		return nil, nil, unsupported(n.Type)
	}
	return before, after, nil
}

func unsupported(kind string) error {
	if strings.TrimSpace(kind) == "" {
		return errors.New("a part without a type")
	}
	return fmt.Errorf("%q is not supported", kind)
}
