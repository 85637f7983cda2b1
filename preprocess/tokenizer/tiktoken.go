package tokenizer

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
)

// KimiPattern is the split pattern of the Kimi models, which ship tiktoken files: Chinese runs, cased words with contractions, numbers of
// up to three digits, signs, line ends and spaces.
const KimiPattern = `[\p{Han}]+|` + wordPart + `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+` + contractionPart + `?|` +
	wordPart + `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*` + contractionPart + `?|` +
	`\p{N}{1,3}|` + restPart

// ReservedTokens names the special tokens of Kimi's kind of vocabulary: count ids from first on, each <|reserved_token_ID|> unless named
// says another name.
func ReservedTokens(first, count uint32, named []AddedToken) []AddedToken {
	list := slices.Clone(named)
	known := make(map[uint32]bool, len(named))
	for _, token := range named {
		known[token.ID] = true
	}
	for id := first; id < first+count; id++ {
		if !known[id] {
			list = append(list, AddedToken{ID: id, Content: fmt.Sprintf("<|reserved_token_%d|>", id), Special: true})
		}
	}
	return list
}

// Tiktoken says what a tiktoken file does not.
type Tiktoken struct {
	// Pattern is the split pattern.
	Pattern string
	// Special are the added tokens with their ids. Those that are not special show in decoded text.
	Special []AddedToken
	// Reserved is how many special tokens there are from the highest rank plus one on; those that Special does not name are called
	// as [ReservedTokens] does it.
	Reserved uint32
	// BeforeText are special tokens in front of a text that is encoded with special tokens.
	BeforeText []uint32
}

// ParseTiktoken reads a tiktoken file: lines of a token in base64 and its rank, which is also its id. Two tokens merge when the two
// together are a token, that of lowest rank first.
func ParseTiktoken(text []byte, with Tiktoken) (*Tokenizer, error) {
	vocab := newVocabulary(bytes.Count(text, []byte("\n"))+1, len(text))
	var buf []byte
	first := uint32(0)
	for n := 1; len(text) > 0; n++ {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		encoded, number, ok := bytes.Cut(line, []byte(" "))
		rank, err := strconv.ParseUint(string(number), 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("line %d: %q is no token with its rank", n, line)
		}
		if buf, err = base64.StdEncoding.AppendDecode(buf[:0], encoded); err != nil || len(buf) == 0 {
			return nil, fmt.Errorf("line %d: %q is no token in base64", n, encoded)
		}
		if rank > maxID {
			return nil, fmt.Errorf("line %d: rank %d is above %d", n, rank, maxID)
		}
		if err := vocab.add(buf, uint32(rank)); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		first = max(first, uint32(rank)+1)
	}
	if uint64(first)+uint64(with.Reserved) > maxID+1 {
		return nil, fmt.Errorf("%d reserved tokens from %d on reach beyond %d", with.Reserved, first, maxID)
	}
	b := &bpe{vocab: vocab, raw: true, ignoreMerges: true, merges: tokenPairs(vocab)}
	b.finish()
	defer b.making.Wait()
	split := &node{Type: "Sequence", Pretokenizers: []node{{Type: "Split", Behavior: string(isolated)},
		{Type: "ByteLevel", AddPrefixSpace: new(bool), UseRegex: new(bool)}}}
	split.Pretokenizers[0].Pattern.Regex = &with.Pattern
	t := &Tokenizer{vocab: vocab, raw: true, ranks: true, model: b, byteDecoder: true, decode: decodeBytes, prefix: with.BeforeText}
	var err error
	if t.split, err = split.splitter(true); err != nil {
		return nil, err
	}
	t.addTokens(ReservedTokens(first, with.Reserved, with.Special), nil)
	t.words = (&file{preTokenizer: split}).words(b)
	b.merges.pairs, b.merges.into = nil, nil
	return t, nil
}

// tokenPairs makes merges of ranks: all pairs of tokens that together are a token, in the order of these.
func tokenPairs(v *vocabulary) *merges {
	type found struct{ left, right, into uint32 }
	var list []found
	for id := range uint32(len(v.spans)) {
		token := v.token(id)
		for cut := 1; cut < len(token); cut++ {
			left, okLeft := v.idOf(token[:cut])
			right, okRight := v.idOf(token[cut:])
			if okLeft && okRight && left != id && right != id {
				list = append(list, found{left, right, id})
			}
		}
	}
	m := newMerges(len(list))
	for _, p := range list {
		if len(m.into) == maxMerges {
			break
		}
		m.add(p.left, p.right, p.into)
	}
	return m
}
