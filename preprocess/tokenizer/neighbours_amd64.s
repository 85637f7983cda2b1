#include "textflag.h"
#include "go_asm.h"
#include "windows_amd64.h"

// EDGES adds the places where runs of bits begin and end to R15, and those inside them to BX.
#define EDGES(of) \
	LEAQ (of)(of*1), AX \
	MOVQ of, DX         \
	ANDQ AX, DX         \
	ORQ DX, BX          \
	XORQ of, AX         \
	ORQ AX, R15

// INSIDE adds the places inside runs of bits to BX.
#define INSIDE(of) \
	LEAQ (of)(of*1), AX \
	ANDQ of, AX         \
	ORQ AX, BX

// PAIRS looks 16 pairs of characters up and writes to cut which of them are cut.
#define PAIRS(left, right, cut) \
	VPMOVZXBD right, Z7             \
	VPMOVZXBD left, Z8              \
	VPMINUD Z22, Z7, Z7             \
	VPMINUD Z22, Z8, Z8             \
	VPSLLD $3, Z8, Z8               \
	VPSRLD $5, Z7, Z9               \
	VPADDD Z9, Z8, Z8               \
	VPXORD Z10, Z10, Z10            \
	KXNORW K7, K7, K7               \
	VPGATHERDD nearTable_cut(R8)(Z8*4), K7, Z10 \
	VPANDD Z23, Z7, Z7              \
	VPSRLVD Z7, Z10, Z10            \
	VPTESTMD Z24, Z10, K3           \
	KMOVW K3, cut

// func cutNear(near *nearTable, text *byte, from, last int, ends *int32, n int) (next, written int)
TEXT ·cutNear(SB), NOSPLIT, $8-64
	MOVQ near+0(FP), R8
	MOVQ text+8(FP), SI
	ADDQ from+16(FP), SI
	MOVQ ends+32(FP), DI
	VMOVDQU64 ·upTo64(SB), Z15
	EACH($0x20, Z16)
	EACH($0x61, Z17)
	EACH($26, Z18)
	VPBROADCASTB nearTable_first(R8), Z20
	VPBROADCASTB nearTable_second(R8), Z21
	MOVL $0x80, AX // all characters beyond ASCII
	VPBROADCASTD AX, Z22
	MOVL $31, AX
	VPBROADCASTD AX, Z23
	MOVL $1, AX
	VPBROADCASTD AX, Z24
	EACH($0xE2, Z25) // of a mark for a space the first two bytes
	EACH($0x96, Z26)

window:
	// Letters in R9, spaces in R10, the characters of which runs are pieces in R11 and R12, what is beyond ASCII in R13.
	VMOVDQU64 (SI), Z0
	VPORD Z16, Z0, Z4
	VPSUBB Z17, Z4, Z4
	VPCMPUB $1, Z18, Z4, K1
	VPCMPEQB Z16, Z0, K2
	VPCMPEQB Z20, Z0, K3
	VPCMPEQB Z21, Z0, K4
	VPMOVB2M Z0, K5
	MOVQ SI, BX
	SUBQ text+8(FP), BX
	VPBROADCASTD BX, Z14
	KMOVQ K1, R9
	KMOVQ K2, R10
	KMOVQ K3, R11
	KMOVQ K4, R12
	KMOVQ K5, R13
	TESTQ R13, R13
	JEQ ascii
	VPCMPEQB Z25, Z0, K6
	VPCMPEQB Z26, Z0, K7
	KMOVQ K6, AX
	KMOVQ K7, DX
	SHRQ $1, DX
	BTSQ $63, DX // which the window ends in
	TESTQ DX, AX
	JNE done     // a mark, maybe
ascii:
	POPCNTQ R11, AX
	POPCNTQ R12, DX
	CMPQ AX, nearTable_firstLongest(R8)
	JGT done
	CMPQ DX, nearTable_secondLongest(R8)
	JGT done

	// R15 becomes where pieces begin, as far as that does not depend on the very characters, and BX where none does.
	MOVQ $1, BX
	LEAQ (R9)(R9*1), R15
	ANDQ R10, R15
	ANDQ nearTable_letterSpace(R8), R15
	EDGES(R11)
	EDGES(R12)
	ADDQ R10, R10
	ANDQ R9, R10
	ANDQ nearTable_spaceLetter(R8), R10
	ORQ R10, BX
	INSIDE(R9)
	INSIDE(R13)

	// The next window begins at the last of these places, if there is one: that is known soon, and so is the next window. CX becomes all other places.
	MOVQ R15, CX
	ORQ BX, CX
	NOTQ CX
	MOVQ $0, next-8(SP)
	BTRQ $0, R15
	TESTQ R15, R15
	JEQ search
	LZCNTQ R15, AX
	XORQ $63, AX
	MOVQ AX, next-8(SP)
	ADDQ AX, SI
	INCQ AX
	BZHIQ AX, CX, CX
search:
	POPCNTQ CX, R14
	CMPQ R14, $32
	JHI undo
	KMOVQ CX, K1
	VPCOMPRESSB.Z Z0, K1, Z5
	MOVQ CX, AX
	SHRQ $1, AX
	KMOVQ AX, K2
	VPCOMPRESSB.Z Z0, K2, Z6
	PAIRS(X6, X5, AX)
	CMPQ R14, $16
	JHI more
looked:
	PDEPQ CX, AX, AX
	ORQ AX, R15
	CMPQ next-8(SP), $0
	JEQ elsewhere
list:
	LIST(many)
listed:
	LEAQ (DI)(CX*4), DI
	MOVQ DI, AX
	SUBQ ends+32(FP), AX
	SHRQ $2, AX
	CMPQ AX, n+40(FP)
	JGE done
	MOVQ SI, AX
	SUBQ text+8(FP), AX
	CMPQ AX, last+24(FP)
	JLE window
done:
	VZEROUPPER
	SUBQ text+8(FP), SI
	MOVQ SI, next+48(FP)
	SUBQ ends+32(FP), DI
	SHRQ $2, DI
	MOVQ DI, written+56(FP)
	RET

undo:
	SUBQ next-8(SP), SI
	JMP done
more:
	VEXTRACTI32X4 $1, Z5, X5
	VEXTRACTI32X4 $1, Z6, X6
	PAIRS(X6, X5, BX)
	SHLQ $16, BX
	ORQ BX, AX
	JMP looked
elsewhere:
	// The next window begins at the last place.
	TESTQ R15, R15
	JEQ done
	LZCNTQ R15, AX
	XORQ $63, AX
	ADDQ AX, SI
	JMP list
many:
	LISTMORE
	JMP listed
