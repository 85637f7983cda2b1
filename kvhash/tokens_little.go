//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64 || wasm

package kvhash

import "unsafe"

// tokenBytes returns the tokens as 4 little-endian bytes each. On these machines that is how they lie in memory already, so the
// result shares it and must not outlive the call that hashes it.
func tokenBytes(tokens []uint32) []byte {
	if len(tokens) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), 4*len(tokens))
}
