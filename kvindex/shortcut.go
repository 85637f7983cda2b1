package kvindex

// Prompts lie in pieces, the more the longer they are: each turn of a conversation is one, and where there is no room side by side,
// what is stored at once is several. Shortcuts save a search from following all of them. They are kept where there is room for them:
// of nodes that lie side by side, all but the first have no use for their child fields. Those of the second and third tell where a
// block further on is, and how far on.
//
// Like all that a search goes by, a shortcut proves true or false at its end, by the sequence hash there. If the same ranks hold the
// block at its end as that at its beginning, they hold all in between. So a shortcut may be wrong at any time, and whoever leaves one
// may find that others were faster. It gets lost when the child of its node changes.
const (
	// shortcutMark is in a child field, besides nextChild, that has a part of a shortcut: the node at its end, or the distance.
	shortcutMark = 1 << 29
	shortcutMask = shortcutMark - 1
	// shortcutRoom is how many nodes must lie side by side for there to be one.
	shortcutRoom = 4
	// shortcutPieces is how many more pieces than one a search has to have followed to leave a shortcut.
	shortcutPieces = 2
)

// place is where a search could leave a shortcut: at the first of those points from which on nobody drops out.
type place struct {
	point            // its node is 0 if there is none
	fields [2]uint32 // of the second and third node
	pieces int       // that have been followed since
}

// seek looks for a shortcut at the point, and asks for the node that it leads to.
func (s *search) seek() {
	s.place.pieces++
	second, third := s.view.node(s.node+1), s.view.node(s.node+2)
	if second == nil || third == nil {
		return
	}
	fields := [2]uint32{second.child.Load(), third.child.Load()}
	if !hasRoom(fields) {
		return
	}
	if s.ahead.at == 0 && fields[0]&fields[1]&shortcutMark != 0 {
		if at := s.at + int(fields[1]&shortcutMask); at < len(s.sequence) {
			s.ahead = point{-at, fields[0] & shortcutMask}
			s.view.ask(s.ahead.node)
		}
	}
	if s.place.node == 0 {
		s.place = place{point: s.point, fields: fields}
	}
}

// follow looks where a shortcut leads to.
func (s *search) follow() {
	at := -s.ahead.at
	held, ok := s.view.read(s.ahead.node, s.sequence[at])
	if ok {
		s.ahead.at, s.around = at, held
		return
	}
	s.ahead = point{}
	if s.place.point == s.point && s.sequence[s.at]>>32&7 != 0 {
		// It is of no use here, but may be to other prompts. They are not to quarrel over it, so that it mostly stays.
		s.place = place{}
	}
}

// jump goes to the end of a shortcut if nobody drops out before, and reports whether it did.
func (s *search) jump() bool {
	switch {
	case s.ahead.at <= 0:
		return false
	case s.ahead.at <= s.at:
		s.ahead = point{} // it has been passed
		return false
	case s.around&s.held == s.held:
		s.point, s.ahead, s.near = s.ahead, point{}, 0
		return true
	}
	return false
}

// leave leaves a shortcut to the point.
func (s *search) leave() {
	p := &s.place
	if p.node != 0 && p.pieces >= shortcutPieces && s.node < shortcutMark {
		s.view.node(p.node+1).child.CompareAndSwap(p.fields[0], nextChild|shortcutMark|s.node)
		s.view.node(p.node+2).child.CompareAndSwap(p.fields[1], nextChild|shortcutMark|uint32(s.at-p.at))
	}
}

// begins takes down that nodes for blocks of an event, from one on, do not lie behind those before: a piece begins.
func (t *tree) begins(parent, id uint32, at int) {
	if last := len(t.pieces) - 1; last >= 0 && at-t.pieces[last].at < shortcutRoom {
		t.pieces = t.pieces[:last] // it is too short for a shortcut
	} else if id == parent+1 {
		at, id = at-1, parent
	}
	t.pieces = append(t.pieces, point{at, id})
}

// shorten leaves shortcuts between pieces of what has been stored: from the first to the last; in case that one goes, or that a prompt
// does not come so far, from the next to the one in the middle; and so on.
func (t *tree) shorten(first, last int) {
	for last > first {
		from, to := t.pieces[first], t.pieces[last]
		second, third := t.node(from.node+1), t.node(from.node+2)
		if fields := [2]uint32{second.child.Load(), third.child.Load()}; hasRoom(fields) && to.node < shortcutMark {
			second.child.CompareAndSwap(fields[0], nextChild|shortcutMark|to.node)
			third.child.CompareAndSwap(fields[1], nextChild|shortcutMark|uint32(to.at-from.at))
		}
		middle := (first + 1 + last) / 2
		t.shorten(first+1, middle)
		first = middle
	}
}

// hasRoom reports whether two child fields have a shortcut, or can.
func hasRoom(fields [2]uint32) bool {
	return fields[0]&fields[1]&nextChild != 0 && (fields[0]|fields[1])&severalChildren == 0
}
