package chattemplate

import (
	"fmt"
	"strings"
)

// parser turns tokens into statements. The grammar is Jinja's, with its oddities.
type parser struct {
	tokens []token
	pos    int
	depth  int
	loops  int // for loops around the current place, since the innermost macro
	fors   int // for loops around the current place
}

func parse(source string) ([]stmt, error) {
	if len(source) > maxSourceBytes {
		return nil, &SyntaxError{Line: 1, Message: fmt.Sprintf("template of %d bytes, at most %d are allowed", len(source), maxSourceBytes)}
	}
	tokens, err := tokenize(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, _, err := p.body()
	return body, err
}

func (p *parser) current() token { return p.tokens[p.pos] }

func (p *parser) peek() token {
	if p.pos+1 < len(p.tokens) {
		return p.tokens[p.pos+1]
	}
	return p.tokens[p.pos]
}

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEOF {
		p.pos++
	}
	return t
}

func (p *parser) fail(format string, args ...any) error {
	return &SyntaxError{Line: p.current().line, Message: fmt.Sprintf(format, args...)}
}

func (p *parser) skipOp(op string) bool {
	if p.current().isOp(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipName(word string) bool {
	if p.current().isName(word) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expectOp(op string) error {
	if !p.skipOp(op) {
		return p.fail("expected '%s', got %s", op, p.current())
	}
	return nil
}

func (p *parser) expectKind(kind tokenKind) error {
	if p.current().kind != kind {
		return p.fail("expected %s, got %s", token{kind: kind}, p.current())
	}
	p.next()
	return nil
}

func (p *parser) expectName() (string, error) {
	if p.current().kind != tokenName {
		return "", p.fail("expected a name, got %s", p.current())
	}
	return p.next().text, nil
}

// enter guards the recursion of the parser, and so that of everything that walks its tree.
func (p *parser) enter() error {
	if p.depth++; p.depth > maxNesting {
		return p.fail("nested deeper than %d", maxNesting)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// body reads statements up to one of the end tags, whose name it consumes and returns; without end tags up to the end.
func (p *parser) body(ends ...string) (body []stmt, end string, err error) {
	if err := p.enter(); err != nil {
		return nil, "", err
	}
	defer p.leave()
	var output *outputStmt
	print := func(e expr) {
		if output == nil {
			output = &outputStmt{}
			body = append(body, output)
		}
		output.parts = append(output.parts, e)
	}
	for {
		t := p.current()
		switch t.kind {
		case tokenData:
			print(&constExpr{at(t.line), String(t.text)})
			p.next()
		case tokenVariableBegin:
			p.next()
			e, err := p.tuple(tupleMode{cond: true})
			if err != nil {
				return nil, "", err
			}
			print(e)
			if err := p.expectKind(tokenVariableEnd); err != nil {
				return nil, "", err
			}
		case tokenBlockBegin:
			output = nil
			p.next()
			name := p.current()
			for _, end := range ends {
				if name.isName(end) {
					p.next()
					return body, end, nil
				}
			}
			s, err := p.statement()
			if err != nil {
				return nil, "", err
			}
			if s != nil {
				body = append(body, s)
			}
			if err := p.expectKind(tokenBlockEnd); err != nil {
				return nil, "", err
			}
		default:
			if len(ends) > 0 {
				return nil, "", p.fail("unexpected end of template, expected '%s'", strings.Join(ends, "' or '"))
			}
			if t.kind != tokenEOF {
				return nil, "", p.fail("unexpected %s", t)
			}
			return body, "", nil
		}
	}
}

// block reads the end of a tag (a colon before it is allowed) and the body after it.
func (p *parser) block(ends ...string) ([]stmt, string, error) {
	p.skipOp(":")
	if err := p.expectKind(tokenBlockEnd); err != nil {
		return nil, "", err
	}
	return p.body(ends...)
}

func (p *parser) statement() (stmt, error) {
	t := p.current()
	if t.kind != tokenName {
		return nil, p.fail("expected a tag's name, got %s", t)
	}
	line := at(t.line)
	p.next()
	switch t.text {
	case "if":
		return p.ifTag(line)
	case "for":
		return p.forTag(line)
	case "set":
		return p.setTag(line)
	case "macro":
		return p.macroTag(line)
	case "call":
		return p.callTag(line)
	case "filter":
		return p.filterTag(line)
	case "with":
		return p.withTag(line)
	case "print":
		return p.printTag()
	case "generation":
		outer := p.loops
		p.loops = 0
		body, _, err := p.block("endgeneration")
		p.loops = outer
		return &scopeStmt{line, body}, err
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.fail("'%s' outside of a loop", t.text)
		}
		if t.text == "break" {
			return &breakStmt{line}, nil
		}
		return &continueStmt{line}, nil
	case "extends", "include", "import", "from", "block", "autoescape":
		return nil, &SyntaxError{Line: t.line, Message: fmt.Sprintf("tag '%s' is not supported: a chat template is one file that prints plain text", t.text)}
	}
	return nil, &SyntaxError{Line: t.line, Message: fmt.Sprintf("unknown tag '%s'", t.text)}
}

func (p *parser) ifTag(line at) (stmt, error) {
	s := &ifStmt{at: line}
	for {
		test, err := p.tuple(tupleMode{})
		if err != nil {
			return nil, err
		}
		body, end, err := p.block("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.tests = append(s.tests, test)
		s.bodies = append(s.bodies, body)
		switch end {
		case "else":
			s.other, _, err = p.block("endif")
			return s, err
		case "endif":
			return s, nil
		}
	}
}

func (p *parser) forTag(line at) (stmt, error) {
	s := &forStmt{at: line}
	p.fors++
	defer func() { p.fors-- }()
	var err error
	if s.target, err = p.target(tupleMode{end: "in"}); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.fail("expected 'in', got %s", p.current())
	}
	if s.over, err = p.tuple(tupleMode{end: "recursive"}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	s.recursive = p.skipName("recursive")
	p.loops++
	body, end, err := p.block("endfor", "else")
	p.loops--
	if err != nil {
		return nil, err
	}
	s.body = body
	if end == "else" {
		s.other, _, err = p.block("endfor")
	}
	return s, err
}

func (p *parser) setTag(line at) (stmt, error) {
	target, err := p.target(tupleMode{namespace: true})
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		value, err := p.tuple(tupleMode{cond: true})
		return &setStmt{line, target, value}, err
	}
	s := &setBlockStmt{at: line, target: target}
	if p.current().isOp("|") {
		f, err := p.filter(nil)
		if err != nil {
			return nil, err
		}
		s.filter = f.(*filterExpr)
	}
	s.body, _, err = p.block("endset")
	return s, err
}

func (p *parser) macroTag(line at) (stmt, error) {
	s := &macroStmt{at: line}
	var err error
	if s.name, err = p.storeName(); err != nil {
		return nil, err
	}
	if s.signature, err = p.signature(); err != nil {
		return nil, err
	}
	s.body, err = p.functionBody("endmacro")
	return s, err
}

func (p *parser) callTag(line at) (stmt, error) {
	s := &callStmt{at: line}
	var err error
	if p.current().isOp("(") {
		if s.signature, err = p.signature(); err != nil {
			return nil, err
		}
	}
	call, err := p.expression()
	if err != nil {
		return nil, err
	}
	var ok bool
	if s.call, ok = call.(*callExpr); !ok {
		return nil, &SyntaxError{Line: int(line), Message: "expected a call after 'call'"}
	}
	s.body, err = p.functionBody("endcall")
	return s, err
}

// functionBody reads the body of a macro or call block, in which break and continue do not reach the loops outside.
func (p *parser) functionBody(end string) ([]stmt, error) {
	outer := p.loops
	p.loops = 0
	body, _, err := p.block(end)
	p.loops = outer
	return body, err
}

func (p *parser) signature() (signature, error) {
	var s signature
	if err := p.expectOp("("); err != nil {
		return s, err
	}
	for !p.current().isOp(")") {
		if len(s.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return s, err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return s, err
		}
		if isReserved(name) {
			return s, p.fail("can't use '%s' as a parameter", name)
		}
		for _, other := range s.params {
			if other == name {
				return s, p.fail("parameter '%s' is there twice", name)
			}
		}
		if p.skipOp("=") {
			value, err := p.expression()
			if err != nil {
				return s, err
			}
			s.defaults = append(s.defaults, value)
		} else if len(s.defaults) > 0 {
			return s, p.fail("parameter '%s' without default follows one with a default", name)
		}
		s.params = append(s.params, name)
	}
	return s, p.expectOp(")")
}

func (p *parser) filterTag(line at) (stmt, error) {
	f, err := p.filterChain(nil, true)
	if err != nil {
		return nil, err
	}
	body, _, err := p.block("endfilter")
	return &filterStmt{line, f.(*filterExpr), body}, err
}

func (p *parser) withTag(line at) (stmt, error) {
	s := &withStmt{at: line}
	for p.current().kind != tokenBlockEnd {
		if len(s.names) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return nil, err
		}
		if isReserved(name) {
			return nil, p.fail("can't assign to '%s'", name)
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.names = append(s.names, name)
		s.values = append(s.values, value)
	}
	var err error
	s.body, _, err = p.block("endwith")
	return s, err
}

func (p *parser) printTag() (stmt, error) {
	s := &outputStmt{}
	for p.current().kind != tokenBlockEnd {
		if len(s.parts) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.parts = append(s.parts, e)
	}
	return s, nil
}

// target reads what may stand left of an assignment: a name, ns.attr where allowed, or a tuple of these.
func (p *parser) target(mode tupleMode) (expr, error) {
	mode.simple = true
	line := p.current().line
	e, err := p.tuple(mode)
	if err != nil {
		return nil, err
	}
	return e, p.checkTarget(e, line)
}

func (p *parser) checkTarget(e expr, line int) error {
	switch e := e.(type) {
	case *nameExpr:
		if isReserved(e.name) {
			return &SyntaxError{Line: line, Message: "can't assign to '" + e.name + "'"}
		}
		if e.name == "loop" && p.fors > 0 {
			return &SyntaxError{Line: line, Message: "can't assign to the special variable 'loop'"}
		}
		return nil
	case *namespaceRef:
		return nil
	case *tupleExpr:
		for _, item := range e.items {
			if err := p.checkTarget(item, line); err != nil {
				return err
			}
		}
		return nil
	}
	return &SyntaxError{Line: line, Message: "can't assign to this expression"}
}

func (p *parser) storeName() (string, error) {
	name, err := p.expectName()
	if err == nil && isReserved(name) {
		err = p.fail("can't assign to '%s'", name)
	}
	return name, err
}

func isReserved(name string) bool {
	switch name {
	case "true", "false", "none", "True", "False", "None":
		return true
	}
	return false
}
