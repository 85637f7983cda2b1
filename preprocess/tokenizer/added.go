package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// AddedToken is a token that is found in text before anything else happens to it.
type AddedToken struct {
	ID      uint32 `json:"id"`
	Content string `json:"content"`
	// SingleWord tokens are only found where no letter, digit or underscore touches them.
	SingleWord bool `json:"single_word"`
	// LStrip and RStrip tokens take the white space before and behind them.
	LStrip bool `json:"lstrip"`
	RStrip bool `json:"rstrip"`
	// Normalized tokens are looked for in the normalised text.
	Normalized bool `json:"normalized"`
	// Special tokens can be left out of decoded text.
	Special bool `json:"special"`
}

// addedMatcher finds added tokens: the leftmost and of those the longest. It is a trie over bytes.
type addedMatcher struct {
	nodes    []addedNode
	starts   [256]bool
	only     string // all first bytes
	tokens   []AddedToken
	openings *openings // how tokens begin; nil if there are too many ways
	// ordinary says that special tokens are text, which hides what is inside them all the same.
	ordinary bool
}

// openings tells of pairs of bytes, by their halves, which of eight first bytes the pair may begin with, and whether it may go on like that.
type openings struct {
	firstLow, firstHigh, secondLow, secondHigh [16]uint8
}

// prepare makes ready to find tokens, when all have been added.
func (m *addedMatcher) prepare() {
	if m.nodes == nil || len(m.only) > 8 {
		return
	}
	m.openings = new(openings)
	for i, first := range []byte(m.only) {
		bit := uint8(1) << i
		m.openings.firstLow[first%16] |= bit
		m.openings.firstHigh[first/16] |= bit
		node := m.nodes[m.nodes[0].children[first-m.nodes[0].low]]
		for second := range 256 {
			if at := second - int(node.low); node.token > 0 || at >= 0 && at < len(node.children) && node.children[at] > 0 {
				m.openings.secondLow[second%16] |= bit
				m.openings.secondHigh[second/16] |= bit
			}
		}
	}
}

type addedNode struct {
	low      byte
	children []int32 // from low on; 0 for none
	token    int32   // index+1
}

func (m *addedMatcher) add(content string, token AddedToken) {
	if content == "" {
		return
	}
	if m.nodes == nil {
		m.nodes = make([]addedNode, 1)
	}
	if !m.starts[content[0]] {
		m.starts[content[0]] = true
		m.only += content[:1]
	}
	at := int32(0)
	for i := range len(content) {
		at = m.child(at, content[i])
	}
	if m.nodes[at].token == 0 {
		m.tokens = append(m.tokens, token)
		m.nodes[at].token = int32(len(m.tokens))
	}
}

// child returns the node below at, a new one if need be.
func (m *addedMatcher) child(at int32, c byte) int32 {
	n := &m.nodes[at]
	switch {
	case len(n.children) == 0:
		n.low, n.children = c, make([]int32, 1)
	case c < n.low:
		n.children = append(make([]int32, n.low-c), n.children...)
		n.low = c
	}
	for int(c-n.low) >= len(n.children) {
		n.children = append(n.children, 0)
	}
	slot := &n.children[c-n.low]
	if *slot == 0 {
		*slot = int32(len(m.nodes))
		next := *slot
		m.nodes = append(m.nodes, addedNode{})
		return next
	}
	return *slot
}

// at returns the longest token that begins at i.
func (m *addedMatcher) at(s string, i int) (end int, token *AddedToken) {
	at := int32(0)
	for ; i < len(s); i++ {
		n := &m.nodes[at]
		c := int(s[i]) - int(n.low)
		if c < 0 || c >= len(n.children) || n.children[c] == 0 {
			break
		}
		at = n.children[c]
		if found := m.nodes[at].token; found > 0 {
			end, token = i+1, &m.tokens[found-1]
		}
	}
	return end, token
}

// find returns the next token from i on; token is nil if there is none.
func (m *addedMatcher) find(s string, i int) (start, end int, token *AddedToken) {
	for ; i < len(s); i++ {
		if len(m.only) == 1 {
			next := strings.IndexByte(s[i:], m.only[0])
			if next < 0 {
				break
			}
			i += next
		} else {
			i = m.skip(s, i)
			for i < len(s) && !m.starts[s[i]] {
				i++
			}
			if i == len(s) {
				break
			}
		}
		if end, token = m.at(s, i); token != nil {
			return i, end, token
		}
	}
	return len(s), len(s), nil
}

// split calls gap for each stretch of s between added tokens and found for each of these, in order.
func (m *addedMatcher) split(s string, gap func(start, end int), found func(token *AddedToken, start, end int)) {
	done := 0
	for at := 0; len(m.tokens) > 0; {
		start, end, token := m.find(s, at)
		if token == nil {
			break
		}
		at = end
		if m.ordinary && token.Special {
			continue
		}
		if token.SingleWord && (start > 0 && endsInWord(s[:start]) || end < len(s) && beginsWithWord(s[end:])) {
			continue
		}
		if token.LStrip {
			start = max(len(strings.TrimRightFunc(s[:start], unicode.IsSpace)), done)
		}
		if token.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		if done < start {
			gap(done, start)
		}
		found(token, start, end)
		done = end
	}
	if done < len(s) {
		gap(done, len(s))
	}
}

func endsInWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return isWord(r)
}

func beginsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return isWord(r)
}
