#include "textflag.h"
#include "go_asm.h"

// Steps of batches with instructions that work on 64 bytes at once: four keys, or what eight or sixteen pieces have of 64 or 32 bits each.

// Two round keys of no meaning.
DATA ·roundKeys+0(SB)/8, $const_hashLow
DATA ·roundKeys+8(SB)/8, $const_hashHigh
DATA ·roundKeys+16(SB)/8, $0x8CB92BA72F3D8DD7
DATA ·roundKeys+24(SB)/8, $0xA0761D6478BD642F
GLOBL ·roundKeys(SB), RODATA|NOPTR, $32

// The numbers from 0 to 15, four times.
DATA keyBytes<>+0(SB)/8, $0x0706050403020100
DATA keyBytes<>+8(SB)/8, $0x0F0E0D0C0B0A0908
GLOBL keyBytes<>(SB), RODATA|NOPTR, $16

// For each byte of four keys where the lowest byte of the key's length is among lengths of 32 bits.
DATA lengthOf<>+0(SB)/8, $0x0000000000000000
DATA lengthOf<>+8(SB)/8, $0x0000000000000000
DATA lengthOf<>+16(SB)/8, $0x0404040404040404
DATA lengthOf<>+24(SB)/8, $0x0404040404040404
DATA lengthOf<>+32(SB)/8, $0x0808080808080808
DATA lengthOf<>+40(SB)/8, $0x0808080808080808
DATA lengthOf<>+48(SB)/8, $0x0C0C0C0C0C0C0C0C
DATA lengthOf<>+56(SB)/8, $0x0C0C0C0C0C0C0C0C
GLOBL lengthOf<>(SB), RODATA|NOPTR, $64

// The even ones of 16 places.
DATA even<>+0(SB)/8, $0
DATA even<>+8(SB)/8, $2
DATA even<>+16(SB)/8, $4
DATA even<>+24(SB)/8, $6
DATA even<>+32(SB)/8, $8
DATA even<>+40(SB)/8, $10
DATA even<>+48(SB)/8, $12
DATA even<>+56(SB)/8, $14
GLOBL even<>(SB), RODATA|NOPTR, $64

// MIX writes to hash the hashes of four keys, in the lower half of each 128 bits.
#define MIX(key, hash)     \
	VAESENC Z26, key, hash \
	VAESENC Z27, hash, hash

// LOAD loads 16 bytes each from the distances in AX, BX, DX and DI.
#define LOAD(from, X, Y, Z)             \
	VMOVDQU (from)(AX*1), X             \
	VINSERTI128 $1, (from)(BX*1), Y, Y  \
	VINSERTI64X2 $2, (from)(DX*1), Z, Z \
	VINSERTI64X2 $3, (from)(DI*1), Z, Z

// KEYS makes four keys. Where their texts are is on the stack from texts on, where their lengths are is in which.
#define KEYS(texts, which, X, Y, key, offset) \
	MOVL (texts+0)(SP), AX               \
	MOVL (texts+4)(SP), BX               \
	MOVL (texts+8)(SP), DX               \
	MOVL (texts+12)(SP), DI              \
	LOAD(SI, X, Y, key)                  \
	VPERMB Z1, which, Z2                 \
	VPCMPUB $1, Z2, Z20, K1              \
	VMOVDQU8.Z key, K1, key              \
	VMOVDQU8 Z2, K5, key                 \
	VMOVDQU64 key, offset(R9)

// SLOTS4 loads four slots, whose distances are on the stack from places on.
#define SLOTS4(places, X, Y, Z) \
	MOVQ (places+0)(SP), AX            \
	MOVQ (places+8)(SP), BX            \
	MOVQ (places+16)(SP), DX           \
	MOVQ (places+24)(SP), DI           \
	LOAD(R10, X, Y, Z)

// EIGHT looks eight pieces up, given their keys, which are changed. Part is the first one.
#define EIGHT(part, low, high) \
	MIX(low, Z6)                                   \
	MIX(high, Z7)                                  \
	VPERMT2Q Z7, Z28, Z6                           \
	VMOVDQU64 Z6, (batch_hashes+8*part)(R8)(CX*8)  \
	VPANDQ Z19, Z6, Z6                             \
	VMOVDQU64 Z6, 64(SP)                           \
	SLOTS4(64, X7, Y7, Z7)                         \
	SLOTS4(96, X8, Y8, Z8)                         \
	VPXORQ low, Z7, Z7                             \
	VPXORQ high, Z8, Z8                            \
	VMOVDQA64 Z7, Z9                               \
	VPERMT2Q Z8, Z28, Z9                           \
	VPERMT2Q Z8, Z29, Z7                           \
	VPSLLQ $(64-const_keyBits), Z7, Z8             \
	VPORQ Z8, Z9, Z9                               \
	VPTESTMQ Z9, Z9, K1                            \
	VPMOVQ2M Z7, K2                                \
	VPSRLQ $const_keyBits, Z7, Z7                  \
	VPMOVQD Z7, Y7                                 \
	VMOVDQU Y7, (batch_ids+4*part)(R8)(CX*4)       \
	KMOVB K1, (batch_missed+part/8)(R11)           \
	KMOVB K2, (batch_several+part/8)(R11)

// func compareVAES(b *batch, slots *wordKey, text *byte, n, last int)
TEXT ·compareVAES(SB), NOSPLIT, $128-40
	MOVQ b+0(FP), R8
	MOVQ slots+8(FP), R10
	MOVQ text+16(FP), SI
	MOVQ n+24(FP), R12
	LEAQ batch_keys(R8), R9
	MOVQ R8, R11
	VPBROADCASTD last+32(FP), Z18
	MOVQ $const_slotDistances, AX
	VPBROADCASTQ AX, Z19
	VBROADCASTI32X4 keyBytes<>(SB), Z20
	VMOVDQU64 lengthOf<>(SB), Z21
	MOVL $16, AX
	VPBROADCASTB AX, Z2
	VPADDB Z2, Z21, Z22
	VPADDB Z2, Z22, Z23
	VPADDB Z2, Z23, Z24
	MOVL $(const_shortWord+1), AX
	VPBROADCASTD AX, Z25
	VBROADCASTI32X4 ·roundKeys+0(SB), Z26
	VBROADCASTI32X4 ·roundKeys+16(SB), Z27
	VMOVDQU64 even<>(SB), Z28
	MOVL $1, AX
	VPBROADCASTQ AX, Z29
	VPADDQ Z28, Z29, Z29
	MOVQ $0x1000100010001000, AX // the byte of each key that its length is in
	KMOVQ AX, K5
	XORL CX, CX
pieces:
	VMOVDQU32 batch_bounds(R8)(CX*4), Z0
	VMOVDQU32 (batch_bounds+4)(R8)(CX*4), Z1
	VPSUBD Z0, Z1, Z1
	VPMINUD Z25, Z1, Z1
	VPMINUD Z18, Z0, Z0 // what is beyond is not looked at, but has to be there
	VMOVDQU64 Z0, (SP)
	KEYS(0, Z21, X3, Y3, Z3, 0)
	KEYS(16, Z22, X4, Y4, Z4, 64)
	EIGHT(0, Z3, Z4)
	KEYS(32, Z23, X3, Y3, Z3, 128)
	KEYS(48, Z24, X4, Y4, Z4, 192)
	EIGHT(8, Z3, Z4)
	ADDQ $256, R9
	ADDQ $2, R11
	ADDQ $16, CX
	CMPQ CX, R12
	JLT pieces
	VZEROUPPER
	RET

// func hashVAES(low, high uint64) uint64
TEXT ·hashVAES(SB), NOSPLIT, $0-24
	VMOVDQU low+0(FP), X0
	VAESENC ·roundKeys+0(SB), X0, X0
	VAESENC ·roundKeys+16(SB), X0, X0
	VMOVQ X0, ret+16(FP)
	RET

// LENGTHS writes to short and longer which of 16 pieces are not too long for a key, and which are too long for the cache of words. Part is the first
// one.
#define LENGTHS(part, short, longer) \
	VMOVDQU32 (batch_bounds+4*part)(R8)(CX*4), Z0   \
	VMOVDQU32 (batch_bounds+4*part+4)(R8)(CX*4), Z1 \
	VPSUBD Z0, Z1, Z1                               \
	VPCMPUD $2, Z2, Z1, short                       \
	VPCMPUD $6, Z3, Z1, longer

// LIST appends the numbers of the pieces that are in set to the list of a kind, which has as many as count so far.
#define LIST(set, count, kind) \
	VPCOMPRESSB.Z Z4, set, Z0                          \
	VMOVDQU64 Z0, (batch_kinds+kind*const_batchPieces)(R8)(count*1) \
	KMOVQ set, AX                                      \
	POPCNTQ AX, AX                                     \
	ADDQ AX, count

// func byLengthVBMI2(b *batch, numbers *[64]uint8)
TEXT ·byLengthVBMI2(SB), NOSPLIT, $0-16
	MOVQ b+0(FP), R8
	MOVQ batch_n(R8), R9
	MOVL $const_shortWord, AX
	VPBROADCASTD AX, Z2
	MOVL $const_cachedWord, AX
	VPBROADCASTD AX, Z3
	MOVQ numbers+8(FP), AX
	VMOVDQU64 (AX), Z4
	MOVL $64, AX
	VPBROADCASTB AX, Z5
	LEAQ batch_missed(R8), R10
	XORL R11, R11
	XORL R12, R12
	XORL R13, R13
	XORL CX, CX
	CMPQ CX, R9
	JGE listed
part:
	LENGTHS(0, K1, K2)
	LENGTHS(16, K3, K4)
	KUNPCKWD K1, K3, K1
	KUNPCKWD K2, K4, K2
	LENGTHS(32, K3, K4)
	LENGTHS(48, K5, K6)
	KUNPCKWD K3, K5, K3
	KUNPCKWD K4, K6, K4
	KUNPCKDQ K1, K3, K1
	KUNPCKDQ K2, K4, K2
	KMOVQ (R10), K7
	KANDQ K1, K7, K1
	KANDQ K2, K7, K2
	KORQ K1, K2, K3
	KANDNQ K7, K3, K3
	LIST(K1, R11, 0)
	LIST(K3, R12, 1)
	LIST(K2, R13, 2)
	VPADDB Z5, Z4, Z4
	ADDQ $8, R10
	ADDQ $64, CX
	CMPQ CX, R9
	JLT part
listed:
	VZEROUPPER
	MOVL R11, batch_sizes(R8)
	MOVL R12, (batch_sizes+4)(R8)
	MOVL R13, (batch_sizes+8)(R8)
	RET

// COPYMORE copies what a run may have beyond the first 16 ids.
#define COPYMORE            \
	VMOVDQU64 64(R14), Z1   \
	VMOVDQU64 128(R14), Z2  \
	VMOVDQU64 192(R14), Z3  \
	VMOVDQU64 Z1, 64(BX)    \
	VMOVDQU64 Z2, 128(BX)   \
	VMOVDQU64 Z3, 192(BX)

// func writeFewAVX512(ids *[windowPieces + idRoom]uint32, i, n int, spill, room *uint32) (next, written int)
TEXT ·writeFewAVX512(SB), NOSPLIT, $0-56
	MOVQ ids+0(FP), DI
	MOVQ i+8(FP), CX
	MOVQ n+16(FP), R13
	MOVQ spill+24(FP), SI
	MOVQ room+32(FP), BX
group:
	// Of the next 64 pieces, or as many as there are: in AX which are in the spill, in DX how many are written.
	MOVQ R13, R9
	SUBQ CX, R9
	JLE written
	MOVL $64, AX
	CMPQ R9, AX
	CMOVQGT AX, R9
	LEAQ (DI)(CX*4), R8
	VMOVDQU64 (R8), Z0
	VMOVDQU64 64(R8), Z1
	VMOVDQU64 128(R8), Z2
	VMOVDQU64 192(R8), Z3
	VPMOVD2M Z0, K0
	VPMOVD2M Z1, K1
	VPMOVD2M Z2, K2
	VPMOVD2M Z3, K3
	KUNPCKWD K0, K1, K0
	KUNPCKWD K2, K3, K2
	KUNPCKDQ K0, K2, K0
	KMOVQ K0, AX
	BZHIQ R9, AX, AX
	XORL DX, DX
	TESTQ AX, AX
	JEQ rest
spilled:
	// The pieces up to the next one of the spill, R10 of them, and then that one.
	TZCNTQ AX, R10
	MOVL (R8)(R10*4), R11
	BTRL $31, R11
	LEAQ 4(SI)(R11*4), R11
	MOVL -4(R11), R12
	LEAQ (R8)(DX*4), R14
	SUBQ DX, R10
	VMOVDQU64 (R14), Z1
	VMOVDQU64 Z1, (BX)
	CMPQ R10, $16
	JHI many
copied:
	LEAQ (BX)(R10*4), BX
	LEAQ 1(DX)(R10*1), DX
	CMPL R12, $const_recentIDs
	JHI long
	VMOVDQU (R11), X1
	MOVQ 16(R11), R14
	VMOVDQU X1, (BX)
	MOVQ R14, 16(BX)
	LEAQ (BX)(R12*4), BX
	BLSRQ AX, AX
	JNE spilled
rest:
	SUBQ DX, R9
	LEAQ (R8)(DX*4), R14
	VMOVDQU64 (R14), Z1
	VMOVDQU64 Z1, (BX)
	CMPQ R9, $16
	JHI manyMore
copiedMore:
	LEAQ (BX)(R9*4), BX
	ADDQ $64, CX
	JMP group

long:
	LEAQ -1(CX)(DX*1), R13 // its place
written:
	VZEROUPPER
	MOVQ R13, next+40(FP)
	SUBQ room+32(FP), BX
	SHRQ $2, BX
	MOVQ BX, written+48(FP)
	RET

many:
	COPYMORE
	JMP copied
manyMore:
	COPYMORE
	JMP copiedMore
