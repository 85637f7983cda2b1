//go:build !amd64

package tokenizer

import "unicode/utf8"

// isValid is utf8.ValidString.
func isValid(s string) bool { return utf8.ValidString(s) }
