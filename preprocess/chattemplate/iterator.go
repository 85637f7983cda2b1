package chattemplate

import (
	"unicode/utf8"
	"unsafe"
)

// iterator is a Python iterator: what filters like map and selectattr give, and what loops run over. It is used up by reading.
type iterator struct {
	typeName string
	source   iteratorSource
	pos      int // next index, or byte of text
	items    []Value
	entries  []Entry
	text     string
	numbers  *rangeValue
	pull     func(m *machine) (Value, bool, error)
}

type iteratorSource uint8

const (
	fromItems iteratorSource = iota
	fromKeys
	fromValues
	fromPairs
	fromText
	fromRange
	fromFunction
)

func generator(pull func(m *machine) (Value, bool, error)) *iterator {
	return &iterator{typeName: "generator", source: fromFunction, pull: pull}
}

func iteratorValue(it *iterator) Value {
	return Value{kind: kindIterator, ref: unsafe.Pointer(it)}
}

// iterate returns an iterator over v, or a TypeError if there is none.
func (m *machine) iterate(v Value) (*iterator, error) {
	switch v.kind {
	case kindList:
		return &iterator{typeName: "list_iterator", items: v.items()}, nil
	case kindTuple:
		return &iterator{typeName: "tuple_iterator", items: v.items()}, nil
	case kindDict:
		return &iterator{typeName: "dict_keyiterator", source: fromKeys, entries: v.dict().entries}, nil
	case kindView:
		view := (*dictView)(v.ref)
		return &iterator{typeName: view.typeName(), source: view.part, entries: view.of.entries}, nil
	case kindString:
		return &iterator{typeName: "str_iterator", source: fromText, text: v.str()}, nil
	case kindRange:
		return &iterator{typeName: "range_iterator", source: fromRange, numbers: (*rangeValue)(v.ref)}, nil
	case kindIterator:
		return (*iterator)(v.ref), nil
	case kindMissing, kindUndefined:
		return &iterator{typeName: "generator"}, nil
	case kindNone:
		if m.mini() {
			return &iterator{typeName: "generator"}, nil
		}
	case kindLoop:
		l := (*loopContext)(v.ref)
		return generator(func(m *machine) (Value, bool, error) {
			item, ok, err := l.next(m)
			return tuple(item, v), ok, err
		}), nil
	}
	return nil, typeError("'%s' object is not iterable", v.typeName())
}

func (it *iterator) next(m *machine) (Value, bool, error) {
	switch it.source {
	case fromItems:
		if it.pos < len(it.items) {
			it.pos++
			return it.items[it.pos-1], true, nil
		}
	case fromKeys, fromValues, fromPairs:
		if it.pos < len(it.entries) {
			e := &it.entries[it.pos]
			it.pos++
			switch it.source {
			case fromKeys:
				return e.Key, true, nil
			case fromValues:
				return e.Value, true, nil
			}
			return tuple(e.Key, e.Value), true, m.allocateValues(2)
		}
	case fromText:
		if it.pos < len(it.text) {
			_, size := utf8.DecodeRuneInString(it.text[it.pos:])
			v := String(it.text[it.pos : it.pos+size])
			it.pos += size
			return v, true, nil
		}
	case fromRange:
		if it.pos < it.numbers.length() {
			it.pos++
			return Int(it.numbers.at(it.pos - 1)), true, nil
		}
	case fromFunction:
		return it.pull(m)
	}
	return Value{}, false, nil
}

// len is the number of elements left, if that is known without reading them.
func (it *iterator) len() (int, bool) {
	switch it.source {
	case fromItems:
		return len(it.items) - it.pos, true
	case fromKeys, fromValues, fromPairs:
		return len(it.entries) - it.pos, true
	case fromText:
		return utf8.RuneCountInString(it.text[it.pos:]), true
	case fromRange:
		return it.numbers.length() - it.pos, true
	}
	return 0, false
}

// drain reads all elements that are left.
func (it *iterator) drain(m *machine) ([]Value, error) {
	var items []Value
	if n, ok := it.len(); ok {
		if err := m.allocateValues(n); err != nil {
			return nil, err
		}
		items = make([]Value, 0, n)
	}
	for {
		v, ok, err := it.next(m)
		if err != nil || !ok {
			return items, err
		}
		if err := m.spend(1); err != nil {
			return nil, err
		}
		if len(items) == cap(items) {
			if err := m.allocateValues(cap(items) + 4); err != nil {
				return nil, err
			}
		}
		items = append(items, v)
	}
}

// each calls visit with every element of v.
func (m *machine) each(v Value, visit func(Value) error) error {
	it, err := m.iterate(v)
	if err != nil {
		return err
	}
	for {
		item, ok, err := it.next(m)
		if err != nil || !ok {
			return err
		}
		if err := m.spend(1); err != nil {
			return err
		}
		if err := visit(item); err != nil {
			return err
		}
	}
}

// list returns the elements of v; for lists and tuples not a copy.
func (m *machine) list(v Value) ([]Value, error) {
	if v.kind == kindList || v.kind == kindTuple {
		return v.items(), nil
	}
	it, err := m.iterate(v)
	if err != nil {
		return nil, err
	}
	return it.drain(m)
}

// dictView is what keys(), values() and items() of a dict give.
type dictView struct {
	of   *dict
	part iteratorSource
}

func viewValue(d *dict, part iteratorSource) Value {
	return Value{kind: kindView, ref: unsafe.Pointer(&dictView{d, part})}
}

func (v *dictView) typeName() string {
	switch v.part {
	case fromKeys:
		return "dict_keys"
	case fromValues:
		return "dict_values"
	}
	return "dict_items"
}

// rangeValue is what range() gives.
type rangeValue struct{ start, stop, step int64 }

func (r *rangeValue) length() int {
	switch {
	case r.step > 0 && r.stop > r.start:
		return int((uint64(r.stop)-uint64(r.start)-1)/uint64(r.step) + 1)
	case r.step < 0 && r.stop < r.start:
		return int((uint64(r.start)-uint64(r.stop)-1)/uint64(-r.step) + 1)
	}
	return 0
}

func (r *rangeValue) at(i int) int64 { return r.start + int64(i)*r.step }

// index returns the place of a number in the range, or -1.
func (r *rangeValue) index(n int64) int {
	d := n - r.start
	if d%r.step != 0 {
		return -1
	}
	if i := d / r.step; i >= 0 && i < int64(r.length()) {
		return int(i)
	}
	return -1
}

func rangeOf(start, stop, step int64) Value {
	return Value{kind: kindRange, ref: unsafe.Pointer(&rangeValue{start, stop, step})}
}

// object is a value with behaviour of its own that templates make: a cycler or a joiner.
type object struct {
	typeName string
	attr     func(name string) (Value, bool)
	call     func(m *machine, args arguments) (Value, error)
}
