#include "textflag.h"

// func Both(one, other unsafe.Pointer)
TEXT ·Both(SB), NOSPLIT, $0-16
	MOVQ one+0(FP), AX
	MOVQ other+8(FP), CX
	PREFETCHT0 (AX)
	PREFETCHT0 (CX)
	RET
