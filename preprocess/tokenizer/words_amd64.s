#include "textflag.h"
#include "go_asm.h"

// func prepareAMD64(b *batch, slots *wordKey, text *byte, n int)
TEXT ·prepareAMD64(SB), NOSPLIT, $0-32
	MOVQ b+0(FP), R8
	MOVQ slots+8(FP), R10
	MOVQ text+16(FP), SI
	MOVQ n+24(FP), R12
	LEAQ ·keyParts(SB), R13
	MOVL batch_bounds(R8), R9
	MOVQ $const_hashLow, BX
	MOVQ $const_hashHigh, R14
	MOVL $(const_shortWord+1), R15
	SHLQ $1, R12
	XORL CX, CX // twice the piece
	CMPQ CX, R12
	JGE prepared

prepare:
	// The key, in AX and DX. R11 becomes the place of the masks of its length, R9 where the next piece begins.
	MOVL (batch_bounds+4)(R8)(CX*2), DI
	MOVL DI, R11
	SUBL R9, R11
	CMPL R11, R15
	CMOVLHI R15, R11
	SHLL $5, R11
	MOVQ (SI)(R9*1), AX
	MOVQ 8(SI)(R9*1), DX
	MOVL DI, R9
	ANDQ (R13)(R11*1), AX
	ANDQ 8(R13)(R11*1), DX
	ORQ 16(R13)(R11*1), DX
	MOVQ AX, batch_keys(R8)(CX*8)
	MOVQ DX, (batch_keys+8)(R8)(CX*8)

	// Its hash.
	XORQ BX, AX
	XORQ R14, DX
	MULQ DX
	XORQ DX, AX
	MOVQ AX, batch_hashes(R8)(CX*4)
	ANDL $const_slotDistances, AX
	PREFETCHT0 (R10)(AX*1)
	ADDQ $2, CX
	CMPQ CX, R12
	JLT prepare

prepared:
	RET

// func compareAMD64(b *batch, slots *wordKey, n int)
TEXT ·compareAMD64(SB), NOSPLIT, $0-24
	MOVQ b+0(FP), R8
	MOVQ slots+8(FP), SI
	MOVQ n+16(FP), R9
	LEAQ batch_missed(R8), R11
	SHLQ $1, R9
	XORL CX, CX // twice the piece
	CMPQ CX, R9
	JGE compared

part:
	LEAQ 128(CX), R13
	CMPQ R13, R9
	CMOVQGT R9, R13
	XORL R10, R10 // which are missed
	XORL R12, R12 // which have several ids
compare:
	// In DI is the upper half of what is in its place.
	MOVL batch_hashes(R8)(CX*4), AX
	ANDL $const_slotDistances, AX
	MOVQ batch_keys(R8)(CX*8), BX
	MOVQ (batch_keys+8)(R8)(CX*8), R15
	MOVQ 8(SI)(AX*1), DI
	XORQ (SI)(AX*1), BX
	XORQ DI, R15
	SHLQ $(64-const_keyBits), R15
	ORQ R15, BX
	NEGQ BX // carries if that is not the word
	RCRQ $1, R10
	BTQ $63, DI
	RCRQ $1, R12
	SHRQ $const_keyBits, DI
	MOVL DI, batch_ids(R8)(CX*2)
	ADDQ $2, CX
	CMPQ CX, R13
	JLT compare

	MOVQ R10, (R11)
	MOVQ R12, (batch_several-batch_missed)(R11)
	ADDQ $8, R11
	CMPQ CX, R9
	JLT part
compared:
	RET

DATA keyMask<>+0(SB)/8, $0xFFFFFFFFFFFFFFFF
DATA keyMask<>+8(SB)/8, $((1<<const_keyBits)-1)
DATA keyMask<>+16(SB)/8, $0xFFFFFFFFFFFFFFFF
DATA keyMask<>+24(SB)/8, $((1<<const_keyBits)-1)
GLOBL keyMask<>(SB), RODATA|NOPTR, $32

// func findWholeAVX2(b *batch, slots *wordKey, lines *wholeLine, shift uint64, n uint32) (others uint32)
TEXT ·findWholeAVX2(SB), NOSPLIT, $0-44
	MOVQ b+0(FP), R8
	MOVQ lines+16(FP), SI
	MOVQ shift+24(FP), CX
	MOVL n+32(FP), R9
	VMOVDQU keyMask<>(SB), Y4
	VPXOR Y5, Y5, Y5
	XORL R10, R10 // how many are not whole
	XORL R12, R12
	CMPQ R12, R9
	JGE nothing

word:
	// Which of the four words of its line equals the key: both of its halves do.
	MOVBLZX batch_kinds(R8)(R12*1), R11
	MOVQ batch_hashes(R8)(R11*8), AX
	MOVQ AX, DI
	SHRQ CX, AX
	SHLQ $6, AX
	ADDQ SI, AX
	MOVQ R11, DX
	SHLQ $4, DX
	VBROADCASTI128 batch_keys(R8)(DX*1), Y0
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
	BTRQ $63, R15 // which tells about the line

	// AX becomes all bits if one does, and R15 its upper half, else none.
	CMPL BX, $1
	SBBQ AX, AX
	NOTQ AX
	ANDQ AX, R15
	MOVQ R15, BX
	SHRQ $const_keyBits, BX
	MOVL BX, batch_ids(R8)(R11*4)

	// What is found becomes a recent word.
	ANDL $const_slotDistances, DI
	ADDQ slots+8(FP), DI
	MOVQ batch_keys(R8)(DX*1), BX
	MOVQ (DI), DX
	XORQ DX, BX
	ANDQ AX, BX
	XORQ BX, DX
	MOVQ DX, (DI)
	MOVQ 8(DI), DX
	MOVQ DX, BX
	XORQ R15, BX
	ANDQ AX, BX
	XORQ BX, DX
	MOVQ DX, 8(DI)

	MOVB R11, batch_kinds(R8)(R10*1)
	LEAQ 1(R10)(AX*1), R10
	INCQ R12
	CMPQ R12, R9
	JLT word

nothing:
	VZEROUPPER
	MOVL R10, others+40(FP)
	RET

// func writeFewAMD64(ids *[windowPieces + idRoom]uint32, i, n int, spill, room *uint32) (next, written int)
TEXT ·writeFewAMD64(SB), NOSPLIT, $0-56
	MOVQ ids+0(FP), DI
	MOVQ i+8(FP), CX
	MOVQ n+16(FP), R13
	MOVQ spill+24(FP), SI
	MOVQ room+32(FP), BX
	XORL DX, DX
	CMPQ CX, R13
	JGE written

write:
	// R8 becomes where the ids are, the piece's own place or one in the spill, and R11 how many.
	LEAQ (DI)(CX*4), R8
	MOVL (R8), AX
	BTRL $31, AX
	LEAQ 4(SI)(AX*4), R9
	CMOVQCS R9, R8
	MOVL -4(R8), R10
	MOVL $1, R11
	CMOVLCS R10, R11
	CMPL R11, $const_recentIDs
	JHI written
	MOVOU (R8), X0
	MOVQ 16(R8), R12
	MOVOU X0, (BX)(DX*4)
	MOVQ R12, 16(BX)(DX*4)
	ADDQ R11, DX
	INCQ CX
	CMPQ CX, R13
	JLT write

written:
	MOVQ CX, next+40(FP)
	MOVQ DX, written+48(FP)
	RET
