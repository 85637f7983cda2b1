package chattemplate

import "unsafe"

type flowAction flow

func (a flowAction) run(*machine) (flow, error) { return flow(a), nil }

type textAction string

func (a textAction) run(m *machine) (flow, error) { return flowNext, m.write(string(a)) }

// outputPart is template text, or an expression to print.
type outputPart struct {
	text    string
	value   op
	emitter emitter // value, if it can print itself
	line    int
}

type outputAction struct{ parts []outputPart }

func (a *outputAction) run(m *machine) (flow, error) {
	for i := range a.parts {
		p := &a.parts[i]
		if p.value == nil {
			m.out = append(m.out, p.text...)
			continue
		}
		var err error
		if p.emitter != nil {
			err = p.emitter.emit(m)
		} else {
			var v Value
			if v, err = p.value.eval(m); err == nil {
				err = m.print(v)
			}
		}
		if err != nil {
			return 0, atLine(err, p.line)
		}
	}
	return flowNext, m.checkOutput()
}

type branch struct {
	test condition
	body *block
	line int
}

type ifAction struct {
	branches []branch
	other    *block
}

func (a *ifAction) run(m *machine) (flow, error) {
	for i := range a.branches {
		t, err := a.branches[i].test.truth(m)
		if err != nil {
			return 0, atLine(err, a.branches[i].line)
		}
		if t {
			return a.branches[i].body.run(m)
		}
	}
	if a.other != nil {
		return a.other.run(m)
	}
	return flowNext, nil
}

type setSlotAction struct {
	line, slot int
	value      op
}

func (a *setSlotAction) run(m *machine) (flow, error) {
	v, err := a.value.eval(m)
	if err != nil {
		return 0, atLine(err, a.line)
	}
	m.act.slots[a.slot] = v
	return flowNext, nil
}

type setAction struct {
	line   int
	target target
	value  op
}

func (a *setAction) run(m *machine) (flow, error) {
	err := checkNamespaces(m, a.target)
	if err == nil {
		var v Value
		if v, err = a.value.eval(m); err == nil {
			err = a.target.assign(m, v)
		}
	}
	if err != nil {
		return 0, atLine(err, a.line)
	}
	return flowNext, nil
}

type setBlockAction struct {
	line   int
	loads  []load
	body   *block
	filter op // or nil
	target target
}

func (a *setBlockAction) run(m *machine) (flow, error) {
	v, f, err := captureBlock(m, a.loads, a.body, a.filter)
	if err == nil && f == flowNext {
		if err = checkNamespaces(m, a.target); err == nil {
			err = a.target.assign(m, v)
		}
	}
	if err != nil {
		return 0, atLine(err, a.line)
	}
	return f, nil
}

type filterAction struct {
	line   int
	loads  []load
	body   *block
	filter op
}

func (a *filterAction) run(m *machine) (flow, error) {
	v, f, err := captureBlock(m, a.loads, a.body, a.filter)
	if err == nil && f == flowNext {
		err = m.print(v)
	}
	if err != nil {
		return 0, atLine(err, a.line)
	}
	return f, nil
}

// captureBlock runs a body, and a filter over what it printed. After a break or continue inside there is nothing to filter.
func captureBlock(m *machine, loads []load, body *block, filter op) (Value, flow, error) {
	if err := m.load(loads); err != nil {
		return Value{}, 0, err
	}
	start := len(m.out)
	f, err := body.run(m)
	if err != nil {
		return Value{}, 0, err
	}
	v, err := m.capture(start)
	if err != nil || f != flowNext || filter == nil {
		return v, f, err
	}
	m.stack = append(m.stack, v)
	v, err = filter.eval(m)
	m.stack = m.stack[:len(m.stack)-1]
	return v, f, err
}

type withAction struct {
	line   int
	values []op
	slots  []int
	loads  []load
	body   *block
}

func (a *withAction) run(m *machine) (flow, error) {
	if err := m.load(a.loads); err != nil {
		return 0, err
	}
	for i, value := range a.values {
		v, err := value.eval(m)
		if err != nil {
			return 0, atLine(err, a.line)
		}
		m.act.slots[a.slots[i]] = v
	}
	return a.body.run(m)
}

type scopeAction struct {
	loads []load
	body  *block
}

func (a *scopeAction) run(m *machine) (flow, error) {
	if err := m.load(a.loads); err != nil {
		return 0, err
	}
	return a.body.run(m)
}

// target is the left side of an assignment.
type target interface {
	assign(m *machine, v Value) error
}

type slotTarget int

func (t slotTarget) assign(m *machine, v Value) error {
	m.act.slots[t] = v
	return nil
}

type namespaceTarget struct {
	of         op
	name, attr string
}

func (t *namespaceTarget) namespace(m *machine) (*namespace, error) {
	v, err := t.of.eval(m)
	if err != nil {
		return nil, err
	}
	if v.kind != kindNamespace {
		return nil, &RenderError{Class: "TemplateRuntimeError", Message: "cannot assign attribute on non-namespace object '" + t.name + "'"}
	}
	return (*namespace)(v.ref), nil
}

func (t *namespaceTarget) assign(m *machine, v Value) error {
	ns, err := t.namespace(m)
	if err != nil {
		return err
	}
	return ns.set(m, t.attr, v)
}

type tupleTarget struct{ items []target }

func (t *tupleTarget) assign(m *machine, v Value) error {
	if v.kind == kindList || v.kind == kindTuple {
		return t.assignAll(m, v.items())
	}
	base := len(m.stack)
	defer func() { m.stack = m.stack[:base] }()
	err := m.each(v, func(item Value) error {
		if len(m.stack)-base == len(t.items) {
			return valueError("too many values to unpack (expected %d)", len(t.items))
		}
		m.stack = append(m.stack, item)
		return nil
	})
	if err != nil {
		return err
	}
	return t.assignAll(m, m.stack[base:])
}

func (t *tupleTarget) assignAll(m *machine, values []Value) error {
	switch {
	case len(values) > len(t.items):
		return valueError("too many values to unpack (expected %d)", len(t.items))
	case len(values) < len(t.items):
		return valueError("not enough values to unpack (expected %d, got %d)", len(t.items), len(values))
	}
	for i, item := range t.items {
		if err := item.assign(m, values[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkNamespaces makes sure, before the right side is evaluated, that what is assigned to belongs to namespaces.
func checkNamespaces(m *machine, t target) error {
	switch t := t.(type) {
	case *namespaceTarget:
		_, err := t.namespace(m)
		return err
	case *tupleTarget:
		for _, item := range t.items {
			if err := checkNamespaces(m, item); err != nil {
				return err
			}
		}
	}
	return nil
}

// namespace is what namespace() makes: the one value whose attributes can be assigned.
type namespace struct{ attrs dict }

func (ns *namespace) set(m *machine, name string, v Value) error {
	if name != "" && name[0] == '_' {
		return &RenderError{Class: "SecurityError", Message: "underscore-prefixed attribute '" + name + "' on a namespace"}
	}
	if err := m.allocate(entryBytes); err != nil {
		return err
	}
	ns.attrs.setString(String(name), v)
	return nil
}

// macroDef is a compiled macro or call block.
type macroDef struct {
	name                    string
	line                    int
	params                  []string
	slots                   []int // of the parameters
	defaults                []op  // of the last parameters
	explicitCaller          bool  // there is a parameter called caller
	caller, kwargs, varargs int   // slots of the special variables, or -1
	fn                      *functionScope
	loads                   []load
	body                    *block
}

// macro is a macro together with the activation it was defined in.
type macro struct {
	def   *macroDef
	outer *activation
}

func (m *machine) newMacro(def *macroDef) Value {
	return Value{kind: kindMacro, ref: unsafe.Pointer(&macro{def, m.act.self})}
}

type macroAction struct {
	def    *macroDef
	target target
}

func (a *macroAction) run(m *machine) (flow, error) {
	if err := m.allocate(valueBytes); err != nil {
		return 0, err
	}
	return flowNext, a.target.assign(m, m.newMacro(a.def))
}

// callAction calls a macro with the block's body as its caller.
type callAction struct {
	line int
	def  *macroDef
	call op
}

func (a *callAction) run(m *machine) (flow, error) {
	if err := m.allocate(valueBytes); err != nil {
		return 0, err
	}
	m.stack = append(m.stack, m.newMacro(a.def))
	err := m.printOp(a.call)
	m.stack = m.stack[:len(m.stack)-1]
	if err != nil {
		return 0, atLine(err, a.line)
	}
	return flowNext, nil
}

// emit runs the macro and prints what it prints.
func (mc *macro) emit(m *machine, args arguments) error {
	def := mc.def
	caller, err := m.enterFunction(def.fn, mc.outer)
	if err != nil {
		return err
	}
	if err = m.load(def.loads); err == nil {
		if err = mc.bind(m, args); err == nil {
			_, err = def.body.run(m)
		}
	}
	m.leaveFunction(def.fn, caller)
	return err
}

// bind puts the arguments into the slots of the activation that was just entered.
func (mc *macro) bind(m *machine, args arguments) error {
	def := mc.def
	slots := m.act.slots
	given := min(len(args.positional), len(def.params))
	for i := 0; i < given; i++ {
		slots[def.slots[i]] = args.positional[i]
	}
	foundCaller := def.explicitCaller
	var rest *Dict
	for i, name := range args.names {
		param := -1
		for j := given; j < len(def.params); j++ {
			if def.params[j] == name {
				param = j
			}
		}
		switch {
		case param >= 0:
			slots[def.slots[param]] = args.named[i]
		case name == "caller" && def.caller >= 0 && !foundCaller:
			slots[def.caller] = args.named[i]
		case def.kwargs >= 0:
			if rest == nil {
				rest = NewDict(len(args.names))
			}
			rest.Set(name, args.named[i])
		case name == "caller":
			return typeError("macro '%s' was invoked with two values for the special caller argument", def.name)
		default:
			return typeError("macro '%s' takes no keyword argument '%s'", def.name, name)
		}
	}
	if def.caller >= 0 && slots[def.caller].kind <= kindNone {
		slots[def.caller] = undefinedHint("No caller defined")
	}
	if def.kwargs >= 0 {
		if rest == nil {
			rest = NewDict(0)
		}
		if err := m.allocate(entryBytes * (len(args.names) + 1)); err != nil {
			return err
		}
		slots[def.kwargs] = rest.Value()
	}
	if extra := len(args.positional) - given; def.varargs >= 0 {
		if err := m.allocateValues(extra); err != nil {
			return err
		}
		slots[def.varargs] = tuple(append([]Value(nil), args.positional[given:]...)...)
	} else if extra > 0 {
		return typeError("macro '%s' takes not more than %d argument(s)", def.name, len(def.params))
	}
	firstDefault := len(def.params) - len(def.defaults)
	for i := given; i < len(def.params); i++ {
		slot := def.slots[i]
		if slots[slot].kind != kindMissing {
			continue
		}
		if i < firstDefault {
			slots[slot] = undefinedHint("parameter '" + def.params[i] + "' was not provided")
			continue
		}
		v, err := def.defaults[i-firstDefault].eval(m)
		if err != nil {
			return atLine(err, def.line)
		}
		slots[slot] = v
	}
	return nil
}
