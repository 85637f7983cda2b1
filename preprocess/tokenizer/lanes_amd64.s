#include "textflag.h"
#include "go_asm.h"

// LANE writes to DI where the lane at the place CX in order is.
#define LANE \
	MOVQ order+8(FP), DI    \
	MOVBLZX (DI)(CX*1), DI  \
	IMULQ $lane__size, DI   \
	ADDQ lanes+0(FP), DI

// SETTLE looks up a pair, in the next bucket, too, if it might be there. It takes the lane in DI, the merges in SI and their buckets in R8. X4
// holds how many bits are below a tag. R11 gets zero, and BX all bits, if no tag is equal.
#define SETTLE(wanted, look) \
	MOVQ (lane_wanted+wanted+wantedPair_bucket)(DI), DX      \
	SHLQ $6, DX                                              \
	ADDQ R8, DX                                              \
	MOVL (lane_wanted+wanted+wantedPair_place)(DI), R9       \
	VPBROADCASTQ (lane_wanted+wanted+wantedPair_tag)(DI), Y1 \
look:                                                        \
	VMOVDQU (DX), Y2                                         \
	VMOVDQU 32(DX), Y3                                       \
	VPSRLQ X4, Y2, Y2                                        \
	VPSRLQ X4, Y3, Y3                                        \
	VPCMPEQQ Y2, Y1, Y2                                      \
	VPCMPEQQ Y3, Y1, Y3                                      \
	VMOVMSKPD Y2, R11                                        \
	VMOVMSKPD Y3, R12                                        \
	SHLL $4, R12                                             \
	ORL R12, R11                                             \
	TZCNTL R11, R12                                          \
	ANDL $(const_bucketPairs-1), R12                         \
	MOVQ (DX)(R12*8), R13                                    \
	MOVL (8*(const_bucketPairs-1))(DX), AX                   \
	ANDL $const_beyond, AX                                   \
	ADDQ $64, DX                                             \
	VPSUBQ Y5, Y1, Y1                                        \
	CMPL R11, $1                                             \
	SBBL BX, BX                                              \
	TESTL BX, AX                                             \
	JNE look                                                 \
	MOVQ R13, R12                                            \
	SHRL $1, R12                                             \
	ANDL merges_nobody(SI), R12                              \
	MOVL R12, lane_ids(DI)(R9*4)                             \
	SHRXQ R10, R13, R13                                      \
	ANDL merges_rankMask(SI), R13                            \
	ORL BX, R13                                              \
	ANDL $const_none, R13                                    \
	SHLL $const_placeBits, R13                               \
	ORL R9, R13                                              \
	MOVL R13, lane_pairs(DI)(R9*4)

// WANT says where a pair has to be looked up, given its left and right part, of which it changes the left one, and begins to fetch that. It
// takes the lane in DI and the merges in SI, and the bits of an id in BX.
#define WANT(left, right, place, wanted) \
	SHLXQ BX, left, left                                \
	ORQ right, left                                     \
	IMULQ merges_factor(SI), left                       \
	ANDQ merges_hashMask(SI), left                      \
	MOVQ merges_homeShift(SI), DX                       \
	SHRXQ DX, left, DX                                  \
	ANDQ merges_tagMask(SI), left                       \
	INCQ DX                                             \
	MOVQ DX, (lane_wanted+wanted+wantedPair_bucket)(DI) \
	SHLQ $6, DX                                         \
	ADDQ merges_buckets(SI), DX                         \
	PREFETCHT0 (DX)                                     \
	MOVQ left, (lane_wanted+wanted+wantedPair_tag)(DI)  \
	MOVL place, (lane_wanted+wanted+wantedPair_place)(DI)

// func stepAVX2(lanes *lane, order *uint8, n int, m *merges) (done uint64)
TEXT ·stepAVX2(SB), NOSPLIT, $0-40
	MOVQ m+24(FP), SI
	MOVQ merges_buckets(SI), R8
	VMOVQ merges_payload(SI), X4
	VPCMPEQQ Y5, Y5, Y5
	MOVQ merges_idBits(SI), R10
	INCQ R10
	XORL CX, CX
settle:
	LANE
	SETTLE(0, before)
	SETTLE(wantedPair__size, behind)
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

	// R8 is its place, R9 the one before. R11 is that of the right part, R12 the one behind it. R13 is what the pair becomes.
	ANDL $(const_lanePlaces-1), R8
	MOVL lane_ids(DI)(R8*4), R13
	MOVBLZX lane_next(DI)(R8*1), R11
	MOVBLZX lane_previous(DI)(R8*1), R9
	MOVBLZX lane_next(DI)(R11*1), R12
	MOVL R13, lane_symbols(DI)(R8*4)
	MOVB R12, lane_next(DI)(R8*1)
	MOVB R8, lane_previous(DI)(R12*1)
	MOVL $const_noPair, lane_pairs(DI)(R11*4)

	// The pairs that it makes with its neighbours.
	MOVL lane_symbols(DI)(R9*4), R11
	MOVL lane_symbols(DI)(R12*4), R12
	WANT(R11, R13, R9, 0)
	WANT(R13, R12, R8, wantedPair__size)
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
