// Package marker finds the fixed words (tags, special tokens) that parsers of model output look for, in text that arrives in
// pieces: a word that is cut off at the end of what has arrived is told from text that can be shown already.
package marker

import "strings"

// Set is a list of words to look for. It is immutable and may be shared.
type Set struct {
	words  []string
	first  [256]bool // the first bytes of the words
	single byte      // the first byte when all words share it
	lone   bool
}

// NewSet makes a set; empty words are left out. At one place the longest word wins.
func NewSet(words ...string) *Set {
	s := &Set{}
	for _, word := range words {
		if word == "" {
			continue
		}
		s.lone = len(s.words) == 0 || s.lone && s.single == word[0]
		s.single = word[0]
		s.words = append(s.words, word)
		s.first[word[0]] = true
	}
	return s
}

// Match is where a word was found.
type Match struct {
	// At is the offset of the word; without a word it is the offset from which on text must be held back, the text's length
	// when nothing needs to be.
	At int
	// Word is the word; "" when none is complete.
	Word string
}

// Find returns the first word at or after from. A word that may have begun and is cut off by the end of the text stops the
// search where it begins.
func (s *Set) Find(text string, from int) Match { return s.find(text, from, true) }

// Search is Find from the start of the text; if no more text comes, nothing is held back.
func (s *Set) Search(text string, more bool) Match { return s.find(text, 0, more) }

func (s *Set) find(text string, from int, more bool) Match {
	for i := from; i < len(text); i++ {
		next := s.candidate(text[i:])
		if next < 0 {
			break
		}
		i += next
		best := ""
		rest := text[i:]
		for _, word := range s.words {
			if len(word) > len(rest) {
				if more && word[:len(rest)] == rest {
					return Match{At: i} // it may become this word, even if a shorter one is there already
				}
			} else if len(word) > len(best) && rest[:len(word)] == word {
				best = word
			}
		}
		if best != "" {
			return Match{At: i, Word: best}
		}
	}
	return Match{At: len(text)}
}

// Clear tells whether the text surely holds no word and no beginning of one.
func (s *Set) Clear(text string) bool { return s.candidate(text) < 0 }

func (s *Set) candidate(text string) int {
	if s.lone {
		return strings.IndexByte(text, s.single)
	}
	for i := 0; i < len(text); i++ {
		if s.first[text[i]] {
			return i
		}
	}
	return -1
}
