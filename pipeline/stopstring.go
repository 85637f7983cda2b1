package pipeline

import "strings"

// stopStrings finds stop strings in text that comes in pieces. What may be the beginning of one is held back until it is
// certain, so that no part of a stop string is ever shown. Of several, the one that is complete first wins.
type stopStrings struct {
	stops   []string
	include bool // the matched string is shown, and nothing is held back
	held    string
}

func newStopStrings(stops []string, include bool) stopStrings {
	return stopStrings{stops: stops, include: include}
}

// feed adds text and returns what may be shown. When ok, matched ended the text and the rest is dropped.
func (s *stopStrings) feed(text string) (shown, matched string, ok bool) {
	if len(s.stops) == 0 || text == "" {
		return text, "", false
	}
	already := 0 // bytes of held that were shown before
	if s.include {
		already = len(s.held)
	}
	text = s.held + text
	start, end := -1, len(text)+1
	for _, stop := range s.stops {
		if at := strings.Index(text, stop); at >= 0 && (at+len(stop) < end || at+len(stop) == end && at < start) {
			start, end, matched = at, at+len(stop), stop
		}
	}
	if start >= 0 {
		s.held = ""
		if s.include {
			return text[already:end], matched, true
		}
		return text[:start], matched, true
	}
	keep := s.beginning(text)
	s.held = text[len(text)-keep:]
	if s.include {
		return text[already:], "", false
	}
	return text[:len(text)-keep], "", false
}

// beginning returns the length of the longest end of text that begins a stop string.
func (s *stopStrings) beginning(text string) int {
	longest := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(text)); n > longest; n-- {
			if strings.HasPrefix(stop, text[len(text)-n:]) {
				longest = n
				break
			}
		}
	}
	return longest
}

// flush returns what is held back: the text has ended.
func (s *stopStrings) flush() string {
	held := s.held
	s.held = ""
	if s.include {
		return ""
	}
	return held
}

// reset forgets a begun stop string; what is held back has been shown otherwise.
func (s *stopStrings) reset() { s.held = "" }
