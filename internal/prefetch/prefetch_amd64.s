#include "textflag.h"

// func One(address unsafe.Pointer)
TEXT ·One(SB), NOSPLIT, $0-8
	MOVQ address+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func Both(one, other unsafe.Pointer)
TEXT ·Both(SB), NOSPLIT, $0-16
	MOVQ one+0(FP), AX
	MOVQ other+8(FP), CX
	PREFETCHT0 (AX)
	PREFETCHT0 (CX)
	RET
