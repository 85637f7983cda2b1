#include "textflag.h"

// func One(address unsafe.Pointer)
TEXT ·One(SB), NOSPLIT, $0-8
	MOVD address+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func Both(one, other unsafe.Pointer)
TEXT ·Both(SB), NOSPLIT, $0-16
	MOVD one+0(FP), R0
	MOVD other+8(FP), R1
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	RET
