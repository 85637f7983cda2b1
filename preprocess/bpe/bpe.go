// Package bpe is a byte-level BPE tokenizer that reads tokenizer.json: added tokens, NFC, known split patterns, merges by rank,
// and incremental decoding. It is safe for concurrent use.
package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Tokenizer encodes and decodes text.
type Tokenizer struct {
	pieces       [][]byte // by id; nil for ids that do not exist
	special      []bool   // by id
	ids          map[string]uint32
	merges       map[uint64]merge
	added        addedTokens
	nfc          bool
	digits       int // of a number piece
	ignoreMerges bool
	prefix       []uint32 // added in front with special tokens
	cache        [cacheSize]atomic.Pointer[cached]
}

type merge struct {
	rank, id uint32
}

const cacheSize = 1 << 16

type cached struct {
	piece string
	ids   []uint32
}

type jsonToken struct {
	ID      uint32 `json:"id"`
	Content string `json:"content"`
	Special bool   `json:"special"`
}

type jsonFile struct {
	AddedTokens  []jsonToken     `json:"added_tokens"`
	Normalizer   json.RawMessage `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Model        struct {
		Type         string            `json:"type"`
		Vocab        map[string]uint32 `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
		IgnoreMerges bool              `json:"ignore_merges"`
		ByteFallback bool              `json:"byte_fallback"`
	} `json:"model"`
	PostProcessor json.RawMessage `json:"post_processor"`
}

// Load reads a tokenizer.json file.
func Load(path string) (*Tokenizer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", path, err)
	}
	return t, nil
}

// Parse reads the text of a tokenizer.json file.
func Parse(text []byte) (*Tokenizer, error) {
	var file jsonFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Model.Type != "" && file.Model.Type != "BPE" || file.Model.ByteFallback {
		return nil, fmt.Errorf("model type %q is not byte-level BPE", file.Model.Type)
	}
	t := &Tokenizer{ids: make(map[string]uint32, len(file.Model.Vocab)), merges: make(map[uint64]merge, len(file.Model.Merges)), ignoreMerges: file.Model.IgnoreMerges}
	if err := t.readSplit(file); err != nil {
		return nil, err
	}
	for name, id := range file.Model.Vocab {
		piece, err := fromAlphabet(name)
		if err != nil {
			return nil, err
		}
		t.ids[string(piece)] = id
		t.setPiece(id, piece, false)
	}
	for rank, raw := range file.Model.Merges {
		if err := t.addMerge(rank, raw); err != nil {
			return nil, err
		}
	}
	for _, token := range file.AddedTokens {
		t.setPiece(token.ID, []byte(token.Content), token.Special)
		t.added.add(token.Content, token.ID)
	}
	t.readPrefix(file.PostProcessor)
	return t, nil
}

func (t *Tokenizer) setPiece(id uint32, piece []byte, special bool) {
	const maxID = 1 << 24
	if id > maxID {
		return
	}
	for int(id) >= len(t.pieces) {
		t.pieces = append(t.pieces, nil)
		t.special = append(t.special, false)
	}
	t.pieces[id], t.special[id] = piece, special
}

func (t *Tokenizer) addMerge(rank int, raw json.RawMessage) error {
	var pair [2]string
	if json.Unmarshal(raw, &pair) != nil {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return fmt.Errorf("merge %d: %w", rank, err)
		}
		var ok bool
		if pair[0], pair[1], ok = strings.Cut(text, " "); !ok {
			return fmt.Errorf("merge %d: %q is no pair", rank, text)
		}
	}
	left, err := fromAlphabet(pair[0])
	if err != nil {
		return err
	}
	right, err := fromAlphabet(pair[1])
	if err != nil {
		return err
	}
	l, okLeft := t.ids[string(left)]
	r, okRight := t.ids[string(right)]
	id, okBoth := t.ids[string(left)+string(right)]
	if !okLeft || !okRight || !okBoth {
		return fmt.Errorf("merge %d of %q and %q is not in the vocabulary", rank, pair[0], pair[1])
	}
	key := uint64(l)<<32 | uint64(r)
	if _, ok := t.merges[key]; !ok {
		t.merges[key] = merge{uint32(rank), id}
	}
	return nil
}

// readSplit finds out how text is normalised and split.
func (t *Tokenizer) readSplit(file jsonFile) error {
	normalizer, split := string(file.Normalizer), string(file.PreTokenizer)
	switch {
	case normalizer == "" || normalizer == "null":
	case strings.Contains(normalizer, `"NFC"`):
		t.nfc = true
	case strings.Contains(normalizer, `"normalizers":[]`), strings.Contains(normalizer, `"normalizers": []`):
	default:
		return fmt.Errorf("normalizer %s is not known", normalizer)
	}
	const words = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|`
	const rest = `| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`
	switch {
	case !strings.Contains(split, `"ByteLevel"`):
		return errors.New("the pre-tokenizer is not byte-level")
	case strings.Contains(split, words+`\\p{N}`+rest):
		t.digits = 1
	case strings.Contains(split, words+`\\p{N}{1,3}`+rest):
		t.digits = 3
	default:
		return fmt.Errorf("split pattern in %s is not known", split)
	}
	return nil
}

func (t *Tokenizer) readPrefix(raw json.RawMessage) {
	var node struct {
		Type       string            `json:"type"`
		Processors []json.RawMessage `json:"processors"`
		Single     []struct {
			SpecialToken *struct {
				ID string `json:"id"`
			} `json:"SpecialToken"`
		} `json:"single"`
	}
	if json.Unmarshal(raw, &node) != nil {
		return
	}
	for _, processor := range node.Processors {
		t.readPrefix(processor)
	}
	for _, part := range node.Single {
		if part.SpecialToken == nil {
			return
		}
		if id, ok := t.added.id(part.SpecialToken.ID); ok {
			t.prefix = append(t.prefix, id)
		}
	}
}

// VocabSize is one more than the largest id.
func (t *Tokenizer) VocabSize() int { return len(t.pieces) }

// TokenToID returns the id of a token by its text.
func (t *Tokenizer) TokenToID(token string) (uint32, bool) {
	if id, ok := t.added.id(token); ok {
		return id, true
	}
	id, ok := t.ids[token]
	return id, ok
}

// Token returns the text of one token alone.
func (t *Tokenizer) Token(id uint32) string {
	if int(id) >= len(t.pieces) {
		return ""
	}
	return lossy(t.pieces[id])
}

// Encode appends the text's ids to dst.
func (t *Tokenizer) Encode(dst []uint32, text string, addSpecial bool) []uint32 {
	if addSpecial {
		dst = append(dst, t.prefix...)
	}
	for text != "" {
		start, end, id, found := t.added.find(text)
		if !found {
			return t.encodeText(dst, text)
		}
		dst = append(t.encodeText(dst, text[:start]), id)
		text = text[end:]
	}
	return dst
}

func (t *Tokenizer) encodeText(dst []uint32, text string) []uint32 {
	if t.nfc && !norm.NFC.IsNormalString(text) {
		text = norm.NFC.String(text)
	}
	for text != "" {
		n := nextPiece(text, t.digits)
		dst = t.encodePiece(dst, text[:n])
		text = text[n:]
	}
	return dst
}

func (t *Tokenizer) encodePiece(dst []uint32, piece string) []uint32 {
	if t.ignoreMerges {
		if id, ok := t.ids[piece]; ok {
			return append(dst, id)
		}
	}
	const longest = 64 // longer pieces are rare and would fill the cache
	if len(piece) > longest {
		return t.merge(dst, piece)
	}
	slot := &t.cache[hash(piece)&(cacheSize-1)]
	if entry := slot.Load(); entry != nil && entry.piece == piece {
		return append(dst, entry.ids...)
	}
	at := len(dst)
	dst = t.merge(dst, piece)
	slot.Store(&cached{strings.Clone(piece), append([]uint32(nil), dst[at:]...)})
	return dst
}

// hash mixes the piece's length with its first and last eight bytes: words rarely differ only in between, and a collision costs
// no more than a merge.
func hash(piece string) uint32 {
	var first, last uint64
	switch n := len(piece); {
	case n >= 8:
		first, last = load(piece), load(piece[n-8:])
	case n >= 4:
		first = load4(piece) | load4(piece[n-4:])<<32
	case n > 0:
		first = uint64(piece[0]) | uint64(piece[n/2])<<8 | uint64(piece[n-1])<<16
	}
	h := (first ^ uint64(len(piece))*0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>29 ^ last) * 0x94D049BB133111EB
	return uint32(h >> 40)
}

func load4(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

func load(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return replaceInvalid(b)
}
