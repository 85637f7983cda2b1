//go:build !(386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64 || wasm)

package kvhash

import "encoding/binary"

// tokenBytes returns the tokens as 4 little-endian bytes each.
func tokenBytes(tokens []uint32) []byte {
	encoded := make([]byte, 0, 4*len(tokens))
	for _, token := range tokens {
		encoded = binary.LittleEndian.AppendUint32(encoded, token)
	}
	return encoded
}
