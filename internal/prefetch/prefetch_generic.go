//go:build !amd64 && !arm64

// Package prefetch tells the processor what will be read soon. Here is none that can be told.
package prefetch

import "unsafe"

// One does nothing.
func One(address unsafe.Pointer) {}

// Both does nothing.
func Both(one, other unsafe.Pointer) {}
