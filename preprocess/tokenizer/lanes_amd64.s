#include "textflag.h"
#include "go_asm.h"

// WANT says where a pair has to be looked up, given its key, which it changes, and begins to fetch that: [merges.want]. It takes the lane in
// DI, the merges in SI, pairFactor in R10 and likelyShift in CX.
#define WANT(key, place, wanted) \
	IMULQ R10, key                                      \
	MOVQ key, R11                                       \
	SHRQ CX, R11                                        \
	MOVQ R11, R12                                       \
	SHRQ $6, R12                                        \
	MOVQ merges_likely(SI), BX                          \
	MOVQ (BX)(R12*8), R12                               \
	BTQ R11, R12                                        \
	SBBQ R12, R12                                       \
	MOVQ key, AX                                        \
	MULQ merges_homes(SI)                               \
	INCQ DX                                             \
	ANDQ R12, DX                                        \
	MOVQ DX, (lane_wanted+wanted+wantedPair_bucket)(DI) \
	SHLQ $6, DX                                         \
	ADDQ merges_buckets(SI), DX                         \
	PREFETCHT0 (DX)                                     \
	SHRQ $const_tagShift, key                           \
	MOVL key, (lane_wanted+wanted+wantedPair_tag)(DI)   \
	MOVL place, (lane_wanted+wanted+wantedPair_place)(DI)

// SETTLE looks up a pair, in the next bucket, too, if it might be there, and begins to fetch what it becomes. It takes the lane in DI and the
// merges in SI. BX gets all bits if no tag is equal.
#define SETTLE(wanted, look) \
	MOVQ (lane_wanted+wanted+wantedPair_bucket)(DI), DX      \
	SHLQ $6, DX                                              \
	ADDQ merges_buckets(SI), DX                              \
	VPBROADCASTD (lane_wanted+wanted+wantedPair_tag)(DI), Y1 \
	MOVL (lane_wanted+wanted+wantedPair_place)(DI), R9       \
look:                                                        \
	VPCMPEQD (DX), Y1, Y2                                    \
	VMOVMSKPS Y2, R11                                        \
	TZCNTL R11, R12                                          \
	ANDL $(const_bucketPairs-1), R12                         \
	MOVL bucket_ranks(DX)(R12*4), R13                        \
	MOVL (bucket_ranks+4*(const_bucketPairs-1))(DX), AX      \
	ADDQ $64, DX                                             \
	SHRL $31, AX                                             \
	CMPL R11, $1                                             \
	SBBL BX, BX                                              \
	TESTL BX, AX                                             \
	JNE look                                                 \
	ORL BX, R13                                              \
	ANDL $const_none, R13                                    \
	MOVQ merges_into(SI), BX                                 \
	PREFETCHT0 (BX)(R13*4)                                   \
	SHLL $const_placeBits, R13                               \
	ORL R9, R13                                              \
	MOVL R13, lane_pairs(DI)(R9*4)

// func mergeAVX2(l *lane, m *merges) bool
TEXT ·mergeAVX2(SB), NOSPLIT, $0-17
	MOVQ l+0(FP), DI
	MOVQ m+8(FP), SI

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
	VZEROUPPER
	CMPL R8, $const_noPair
	JCC none

	// R8 is its place, R9 the one before. R11 is that of the right part, R12 the one behind it. R13 is what the pair becomes.
	MOVL R8, R13
	SHRL $const_placeBits, R13
	MOVQ merges_into(SI), BX
	MOVL (BX)(R13*4), R13
	ANDL $(const_lanePlaces-1), R8
	MOVBLZX lane_next(DI)(R8*1), R11
	MOVBLZX lane_previous(DI)(R8*1), R9
	MOVBLZX lane_next(DI)(R11*1), R12
	MOVL R13, lane_symbols(DI)(R8*4)
	MOVB R12, lane_next(DI)(R8*1)
	MOVB R8, lane_previous(DI)(R12*1)
	MOVL $const_noPair, lane_pairs(DI)(R11*4)

	// The keys of the pairs that it makes with its neighbours.
	MOVL lane_symbols(DI)(R9*4), R15
	MOVL lane_symbols(DI)(R12*4), R12
	SHLQ $const_idBits, R15
	ORQ R13, R15
	SHLQ $const_idBits, R13
	ORQ R12, R13
	MOVQ merges_likelyShift(SI), CX
	MOVQ $const_pairFactor, R10
	WANT(R15, R9, 0)
	WANT(R13, R8, wantedPair__size)
	MOVB $1, ret+16(FP)
	RET

none:
	MOVB $0, ret+16(FP)
	RET

wide:
	VPMINUD (lane_pairs+128)(DI), Y0, Y0
	VPMINUD (lane_pairs+160)(DI), Y0, Y0
	VPMINUD (lane_pairs+192)(DI), Y0, Y0
	VPMINUD (lane_pairs+224)(DI), Y0, Y0
	JMP narrow

// func settleAVX2(l *lane, m *merges)
TEXT ·settleAVX2(SB), NOSPLIT, $0-16
	MOVQ l+0(FP), DI
	MOVQ m+8(FP), SI
	SETTLE(0, before)
	SETTLE(wantedPair__size, behind)
	VZEROUPPER
	RET
