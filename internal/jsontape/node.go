package jsontape

import "strconv"

// Root returns the whole value.
func (d *Document) Root() Node { return Node{document: d} }

// Exists tells whether the value is there at all; null exists.
func (n Node) Exists() bool { return n.document != nil }

// Present tells whether the value is there and not null: an explicit null counts as absent for most fields.
func (n Node) Present() bool { return n.document != nil && n.entry().kind != Null }

func (n Node) entry() *entry { return &n.document.entries[n.index] }

// Kind returns the value's type; Invalid for an absent one.
func (n Node) Kind() Kind {
	if n.document == nil {
		return Invalid
	}
	return n.entry().kind
}

// Raw returns the value's own text; nil for an absent one.
func (n Node) Raw() []byte {
	if n.document == nil {
		return nil
	}
	e := n.entry()
	return n.document.text[e.start:e.end:e.end]
}

// Offset returns where the value ends in the text, the place that parser messages name.
func (n Node) Offset() int {
	if n.document == nil {
		return 0
	}
	return int(n.entry().end)
}

// Position returns the line and column at the value's end.
func (n Node) Position() (line, column int) {
	if n.document == nil {
		return 1, 1
	}
	line, column = Position(n.document.text, n.Offset())
	return line, column - 1
}

// Len returns the number of elements or members.
func (n Node) Len() int {
	if n.document == nil {
		return 0
	}
	return int(n.entry().children)
}

// Text returns a string's content; "" for any other kind.
func (n Node) Text() string {
	if n.Kind() != String {
		return ""
	}
	return string(n.document.stringBytes(int(n.index)))
}

// Bytes is Text without the copy where the string holds no escapes; the caller must not change it.
func (n Node) Bytes() []byte {
	if n.Kind() != String {
		return nil
	}
	return n.document.stringBytes(int(n.index))
}

// Bool returns the boolean; ok is false for any other kind.
func (n Node) Bool() (value, ok bool) {
	kind := n.Kind()
	return kind == True, kind == True || kind == False
}

// Int returns a number written as an integer that fits an int64.
func (n Node) Int() (int64, bool) {
	if n.Kind() != Number {
		return 0, false
	}
	value, err := strconv.ParseInt(string(n.Raw()), 10, 64)
	return value, err == nil
}

// Uint returns a number written as an integer that fits a uint64.
func (n Node) Uint() (uint64, bool) {
	if n.Kind() != Number {
		return 0, false
	}
	value, err := strconv.ParseUint(string(n.Raw()), 10, 64)
	return value, err == nil
}

// Float returns any number that float64 can hold.
func (n Node) Float() (float64, bool) {
	if n.Kind() != Number {
		return 0, false
	}
	value, err := strconv.ParseFloat(string(n.Raw()), 64)
	return value, err == nil
}

// Get returns an object's member; the zero Node when there is none.
func (n Node) Get(key string) Node {
	if n.Kind() != Object {
		return Node{}
	}
	d := n.document
	at := n.index + 1
	for range n.entry().children {
		e := &d.entries[at]
		if !e.escaped {
			if string(d.text[e.start+1:e.end-1]) == key {
				return Node{d, at + 1}
			}
		} else if string(d.stringBytes(int(at))) == key {
			return Node{d, at + 1}
		}
		at = d.entries[at+1].next
	}
	return Node{}
}

// Members yields an object's keys and values in their order.
func (n Node) Members(yield func(key string, value Node) bool) {
	if n.Kind() != Object {
		return
	}
	d := n.document
	at := n.index + 1
	for range n.entry().children {
		if !yield(string(d.stringBytes(int(at))), Node{d, at + 1}) {
			return
		}
		at = d.entries[at+1].next
	}
}

// Elements yields an array's values in their order.
func (n Node) Elements(yield func(index int, value Node) bool) {
	if n.Kind() != Array {
		return
	}
	d := n.document
	at := n.index + 1
	for i := range int(n.entry().children) {
		if !yield(i, Node{d, at}) {
			return
		}
		at = d.entries[at].next
	}
}
