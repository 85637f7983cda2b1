package chattemplate

import "unsafe"

// arguments are what a call passes. They live on the machine's stack: a callee that keeps them copies them.
type arguments struct {
	positional []Value
	names      []string // of the keyword arguments
	named      []Value
}

// function is a callable that is written in Go.
type function struct {
	name string
	call func(m *machine, args arguments) (Value, error)
}

// filterFunc is a filter: it gets the value left of the '|' and the call's arguments.
type filterFunc func(m *machine, v Value, args arguments) (Value, error)

// testFunc is a test: it gets the value left of the 'is' and the call's arguments.
type testFunc func(m *machine, v Value, args arguments) (bool, error)

// method is a method of a Python type.
type method func(m *machine, self Value, args arguments) (Value, error)

func functionValue(name string, call func(m *machine, args arguments) (Value, error)) Value {
	return Value{kind: kindFunction, ref: unsafe.Pointer(&function{name, call})}
}

// argsOp evaluates the arguments of a call.
type argsOp struct {
	positional       []op
	names            []string
	values           []op
	star, doubleStar op
	caller           bool // the call block's macro is on top of the stack and is passed as caller
}

// push evaluates the arguments on the stack; the caller resets the stack to its former length afterwards.
func (a *argsOp) push(m *machine) (arguments, error) {
	var caller Value
	if a.caller {
		caller = m.stack[len(m.stack)-1]
	}
	base := len(m.stack)
	for _, o := range a.positional {
		v, err := o.eval(m)
		if err != nil {
			return arguments{}, err
		}
		m.stack = append(m.stack, v)
	}
	if a.star == nil && a.doubleStar == nil && !a.caller {
		if len(a.values) == 0 {
			return arguments{positional: m.stack[base:]}, nil
		}
		middle := len(m.stack)
		for _, o := range a.values {
			v, err := o.eval(m)
			if err != nil {
				return arguments{}, err
			}
			m.stack = append(m.stack, v)
		}
		return arguments{m.stack[base:middle:middle], a.names, m.stack[middle:]}, nil
	}
	return a.pushDynamic(m, base, caller)
}

func (a *argsOp) pushDynamic(m *machine, base int, caller Value) (arguments, error) {
	var args arguments
	for i, o := range a.values {
		v, err := o.eval(m)
		if err != nil {
			return args, err
		}
		args.names = append(args.names, a.names[i])
		args.named = append(args.named, v)
	}
	if a.caller {
		args.names = append(args.names, "caller")
		args.named = append(args.named, caller)
	}
	if a.star != nil {
		v, err := a.star.eval(m)
		if err != nil {
			return args, err
		}
		if err := m.each(v, func(item Value) error {
			m.stack = append(m.stack, item)
			return m.allocateValues(1)
		}); err != nil {
			return args, err
		}
	}
	args.positional = m.stack[base:]
	if a.doubleStar != nil {
		v, err := a.doubleStar.eval(m)
		if err != nil {
			return args, err
		}
		if v.kind != kindDict {
			return args, typeError("argument after ** must be a mapping, not %s", v.typeName())
		}
		if err := m.allocateValues(2 * v.Len()); err != nil {
			return args, err
		}
		for _, e := range v.Entries() {
			if e.Key.kind != kindString {
				return args, typeError("keywords must be strings")
			}
			for _, name := range args.names {
				if name == e.Key.str() {
					return args, typeError("got multiple values for keyword argument '%s'", name)
				}
			}
			args.names = append(args.names, e.Key.str())
			args.named = append(args.named, e.Value)
		}
	}
	return args, nil
}

// call calls any callable.
func (m *machine) call(callee Value, args arguments) (Value, error) {
	switch callee.kind {
	case kindFunction:
		if err := m.spend(1); err != nil {
			return Value{}, err
		}
		return (*function)(callee.ref).call(m, args)
	case kindMacro:
		start := len(m.out)
		if err := (*macro)(callee.ref).emit(m, args); err != nil {
			return Value{}, err
		}
		return m.capture(start)
	case kindLoop:
		start := len(m.out)
		if err := (*loopContext)(callee.ref).recurse(m, args); err != nil {
			return Value{}, err
		}
		return m.capture(start)
	case kindObject:
		if o := (*object)(callee.ref); o.call != nil {
			return o.call(m, args)
		}
	case kindMissing, kindUndefined:
		return Value{}, callee.undefinedError()
	}
	return Value{}, typeError("'%s' object is not callable", callee.typeName())
}

// emitCall calls and prints what comes back; macros print directly.
func (m *machine) emitCall(callee Value, args arguments) error {
	switch callee.kind {
	case kindMacro:
		return (*macro)(callee.ref).emit(m, args)
	case kindLoop:
		return (*loopContext)(callee.ref).recurse(m, args)
	}
	v, err := m.call(callee, args)
	if err != nil {
		return err
	}
	return m.print(v)
}

type callOp struct {
	line   int
	callee op
	args   *argsOp
}

func (o *callOp) eval(m *machine) (Value, error) {
	callee, err := o.callee.eval(m)
	if err != nil {
		return callee, err
	}
	base := len(m.stack)
	args, err := o.args.push(m)
	var v Value
	if err == nil {
		v, err = m.call(callee, args)
	}
	m.stack = m.stack[:base]
	if err != nil {
		return v, atLine(err, o.line)
	}
	return v, nil
}

func (o *callOp) emit(m *machine) error {
	callee, err := o.callee.eval(m)
	if err != nil {
		return err
	}
	base := len(m.stack)
	args, err := o.args.push(m)
	if err == nil {
		err = m.emitCall(callee, args)
	}
	m.stack = m.stack[:base]
	if err != nil {
		return atLine(err, o.line)
	}
	return nil
}

// methodOp is of.attr(args).
type methodOp struct {
	line   int
	of     op
	attr   *attrOp
	args   *argsOp
	onText method // the method of this name that strings have, or nil
	onDict method // and dicts
}

// callee finds what is called: a method to be called with v as self, or a callable.
func (o *methodOp) callee(m *machine) (v Value, direct method, callable Value, err error) {
	if v, err = o.of.eval(m); err != nil {
		return v, nil, Value{}, err
	}
	switch {
	case v.kind == kindString && o.onText != nil:
		return v, o.onText, Value{}, m.spend(1 + v.num>>6)
	case v.kind == kindDict && o.onDict != nil:
		return v, o.onDict, Value{}, m.spend(1)
	}
	callable, err = o.attr.get(m, v)
	return v, nil, callable, err
}

func (o *methodOp) eval(m *machine) (Value, error) {
	self, direct, callable, err := o.callee(m)
	if err != nil {
		return self, atLine(err, o.line)
	}
	base := len(m.stack)
	args, err := o.args.push(m)
	var v Value
	switch {
	case err != nil:
	case direct != nil:
		v, err = direct(m, self, args)
	default:
		v, err = m.call(callable, args)
	}
	m.stack = m.stack[:base]
	if err != nil {
		return v, atLine(err, o.line)
	}
	return v, nil
}

func (o *methodOp) emit(m *machine) error {
	self, direct, callable, err := o.callee(m)
	if err != nil {
		return atLine(err, o.line)
	}
	base := len(m.stack)
	args, err := o.args.push(m)
	switch {
	case err != nil:
	case direct != nil:
		var v Value
		if v, err = direct(m, self, args); err == nil {
			err = m.print(v)
		}
	default:
		err = m.emitCall(callable, args)
	}
	m.stack = m.stack[:base]
	if err != nil {
		return atLine(err, o.line)
	}
	return nil
}

type filterOp struct {
	line int
	of   op
	fn   filterFunc
	args *argsOp
}

func (o *filterOp) eval(m *machine) (Value, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return v, err
	}
	base := len(m.stack)
	args, err := o.args.push(m)
	if err == nil {
		if err = m.spend(1); err == nil {
			v, err = o.fn(m, v, args)
		}
		if v.kind == kindIterator && err == nil && m.mini() {
			var items []Value
			items, err = (*iterator)(v.ref).drain(m)
			v = List(items)
		}
	}
	m.stack = m.stack[:base]
	if err != nil {
		return v, atLine(err, o.line)
	}
	return v, nil
}

type testOp struct {
	line int
	of   op
	fn   testFunc
	args *argsOp
}

func (o *testOp) truth(m *machine) (bool, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return false, err
	}
	base := len(m.stack)
	args, err := o.args.push(m)
	t := false
	if err == nil {
		t, err = o.fn(m, v, args)
	}
	m.stack = m.stack[:base]
	if err != nil {
		return false, atLine(err, o.line)
	}
	return t, nil
}

func (o *testOp) eval(m *machine) (Value, error) { return evalTruth(o, m) }

// params are the parameters of a function written in Go.
type params struct {
	fn       string
	names    []string
	required int // how many of them have no default
	// positionalOnly: none can be passed by name.
	positionalOnly bool
}

// bind puts the arguments into values, one per parameter; those not given are missing.
func (p *params) bind(args arguments, values []Value) error {
	if len(args.positional) > len(p.names) {
		return typeError("%s() takes at most %d arguments (%d given)", p.fn, len(p.names), len(args.positional))
	}
	copy(values, args.positional)
	for i, name := range args.names {
		at := -1
		if !p.positionalOnly {
			for j, want := range p.names {
				if want == name {
					at = j
				}
			}
		}
		if at < 0 {
			return typeError("%s() got an unexpected keyword argument '%s'", p.fn, name)
		}
		if values[at].kind != kindMissing {
			return typeError("%s() got multiple values for argument '%s'", p.fn, name)
		}
		values[at] = args.named[i]
	}
	for i := 0; i < p.required; i++ {
		if values[i].kind == kindMissing {
			return typeError("%s() missing required argument '%s'", p.fn, p.names[i])
		}
	}
	return nil
}

// noArguments checks that a call passes nothing.
func (args arguments) none(fn string) error {
	if len(args.positional)+len(args.names) > 0 {
		return typeError("%s() takes no arguments (%d given)", fn, len(args.positional)+len(args.names))
	}
	return nil
}
