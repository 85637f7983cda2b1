#include "textflag.h"

// func prefetch(address unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVD address+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func prefetchBoth(one, other unsafe.Pointer)
TEXT ·prefetchBoth(SB), NOSPLIT, $0-16
	MOVD one+0(FP), R0
	MOVD other+8(FP), R1
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	RET
