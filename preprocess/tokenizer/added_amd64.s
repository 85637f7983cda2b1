#include "textflag.h"
#include "go_asm.h"

DATA nibble<>+0(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA nibble<>+8(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA nibble<>+16(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA nibble<>+24(SB)/8, $0x0F0F0F0F0F0F0F0F
GLOBL nibble<>(SB), RODATA|NOPTR, $32

// SETS writes the sets that the bytes are in, by their halves.
#define SETS(bytes, low, high) \
	VPAND Y0, bytes, Y5     \
	VPSRLW $4, bytes, bytes \
	VPAND Y0, bytes, bytes  \
	VPSHUFB Y5, low, Y5     \
	VPSHUFB bytes, high, bytes \
	VPAND Y5, bytes, bytes

// func skipAVX2(openings *openings, text *byte, n int) int
TEXT ·skipAVX2(SB), NOSPLIT, $0-32
	MOVQ openings+0(FP), R8
	MOVQ text+8(FP), SI
	MOVQ n+16(FP), R9
	VMOVDQU nibble<>(SB), Y0
	VBROADCASTI128 openings_firstLow(R8), Y1
	VBROADCASTI128 openings_firstHigh(R8), Y2
	VBROADCASTI128 openings_secondLow(R8), Y3
	VBROADCASTI128 openings_secondHigh(R8), Y4
	VPXOR Y8, Y8, Y8
	XORL CX, CX
	JMP more
step:
	VMOVDQU (SI)(CX*1), Y6
	VMOVDQU 1(SI)(CX*1), Y7
	SETS(Y6, Y1, Y2)
	SETS(Y7, Y3, Y4)
	VPAND Y6, Y7, Y7
	VPCMPEQB Y8, Y7, Y7
	VPMOVMSKB Y7, AX
	NOTL AX
	TESTL AX, AX
	JNE found
	ADDQ $32, CX
more:
	LEAQ 32(CX), BX
	CMPQ BX, R9
	JLE step
	VZEROUPPER
	MOVQ CX, ret+24(FP)
	RET
found:
	TZCNTL AX, AX
	ADDQ AX, CX
	VZEROUPPER
	MOVQ CX, ret+24(FP)
	RET
