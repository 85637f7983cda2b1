package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer makes the normalizer that the node describes; nil for none.
func (n *node) normalizer() (normalizer, error) {
	if n == nil {
		return nil, nil
	}
	switch n.Type {
	case "Sequence":
		var steps []normalizer
		for i := range n.Normalizers {
			step, err := n.Normalizers[i].normalizer()
			if err != nil {
				return nil, err
			}
			if step != nil {
				steps = append(steps, step)
			}
		}
		return sequence(steps), nil
	case "NFC":
		return unicodeForm(norm.NFC), nil
	case "NFD":
		return unicodeForm(norm.NFD), nil
	case "NFKC":
		return unicodeForm(norm.NFKC), nil
	case "NFKD":
		return unicodeForm(norm.NFKD), nil
	case "Lowercase":
		return mapped(toLower), nil
	case "StripAccents":
		return mapped(dropMarks), nil
	case "Nmt":
		return mapped(nmt), nil
	case "Strip":
		return stripped(n.StripLeft, n.StripRight), nil
	case "Prepend":
		return prepended(n.Prepend), nil
	case "ByteLevel":
		return byteAlphabet, nil
	case "Replace":
		p, err := n.pattern()
		if err != nil {
			return nil, fmt.Errorf("part Replace: %w", err)
		}
		return replaced(p, n.Content), nil
	case "BertNormalizer":
		var steps []normalizer
		if n.CleanText {
			steps = append(steps, mapped(cleanBERT))
		}
		if n.HandleChineseChars {
			steps = append(steps, mapped(spaceChinese))
		}
		if is(n.StripAccents, n.Lowercase) {
			steps = append(steps, unicodeForm(norm.NFD), mapped(dropNonspacingMarks))
		}
		if n.Lowercase {
			steps = append(steps, mapped(toLower))
		}
		return sequence(steps), nil
	}
	return nil, unsupported(n.Type)
}

// pattern makes the node's pattern; known expressions are scanned.
func (n *node) pattern() (pattern, error) {
	switch {
	case n.Pattern.String != nil:
		return literal(*n.Pattern.String), nil
	case n.Pattern.Regex != nil:
		if scan := knownScanner(*n.Pattern.Regex); scan != nil {
			return scanned(scan), nil
		}
		return compileExpression(*n.Pattern.Regex)
	}
	return nil, errors.New("a pattern that is neither String nor Regex")
}

// splitter makes the pre-tokenizer that the node describes; nil for none. With raw, bytes are not written in the byte-level alphabet.
func (n *node) splitter(raw bool) (splitter, error) {
	if n == nil {
		return nil, nil
	}
	switch n.Type {
	case "Sequence":
		var steps []splitter
		for i := range n.Pretokenizers {
			step, err := n.Pretokenizers[i].splitter(raw)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
		return splitSequence(steps), nil
	case "ByteLevel":
		var steps []splitter
		if is(n.AddPrefixSpace, true) {
			steps = append(steps, mapSplit(spacePrefix))
		}
		if is(n.UseRegex, true) {
			steps = append(steps, splitBy(scanned(gpt2()), isolated, false))
		}
		if !raw {
			steps = append(steps, mapSplit(byteAlphabet))
		}
		return splitSequence(steps), nil
	case "Split":
		p, err := n.pattern()
		if err != nil {
			return nil, fmt.Errorf("part Split: %w", err)
		}
		what, err := n.behavior()
		if err != nil {
			return nil, err
		}
		return splitBy(p, what, n.Invert), nil
	case "Metaspace":
		m, err := n.metaspace()
		if err != nil {
			return nil, err
		}
		return m.splitter(), nil
	case "WhitespaceSplit":
		return splitBy(characterSet(unicode.IsSpace), removed, false), nil
	case "Whitespace":
		return splitBy(runs(wordKind), removed, true), nil
	case "BertPreTokenizer":
		return splitSequence([]splitter{splitBy(characterSet(unicode.IsSpace), removed, false),
			splitBy(characterSet(isPunctuation), isolated, false)}), nil
	case "Punctuation":
		what, err := n.behavior()
		if err != nil {
			return nil, err
		}
		return splitBy(characterSet(isPunctuation), what, false), nil
	case "Digits":
		if n.IndividualDigits {
			return splitBy(characterSet(unicode.IsNumber), isolated, false), nil
		}
		return splitBy(characterSet(unicode.IsNumber), contiguous, false), nil
	case "CharDelimiterSplit":
		if utf8.RuneCountInString(n.Delimiter) != 1 {
			return nil, fmt.Errorf("CharDelimiterSplit: the delimiter %q is not one character", n.Delimiter)
		}
		return splitBy(literal(n.Delimiter), removed, false), nil
	}
	return nil, unsupported(n.Type)
}

func (n *node) behavior() (behavior, error) {
	switch b := behavior(n.Behavior); b {
	case removed, isolated, contiguous, withPrevious, withNext:
		return b, nil
	case "":
		return isolated, nil
	}
	return "", fmt.Errorf("%s: the behavior %w", n.Type, unsupported(n.Behavior))
}

func (n *node) metaspace() (metaspace, error) {
	m := metaspace{replacement: n.Replacement, prepend: strings.ToLower(n.PrependScheme), split: is(n.Split, true)}
	if utf8.RuneCountInString(m.replacement) != 1 {
		return m, fmt.Errorf("part Metaspace: the replacement %q is not one character", m.replacement)
	}
	switch m.prepend {
	case "always", "first", "never":
	case "":
		m.prepend = "always"
	default:
		return m, fmt.Errorf("part Metaspace: the prepend_scheme %w", unsupported(n.PrependScheme))
	}
	if !is(n.AddPrefixSpace, true) {
		m.prepend = "never"
	}
	return m, nil
}

// decodeStep makes the decoder that the node describes; nil for none.
func (n *node) decodeStep() (decodeStep, error) {
	if n == nil {
		return nil, nil
	}
	switch n.Type {
	case "Sequence":
		var steps []decodeStep
		for i := range n.Decoders {
			step, err := n.Decoders[i].decodeStep()
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
		return decodeSequence(steps), nil
	case "ByteLevel":
		return decodeBytes, nil
	case "Fuse":
		return fuse, nil
	case "ByteFallback":
		return byteFallback, nil
	case "Metaspace":
		m, err := n.metaspace()
		return metaspaceDecoder(m), err
	case "WordPiece":
		return wordPieceDecoder(n.Prefix, n.Cleanup), nil
	case "BPEDecoder":
		return suffixDecoder(n.Suffix), nil
	case "CTC":
		return ctcDecoder(n.PadToken, n.WordDelimiter, n.Cleanup), nil
	case "Replace":
		p, err := n.pattern()
		if err != nil {
			return nil, fmt.Errorf("part Replace: %w", err)
		}
		return replaceDecoder(p, n.Content), nil
	case "Strip":
		var start, stop int
		if json.Unmarshal(n.Start, &start) != nil || json.Unmarshal(n.Stop, &stop) != nil || start < 0 || stop < 0 {
			return nil, fmt.Errorf("part Strip: start %s and stop %s are not numbers of characters", n.Start, n.Stop)
		}
		return stripDecoder(n.Content, start, stop), nil
	}
	return nil, unsupported(n.Type)
}

// Known split patterns, and deepseek's third.
const (
	gpt2Pattern     = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	contractionPart = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	wordPart        = `[^\r\n\p{L}\p{N}]?`
	casedPart1      = wordPart + `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	casedPart2      = wordPart + `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	restPart        = ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	restMarksPart   = ` ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	restSlashPart   = ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	deepseekSigns   = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
	deepseekCJK     = `[一-龥぀-ゟ゠-ヿ]+`
	deepseekDigits  = `\p{N}{1,3}`
)

// knownScanner returns the scanner of a pattern; nil if there is none.
func knownScanner(expression string) scanner {
	if expression == gpt2Pattern {
		return gpt2()
	}
	for digits, numbers := range map[int]string{1: `|\p{N}|`, 3: `|\p{N}{1,3}|`} {
		switch expression {
		case contractionPart + `|` + wordPart + `\p{L}+` + numbers + restPart:
			return windowed(cl100kWindow(digits, letter), cl100kRules(digits), cl100k(digits, letter))
		case contractionPart + `|` + wordPart + `[\p{L}\p{M}]+` + numbers + restMarksPart:
			return windowed(cl100kWindow(digits, letter|mark), cl100kRules(digits), cl100k(digits, letter|mark))
		case casedPart1 + contractionPart + `?|` + casedPart2 + contractionPart + `?` + numbers + restSlashPart:
			return windowed(o200kWindow(digits, true), o200kRules(digits, true), o200k(digits, true))
		case casedPart1 + `|` + casedPart2 + numbers + restSlashPart:
			return windowed(o200kWindow(digits, false), o200kRules(digits, false), o200k(digits, false))
		}
	}
	return nil
}

// scanner returns the scanner of a whole pre-tokenizer that ends in a byte-level one; nil if it has none.
func (n *node) scanner() scanner {
	list := []node{*n}
	if n.Type == "Sequence" {
		list = n.Pretokenizers
	}
	last := list[len(list)-1]
	if last.Type != "ByteLevel" || is(last.AddPrefixSpace, true) {
		return nil
	}
	list = list[:len(list)-1]
	if is(last.UseRegex, true) {
		if len(list) == 0 {
			return gpt2()
		}
		return nil
	}
	var expressions []string
	for _, n := range list {
		cuts := n.Behavior == string(isolated) && !n.Invert || n.Behavior == string(removed) && n.Invert && len(list) == 1
		if n.Type != "Split" || n.Pattern.Regex == nil || !cuts {
			return nil
		}
		expressions = append(expressions, *n.Pattern.Regex)
	}
	switch {
	case len(expressions) == 1:
		return knownScanner(expressions[0])
	case len(expressions) == 3 && expressions[0] == deepseekDigits && expressions[1] == deepseekCJK && expressions[2] == deepseekSigns:
		return windowed(deepseekWindow(), deepseekRules(), deepseek())
	}
	return nil
}
