//go:build amd64 || arm64

package kvindex

import "unsafe"

// prefetch begins to bring what is at the address into the processor's cache. Unlike a read of which nothing comes, it does not keep the
// processor from going on until it is there.
//
//go:noescape
func prefetch(address unsafe.Pointer)

// prefetchBoth begins to bring what is at two addresses into the processor's cache.
//
//go:noescape
func prefetchBoth(one, other unsafe.Pointer)
