//go:build !race

#include "textflag.h"
#include "go_asm.h"

// func writeNodes(at *node, sequences *uint64, n int, set, first, second uint64)
TEXT ·writeNodes(SB), NOSPLIT, $0-48
	MOVQ at+0(FP), DI
	MOVQ sequences+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ set+24(FP), DX
	MOVQ first+32(FP), AX
	MOVQ second+40(FP), BX
	MOVQ $const_linksStep, R8

next:
	MOVQ (SI), R9
	MOVQ R9, node_sequence(DI)
	DECQ CX
	JZ last
	MOVQ AX, node_child(DI)
	MOVQ DX, node_set(DI)
	MOVQ BX, AX
	ADDQ R8, BX
	ADDQ $8, SI
	ADDQ $node__size, DI
	JMP next

last:
	SHRQ $32, AX
	SHLQ $32, AX
	MOVQ AX, node_child(DI)
	MOVQ DX, node_set(DI)
	RET

// func emptyNodes(last *node, n int)
TEXT ·emptyNodes(SB), NOSPLIT, $0-16
	MOVQ last+0(FP), DI
	MOVQ n+8(FP), CX
	XORL AX, AX

next:
	MOVQ AX, node_set(DI)
	MOVL AX, node_child(DI)
	SUBQ $node__size, DI
	DECQ CX
	JNZ next
	RET

// func putSet(n *node, set uint64)
TEXT ·putSet(SB), NOSPLIT, $0-16
	MOVQ n+0(FP), DI
	MOVQ set+8(FP), AX
	MOVQ AX, node_set(DI)
	RET

// func putChild(n *node, field uint32)
TEXT ·putChild(SB), NOSPLIT, $0-12
	MOVQ n+0(FP), DI
	MOVL field+8(FP), AX
	MOVL AX, node_child(DI)
	RET
