#include "textflag.h"
#include "go_asm.h"

// func askShortBMI2(b *batch, lines *wholeLine, shift uint64, sets *shortSet)
TEXT ·askShortBMI2(SB), NOSPLIT, $0-32
	MOVQ b+0(FP), R8
	MOVQ lines+8(FP), SI
	MOVQ shift+16(FP), R9
	MOVQ sets+24(FP), DI
	MOVL batch_sizes(R8), R10
	MOVQ $const_hashLow, R11
	XORL CX, CX
	CMPQ CX, R10
	JGE asked
piece:
	MOVBLZX batch_kinds(R8)(CX*1), AX
	MOVQ batch_hashes(R8)(AX*8), AX
	SHRXQ R9, AX, BX
	SHLQ $6, BX
	PREFETCHT0 (SI)(BX*1)
	IMULQ R11, AX
	SHRQ $(64-const_shortBits), AX
	SHLQ $6, AX
	PREFETCHT0 (DI)(AX*1)
	INCQ CX
	CMPQ CX, R10
	JLT piece
asked:
	RET

// HASHLONG writes the hash of a long key, which is in X0 and X1, to AX. It changes X0.
#define HASHLONG \
	VAESENC X1, X0, X0                  \
	VAESENC ·roundKeys+0(SB), X0, X0    \
	VAESENC ·roundKeys+16(SB), X0, X0   \
	VMOVQ X0, AX

// func askLongAVX512(b *batch, text *byte, n int, lines *longLine, shift uint64, slots *longSlot)
TEXT ·askLongAVX512(SB), NOSPLIT, $0-48
	MOVQ b+0(FP), R8
	MOVQ text+8(FP), SI
	MOVQ n+16(FP), R10
	MOVQ lines+24(FP), R12
	MOVQ shift+32(FP), R9
	MOVQ slots+40(FP), R13
	MOVQ $const_hashLow, R11
	MOVQ $-1, R15
	XORL CX, CX
	CMPQ CX, R10
	JGE asked
piece:
	MOVBLZX (batch_kinds+const_longPieces*const_batchPieces)(R8)(CX*1), DX
	MOVL batch_bounds(R8)(DX*4), AX
	MOVL (batch_bounds+4)(R8)(DX*4), BX
	SUBL AX, BX
	BZHIQ BX, R15, DI
	KMOVD DI, K1
	VMOVDQU8.Z (SI)(AX*1), K1, Y0
	IMUL3Q $longKey__size, DX, DI
	VMOVDQU Y0, batch_longs(R8)(DI*1)
	MOVQ BX, (batch_longs+longKey_size)(R8)(DI*1)
	VEXTRACTI128 $1, Y0, X1
	HASHLONG
	MOVQ AX, batch_hashes(R8)(DX*8)
	SHRXQ R9, AX, BX
	SHLQ $6, BX
	PREFETCHT0 (R12)(BX*1)
	IMULQ R11, AX
	SHRQ $(64-const_longBits), AX
	SHLQ $6, AX
	PREFETCHT0 (R13)(AX*1)
	INCQ CX
	CMPQ CX, R10
	JLT piece
asked:
	VZEROUPPER
	RET

// func hashLongVAES(text *[cachedWord / 8]uint64) uint64
TEXT ·hashLongVAES(SB), NOSPLIT, $0-16
	MOVQ text+0(FP), SI
	VMOVDQU (SI), X0
	VMOVDQU 16(SI), X1
	HASHLONG
	MOVQ AX, ret+8(FP)
	RET
