package chattemplate

import "fmt"

func (c *compiler) expr(e expr, s *scope) (op, error) {
	c.cost++
	if c.depth++; c.depth > maxTreeDepth {
		return nil, &SyntaxError{Line: e.lineNumber(), Message: fmt.Sprintf("expression nested deeper than %d operators", maxTreeDepth)}
	}
	defer func() { c.depth-- }()
	switch e := e.(type) {
	case *constExpr:
		return &constOp{e.value}, nil
	case *nameExpr:
		return c.variable(s.find(e.name), s), nil
	case *namespaceRef:
		return c.variable(s.find(e.name), s), nil
	case *tupleExpr:
		return c.sequence(e.items, kindTuple, s)
	case *listExpr:
		return c.sequence(e.items, kindList, s)
	case *dictExpr:
		return c.dict(e, s)
	case *condExpr:
		return c.conditional(e, s)
	case *andExpr, *orExpr, *notExpr:
		return c.logic(e, s)
	case *compareExpr:
		return c.comparison(e, s)
	case *binaryExpr:
		return c.binary(e, s)
	case *unaryExpr:
		of, err := c.expr(e.of, s)
		if err != nil {
			return nil, err
		}
		return c.fold(&unaryOp{of, e.negative}, of), nil
	case *concatExpr:
		parts, err := c.exprs(e.parts, s)
		return &concatOp{parts}, err
	case *attrExpr:
		of, err := c.expr(e.of, s)
		return c.attr(of, e.attr), err
	case *itemExpr:
		return c.item(e, s)
	case *sliceExpr:
		return c.slice(e, s)
	case *callExpr:
		return c.call(e, s, false)
	case *filterExpr:
		return c.filter(e, s)
	case *testExpr:
		return c.test(e, s)
	}
	return nil, &SyntaxError{Line: e.lineNumber(), Message: fmt.Sprintf("unexpected expression %T", e)}
}

func (c *compiler) exprs(list []expr, s *scope) ([]op, error) {
	ops := make([]op, len(list))
	for i, e := range list {
		var err error
		if ops[i], err = c.expr(e, s); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// condition compiles an expression of which only the truth matters.
func (c *compiler) condition(e expr, s *scope) (condition, error) {
	o, err := c.expr(e, s)
	if err != nil {
		return nil, err
	}
	if cond, ok := o.(condition); ok {
		return cond, nil
	}
	return truthOf{o}, nil
}

func (c *compiler) variable(v *variable, s *scope) op {
	if v == nil {
		return &constOp{undefinedVariable("")}
	}
	r := c.reference(v, s.fn)
	unset := undefinedVariable(v.name)
	switch {
	case r.slot < 0:
		return &inputOp{r.input, unset}
	case r.hops == 0:
		return &slotOp{r.slot, unset}
	}
	return &outerOp{r, unset}
}

// fold replaces an operation on constants by its result, unless it fails.
func (c *compiler) fold(o op, operands ...op) op {
	for _, operand := range operands {
		if _, ok := operand.(*constOp); !ok {
			return o
		}
	}
	m := &machine{template: c.template, steps: 10000, allocated: 1 << 16, limits: Limits{}.withDefaults()}
	if v, err := o.eval(m); err == nil {
		switch v.kind {
		case kindNone, kindBool, kindInt, kindFloat, kindString:
			return &constOp{v}
		}
	}
	return o
}

func (c *compiler) sequence(items []expr, k kind, s *scope) (op, error) {
	ops, err := c.exprs(items, s)
	if err != nil {
		return nil, err
	}
	values := make([]Value, len(ops))
	for i, o := range ops {
		constant, ok := o.(*constOp)
		if !ok {
			return &sequenceOp{ops, k}, nil
		}
		values[i] = constant.value
	}
	v := List(values)
	v.kind = k
	return &constOp{v}, nil
}

func (c *compiler) dict(e *dictExpr, s *scope) (op, error) {
	keys, err := c.exprs(e.keys, s)
	if err != nil {
		return nil, err
	}
	values, err := c.exprs(e.values, s)
	return &dictOp{keys, values}, err
}

func (c *compiler) conditional(e *condExpr, s *scope) (op, error) {
	c.lenient++
	defer func() { c.lenient-- }()
	test, err := c.condition(e.test, s)
	if err != nil {
		return nil, err
	}
	then, err := c.expr(e.then, s)
	if err != nil {
		return nil, err
	}
	var otherwise op = &constOp{undefinedHint(fmt.Sprintf(
		"the inline if-expression on line %d evaluated to false and no else section was defined.", e.at))}
	if e.otherwise != nil {
		if otherwise, err = c.expr(e.otherwise, s); err != nil {
			return nil, err
		}
	}
	return &condOp{test, then, otherwise}, nil
}

func (c *compiler) logic(e expr, s *scope) (op, error) {
	pair := func(a, b expr) (left, right op, err error) {
		if left, err = c.expr(a, s); err == nil {
			right, err = c.expr(b, s)
		}
		return left, right, err
	}
	switch e := e.(type) {
	case *andExpr:
		left, right, err := pair(e.left, e.right)
		if err != nil {
			return nil, err
		}
		l, okL := left.(condition)
		r, okR := right.(condition)
		if okL && okR {
			return &bothOp{l, r}, nil
		}
		return &andOp{left, right}, nil
	case *orExpr:
		left, right, err := pair(e.left, e.right)
		if err != nil {
			return nil, err
		}
		l, okL := left.(condition)
		r, okR := right.(condition)
		if okL && okR {
			return &eitherOp{l, r}, nil
		}
		return &orOp{left, right}, nil
	}
	of, err := c.condition(e.(*notExpr).of, s)
	return &notOp{of}, err
}

func (c *compiler) comparison(e *compareExpr, s *scope) (op, error) {
	first, err := c.expr(e.first, s)
	if err != nil {
		return nil, err
	}
	rest, err := c.exprs(e.rest, s)
	if err != nil {
		return nil, err
	}
	if len(rest) > 1 {
		return &compareChainOp{first, e.ops, rest}, nil
	}
	if k, ok := rest[0].(*constOp); ok && k.value.kind == kindString {
		switch e.ops[0] {
		case opEq:
			return c.fold(&equalsTextOp{first, k.value.str(), true}, first), nil
		case opNe:
			return c.fold(&equalsTextOp{first, k.value.str(), false}, first), nil
		}
	}
	return c.fold(&compareOp{e.ops[0], first, rest[0]}, first, rest[0]), nil
}

func (c *compiler) binary(e *binaryExpr, s *scope) (op, error) {
	left, err := c.expr(e.left, s)
	if err != nil {
		return nil, err
	}
	right, err := c.expr(e.right, s)
	if err != nil {
		return nil, err
	}
	if e.op != opAdd {
		return c.fold(&binaryOp{e.op, left, right}, left, right), nil
	}
	if sum, ok := left.(*sumOp); ok {
		// "a" + x + "b" + "c": put constant texts together.
		last := len(sum.parts) - 1
		if folded, ok := c.fold(&sumOp{[]op{sum.parts[last], right}}, sum.parts[last], right).(*constOp); ok &&
			folded.value.kind == kindString && !folded.value.safe {
			sum.parts[last] = folded
			return sum, nil
		}
		sum.parts = append(sum.parts, right)
		return sum, nil
	}
	return c.fold(&sumOp{[]op{left, right}}, left, right), nil
}

func (c *compiler) item(e *itemExpr, s *scope) (op, error) {
	of, err := c.expr(e.of, s)
	if err != nil {
		return nil, err
	}
	key, err := c.expr(e.key, s)
	if err != nil {
		return nil, err
	}
	if k, ok := key.(*constOp); ok {
		switch {
		case k.value.kind == kindString:
			name := k.value.str()
			return &textItemOp{of, k.value, name, lackOf("dict", name)}, nil
		case k.value.isSmall():
			return &indexOp{of, k.value, int(k.value.num)}, nil
		}
	}
	return &itemOp{of, key}, nil
}

func (c *compiler) slice(e *sliceExpr, s *scope) (op, error) {
	o := &sliceOp{}
	for _, part := range []struct {
		from expr
		to   *op
	}{{e.of, &o.of}, {e.start, &o.start}, {e.stop, &o.stop}, {e.step, &o.step}} {
		if part.from == nil {
			continue
		}
		var err error
		if *part.to, err = c.expr(part.from, s); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (c *compiler) args(a *callArgs, s *scope) (*argsOp, error) {
	o := &argsOp{names: a.names}
	var err error
	if o.positional, err = c.exprs(a.positional, s); err != nil {
		return nil, err
	}
	if o.values, err = c.exprs(a.values, s); err != nil {
		return nil, err
	}
	if a.star != nil {
		if o.star, err = c.expr(a.star, s); err != nil {
			return nil, err
		}
	}
	if a.doubleStar != nil {
		if o.doubleStar, err = c.expr(a.doubleStar, s); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (c *compiler) call(e *callExpr, s *scope, withCaller bool) (op, error) {
	args, err := c.args(&e.args, s)
	if err != nil {
		return nil, err
	}
	args.caller = withCaller
	if a, ok := e.callee.(*attrExpr); ok {
		c.cost++
		of, err := c.expr(a.of, s)
		if err != nil {
			return nil, err
		}
		return &methodOp{line: int(e.at), of: of, attr: c.attr(of, a.attr), args: args, onText: textMethods[a.attr], onDict: dictMethods[a.attr]}, nil
	}
	callee, err := c.expr(e.callee, s)
	return &callOp{line: int(e.at), callee: callee, args: args}, err
}

func (c *compiler) filter(e *filterExpr, s *scope) (op, error) {
	var of op = capturedOp{}
	if e.of != nil {
		var err error
		if of, err = c.expr(e.of, s); err != nil {
			return nil, err
		}
	}
	args, err := c.args(&e.args, s)
	if err != nil {
		return nil, err
	}
	f := c.template.filter(e.name)
	if f == nil {
		if c.lenient == 0 {
			return nil, &SyntaxError{Line: int(e.at), Message: "unknown filter '" + e.name + "'"}
		}
		f = unknown("filter", e.name)
	}
	return &filterOp{line: int(e.at), of: of, fn: f, args: args}, nil
}

func unknown(what, name string) filterFunc {
	return func(*machine, Value, arguments) (Value, error) {
		return Value{}, &RenderError{Class: "TemplateRuntimeError", Message: "No " + what + " named '" + name + "' found."}
	}
}

func (c *compiler) test(e *testExpr, s *scope) (op, error) {
	of, err := c.expr(e.of, s)
	if err != nil {
		return nil, err
	}
	args, err := c.args(&e.args, s)
	if err != nil {
		return nil, err
	}
	noArgs := len(args.positional) == 0 && len(args.names) == 0 && args.star == nil && args.doubleStar == nil
	if simple := c.template.simpleTest(e.name); simple != nil && noArgs {
		return &simpleTestOp{of, simple}, nil
	}
	f := tests[e.name]
	if f == nil {
		if c.lenient == 0 {
			return nil, &SyntaxError{Line: int(e.at), Message: "unknown test '" + e.name + "'"}
		}
		fail := unknown("test", e.name)
		f = func(m *machine, v Value, args arguments) (bool, error) {
			_, err := fail(m, v, args)
			return false, err
		}
	}
	return &testOp{line: int(e.at), of: of, fn: f, args: args}, nil
}
