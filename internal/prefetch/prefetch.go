//go:build amd64 || arm64

package prefetch

import "unsafe"

// One begins to bring what is at the address into the processor's cache.
//
//go:noescape
func One(address unsafe.Pointer)

// Both begins to bring what is at two addresses into the processor's cache.
//
//go:noescape
func Both(one, other unsafe.Pointer)
