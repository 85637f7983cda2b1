//go:build !amd64 && !arm64

package kvindex

import "unsafe"

// prefetch does nothing: what is read later is waited for then.
func prefetch(unsafe.Pointer) {}

func prefetchBoth(one, other unsafe.Pointer) {}
