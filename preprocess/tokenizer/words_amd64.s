#include "textflag.h"
#include "go_asm.h"

// func findAMD64(r *recentWords, text *byte, n int) (misses, splits uint64)
TEXT ·findAMD64(SB), NOSPLIT, $0-40
	MOVQ r+0(FP), R8
	MOVQ text+8(FP), SI
	LEAQ ·keyParts(SB), R13
	MOVL recentWords_bounds(R8), R9
	XORL CX, CX
	XORL R10, R10 // how many are missed
	XORL R12, R12 // how many have several ids
	CMPQ CX, n+16(FP)
	JGE done

piece:
	// Its key, in BX and R15. R11 becomes the place of the masks of its length, R9 where the next piece begins.
	MOVL (recentWords_bounds+4)(R8)(CX*4), DI
	MOVL DI, R11
	SUBL R9, R11
	MOVL $(const_shortWord+1), AX
	CMPL R11, AX
	CMOVLHI AX, R11
	SHLL $5, R11
	MOVQ (SI)(R9*1), BX
	MOVQ 8(SI)(R9*1), R15
	MOVL DI, R9
	ANDQ (R13)(R11*1), BX
	ANDQ 8(R13)(R11*1), R15
	ORQ 16(R13)(R11*1), R15
	MOVQ CX, DI
	SHLQ $4, DI
	MOVQ BX, recentWords_keys(R8)(DI*1)
	MOVQ R15, (recentWords_keys+8)(R8)(DI*1)

	// Its hash, and in DI the upper half of what is in its place.
	MOVQ $const_hashLow, AX
	XORQ BX, AX
	MOVQ $const_hashHigh, DX
	XORQ R15, DX
	MULQ DX
	XORQ DX, AX
	MOVQ AX, recentWords_hashes(R8)(CX*8)
	SHRQ $(64-const_recentBits), AX
	SHLQ $4, AX
	MOVQ (recentWords_slots+8)(R8)(AX*1), DI

	// BX becomes zero if that is the word, then all bits if it is not.
	XORQ recentWords_slots(R8)(AX*1), BX
	XORQ DI, R15
	SHLQ $(64-const_keyBits), R15
	ORQ R15, BX
	NEGQ BX
	SBBQ BX, BX

	MOVB CX, recentWords_missed(R8)(R10*1)
	MOVB CX, recentWords_several(R8)(R12*1)
	SUBQ BX, R10
	MOVQ DI, AX
	SHRQ $63, AX
	NOTQ BX
	ANDQ BX, AX
	ADDQ AX, R12
	SHRQ $const_keyBits, DI
	MOVL DI, recentWords_ids(R8)(CX*4)
	INCQ CX
	CMPQ CX, n+16(FP)
	JLT piece

done:
	MOVQ R10, misses+24(FP)
	MOVQ R12, splits+32(FP)
	RET

DATA keyMask<>+0(SB)/8, $0xFFFFFFFFFFFFFFFF
DATA keyMask<>+8(SB)/8, $((1<<const_keyBits)-1)
DATA keyMask<>+16(SB)/8, $0xFFFFFFFFFFFFFFFF
DATA keyMask<>+24(SB)/8, $((1<<const_keyBits)-1)
GLOBL keyMask<>(SB), RODATA|NOPTR, $32

// func findWholeAVX2(r *recentWords, lines *wholeLine, shift uint64, n uint64) (others uint64)
TEXT ·findWholeAVX2(SB), NOSPLIT, $0-40
	MOVQ r+0(FP), R8
	MOVQ lines+8(FP), SI
	MOVQ shift+16(FP), CX
	MOVQ n+24(FP), R9
	VMOVDQU keyMask<>(SB), Y4
	VPXOR Y5, Y5, Y5
	XORL R10, R10 // how many are not whole
	XORL R12, R12
	CMPQ R12, R9
	JGE nothing

fetch:
	MOVBLZX recentWords_kinds(R8)(R12*1), R11
	MOVQ recentWords_hashes(R8)(R11*8), AX
	SHRQ CX, AX
	SHLQ $6, AX
	PREFETCHT0 (SI)(AX*1)
	INCQ R12
	CMPQ R12, R9
	JLT fetch

	XORL R12, R12
word:
	// Which of the four words of its line equals the key: both of its halves do.
	MOVBLZX recentWords_kinds(R8)(R12*1), R11
	MOVQ recentWords_hashes(R8)(R11*8), AX
	MOVQ AX, DI
	SHRQ CX, AX
	SHLQ $6, AX
	ADDQ SI, AX
	MOVQ R11, DX
	SHLQ $4, DX
	VBROADCASTI128 recentWords_keys(R8)(DX*1), Y0
	VPXOR (AX), Y0, Y1
	VPXOR 32(AX), Y0, Y2
	VPAND Y4, Y1, Y1
	VPAND Y4, Y2, Y2
	VPCMPEQQ Y5, Y1, Y1
	VPCMPEQQ Y5, Y2, Y2
	VMOVMSKPD Y1, BX
	VMOVMSKPD Y2, R13
	SHLL $4, R13
	ORL R13, BX
	MOVL BX, R13
	SHRL $1, R13
	ANDL R13, BX
	ANDL $0x55, BX
	TZCNTL BX, R13
	ANDL $6, R13
	MOVQ 8(AX)(R13*8), R15

	// AX becomes all bits if one does, and R15 its upper half, else none.
	CMPL BX, $1
	SBBQ AX, AX
	NOTQ AX
	ANDQ AX, R15
	MOVQ R15, BX
	SHRQ $const_keyBits, BX
	MOVL BX, recentWords_ids(R8)(R11*4)

	// What is found becomes a recent word.
	SHRQ $(64-const_recentBits), DI
	SHLQ $4, DI
	MOVQ recentWords_keys(R8)(DX*1), BX
	MOVQ recentWords_slots(R8)(DI*1), DX
	XORQ DX, BX
	ANDQ AX, BX
	XORQ BX, DX
	MOVQ DX, recentWords_slots(R8)(DI*1)
	MOVQ (recentWords_slots+8)(R8)(DI*1), DX
	MOVQ DX, BX
	XORQ R15, BX
	ANDQ AX, BX
	XORQ BX, DX
	MOVQ DX, (recentWords_slots+8)(R8)(DI*1)

	MOVB R11, recentWords_kinds(R8)(R10*1)
	LEAQ 1(R10)(AX*1), R10
	INCQ R12
	CMPQ R12, R9
	JLT word

nothing:
	VZEROUPPER
	MOVQ R10, others+32(FP)
	RET
