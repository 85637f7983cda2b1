#include "textflag.h"
#include "go_asm.h"

// LANE writes to DI where the lane at the place CX in order is.
#define LANE \
	MOVQ order+8(FP), DI      \
	MOVBLZX (DI)(CX*1), DI    \
	SHLQ $const_laneBits, DI  \
	ADDQ all+0(FP), DI

// JOIN merges the pair at the place R8 of the lane in DI. R13 becomes the token, R9 the place before it, and R11 and R12 the symbols beside it.
#define JOIN \
	MOVL lane_ids(DI)(R8*4), R13              \
	MOVBLZX lane_next(DI)(R8*1), R11          \
	MOVBLZX lane_previous(DI)(R8*1), R9       \
	MOVBLZX lane_next(DI)(R11*1), R12         \
	MOVL R13, lane_symbols(DI)(R8*4)          \
	MOVB R12, lane_next(DI)(R8*1)             \
	MOVB R8, lane_previous(DI)(R12*1)         \
	MOVL $const_noPair, lane_pairs(DI)(R11*4) \
	MOVL $const_noPair, lane_pairs(DI)(R9*4)  \
	MOVL $const_noPair, lane_pairs(DI)(R8*4)  \
	MOVL lane_symbols(DI)(R9*4), R11          \
	MOVL lane_symbols(DI)(R12*4), R12

// WANT does what wantedPairs.add does, for a place of the lane in DI, with the merges in SI, the wanted pairs in R14, their count in R15 and the bits
// of an id in BX. It changes left, AX and DX.
#define WANT(left, right, place) \
	SHLXQ BX, left, left                                      \
	ORQ right, left                                           \
	IMULQ merges_factor(SI), left                             \
	ANDQ merges_hashMask(SI), left                            \
	MOVQ merges_homeShift(SI), DX                             \
	SHRXQ DX, left, DX                                        \
	ANDQ merges_tagMask(SI), left                             \
	MOVL lane_first(DI), AX                                   \
	ADDL place, AX                                            \
	MOVQ left, wantedPairs_tags(R14)(R15*8)                   \
	MOVL DX, (wantedPairs_where+wantedPlace_bucket)(R14)(R15*8) \
	MOVL AX, (wantedPairs_where+wantedPlace_place)(R14)(R15*8) \
	MOVQ merges_filter(SI), AX                                \
	MOVL (AX)(DX*4), AX                                       \
	SHLQ $6, DX                                               \
	ADDQ merges_buckets(SI), DX                               \
	BTL right, AX                                             \
	CMOVQCC R14, DX                                           \
	PREFETCHT0 (DX)                                           \
	ADCQ $0, R15

// func stepAVX2(all *lanes, order *uint8, n int, m *merges) (done uint64)
TEXT ·stepAVX2(SB), NOSPLIT, $0-40
	MOVQ all+0(FP), DI
	MOVQ m+24(FP), SI
	LEAQ lanes_wanted(DI), R14
	MOVQ merges_buckets(SI), R8
	VMOVQ merges_payload(SI), X4 // how many bits are below a tag
	VPCMPEQQ Y5, Y5, Y5
	MOVQ merges_idBits(SI), R10
	INCQ R10
	MOVQ wantedPairs_count(R14), R15
	XORL CX, CX
	CMPQ CX, R15
	JGE settled
pair:
	// A pair is looked up, in the next bucket, too, if it might be there. R11 gets zero, and BX all bits, if no tag is equal.
	MOVL (wantedPairs_where+wantedPlace_bucket)(R14)(CX*8), DX
	MOVL (wantedPairs_where+wantedPlace_place)(R14)(CX*8), R9
	VPBROADCASTQ wantedPairs_tags(R14)(CX*8), Y1
	SHLQ $6, DX
	ADDQ R8, DX
look:
	VMOVDQU (DX), Y2
	VMOVDQU 32(DX), Y3
	VPSRLQ X4, Y2, Y2
	VPSRLQ X4, Y3, Y3
	VPCMPEQQ Y2, Y1, Y2
	VPCMPEQQ Y3, Y1, Y3
	VMOVMSKPD Y2, R11
	VMOVMSKPD Y3, R12
	SHLL $4, R12
	ORL R12, R11
	TZCNTL R11, R12
	ANDL $(const_bucketPairs-1), R12
	MOVQ (DX)(R12*8), R13
	MOVL (8*(const_bucketPairs-1))(DX), AX
	ANDL $const_beyond, AX
	ADDQ $64, DX
	VPSUBQ Y5, Y1, Y1
	CMPL R11, $1
	SBBL BX, BX
	TESTL BX, AX
	JNE look
	MOVQ R13, R12
	SHRL $1, R12
	ANDL merges_nobody(SI), R12
	MOVL R12, lane_ids(DI)(R9*4)
	SHRXQ R10, R13, R13
	ANDL merges_rankMask(SI), R13
	ORL BX, R13
	ANDL $const_none, R13
	MOVL R9, AX
	ANDL $(const_lanePlaces-1), AX
	SHLL $const_placeBits, R13
	ORL AX, R13
	MOVL R13, lane_pairs(DI)(R9*4)
	INCQ CX
	CMPQ CX, R15
	JLT pair

settled:
	XORL R15, R15
	XORL CX, CX
	XORL R10, R10
	MOVQ merges_idBits(SI), BX
merge:
	LANE

	// The lowest pair.
	VMOVDQU (lane_pairs+0)(DI), Y0
	VMOVDQU (lane_pairs+64)(DI), Y1
	VPMINUD (lane_pairs+32)(DI), Y0, Y0
	VPMINUD (lane_pairs+96)(DI), Y1, Y1
	VPMINUD Y0, Y1, Y0
	CMPB lane_wide(DI), $0
	JNE wide
narrow:
	VEXTRACTI128 $1, Y0, X1
	VPMINUD X0, X1, X0
	VPSHUFD $0x4E, X0, X1
	VPMINUD X0, X1, X0
	VPSHUFD $0xB1, X0, X1
	VPMINUD X0, X1, X0
	VMOVD X0, R8
	CMPL R8, $const_noPair
	JCC none

	ANDL $(const_lanePlaces-1), R8
	JOIN
	WANT(R11, R13, R9)
	WANT(R13, R12, R8)
next:
	INCQ CX
	CMPQ CX, n+16(FP)
	JLT merge
	VZEROUPPER
	MOVQ R15, wantedPairs_count(R14)
	MOVQ R10, done+32(FP)
	RET

none:
	BTSQ CX, R10
	JMP next

wide:
	VPMINUD (lane_pairs+128)(DI), Y0, Y0
	VPMINUD (lane_pairs+160)(DI), Y0, Y0
	VPMINUD (lane_pairs+192)(DI), Y0, Y0
	VPMINUD (lane_pairs+224)(DI), Y0, Y0
	JMP narrow

// func joinFirstBMI2(l *lane, m *merges, wanted *wantedPairs, text *byte, n int, bytes *[256]uint32)
TEXT ·joinFirstBMI2(SB), NOSPLIT, $0-48
	MOVQ l+0(FP), DI
	MOVQ m+8(FP), SI
	MOVQ text+24(FP), R8
	MOVQ n+32(FP), R14
	MOVQ bytes+40(FP), R9
	MOVQ merges_bytes(SI), R10
	MOVQ merges_bytePairs(SI), R11
	MOVBLZX (R8), AX
	MOVL (R9)(AX*4), AX
	DECL AX
	MOVL AX, (lane_symbols+4)(DI)
	XORL BX, BX          // which pairs are merged
	MOVL $const_none, R12 // the rank of the last pair
	MOVL $const_none, R13 // what it has to be below
	MOVL $const_none, R15 // and what the next one has to be below
	MOVL $1, CX
	CMPQ CX, R14
	JGE pairs

byte:
	MOVBLZX (R8)(CX*1), AX
	MOVL (R9)(AX*4), AX
	DECL AX
	MOVL AX, (lane_symbols+4)(DI)(CX*4)
	MOVWLZX -1(R8)(CX*1), AX
	MOVWLZX (R10)(AX*2), AX
	SHLL $4, AX
	ADDQ R11, AX
	MOVL bytePair_behind(AX), DX
	CMPL R13, DX
	CMOVLCS R13, DX
	CMPL R12, DX
	RCRQ $1, BX
	MOVL R15, R13
	MOVL bytePair_before(AX), R15
	MOVL bytePair_rank(AX), R12
	MOVL bytePair_id(AX), DX
	MOVL DX, lane_ids(DI)(CX*4)
	MOVL R12, DX
	SHLL $const_placeBits, DX
	ORL CX, DX
	MOVL DX, lane_pairs(DI)(CX*4)
	INCQ CX
	CMPQ CX, R14
	JLT byte

pairs:
	// The bit of the pair at the last place but one becomes the highest, and then has to be that of its place.
	CMPL R12, R13
	RCRQ $1, BX
	NEGQ R14
	SHRXQ R14, BX, R10
	TESTQ R10, R10
	JEQ none
	MOVQ merges_idBits(SI), BX
	MOVQ wanted+16(FP), R14
	MOVQ wantedPairs_count(R14), R15
join:
	TZCNTQ R10, R8
	BLSRQ R10, R10
	JOIN
	// If what comes next is merged, too, its pair with this one is wanted then.
	LEAL 2(R8), AX
	BTQ AX, R10
	CMOVLCS merges_nobody(SI), R12
	WANT(R11, R13, R9)
	WANT(R13, R12, R8)
	TESTQ R10, R10
	JNE join
	MOVQ R15, wantedPairs_count(R14)
none:
	RET

// func askPairsAMD64(m *merges, text *byte, n int)
TEXT ·askPairsAMD64(SB), NOSPLIT, $0-24
	MOVQ m+0(FP), SI
	MOVQ text+8(FP), R8
	MOVQ n+16(FP), R14
	MOVQ merges_bytes(SI), R10
	MOVQ merges_bytePairs(SI), R11
	DECQ R14
	JLE asked
ask:
	MOVWLZX -1(R8)(R14*1), AX
	MOVWLZX (R10)(AX*2), AX
	SHLL $4, AX
	PREFETCHT0 (R11)(AX*1)
	DECQ R14
	JNE ask
asked:
	RET

// func putBMI2(l *lane, m *merges, wanted *wantedPairs, symbols *uint32, n int)
TEXT ·putBMI2(SB), NOSPLIT, $0-40
	MOVQ l+0(FP), DI
	MOVQ m+8(FP), SI
	MOVQ wanted+16(FP), R14
	MOVQ symbols+24(FP), R10
	MOVQ n+32(FP), R12
	MOVQ merges_idBits(SI), BX
	MOVQ wantedPairs_count(R14), R15
	MOVL (R10), R11
	MOVL R11, (lane_symbols+4)(DI)
	MOVL $1, R8
	CMPQ R8, R12
	JGE put
symbol:
	MOVL (R10)(R8*4), R13
	MOVL R13, (lane_symbols+4)(DI)(R8*4)
	WANT(R11, R13, R8)
	MOVL R13, R11
	INCQ R8
	CMPQ R8, R12
	JLT symbol
put:
	MOVQ R15, wantedPairs_count(R14)
	RET

// func unlinkAVX2(l, unmerged *lane)
TEXT ·unlinkAVX2(SB), NOSPLIT, $0-16
	MOVQ l+0(FP), DI
	MOVQ unmerged+8(FP), SI
	VMOVDQU lane_pairs(SI), Y0
	VMOVDQU lane_next(SI), Y1
	VMOVDQU lane_previous(SI), Y2
	VMOVDQU Y0, (lane_pairs+0)(DI)
	VMOVDQU Y0, (lane_pairs+32)(DI)
	VMOVDQU Y0, (lane_pairs+64)(DI)
	VMOVDQU Y0, (lane_pairs+96)(DI)
	VMOVDQU Y1, lane_next(DI)
	VMOVDQU Y2, lane_previous(DI)
	CMPB lane_wide(DI), $0
	JEQ unlinked
	VMOVDQU (lane_next+32)(SI), Y1
	VMOVDQU (lane_previous+32)(SI), Y2
	VMOVDQU Y0, (lane_pairs+128)(DI)
	VMOVDQU Y0, (lane_pairs+160)(DI)
	VMOVDQU Y0, (lane_pairs+192)(DI)
	VMOVDQU Y0, (lane_pairs+224)(DI)
	VMOVDQU Y1, (lane_next+32)(DI)
	VMOVDQU Y2, (lane_previous+32)(DI)
unlinked:
	VZEROUPPER
	RET
