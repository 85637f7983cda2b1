package chattemplate

// The syntax tree that the parser makes and the compiler reads.

type expr interface{ lineNumber() int }

type at int // line of a node

func (l at) lineNumber() int { return int(l) }

type (
	nameExpr struct {
		at
		name string
	}
	// namespaceRef is an assignment's target ns.attr.
	namespaceRef struct {
		at
		name, attr string
	}
	constExpr struct {
		at
		value Value
	}
	tupleExpr struct {
		at
		items []expr
	}
	listExpr struct {
		at
		items []expr
	}
	dictExpr struct {
		at
		keys, values []expr
	}
	// condExpr is "then if test else otherwise"; otherwise may be nil.
	condExpr struct {
		at
		test, then, otherwise expr
	}
	andExpr struct {
		at
		left, right expr
	}
	orExpr struct {
		at
		left, right expr
	}
	notExpr struct {
		at
		of expr
	}
	// compareExpr is a chain: first op[0] rest[0] op[1] rest[1] ...
	compareExpr struct {
		at
		first expr
		ops   []compareOperator
		rest  []expr
	}
	binaryExpr struct {
		at
		op          binaryOperator
		left, right expr
	}
	unaryExpr struct {
		at
		negative bool
		of       expr
	}
	concatExpr struct {
		at
		parts []expr
	}
	attrExpr struct {
		at
		of   expr
		attr string
	}
	itemExpr struct {
		at
		of, key expr
	}
	// sliceExpr is of[start:stop:step]; any of the three may be nil.
	sliceExpr struct {
		at
		of, start, stop, step expr
	}
	callExpr struct {
		at
		callee expr
		args   callArgs
	}
	// filterExpr is of|name(args); of is nil in filter blocks, where the body takes its place.
	filterExpr struct {
		at
		of   expr
		name string
		args callArgs
	}
	testExpr struct {
		at
		of   expr
		name string
		args callArgs
	}
)

type callArgs struct {
	positional []expr
	names      []string // of the keyword arguments
	values     []expr
	star       expr // *args
	doubleStar expr // **kwargs
}

type binaryOperator uint8

const (
	opAdd binaryOperator = iota
	opSub
	opMul
	opDiv
	opFloorDiv
	opMod
	opPow
)

var binarySigns = [...]string{"+", "-", "*", "/", "//", "%", "** or pow()"}

type compareOperator uint8

const (
	opEq compareOperator = iota
	opNe
	opLt
	opLe
	opGt
	opGe
	opIn
	opNotIn
)

var compareSigns = [...]string{"==", "!=", "<", "<=", ">", ">=", "in", "not in"}

type stmt interface{}

type (
	// outputStmt prints expressions; template text is a constExpr.
	outputStmt struct{ parts []expr }
	ifStmt     struct {
		at
		tests  []expr
		bodies [][]stmt
		other  []stmt
	}
	forStmt struct {
		at
		target    expr
		over      expr
		filter    expr // the loop's "if", or nil
		recursive bool
		body      []stmt
		other     []stmt
	}
	setStmt struct {
		at
		target expr
		value  expr
	}
	setBlockStmt struct {
		at
		target expr
		filter *filterExpr // or nil
		body   []stmt
	}
	withStmt struct {
		at
		names  []string
		values []expr
		body   []stmt
	}
	filterStmt struct {
		at
		filter *filterExpr
		body   []stmt
	}
	// scopeStmt is a body with a scope of its own: the generation tag.
	scopeStmt struct {
		at
		body []stmt
	}
	macroStmt struct {
		at
		name string
		signature
		body []stmt
	}
	callStmt struct {
		at
		call *callExpr
		signature
		body []stmt
	}
	breakStmt    struct{ at }
	continueStmt struct{ at }
)

type signature struct {
	params   []string
	defaults []expr // of the last parameters
}
