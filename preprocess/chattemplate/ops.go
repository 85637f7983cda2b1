package chattemplate

// condition is an op whose result is a boolean.
type condition interface {
	op
	truth(m *machine) (bool, error)
}

// evalTruth is the eval of conditions.
func evalTruth(c condition, m *machine) (Value, error) {
	t, err := c.truth(m)
	return Bool(t), err
}

type constOp struct{ value Value }

func (o *constOp) eval(*machine) (Value, error) { return o.value, nil }

// slotOp reads a variable of the running function.
type slotOp struct {
	slot  int
	unset Value // what it is while it is unset
}

func (o *slotOp) eval(m *machine) (Value, error) {
	v := m.act.slots[o.slot]
	if v.kind == kindMissing {
		return o.unset, nil
	}
	return v, nil
}

// inputOp reads a variable that the template never assigns.
type inputOp struct {
	input int
	unset Value
}

func (o *inputOp) eval(m *machine) (Value, error) {
	v := m.input[o.input]
	if v.kind == kindMissing {
		return o.unset, nil
	}
	return v, nil
}

// outerOp reads a variable of a function around the running one.
type outerOp struct {
	from  reference
	unset Value
}

func (o *outerOp) eval(m *machine) (Value, error) {
	v := o.from.get(m)
	if v.kind == kindMissing {
		return o.unset, nil
	}
	return v, nil
}

type missingOp struct{ name string }

func (o *missingOp) eval(*machine) (Value, error) { return undefinedVariable(o.name), nil }

// capturedOp is the body of a filter block, which the block left on top of the stack.
type capturedOp struct{}

func (capturedOp) eval(m *machine) (Value, error) { return m.stack[len(m.stack)-1], nil }

type sequenceOp struct {
	items []op
	kind  kind
}

func (o *sequenceOp) eval(m *machine) (Value, error) {
	if err := m.allocateValues(len(o.items)); err != nil {
		return Value{}, err
	}
	items := make([]Value, len(o.items))
	for i, item := range o.items {
		var err error
		if items[i], err = item.eval(m); err != nil {
			return Value{}, err
		}
	}
	v := List(items)
	v.kind = o.kind
	return v, nil
}

type dictOp struct{ keys, values []op }

func (o *dictOp) eval(m *machine) (Value, error) {
	if err := m.allocate(len(o.keys)*entryBytes + 2*stringCost); err != nil {
		return Value{}, err
	}
	d := &dict{entries: make([]Entry, 0, len(o.keys))}
	for i := range o.keys {
		key, err := o.keys[i].eval(m)
		if err != nil {
			return Value{}, err
		}
		value, err := o.values[i].eval(m)
		if err != nil {
			return Value{}, err
		}
		if err := d.set(key, value); err != nil {
			return Value{}, err
		}
	}
	return dictValue(d), nil
}

type condOp struct {
	test            condition
	then, otherwise op
}

func (o *condOp) choose(m *machine) (op, error) {
	t, err := o.test.truth(m)
	if err != nil {
		return nil, err
	}
	if t {
		return o.then, nil
	}
	return o.otherwise, nil
}

func (o *condOp) eval(m *machine) (Value, error) {
	chosen, err := o.choose(m)
	if err != nil {
		return Value{}, err
	}
	return chosen.eval(m)
}

func (o *condOp) emit(m *machine) error {
	chosen, err := o.choose(m)
	if err != nil {
		return err
	}
	return m.printOp(chosen)
}

// truthOf makes a condition of any op.
type truthOf struct{ of op }

func (o truthOf) truth(m *machine) (bool, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return false, err
	}
	return m.truthy(v)
}

func (o truthOf) eval(m *machine) (Value, error) { return evalTruth(o, m) }

// truthy is Truthy for values that need the machine to know.
func (m *machine) truthy(v Value) (bool, error) {
	if v.kind == kindLoop {
		n, err := (*loopContext)(v.ref).len(m)
		return n > 0, err
	}
	return v.Truthy(), nil
}

type andOp struct{ left, right op }

func (o *andOp) eval(m *machine) (Value, error) {
	v, err := o.left.eval(m)
	if err != nil {
		return v, err
	}
	if t, err := m.truthy(v); !t || err != nil {
		return v, err
	}
	return o.right.eval(m)
}

type orOp struct{ left, right op }

func (o *orOp) eval(m *machine) (Value, error) {
	v, err := o.left.eval(m)
	if err != nil {
		return v, err
	}
	if t, err := m.truthy(v); t || err != nil {
		return v, err
	}
	return o.right.eval(m)
}

// bothOp and eitherOp are and, or of conditions.
type bothOp struct{ left, right condition }

func (o *bothOp) truth(m *machine) (bool, error) {
	if t, err := o.left.truth(m); !t || err != nil {
		return false, err
	}
	return o.right.truth(m)
}

func (o *bothOp) eval(m *machine) (Value, error) { return evalTruth(o, m) }

type eitherOp struct{ left, right condition }

func (o *eitherOp) truth(m *machine) (bool, error) {
	if t, err := o.left.truth(m); t || err != nil {
		return t, err
	}
	return o.right.truth(m)
}

func (o *eitherOp) eval(m *machine) (Value, error) { return evalTruth(o, m) }

type notOp struct{ of condition }

func (o *notOp) truth(m *machine) (bool, error) {
	t, err := o.of.truth(m)
	return !t, err
}

func (o *notOp) eval(m *machine) (Value, error) { return evalTruth(o, m) }

type equalsTextOp struct {
	of   op
	text string
	want bool
}

func (o *equalsTextOp) truth(m *machine) (bool, error) {
	v, err := o.of.eval(m)
	return (v.kind == kindString && v.str() == o.text) == o.want, err
}

func (o *equalsTextOp) eval(m *machine) (Value, error) { return evalTruth(o, m) }

type compareOp struct {
	sign        compareOperator
	left, right op
}

func (o *compareOp) truth(m *machine) (bool, error) {
	left, err := o.left.eval(m)
	if err != nil {
		return false, err
	}
	right, err := o.right.eval(m)
	if err != nil {
		return false, err
	}
	return m.compare(o.sign, left, right)
}

func (o *compareOp) eval(m *machine) (Value, error) { return evalTruth(o, m) }

type compareChainOp struct {
	first op
	signs []compareOperator
	rest  []op
}

func (o *compareChainOp) truth(m *machine) (bool, error) {
	left, err := o.first.eval(m)
	if err != nil {
		return false, err
	}
	for i, sign := range o.signs {
		right, err := o.rest[i].eval(m)
		if err != nil {
			return false, err
		}
		if t, err := m.compare(sign, left, right); !t || err != nil {
			return false, err
		}
		left = right
	}
	return true, nil
}

func (o *compareChainOp) eval(m *machine) (Value, error) { return evalTruth(o, m) }

type unaryOp struct {
	of       op
	negative bool
}

func (o *unaryOp) eval(m *machine) (Value, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return v, err
	}
	return negate(v, o.negative)
}

type binaryOp struct {
	sign        binaryOperator
	left, right op
}

func (o *binaryOp) eval(m *machine) (Value, error) {
	left, err := o.left.eval(m)
	if err != nil {
		return left, err
	}
	right, err := o.right.eval(m)
	if err != nil {
		return right, err
	}
	return m.binary(o.sign, left, right)
}

// sumOp is a + b + c ...; for plain strings nothing is made in between.
type sumOp struct{ parts []op }

func isPlainString(v Value) bool { return v.kind == kindString && !v.safe }

func (o *sumOp) eval(m *machine) (Value, error) {
	base := len(m.stack)
	defer func() { m.stack = m.stack[:base] }()
	plain := true
	for _, part := range o.parts {
		v, err := part.eval(m)
		if err != nil {
			return v, err
		}
		plain = plain && isPlainString(v)
		m.stack = append(m.stack, v)
	}
	values := m.stack[base:]
	if plain {
		return m.join(values, "")
	}
	sum := values[0]
	for _, v := range values[1:] {
		var err error
		if sum, err = m.add(sum, v); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

func (o *sumOp) emit(m *machine) error {
	start := len(m.out)
	for i, part := range o.parts {
		v, err := part.eval(m)
		if err != nil {
			return err
		}
		if isPlainString(v) {
			if err := m.write(v.str()); err != nil {
				return err
			}
			continue
		}
		sum := v
		if i > 0 {
			written, err := m.capture(start)
			if err != nil {
				return err
			}
			if sum, err = m.add(written, v); err != nil {
				return err
			}
		}
		for _, part := range o.parts[i+1:] {
			v, err := part.eval(m)
			if err != nil {
				return err
			}
			if sum, err = m.add(sum, v); err != nil {
				return err
			}
		}
		return m.print(sum)
	}
	return nil
}

// concatOp is a ~ b ~ c: the str() of each, put together.
type concatOp struct{ parts []op }

func (o *concatOp) emit(m *machine) error {
	for _, part := range o.parts {
		if m.mini() {
			if err := m.display(part); err != nil {
				return err
			}
			continue
		}
		if err := m.printOp(part); err != nil {
			return err
		}
	}
	return nil
}

func (o *concatOp) eval(m *machine) (Value, error) {
	start := len(m.out)
	if err := o.emit(m); err != nil {
		return Value{}, err
	}
	return m.capture(start)
}

type simpleTestOp struct {
	of   op
	test func(Value) bool
}

func (o *simpleTestOp) truth(m *machine) (bool, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return false, err
	}
	return o.test(v), nil
}

func (o *simpleTestOp) eval(m *machine) (Value, error) { return evalTruth(o, m) }
