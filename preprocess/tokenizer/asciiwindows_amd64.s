#include "textflag.h"
#include "go_asm.h"
#include "windows_amd64.h"

// Classes of ASCII characters by the two halves of their codes. Each bit stands for a rectangle of low and high halves:
//
//	7  A to O, a to o
//	6  P to Z, p to z
//	5  digits
//	4  the space
//	3  \t \v \f
//	2  \n \r
//	1  the last of ASCII
//	0  all below the space
//
// Signs, the apostrophe among them, have none.
DATA asciiLow<>+0(SB)/8, $0xE1E1E1E1E1E1E171
DATA asciiLow<>+8(SB)/8, $0x8381858989C5E9E1
GLOBL asciiLow<>(SB), RODATA|NOPTR, $16

DATA asciiHigh<>+0(SB)/8, $0x428040802010010D
DATA asciiHigh<>+8(SB)/8, $0x0000000000000000
GLOBL asciiHigh<>(SB), RODATA|NOPTR, $16

// FIRSTS writes the first bits of runs of bits to to.
#define FIRSTS(of, to) \
	LEAQ (of)(of*1), to \
	ANDNQ of, to, to

// BEHIND writes the places right behind those runs of bits that have one of in to to, which may be in.
#define BEHIND(of, in, to) \
	LEAQ (of)(in*1), to     \
	ANDNQ to, of, to

// func cutASCII(rules *asciiRules, text *byte, from, last int, ends *int32, n int) (next, written int)
TEXT ·cutASCII(SB), NOSPLIT, $8-64
	MOVQ rules+0(FP), R8
	MOVQ text+8(FP), SI
	ADDQ from+16(FP), SI
	MOVQ ends+32(FP), DI
	EACH($0x0F, Z1)
	VBROADCASTI32X4 asciiLow<>(SB), Z2
	VBROADCASTI32X4 asciiHigh<>(SB), Z3
	VMOVDQU64 ·upTo64(SB), Z15
	EACH($0xC0, Z16)
	EACH($0x20, Z17)
	EACH($0x18, Z18)
	EACH($0x04, Z19)
	EACH($0x0C, Z20)
	EACH($0x03, Z21)
	EACH($0x10, Z22)
	EACH($0x27, Z23) // the apostrophe
	EACH($0x2F, Z24) // the slash

window:
	// The classes: letters in R9, digits in R10, blanks in R11, line ends in R12, what is not for windows to tell in R13, signs in R14 and spaces in DX.
	VMOVDQU64 (SI), Z0
	VPMOVB2M Z0, K1
	VPANDQ Z1, Z0, Z4
	VPSRLW $4, Z0, Z5
	VPANDQ Z1, Z5, Z5
	VPSHUFB Z4, Z2, Z4
	VPSHUFB Z5, Z3, Z5
	VPANDQ Z4, Z5, Z5
	KORTESTQ K1, K1
	JNE done
	MOVQ SI, BX
	SUBQ text+8(FP), BX
	VPBROADCASTD BX, Z14
	VPTESTMB Z16, Z5, K1
	VPTESTMB Z17, Z5, K2
	VPTESTMB Z18, Z5, K3
	VPTESTMB Z19, Z5, K4
	VPTESTNMB Z20, Z5, K5
	VPTESTMB Z21, Z5, K5, K5
	VPTESTNMB Z5, Z5, K6
	VPTESTMB Z22, Z5, K7
	KMOVQ K1, R9
	KMOVQ K2, R10
	KMOVQ K3, R11
	KMOVQ K4, R12
	KMOVQ K5, R13
	KMOVQ K6, R14
	KMOVQ K7, DX

	// The next window begins where the last letters end that something follows, if a piece does: that is known soon, and so is the next window.
	LEAQ (R9)(R9*1), AX
	ANDNQ AX, R9, AX
	BTRQ $63, AX
	ORQ $1, AX
	LZCNTQ AX, AX
	XORQ $63, AX
	MOVQ AX, next-8(SP)
	ADDQ AX, SI

	// CX becomes the line ends that belong to signs, and the slashes behind these, which then are no signs.
	VPCMPEQB Z24, Z0, K2
	KMOVQ K2, AX
	ANDQ asciiRules_slashes(R8), AX
	ORQ R12, AX
	FIRSTS(R14, CX)
	BEHIND(R14, CX, CX)
	ANDQ R12, CX
	LEAQ (AX)(CX*1), BX
	ANDNQ AX, BX, BX
	ORQ BX, CX
	ANDNQ R14, CX, R14

	// R15 becomes where pieces begin. First signs, unless there is a space before them.
	FIRSTS(R14, AX)
	ADDQ DX, DX
	ANDQ AX, DX
	ANDNQ AX, DX, R15

	// Letters, unless there is a blank before them, or one sign that has no space before it.
	BEHIND(R14, AX, BX)
	BEHIND(R14, DX, DX)
	ANDNQ BX, DX, BX
	ANDNQ R14, AX, AX
	BEHIND(R14, AX, AX)
	ANDNQ BX, AX, BX
	FIRSTS(R9, AX)
	LEAQ (R11)(R11*1), DX
	ANDNQ AX, DX, AX
	ANDNQ AX, BX, AX
	ORQ AX, R15

	// Capitals.
	VPTESTNMB Z17, Z0, K1, K1
	KMOVQ K1, AX
	ANDNQ R9, AX, DX
	ADDQ DX, DX
	ANDQ DX, AX
	ANDQ asciiRules_capitals(R8), AX
	ORQ AX, R15

	// Digits: at the first one and at each third, or at all of them.
	MOVQ R10, BX
	ADDQ R10, BX
	ANDNQ R10, BX, AX
	ORQ AX, R15
	ANDQ R10, BX
	JEQ numbered // no two in a row
	CMPQ asciiRules_threes(R8), $0
	JEQ eachDigit
	LEAQ (R10*4), DX
	ANDQ DX, BX
	ADDQ DX, DX
	ANDQ DX, BX // those that have three before them
third:
	SHLQ $3, AX
	ANDQ BX, AX
	ORQ AX, R15
	TESTQ AX, AX
	JNE third
numbered:

	// White space, which begins anew behind line ends and at its last blank.
	MOVQ R11, AX
	ORQ R12, AX
	ANDNQ AX, CX, BX
	FIRSTS(BX, DX)
	ORQ DX, R15
	LEAQ (R12)(R12*1), BX
	ANDQ R11, BX
	ORQ BX, R15
	SHRQ $1, AX
	ANDNQ R11, AX, AX
	MOVQ R10, DX
	ANDQ asciiRules_kept(R8), DX
	SHRQ $1, DX
	ANDNQ AX, DX, AX
	ORQ AX, R15
	BEHIND(R11, BX, AX)
	TESTQ AX, R12
	JNE undo // white space between line ends is one piece

	// What may be contractions.
	VPCMPEQB Z23, Z0, K1
	KMOVQ K1, AX
	ANDQ asciiRules_quotes(R8), AX
	MOVQ R9, BX
	SHRQ $1, BX
	ANDQ AX, BX
	LEAQ (R9)(R9*1), DX
	ORQ asciiRules_unled(R8), DX
	ANDQ DX, BX
	TESTQ R15, BX
	JNE undo
	ANDQ asciiRules_open(R8), AX
	ORQ AX, R13

	// What depends on nothing that comes: all before what is not to be told, less blanks that lead up to it.
	LEAQ -1(R13), AX
	ANDNQ AX, R13, AX
	ANDNQ AX, R11, AX
	JEQ undo
	LZCNTQ AX, AX
	MOVQ $-2, DX
	MOVQ $-1, BX
	SHRXQ AX, BX, BX
	ANDQ DX, R15
	ANDQ BX, R15
	MOVQ next-8(SP), AX
	BTQ AX, R15
	JCC elsewhere
	INCQ AX
	BZHIQ AX, R15, R15

	// The list of places.
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
elsewhere:
	// The next window begins at the last place.
	SUBQ AX, SI
	TESTQ R15, R15
	JEQ done
	LZCNTQ R15, AX
	XORQ $63, AX
	ADDQ AX, SI
	JMP list
eachDigit:
	ORQ R10, R15
	JMP numbered
many:
	LISTMORE
	JMP listed
