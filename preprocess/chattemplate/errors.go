package chattemplate

import (
	"errors"
	"fmt"
)

// SyntaxError says why a template could not be compiled.
type SyntaxError struct {
	Line    int    // line of the template source, from 1
	Message string // what was found and what was expected
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("chat template, line %d: %s", e.Line, e.Message)
}

// RaisedError is the template's own refusal of its input: it called raise_exception with this message, which is meant for
// whoever made the request.
type RaisedError struct {
	Line    int // line of the template source, from 1
	Message string
}

func (e *RaisedError) Error() string { return e.Message }

// RenderError is an operation that failed while a template was rendered, such as an attribute of an undefined value.
type RenderError struct {
	Line int // line of the template source, from 1; 0 when unknown
	// Class is the name of the exception that Python would have raised: UndefinedError, TypeError, ValueError ...
	Class   string
	Message string
}

func (e *RenderError) Error() string {
	return fmt.Sprintf("chat template, line %d: %s: %s", e.Line, e.Class, e.Message)
}

// LimitError says that a render was stopped because it exceeded one of the Limits.
type LimitError struct {
	Line  int    // line of the template source, from 1; 0 when unknown
	Limit string // name of the exceeded field of Limits
	Max   int64  // its value
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("chat template, line %d: stopped: limit %s=%d exceeded", e.Line, e.Limit, e.Max)
}

// atLine notes the innermost line at which an error arose.
func atLine(err error, line int) error {
	switch e := err.(type) {
	case *RenderError:
		if e.Line == 0 {
			e.Line = line
		}
	case *RaisedError:
		if e.Line == 0 {
			e.Line = line
		}
	case *LimitError:
		if e.Line == 0 {
			e.Line = line
		}
	}
	return err
}

func typeError(format string, args ...any) error {
	return &RenderError{Class: "TypeError", Message: fmt.Sprintf(format, args...)}
}

func valueError(format string, args ...any) error {
	return &RenderError{Class: "ValueError", Message: fmt.Sprintf(format, args...)}
}

func overflowError(format string, args ...any) error {
	return &RenderError{Class: "OverflowError", Message: fmt.Sprintf(format, args...)}
}

func filterError(format string, args ...any) error {
	return &RenderError{Class: "FilterArgumentError", Message: fmt.Sprintf(format, args...)}
}

// hasClass tells whether err is a RenderError of one of the given Python classes.
func hasClass(err error, classes ...string) bool {
	var e *RenderError
	if !errors.As(err, &e) {
		return false
	}
	for _, class := range classes {
		if e.Class == class {
			return true
		}
	}
	return false
}
