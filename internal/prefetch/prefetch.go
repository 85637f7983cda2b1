//go:build amd64 || arm64

// Package prefetch tells the processor what will be read soon. Whoever has to read from many places that are far asks for all of them first, so
// that it waits for all at once. An ordinary read would do as well, but what comes after it waits for it sooner or later.
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
