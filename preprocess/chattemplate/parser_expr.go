package chattemplate

// tupleMode says how far an expression list reaches.
type tupleMode struct {
	cond      bool   // "a if b else c" is allowed without parentheses
	simple    bool   // only names and literals, as in targets
	namespace bool   // ns.attr is a target
	parens    bool   // inside parentheses, where an empty list is the empty tuple
	end       string // a name that ends the list
}

// tuple reads one expression, or several separated by commas, which make a tuple.
func (p *parser) tuple(mode tupleMode) (expr, error) {
	line := at(p.current().line)
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		t := p.current()
		if t.kind == tokenVariableEnd || t.kind == tokenBlockEnd || t.isOp(")") || mode.end != "" && t.isName(mode.end) {
			break
		}
		var item expr
		var err error
		switch {
		case mode.simple:
			item, err = p.primary(mode.namespace)
		case mode.cond || mode.parens:
			item, err = p.expression()
		default:
			item, err = p.or()
		}
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if !p.current().isOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) == 1 {
			return items[0], nil
		}
		if !mode.parens {
			return nil, p.fail("expected an expression, got %s", p.current())
		}
	}
	return &tupleExpr{line, items}, nil
}

func (p *parser) expression() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	line := at(p.current().line)
	e, err := p.or()
	for err == nil && p.skipName("if") {
		c := &condExpr{at: line, then: e}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			if c.otherwise, err = p.expression(); err != nil {
				return nil, err
			}
		}
		e = c
	}
	return e, err
}

// maxChain bounds how many operators of one kind may follow each other, since each makes the tree one deeper.
const maxChain = 2000

func (p *parser) or() (expr, error) {
	line := at(p.current().line)
	left, err := p.and()
	for n := 0; err == nil && p.skipName("or"); n++ {
		if n > maxChain {
			return nil, p.fail("more than %d operators in a row", maxChain)
		}
		var right expr
		right, err = p.and()
		left = &orExpr{line, left, right}
	}
	return left, err
}

func (p *parser) and() (expr, error) {
	line := at(p.current().line)
	left, err := p.not()
	for n := 0; err == nil && p.skipName("and"); n++ {
		if n > maxChain {
			return nil, p.fail("more than %d operators in a row", maxChain)
		}
		var right expr
		right, err = p.not()
		left = &andExpr{line, left, right}
	}
	return left, err
}

func (p *parser) not() (expr, error) {
	if t := p.current(); t.isName("not") {
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer p.leave()
		p.next()
		of, err := p.not()
		return &notExpr{at(t.line), of}, err
	}
	return p.compare()
}

func (p *parser) compare() (expr, error) {
	line := at(p.current().line)
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{at: line, first: first}
	for {
		op, ok := p.compareOperator()
		if !ok {
			break
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, right)
	}
	if len(c.ops) == 0 {
		return first, nil
	}
	return c, nil
}

func (p *parser) compareOperator() (compareOperator, bool) {
	t := p.current()
	switch t.kind {
	case tokenOperator:
		for op := opEq; op <= opGe; op++ {
			if t.text == compareSigns[op] {
				p.next()
				return op, true
			}
		}
	case tokenName:
		if t.text == "in" {
			p.next()
			return opIn, true
		}
		if t.text == "not" && p.peek().isName("in") {
			p.next()
			p.next()
			return opNotIn, true
		}
	}
	return 0, false
}

// binaryChain reads operands separated by operators that bind alike, from left to right.
func (p *parser) binaryChain(operand func() (expr, error), ops ...binaryOperator) (expr, error) {
	line := at(p.current().line)
	left, err := operand()
	for n := 0; err == nil; n++ {
		if n > maxChain {
			return nil, p.fail("more than %d operators in a row", maxChain)
		}
		t, found := p.current(), false
		for _, op := range ops {
			sign := binarySigns[op]
			if op == opPow {
				sign = "**"
			}
			if t.isOp(sign) {
				p.next()
				var right expr
				right, err = operand()
				left, found = &binaryExpr{line, op, left, right}, true
				break
			}
		}
		if !found {
			break
		}
	}
	return left, err
}

func (p *parser) sum() (expr, error) { return p.binaryChain(p.concat, opAdd, opSub) }

func (p *parser) concat() (expr, error) {
	line := at(p.current().line)
	first, err := p.product()
	if err != nil || !p.current().isOp("~") {
		return first, err
	}
	c := &concatExpr{line, []expr{first}}
	for p.skipOp("~") {
		part, err := p.product()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, part)
	}
	return c, nil
}

func (p *parser) product() (expr, error) {
	return p.binaryChain(p.power, opMul, opDiv, opFloorDiv, opMod)
}

func (p *parser) power() (expr, error) {
	return p.binaryChain(func() (expr, error) { return p.unary(true) }, opPow)
}

func (p *parser) unary(withFilter bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	t := p.current()
	var e expr
	var err error
	if t.isOp("-") || t.isOp("+") {
		p.next()
		if e, err = p.unary(false); err == nil {
			e = &unaryExpr{at(t.line), t.text == "-", e}
		}
	} else {
		e, err = p.primary(false)
	}
	if err == nil {
		e, err = p.postfix(e)
	}
	if err == nil && withFilter {
		e, err = p.filterOrTest(e)
	}
	return e, err
}

func (p *parser) primary(namespace bool) (expr, error) {
	t := p.current()
	line := at(t.line)
	switch t.kind {
	case tokenName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constExpr{line, True}, nil
		case "false", "False":
			return &constExpr{line, False}, nil
		case "none", "None":
			return &constExpr{line, None}, nil
		}
		if namespace && p.skipOp(".") {
			attr, err := p.expectName()
			return &namespaceRef{line, t.text, attr}, err
		}
		return &nameExpr{line, t.text}, nil
	case tokenString:
		p.next()
		text := t.text
		for p.current().kind == tokenString {
			text += p.next().text
		}
		return &constExpr{line, String(text)}, nil
	case tokenInteger, tokenFloat:
		p.next()
		return &constExpr{line, t.value}, nil
	case tokenOperator:
		switch t.text {
		case "(":
			if err := p.enter(); err != nil {
				return nil, err
			}
			defer p.leave()
			p.next()
			e, err := p.tuple(tupleMode{parens: true})
			if err != nil {
				return nil, err
			}
			return e, p.expectOp(")")
		case "[":
			p.next()
			return p.list(line)
		case "{":
			p.next()
			return p.dict(line)
		}
	}
	return nil, p.fail("unexpected %s", t)
}

func (p *parser) list(line at) (expr, error) {
	l := &listExpr{at: line}
	for !p.current().isOp("]") {
		if len(l.items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.current().isOp("]") {
				break
			}
		}
		item, err := p.expression()
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, item)
	}
	return l, p.expectOp("]")
}

func (p *parser) dict(line at) (expr, error) {
	d := &dictExpr{at: line}
	for !p.current().isOp("}") {
		if len(d.keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.current().isOp("}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys = append(d.keys, key)
		d.values = append(d.values, value)
	}
	return d, p.expectOp("}")
}

// postfix reads subscripts, attributes and calls after an expression.
func (p *parser) postfix(e expr) (expr, error) {
	for n := 0; ; n++ {
		if n > maxChain {
			return nil, p.fail("more than %d operators in a row", maxChain)
		}
		var err error
		switch t := p.current(); {
		case t.isOp("."):
			e, err = p.attribute(e)
		case t.isOp("["):
			e, err = p.subscript(e)
		case t.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) filterOrTest(e expr) (expr, error) {
	for n := 0; ; n++ {
		if n > maxChain {
			return nil, p.fail("more than %d operators in a row", maxChain)
		}
		var err error
		switch t := p.current(); {
		case t.isOp("|"):
			e, err = p.filter(e)
		case t.isName("is"):
			e, err = p.test(e)
		case t.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) attribute(of expr) (expr, error) {
	line := at(p.next().line)
	switch t := p.next(); t.kind {
	case tokenName:
		return &attrExpr{line, of, t.text}, nil
	case tokenInteger:
		return &itemExpr{line, of, &constExpr{line, t.value}}, nil
	}
	return nil, &SyntaxError{Line: int(line), Message: "expected a name or number after '.'"}
}

func (p *parser) subscript(of expr) (expr, error) {
	line := at(p.next().line)
	var keys []expr
	for !p.current().isOp("]") {
		if len(keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		key, err := p.subscriptItem(of)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if err := p.expectOp("]"); err != nil {
		return nil, err
	}
	if len(keys) == 1 {
		if s, ok := keys[0].(*sliceExpr); ok && s.of == of {
			return s, nil
		}
		return &itemExpr{line, of, keys[0]}, nil
	}
	for _, key := range keys {
		if s, ok := key.(*sliceExpr); ok && s.of == of {
			return nil, &SyntaxError{Line: int(line), Message: "a slice among several subscripts is not supported"}
		}
	}
	return &itemExpr{line, of, &tupleExpr{line, keys}}, nil
}

// subscriptItem reads an index or, as a sliceExpr of the whole, a slice.
func (p *parser) subscriptItem(of expr) (expr, error) {
	s := &sliceExpr{at: at(p.current().line), of: of}
	var err error
	if !p.current().isOp(":") {
		e, err := p.expression()
		if err != nil || !p.current().isOp(":") {
			return e, err
		}
		s.start = e
	}
	p.next()
	ends := func() bool { return p.current().isOp("]") || p.current().isOp(",") }
	if !p.current().isOp(":") && !ends() {
		if s.stop, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.skipOp(":") && !ends() {
		if s.step, err = p.expression(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (p *parser) call(callee expr) (expr, error) {
	line := at(p.current().line)
	args, err := p.callArgs()
	return &callExpr{line, callee, args}, err
}

func (p *parser) callArgs() (args callArgs, err error) {
	line := p.current().line
	if err := p.expectOp("("); err != nil {
		return args, err
	}
	invalid := &SyntaxError{Line: line, Message: "invalid order of arguments in a call"}
	for comma := false; !p.current().isOp(")"); comma = true {
		if comma {
			if err := p.expectOp(","); err != nil {
				return args, err
			}
			if p.current().isOp(")") {
				break
			}
		}
		switch t := p.current(); {
		case t.isOp("*"):
			if args.star != nil || args.doubleStar != nil {
				return args, invalid
			}
			p.next()
			args.star, err = p.expression()
		case t.isOp("**"):
			if args.doubleStar != nil {
				return args, invalid
			}
			p.next()
			args.doubleStar, err = p.expression()
		case t.kind == tokenName && p.peek().isOp("="):
			if args.doubleStar != nil {
				return args, invalid
			}
			p.next()
			p.next()
			for _, name := range args.names {
				if name == t.text {
					return args, &SyntaxError{Line: line, Message: "keyword argument repeated: " + name}
				}
			}
			var value expr
			value, err = p.expression()
			args.names = append(args.names, t.text)
			args.values = append(args.values, value)
		default:
			if args.star != nil || args.doubleStar != nil || len(args.names) > 0 {
				return args, invalid
			}
			var value expr
			value, err = p.expression()
			args.positional = append(args.positional, value)
		}
		if err != nil {
			return args, err
		}
	}
	return args, p.expectOp(")")
}

func (p *parser) dottedName() (string, error) {
	name, err := p.expectName()
	for err == nil && p.skipOp(".") {
		var part string
		part, err = p.expectName()
		name += "." + part
	}
	return name, err
}

// filter reads one or more filters; the current token is '|'.
func (p *parser) filter(of expr) (expr, error) { return p.filterChain(of, false) }

func (p *parser) filterChain(of expr, inline bool) (expr, error) {
	for n := 0; inline || p.current().isOp("|"); n++ {
		if n > maxChain {
			return nil, p.fail("more than %d filters in a row", maxChain)
		}
		if !inline {
			p.next()
		}
		inline = false
		f := &filterExpr{at: at(p.current().line), of: of}
		var err error
		if f.name, err = p.dottedName(); err != nil {
			return nil, err
		}
		if p.current().isOp("(") {
			if f.args, err = p.callArgs(); err != nil {
				return nil, err
			}
		}
		of = f
	}
	return of, nil
}

// test reads "is [not] name [argument]"; the current token is 'is'.
func (p *parser) test(of expr) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	t := &testExpr{at: at(p.next().line), of: of}
	negated := p.skipName("not")
	var err error
	if t.name, err = p.dottedName(); err != nil {
		return nil, err
	}
	switch c := p.current(); {
	case c.isOp("("):
		if t.args, err = p.callArgs(); err != nil {
			return nil, err
		}
	case (c.kind == tokenName || c.kind == tokenString || c.kind == tokenInteger || c.kind == tokenFloat || c.isOp("[") || c.isOp("{")) &&
		!c.isName("else") && !c.isName("or") && !c.isName("and"):
		if c.isName("is") {
			return nil, p.fail("tests with 'is' can't be chained")
		}
		arg, err := p.primary(false)
		if err == nil {
			arg, err = p.postfix(arg)
		}
		if err != nil {
			return nil, err
		}
		t.args.positional = []expr{arg}
	}
	if negated {
		return &notExpr{t.at, t}, nil
	}
	return t, nil
}
