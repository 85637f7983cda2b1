// Package verify runs recorded answers of the reference system against the product. Each kind of recording has a [Runner]; the
// command "verify" and the tests share them.
package verify

import "fmt"

// Runner checks one recording: a file, or a folder of them.
type Runner func(path string) Result

// Result is how a recording came out.
type Result struct {
	Passed int
	// Failures name what differed, one line or paragraph each.
	Failures []string
}

// fail adds a failure.
func (r *Result) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// add sums up another result.
func (r *Result) add(other Result) {
	r.Passed += other.Passed
	r.Failures = append(r.Failures, other.Failures...)
}
