package chattemplate

import (
	"fmt"
	"strings"
)

// maxTreeDepth bounds the depth of an expression, counted in operators.
const maxTreeDepth = 3000

// compiler turns the syntax tree into operations.
type compiler struct {
	template *Template
	inputs   map[string]int
	cost     int64 // of the block that is being compiled
	depth    int   // of the expression that is being compiled
	lenient  int   // conditionals around: unknown filters and tests fail only when reached
}

func (c *compiler) compile(body []stmt) error {
	fn := &functionScope{}
	s := c.newScope(nil, fn)
	s.analyze(body)
	b, err := c.block(body, s)
	if err != nil {
		return err
	}
	c.template.body = b
	c.template.root = fn
	c.template.loads = c.loads(s)
	return nil
}

// input returns the index of a name among the template's inputs.
func (c *compiler) input(name string) int {
	i, ok := c.inputs[name]
	if !ok {
		i = len(c.template.inputs)
		c.inputs[name] = i
		c.template.inputs = append(c.template.inputs, name)
	}
	return i
}

// load gives a slot the value that it has at the beginning of a scope.
type load struct {
	slot int
	from reference
}

// reference says where a variable's value is. With slot and input both negative there is none.
type reference struct {
	hops  int // functions to go outwards
	slot  int
	input int
}

func (r reference) get(m *machine) Value {
	switch {
	case r.slot >= 0 && r.hops == 0:
		return m.act.slots[r.slot]
	case r.slot >= 0:
		act := m.act.outer
		for i := 1; i < r.hops; i++ {
			act = act.outer
		}
		return act.slots[r.slot]
	case r.input >= 0:
		return m.input[r.input]
	}
	return missing
}

func (m *machine) load(loads []load) error {
	for i := range loads {
		m.act.slots[loads[i].slot] = loads[i].from.get(m)
	}
	return nil
}

// reference resolves a variable as seen from a function.
func (c *compiler) reference(v *variable, from *functionScope) reference {
	if v.slot < 0 {
		return reference{slot: -1, input: c.input(v.name)}
	}
	hops := 0
	for fn := from; fn != v.fn; fn = fn.outer {
		hops++
	}
	return reference{hops: hops, slot: v.slot, input: -1}
}

// loads lists what a scope's slots begin with.
func (c *compiler) loads(s *scope) []load {
	var loads []load
	for _, v := range s.order {
		if v.slot < 0 {
			continue
		}
		switch v.starts {
		case startsAsGlobal:
			loads = append(loads, load{v.slot, reference{slot: -1, input: c.input(v.name)}})
		case startsAsOuter:
			loads = append(loads, load{v.slot, c.reference(v.outside, s.fn)})
		case startsUnset:
			loads = append(loads, load{v.slot, reference{slot: -1, input: -1}})
		}
	}
	return loads
}

func (c *compiler) block(body []stmt, s *scope) (*block, error) {
	outer := c.cost
	c.cost = 1
	b := &block{}
	for _, st := range body {
		a, err := c.statement(st, s)
		if err != nil {
			return nil, err
		}
		c.cost++
		b.actions = append(b.actions, a)
	}
	b.cost = c.cost
	c.cost = outer
	return b, nil
}

// strictly compiles something in which unknown filters are errors again, although conditionals are around.
func (c *compiler) strictly(compile func() error) error {
	outer := c.lenient
	c.lenient = 0
	err := compile()
	c.lenient = outer
	return err
}

func (c *compiler) statement(st stmt, s *scope) (action, error) {
	switch st := st.(type) {
	case *outputStmt:
		return c.output(st, s)
	case *ifStmt:
		return c.ifStatement(st, s)
	case *forStmt:
		return c.forStatement(st, s)
	case *setStmt:
		value, err := c.expr(st.value, s)
		if err != nil {
			return nil, err
		}
		target := c.target(st.target, s)
		if slot, ok := target.(slotTarget); ok {
			return &setSlotAction{int(st.at), int(slot), value}, nil
		}
		return &setAction{int(st.at), target, value}, nil
	case *setBlockStmt:
		return c.setBlock(st, s)
	case *withStmt:
		return c.with(st, s)
	case *filterStmt:
		return c.filterBlock(st, s)
	case *scopeStmt:
		inner := c.newScope(s, s.fn)
		inner.analyze(st.body)
		a := &scopeAction{}
		err := c.strictly(func() (err error) {
			a.body, err = c.block(st.body, inner)
			return err
		})
		a.loads = c.loads(inner)
		return a, err
	case *macroStmt:
		def, err := c.function(st.name, &st.signature, st.body, int(st.at), s)
		if err != nil {
			return nil, err
		}
		return &macroAction{def, c.target(&nameExpr{at: st.at, name: st.name}, s)}, nil
	case *callStmt:
		def, err := c.function("", &st.signature, st.body, int(st.at), s)
		if err != nil {
			return nil, err
		}
		call, err := c.call(st.call, s, true)
		if err != nil {
			return nil, err
		}
		return &callAction{int(st.at), def, call}, nil
	case *breakStmt:
		return flowAction(flowBreak), nil
	case *continueStmt:
		return flowAction(flowContinue), nil
	}
	return nil, &SyntaxError{Message: fmt.Sprintf("unexpected statement %T", st)}
}

func (c *compiler) output(st *outputStmt, s *scope) (action, error) {
	a := &outputAction{}
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			a.parts = append(a.parts, outputPart{text: text.String()})
			text.Reset()
		}
	}
	for _, part := range st.parts {
		o, err := c.expr(part, s)
		if err != nil {
			return nil, err
		}
		if k, ok := o.(*constOp); ok && k.value.kind == kindString {
			text.WriteString(k.value.str())
			continue
		}
		flush()
		e, _ := o.(emitter)
		a.parts = append(a.parts, outputPart{value: o, emitter: e, line: part.lineNumber()})
	}
	flush()
	if len(a.parts) == 1 && a.parts[0].value == nil {
		return textAction(a.parts[0].text), nil
	}
	return a, nil
}

func (c *compiler) ifStatement(st *ifStmt, s *scope) (action, error) {
	c.lenient++
	defer func() { c.lenient-- }()
	a := &ifAction{}
	for i, test := range st.tests {
		cond, err := c.condition(test, s)
		if err != nil {
			return nil, err
		}
		body, err := c.block(st.bodies[i], s)
		if err != nil {
			return nil, err
		}
		a.branches = append(a.branches, branch{cond, body, test.lineNumber()})
	}
	if len(st.other) > 0 {
		var err error
		if a.other, err = c.block(st.other, s); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (c *compiler) forStatement(st *forStmt, s *scope) (action, error) {
	over, err := c.expr(st.over, s)
	if err != nil {
		return nil, err
	}
	a := &forAction{line: int(st.at), over: over}
	err = c.strictly(func() error { return c.loop(a, st, s) })
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (c *compiler) loop(a *forAction, st *forStmt, s *scope) error {
	fn := s.fn
	if st.recursive {
		s.fn.hasInner = true
		fn = &functionScope{outer: s.fn}
		a.recursive = fn
	}
	inner := c.newScope(s, fn)
	a.loopSlot = -1
	if st.recursive || readsName(st.body, "loop") {
		a.loopSlot = inner.parameter("loop").slot
	}
	inner.parameters(st.target)
	inner.analyze(st.body)
	a.target = c.target(st.target, inner)
	if st.filter != nil {
		test := c.newScope(s, fn)
		test.parameters(st.target)
		test.reads(st.filter)
		cond, err := c.condition(st.filter, test)
		if err != nil {
			return err
		}
		a.filter = &loopFilter{target: c.target(st.target, test), cond: cond, loads: c.loads(test)}
	}
	var err error
	if a.body, err = c.block(st.body, inner); err != nil {
		return err
	}
	a.loads = c.loads(inner)
	if len(st.other) > 0 {
		other := c.newScope(s, fn)
		other.analyze(st.other)
		if a.other, err = c.block(st.other, other); err != nil {
			return err
		}
		a.otherLoads = c.loads(other)
	}
	return nil
}

// target compiles the left side of an assignment.
func (c *compiler) target(e expr, s *scope) target {
	switch e := e.(type) {
	case *nameExpr:
		v := s.find(e.name)
		if v.fn == s.fn {
			return slotTarget(v.slot)
		}
	case *namespaceRef:
		var from op = &missingOp{e.name}
		if v := s.find(e.name); v != nil {
			from = c.variable(v, s)
		}
		return &namespaceTarget{from, e.name, e.attr}
	case *tupleExpr:
		t := &tupleTarget{}
		for _, item := range e.items {
			t.items = append(t.items, c.target(item, s))
		}
		return t
	}
	return slotTarget(s.fn.newSlot())
}

func (c *compiler) setBlock(st *setBlockStmt, s *scope) (action, error) {
	inner := c.newScope(s, s.fn)
	inner.analyze(st.body)
	inner.reads(st.filter)
	a := &setBlockAction{line: int(st.at), target: c.target(st.target, s)}
	err := c.strictly(func() (err error) {
		if a.body, err = c.block(st.body, inner); err != nil || st.filter == nil {
			return err
		}
		a.filter, err = c.expr(st.filter, inner)
		return err
	})
	a.loads = c.loads(inner)
	return a, err
}

func (c *compiler) filterBlock(st *filterStmt, s *scope) (action, error) {
	inner := c.newScope(s, s.fn)
	inner.analyze(st.body)
	inner.reads(st.filter)
	a := &filterAction{line: int(st.at)}
	err := c.strictly(func() (err error) {
		if a.body, err = c.block(st.body, inner); err != nil {
			return err
		}
		a.filter, err = c.expr(st.filter, inner)
		return err
	})
	a.loads = c.loads(inner)
	return a, err
}

func (c *compiler) with(st *withStmt, s *scope) (action, error) {
	inner := c.newScope(s, s.fn)
	a := &withAction{line: int(st.at)}
	for i, name := range st.names {
		value, err := c.expr(st.values[i], s)
		if err != nil {
			return nil, err
		}
		a.values = append(a.values, value)
		a.slots = append(a.slots, inner.parameter(name).slot)
	}
	inner.analyze(st.body)
	err := c.strictly(func() (err error) {
		a.body, err = c.block(st.body, inner)
		return err
	})
	a.loads = c.loads(inner)
	return a, err
}

// function compiles a macro or the body of a call block.
func (c *compiler) function(name string, sig *signature, body []stmt, line int, s *scope) (*macroDef, error) {
	s.fn.hasInner = true
	fn := &functionScope{outer: s.fn}
	inner := c.newScope(s, fn)
	def := &macroDef{name: name, line: line, params: sig.params, fn: fn, caller: -1, kwargs: -1, varargs: -1}
	for _, p := range sig.params {
		inner.parameter(p)
	}
	special := func(name string, slot *int) {
		if !readsName(body, name) {
			return
		}
		for _, p := range sig.params {
			if p == name {
				return
			}
		}
		*slot = inner.parameter(name).slot
	}
	for i, p := range sig.params {
		if p == "caller" {
			def.explicitCaller = true
			if readsName(body, "caller") && len(sig.params)-i > len(sig.defaults) {
				return nil, &SyntaxError{Line: line, Message: "the special parameter 'caller' must be omitted or have a default"}
			}
		}
	}
	special("caller", &def.caller)
	special("kwargs", &def.kwargs)
	special("varargs", &def.varargs)
	inner.reads(sig.defaults...)
	inner.analyze(body)
	err := c.strictly(func() error {
		for _, d := range sig.defaults {
			o, err := c.expr(d, inner)
			if err != nil {
				return err
			}
			def.defaults = append(def.defaults, o)
		}
		var err error
		def.body, err = c.block(body, inner)
		return err
	})
	def.loads = c.loads(inner)
	for _, p := range sig.params {
		def.slots = append(def.slots, inner.names[p].slot)
	}
	return def, err
}
