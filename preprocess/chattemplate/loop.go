package chattemplate

import "unsafe"

// forAction is a for loop.
type forAction struct {
	line       int
	over       op
	target     target
	filter     *loopFilter // the loop's "if", or nil
	loads      []load
	loopSlot   int // of the variable loop, or -1 where the body does not mention it
	body       *block
	other      *block // else, or nil
	otherLoads []load
	recursive  *functionScope // the function that a recursive loop is, else nil
}

// loopFilter decides which elements a loop sees.
type loopFilter struct {
	target target
	cond   condition
	loads  []load
}

func (a *forAction) run(m *machine) (flow, error) {
	over, err := a.over.eval(m)
	if err == nil {
		if a.recursive != nil {
			err = a.enter(m, over, m.act.self, 0)
		} else {
			var f flow
			if f, err = a.iterate(m, over, 0, nil); err == nil {
				return f, nil
			}
		}
	}
	if err != nil {
		return 0, atLine(err, a.line)
	}
	return flowNext, nil
}

// enter runs one level of a recursive loop.
func (a *forAction) enter(m *machine, over Value, outer *activation, depth int) error {
	caller, err := m.enterFunction(a.recursive, outer)
	if err != nil {
		return err
	}
	_, err = a.iterate(m, over, depth, outer)
	m.leaveFunction(a.recursive, caller)
	return err
}

func (a *forAction) iterate(m *machine, over Value, depth int, outer *activation) (flow, error) {
	items, err := m.iterate(over)
	if err != nil {
		return 0, err
	}
	if a.filter != nil {
		if items, err = a.filter.apply(m, items); err != nil {
			return 0, err
		}
	}
	var loop *loopContext
	if a.loopSlot >= 0 {
		if err := m.allocate(int(unsafe.Sizeof(loopContext{}))); err != nil {
			return 0, err
		}
		loop = &loopContext{items: items, index0: -1, depth0: depth, of: a, outer: outer}
	}
	pair := a.pairTarget(items, loop)
	completed := false
	for {
		var item Value
		var ok bool
		switch {
		case pair != nil:
			// for key, value in d.items(): no tuple is made.
			if ok = items.pos < len(items.entries); ok {
				e := &items.entries[items.pos]
				items.pos++
				m.act.slots[pair[0]], m.act.slots[pair[1]] = e.Key, e.Value
			}
		case loop != nil:
			item, ok, err = loop.next(m)
		default:
			item, ok, err = items.next(m)
		}
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		if err := m.spend(1); err != nil {
			return 0, err
		}
		if pair == nil {
			if err := a.target.assign(m, item); err != nil {
				return 0, err
			}
		}
		if loop != nil {
			m.act.slots[a.loopSlot] = Value{kind: kindLoop, ref: unsafe.Pointer(loop)}
		}
		if err := m.load(a.loads); err != nil {
			return 0, err
		}
		f, err := a.body.run(m)
		if err != nil {
			return 0, err
		}
		if f == flowBreak {
			break
		}
		if f == flowNext {
			completed = true
		}
	}
	// As in Jinja, the else part also runs if every turn ended with break or continue.
	if a.other != nil && !completed {
		if err := m.load(a.otherLoads); err != nil {
			return 0, err
		}
		return a.other.run(m)
	}
	return flowNext, nil
}

// pairTarget returns the slots of a loop "for a, b in d.items()" that nobody else looks at, else nil.
func (a *forAction) pairTarget(items *iterator, loop *loopContext) []int {
	if loop != nil || items.source != fromPairs {
		return nil
	}
	t, ok := a.target.(*tupleTarget)
	if !ok || len(t.items) != 2 {
		return nil
	}
	first, ok1 := t.items[0].(slotTarget)
	second, ok2 := t.items[1].(slotTarget)
	if !ok1 || !ok2 {
		return nil
	}
	return []int{int(first), int(second)}
}

// apply returns an iterator over those elements that pass the filter; they are tested one by one, when they are needed.
func (f *loopFilter) apply(m *machine, items *iterator) (*iterator, error) {
	if err := m.load(f.loads); err != nil {
		return nil, err
	}
	_, unpacks := f.target.(*tupleTarget)
	return generator(func(m *machine) (Value, bool, error) {
		for {
			item, ok, err := items.next(m)
			if err != nil || !ok {
				return item, false, err
			}
			if err := f.target.assign(m, item); err != nil {
				return item, false, err
			}
			if t, err := f.cond.truth(m); err != nil {
				return item, false, err
			} else if t {
				if unpacks && item.kind != kindTuple {
					all, err := m.list(item)
					return tuple(all...), err == nil, err
				}
				return item, true, nil
			}
			if err := m.spend(1); err != nil {
				return item, false, err
			}
		}
	}), nil
}

// loopContext is the variable loop.
type loopContext struct {
	items   *iterator
	index0  int
	depth0  int
	length  int // valid once counted
	counted bool
	ahead   bool // after has been fetched already
	ended   bool // and there was none
	after   Value
	current Value
	before  Value
	changed []Value
	asked   bool // changed() has been called
	of      *forAction
	outer   *activation // of a recursive loop: where it is defined
}

func (l *loopContext) next(m *machine) (Value, bool, error) {
	var v Value
	ok := true
	if l.ahead {
		v, ok = l.after, !l.ended
		l.ahead, l.after = false, Value{}
	} else {
		var err error
		if v, ok, err = l.items.next(m); err != nil {
			return v, false, err
		}
	}
	if !ok {
		return v, false, nil
	}
	l.index0++
	l.before, l.current = l.current, v
	return v, true, nil
}

// peek returns the next element without moving on.
func (l *loopContext) peek(m *machine) (Value, bool, error) {
	if l.ahead && !l.ended {
		return l.after, true, nil
	}
	v, ok, err := l.items.next(m)
	if err != nil {
		return v, false, err
	}
	l.ahead, l.ended, l.after = true, !ok, v
	return v, ok, nil
}

func (l *loopContext) len(m *machine) (int, error) {
	if l.counted {
		return l.length, nil
	}
	if n, ok := l.items.len(); ok {
		// Elements behind and at the current place have been taken from the iterator already.
		l.length = n + l.index0 + 1
		if l.ahead && !l.ended {
			l.length++
		}
	} else {
		rest, err := l.items.drain(m)
		if err != nil {
			return 0, err
		}
		l.items = &iterator{typeName: "list_iterator", items: rest}
		l.length = len(rest) + l.index0 + 1
		if l.ahead && !l.ended {
			l.length++
		}
	}
	l.counted = true
	return l.length, nil
}

type loopAttr uint8

const (
	loopNone loopAttr = iota
	loopIndex
	loopIndex0
	loopRevindex
	loopRevindex0
	loopFirst
	loopLast
	loopLength
	loopDepth
	loopDepth0
	loopPrevitem
	loopNextitem
	loopCycle
	loopChanged
)

var loopAttrs = map[string]loopAttr{
	"index": loopIndex, "index0": loopIndex0, "revindex": loopRevindex, "revindex0": loopRevindex0, "first": loopFirst,
	"last": loopLast, "length": loopLength, "depth": loopDepth, "depth0": loopDepth0, "previtem": loopPrevitem,
	"nextitem": loopNextitem, "cycle": loopCycle, "changed": loopChanged,
}

func (l *loopContext) attr(m *machine, a loopAttr) (Value, error) {
	switch a {
	case loopIndex:
		return Int(int64(l.index0 + 1)), nil
	case loopIndex0:
		return Int(int64(l.index0)), nil
	case loopFirst:
		return Bool(l.index0 == 0), nil
	case loopLast:
		_, more, err := l.peek(m)
		return Bool(!more), err
	case loopDepth:
		return Int(int64(l.depth0 + 1)), nil
	case loopDepth0:
		return Int(int64(l.depth0)), nil
	case loopPrevitem:
		if l.index0 == 0 {
			return undefinedHint("there is no previous item"), nil
		}
		return l.before, nil
	case loopNextitem:
		v, ok, err := l.peek(m)
		if err == nil && !ok {
			v = undefinedHint("there is no next item")
		}
		return v, err
	case loopCycle:
		return functionValue("cycle", func(m *machine, args arguments) (Value, error) {
			if len(args.positional) == 0 {
				return Value{}, typeError("no items for cycling given")
			}
			n := len(args.positional)
			return args.positional[((l.index0%n)+n)%n], nil
		}), nil
	case loopChanged:
		return functionValue("changed", l.hasChanged), nil
	}
	n, err := l.len(m)
	switch a {
	case loopLength:
		return Int(int64(n)), err
	case loopRevindex:
		return Int(int64(n - l.index0)), err
	case loopRevindex0:
		return Int(int64(n - l.index0 - 1)), err
	}
	return Value{}, err
}

func (l *loopContext) hasChanged(m *machine, args arguments) (Value, error) {
	if l.asked {
		same, err := m.equal(List(l.changed), List(args.positional), 0)
		if err != nil || same {
			return False, err
		}
	}
	if err := m.allocateValues(len(args.positional)); err != nil {
		return Value{}, err
	}
	l.asked = true
	l.changed = append([]Value(nil), args.positional...)
	return True, nil
}

// recurse is loop(iterable) in a recursive loop: it prints the loop over other elements.
func (l *loopContext) recurse(m *machine, args arguments) error {
	if l.of.recursive == nil {
		return typeError("The loop must have the 'recursive' marker to be called recursively.")
	}
	var over [1]Value
	if err := loopParams.bind(args, over[:]); err != nil {
		return err
	}
	return l.of.enter(m, over[0], l.outer, l.depth0+1)
}

var loopParams = params{fn: "loop", names: []string{"iterable"}, required: 1}
