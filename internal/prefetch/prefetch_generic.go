//go:build !amd64 && !arm64

package prefetch

import "unsafe"

// One does nothing.
func One(address unsafe.Pointer) {}

// Both does nothing.
func Both(one, other unsafe.Pointer) {}
