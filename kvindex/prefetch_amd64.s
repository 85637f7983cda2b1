#include "textflag.h"

// func prefetch(address unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ address+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func prefetchBoth(one, other unsafe.Pointer)
TEXT ·prefetchBoth(SB), NOSPLIT, $0-16
	MOVQ one+0(FP), AX
	MOVQ other+8(FP), CX
	PREFETCHT0 (AX)
	PREFETCHT0 (CX)
	RET
