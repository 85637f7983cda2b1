//go:build !race

#include "textflag.h"
#include "go_asm.h"

// func writeShort(slot *shortSlot, low, ids, otherIDs, high uint64)
TEXT ·writeShort(SB), NOSPLIT, $0-40
	MOVQ slot+0(FP), DI
	MOVQ low+8(FP), AX
	MOVQ ids+16(FP), BX
	MOVQ otherIDs+24(FP), CX
	MOVQ high+32(FP), DX
	MOVQ AX, shortSlot_low(DI)
	MOVQ BX, shortSlot_ids(DI)
	MOVQ CX, (shortSlot_ids+8)(DI)
	MOVQ DX, shortSlot_high(DI)
	RET

// func writeLong(slot *longSlot, text *[cachedWord / 8]uint64, ids *[longIDs / 3]uint64, state uint64)
TEXT ·writeLong(SB), NOSPLIT, $0-32
	MOVQ slot+0(FP), DI
	MOVQ text+8(FP), SI
	MOVQ ids+16(FP), R8
	MOVQ state+24(FP), DX
	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVQ (R8), AX
	MOVQ 8(R8), BX
	MOVQ 16(R8), CX
	MOVOU X0, longSlot_word(DI)
	MOVOU X1, (longSlot_word+16)(DI)
	MOVQ AX, longSlot_ids(DI)
	MOVQ BX, (longSlot_ids+8)(DI)
	MOVQ CX, (longSlot_ids+16)(DI)
	MOVQ DX, longSlot_state(DI)
	RET
