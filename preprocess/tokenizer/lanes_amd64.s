#include "textflag.h"
#include "go_asm.h"

// LANE writes to DI where the lane at the place CX in order is.
#define LANE \
	MOVQ order+8(FP), DI    \
	MOVBLZX (DI)(CX*1), DI  \
	IMULQ $lane__size, DI   \
	ADDQ lanes+0(FP), DI

// JOIN merges the pair at the place R8 and begins to look up those that its token makes with its neighbours, which are noted at wanted. It takes
// the lane in DI, the merges in SI, and the bits of an id in BX. R13 becomes the token, R11 the place of its right part; R9 and R12 are those
// before and behind the pair.
#define JOIN(wanted) \
	MOVL lane_ids(DI)(R8*4), R13              \
	MOVBLZX lane_next(DI)(R8*1), R11          \
	MOVBLZX lane_previous(DI)(R8*1), R9       \
	MOVBLZX lane_next(DI)(R11*1), R12         \
	MOVL R13, lane_symbols(DI)(R8*4)          \
	MOVB R12, lane_next(DI)(R8*1)             \
	MOVB R8, lane_previous(DI)(R12*1)         \
	MOVL $const_noPair, lane_pairs(DI)(R11*4) \
	MOVL lane_symbols(DI)(R9*4), R11          \
	MOVL lane_symbols(DI)(R12*4), R12         \
	WANT(R11, R13, R9, 0, wanted)             \
	WANT(R13, R12, R8, wantedPair__size, wanted)

// WANT says where a pair has to be looked up, given its left and right part, of which it changes the left one, and begins to fetch that.
#define WANT(left, right, place, offset, wanted) \
	SHLXQ BX, left, left                        \
	ORQ right, left                             \
	IMULQ merges_factor(SI), left               \
	ANDQ merges_hashMask(SI), left              \
	MOVQ merges_homeShift(SI), DX               \
	SHRXQ DX, left, DX                          \
	ANDQ merges_tagMask(SI), left               \
	INCQ DX                                     \
	MOVQ DX, (offset+wantedPair_bucket)(wanted) \
	SHLQ $6, DX                                 \
	ADDQ merges_buckets(SI), DX                 \
	PREFETCHT0 (DX)                             \
	MOVQ left, (offset+wantedPair_tag)(wanted)  \
	MOVL place, (offset+wantedPair_place)(wanted)

// func stepAVX2(lanes *lane, order *uint8, n int, m *merges) (done uint64)
TEXT ·stepAVX2(SB), NOSPLIT, $0-40
	MOVQ m+24(FP), SI
	MOVQ merges_buckets(SI), R8
	VMOVQ merges_payload(SI), X4 // how many bits are below a tag
	VPCMPEQQ Y5, Y5, Y5
	MOVQ merges_idBits(SI), R10
	INCQ R10
	XORL CX, CX
settle:
	LANE
	MOVL lane_wants(DI), R14
	MOVL $2, lane_wants(DI)
	LEAQ lane_wanted(DI), R15
pair:
	// A pair is looked up, in the next bucket, too, if it might be there. R11 gets zero, and BX all bits, if no tag is equal.
	MOVQ wantedPair_bucket(R15), DX
	SHLQ $6, DX
	ADDQ R8, DX
	MOVL wantedPair_place(R15), R9
	VPBROADCASTQ wantedPair_tag(R15), Y1
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
	SHLL $const_placeBits, R13
	ORL R9, R13
	MOVL R13, lane_pairs(DI)(R9*4)
	ADDQ $wantedPair__size, R15
	DECL R14
	JNE pair
	INCQ CX
	CMPQ CX, n+16(FP)
	JLT settle

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
	LEAQ lane_wanted(DI), R15
	JOIN(R15)
next:
	INCQ CX
	CMPQ CX, n+16(FP)
	JLT merge
	VZEROUPPER
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

// func joinFirstBMI2(l *lane, m *merges, text *byte, n int, bytes *[256]uint32)
TEXT ·joinFirstBMI2(SB), NOSPLIT, $0-40
	MOVQ l+0(FP), DI
	MOVQ m+8(FP), SI
	MOVQ text+16(FP), R8
	MOVQ n+24(FP), R14
	MOVQ bytes+32(FP), R9
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
	LEAQ lane_wanted(DI), R15
	XORL CX, CX
join:
	TZCNTQ R10, R8
	BLSRQ R10, R10
	JOIN(R15)
	ADDQ $(2*wantedPair__size), R15
	ADDL $2, CX
	TESTQ R10, R10
	JNE join
	MOVL CX, lane_wants(DI)
none:
	RET
