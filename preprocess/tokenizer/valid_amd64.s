#include "textflag.h"

// What can be wrong with two bytes in a row, by the halves of the first one and the upper half of the second. An error is a bit that all
// three have:
//
//	0  a first byte of several, and then none that goes on
//	1  a byte of ASCII, and then one that goes on
//	2  three bytes where two would do
//	3  a character above U+10FFFF
//	4  a surrogate
//	5  two bytes where one would do
//	6  a character above U+10FFFF, or four bytes where three would do
//	7  two that go on, which is no error where a third or a fourth byte has to be
//
// That is the method of Keiser and Lemire, "Validating UTF-8 In Less Than One Instruction Per Byte".
DATA upperFirst<>+0(SB)/8, $0x0202020202020202
DATA upperFirst<>+8(SB)/8, $0x4915012180808080
DATA upperFirst<>+16(SB)/8, $0x0202020202020202
DATA upperFirst<>+24(SB)/8, $0x4915012180808080
GLOBL upperFirst<>(SB), RODATA|NOPTR, $32

DATA lowerFirst<>+0(SB)/8, $0xCBCBCB8B8383A3E7
DATA lowerFirst<>+8(SB)/8, $0xCBCBDBCBCBCBCBCB
DATA lowerFirst<>+16(SB)/8, $0xCBCBCB8B8383A3E7
DATA lowerFirst<>+24(SB)/8, $0xCBCBDBCBCBCBCBCB
GLOBL lowerFirst<>(SB), RODATA|NOPTR, $32

DATA upperSecond<>+0(SB)/8, $0x0101010101010101
DATA upperSecond<>+8(SB)/8, $0x01010101BABAAEE6
DATA upperSecond<>+16(SB)/8, $0x0101010101010101
DATA upperSecond<>+24(SB)/8, $0x01010101BABAAEE6
GLOBL upperSecond<>(SB), RODATA|NOPTR, $32

DATA lowerHalves<>+0(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA lowerHalves<>+8(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA lowerHalves<>+16(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA lowerHalves<>+24(SB)/8, $0x0F0F0F0F0F0F0F0F
GLOBL lowerHalves<>(SB), RODATA|NOPTR, $32

DATA thirdBytes<>+0(SB)/8, $0x6060606060606060
DATA thirdBytes<>+8(SB)/8, $0x6060606060606060
DATA thirdBytes<>+16(SB)/8, $0x6060606060606060
DATA thirdBytes<>+24(SB)/8, $0x6060606060606060
GLOBL thirdBytes<>(SB), RODATA|NOPTR, $32

DATA fourthBytes<>+0(SB)/8, $0x7070707070707070
DATA fourthBytes<>+8(SB)/8, $0x7070707070707070
DATA fourthBytes<>+16(SB)/8, $0x7070707070707070
DATA fourthBytes<>+24(SB)/8, $0x7070707070707070
GLOBL fourthBytes<>(SB), RODATA|NOPTR, $32

DATA topBits<>+0(SB)/8, $0x8080808080808080
DATA topBits<>+8(SB)/8, $0x8080808080808080
DATA topBits<>+16(SB)/8, $0x8080808080808080
DATA topBits<>+24(SB)/8, $0x8080808080808080
GLOBL topBits<>(SB), RODATA|NOPTR, $32

// func validAVX2(text *byte, n int) bool
TEXT ·validAVX2(SB), NOSPLIT, $0-17
	MOVQ text+0(FP), SI
	MOVQ n+8(FP), CX
	ADDQ SI, CX
	VMOVDQU upperFirst<>(SB), Y10
	VMOVDQU lowerFirst<>(SB), Y11
	VMOVDQU upperSecond<>(SB), Y12
	VMOVDQU lowerHalves<>(SB), Y13
	VMOVDQU thirdBytes<>(SB), Y14
	VMOVDQU fourthBytes<>(SB), Y15
	VMOVDQU topBits<>(SB), Y9
	VPXOR Y8, Y8, Y8 // errors

bytes:
	CMPQ SI, CX
	JGE done
	VMOVDQU (SI), Y0
	VMOVDQU -3(SI), Y3
	VPOR Y0, Y3, Y4
	VPMOVMSKB Y4, AX
	ADDQ $32, SI
	TESTL AX, AX
	JEQ bytes // ASCII, which no character reaches into

	VMOVDQU -33(SI), Y1
	VMOVDQU -34(SI), Y2
	VPSRLW $4, Y1, Y4
	VPAND Y13, Y4, Y4
	VPSHUFB Y4, Y10, Y4
	VPAND Y13, Y1, Y5
	VPSHUFB Y5, Y11, Y5
	VPSRLW $4, Y0, Y6
	VPAND Y13, Y6, Y6
	VPSHUFB Y6, Y12, Y6
	VPAND Y4, Y5, Y4
	VPAND Y4, Y6, Y4

	// Third bytes have a byte from 0xE0 on two before them, fourth bytes one from 0xF0 on three before.
	VPSUBUSB Y14, Y2, Y2
	VPSUBUSB Y15, Y3, Y3
	VPOR Y2, Y3, Y2
	VPAND Y9, Y2, Y2
	VPXOR Y2, Y4, Y4
	VPOR Y4, Y8, Y8
	JMP bytes

done:
	VPTEST Y8, Y8
	SETEQ ret+16(FP)
	VZEROUPPER
	RET
