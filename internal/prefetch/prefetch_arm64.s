#include "textflag.h"

// func Both(one, other unsafe.Pointer)
TEXT ·Both(SB), NOSPLIT, $0-16
	MOVD one+0(FP), R0
	MOVD other+8(FP), R1
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	RET
