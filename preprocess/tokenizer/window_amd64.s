#include "textflag.h"
#include "go_asm.h"

// Classes of ASCII characters by the two halves of their codes. Each bit stands for a rectangle of low and high halves:
//
//	7  A to O, a to o
//	6  P to Z, p to z
//	5  digits
//	4  the space
//	3  \t \v \f
//	2  \n \r
//	1  the apostrophe
//	0  all below the space
DATA lowHalves<>+0(SB)/8, $0xE3E1E1E1E1E1E171
DATA lowHalves<>+8(SB)/8, $0x8181858989C5E9E1
DATA lowHalves<>+16(SB)/8, $0xE3E1E1E1E1E1E171
DATA lowHalves<>+24(SB)/8, $0x8181858989C5E9E1
DATA lowHalves<>+32(SB)/8, $0xE3E1E1E1E1E1E171
DATA lowHalves<>+40(SB)/8, $0x8181858989C5E9E1
DATA lowHalves<>+48(SB)/8, $0xE3E1E1E1E1E1E171
DATA lowHalves<>+56(SB)/8, $0x8181858989C5E9E1
GLOBL lowHalves<>(SB), RODATA|NOPTR, $64

DATA highHalves<>+0(SB)/8, $0x408040802012010D
DATA highHalves<>+8(SB)/8, $0x0000000000000000
DATA highHalves<>+16(SB)/8, $0x408040802012010D
DATA highHalves<>+24(SB)/8, $0x0000000000000000
DATA highHalves<>+32(SB)/8, $0x408040802012010D
DATA highHalves<>+40(SB)/8, $0x0000000000000000
DATA highHalves<>+48(SB)/8, $0x408040802012010D
DATA highHalves<>+56(SB)/8, $0x0000000000000000
GLOBL highHalves<>(SB), RODATA|NOPTR, $64

DATA halfMask<>+0(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+8(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+16(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+24(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+32(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+40(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+48(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+56(SB)/8, $0x0F0F0F0F0F0F0F0F
GLOBL halfMask<>(SB), RODATA|NOPTR, $64

DATA deletes<>+0(SB)/8, $0x7F7F7F7F7F7F7F7F
DATA deletes<>+8(SB)/8, $0x7F7F7F7F7F7F7F7F
DATA deletes<>+16(SB)/8, $0x7F7F7F7F7F7F7F7F
DATA deletes<>+24(SB)/8, $0x7F7F7F7F7F7F7F7F
DATA deletes<>+32(SB)/8, $0x7F7F7F7F7F7F7F7F
DATA deletes<>+40(SB)/8, $0x7F7F7F7F7F7F7F7F
DATA deletes<>+48(SB)/8, $0x7F7F7F7F7F7F7F7F
DATA deletes<>+56(SB)/8, $0x7F7F7F7F7F7F7F7F
GLOBL deletes<>(SB), RODATA|NOPTR, $64

// TOPBITS writes to AX the highest bit of each byte.
#define TOPBITS(low, high) \
	VPMOVMSKB low, AX      \
	VPMOVMSKB high, BX     \
	SHLQ $32, BX           \
	ORQ BX, AX

// GATHER writes to AX the bit of each byte's class that is shifted to the top.
#define GATHER(shift) \
	VPSLLW shift, Y5, Y8   \
	VPSLLW shift, Y6, Y9   \
	TOPBITS(Y8, Y9)

// CLASSES writes to classes those of the bytes in text.
#define CLASSES(text, classes) \
	VPAND Y2, text, Y8         \
	VPSRLW $4, text, Y9        \
	VPAND Y2, Y9, Y9           \
	VPSHUFB Y8, Y3, Y8         \
	VPSHUFB Y9, Y4, Y9         \
	VPAND Y8, Y9, classes

// func classifyAVX2(w *window, b *[windowSize]byte)
TEXT ·classifyAVX2(SB), NOSPLIT, $0-16
	MOVQ w+0(FP), DI
	MOVQ b+8(FP), SI
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU halfMask<>(SB), Y2
	VMOVDQU lowHalves<>(SB), Y3
	VMOVDQU highHalves<>(SB), Y4
	CLASSES(Y0, Y5)
	CLASSES(Y1, Y6)

	// Letters; capitals are those without the bit 0x20.
	VPSLLW $1, Y5, Y8
	VPSLLW $1, Y6, Y9
	VPOR Y5, Y8, Y8
	VPOR Y6, Y9, Y9
	TOPBITS(Y8, Y9)
	MOVQ AX, 0(DI)
	VPSLLW $2, Y0, Y8
	VPSLLW $2, Y1, Y9
	VPMOVMSKB Y8, CX
	VPMOVMSKB Y9, BX
	SHLQ $32, BX
	ORQ BX, CX
	NOTQ CX
	ANDQ AX, CX
	MOVQ CX, 8(DI)

	GATHER($2)
	MOVQ AX, 16(DI)  // digits
	GATHER($3)
	MOVQ AX, 24(DI)  // spaces
	MOVQ AX, CX
	GATHER($4)
	MOVQ AX, DX
	ORQ AX, CX
	MOVQ CX, 32(DI)  // blanks
	GATHER($5)
	MOVQ AX, 40(DI)  // line ends
	ORQ AX, DX
	GATHER($6)
	MOVQ AX, 48(DI)  // apostrophes

	// Control characters, the last of ASCII among them, that are no white space.
	GATHER($7)
	NOTQ DX
	ANDQ AX, DX
	VMOVDQU deletes<>(SB), Y7
	VPCMPEQB Y0, Y7, Y8
	VPCMPEQB Y1, Y7, Y9
	TOPBITS(Y8, Y9)
	ORQ AX, DX
	MOVQ DX, 56(DI)

	// Bytes beyond ASCII.
	TOPBITS(Y0, Y1)
	MOVQ AX, 64(DI)

	// Those that have the next bit, too, begin characters.
	VPSLLW $1, Y0, Y0
	VPSLLW $1, Y1, Y1
	TOPBITS(Y0, Y1)
	MOVQ AX, 72(DI)
	VZEROUPPER
	RET

// BITS writes to to which bytes of from have the bit that is shifted to the top.
#define BITS(shift, from, to) \
	VPSLLW shift, from, Z6  \
	VPMOVB2M Z6, to

// func classifyAVX512(w *window, b *[windowSize]byte)
TEXT ·classifyAVX512(SB), NOSPLIT, $0-16
	MOVQ w+0(FP), DI
	MOVQ b+8(FP), SI
	VMOVDQU64 (SI), Z0
	VMOVDQU64 halfMask<>(SB), Z1
	VMOVDQU64 lowHalves<>(SB), Z2
	VMOVDQU64 highHalves<>(SB), Z3
	VPCMPEQB deletes<>(SB), Z0, K7
	VPMOVB2M Z0, K6
	VPANDQ Z1, Z0, Z4
	VPSRLW $4, Z0, Z5
	VPANDQ Z1, Z5, Z5
	VPSHUFB Z4, Z2, Z4
	VPSHUFB Z5, Z3, Z5
	VPANDQ Z4, Z5, Z5
	KMOVQ K6, window_wide(DI)
	BITS($1, Z0, K1)
	KMOVQ K1, window_leads(DI)

	// Letters; capitals are those without the bit 0x20.
	VPMOVB2M Z5, K1
	BITS($1, Z5, K2)
	BITS($2, Z0, K3)
	KORQ K1, K2, K1
	KANDNQ K1, K3, K3
	KMOVQ K1, window_letter(DI)
	KMOVQ K3, window_upper(DI)

	BITS($2, Z5, K1)
	KMOVQ K1, window_digit(DI)
	BITS($3, Z5, K1)
	BITS($4, Z5, K2)
	BITS($5, Z5, K3)
	KMOVQ K1, window_space(DI)
	KORQ K1, K2, K1
	KMOVQ K1, window_blank(DI)
	KMOVQ K3, window_newline(DI)
	BITS($6, Z5, K1)
	KMOVQ K1, window_quote(DI)

	// Control characters, the last of ASCII among them, that are no white space.
	BITS($7, Z5, K1)
	KORQ K2, K3, K2
	KANDNQ K1, K2, K1
	KORQ K1, K7, K1
	KMOVQ K1, window_control(DI)
	VZEROUPPER
	RET

// PLANE writes which bytes have their highest bit, and shifts all up by one for the next one.
#define PLANE(offset) \
	VPADDB Y0, Y0, Y0    \
	VPADDB Y1, Y1, Y1    \
	TOPBITS(Y0, Y1)      \
	MOVQ AX, offset(DI)

// func gatherAVX2(c *wideClasses, kinds *[windowSize]wideClass)
TEXT ·gatherAVX2(SB), NOSPLIT, $0-16
	MOVQ c+0(FP), DI
	MOVQ kinds+8(FP), SI
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	PLANE(0)
	PLANE(8)
	PLANE(16)
	PLANE(24)
	PLANE(32)
	PLANE(40)
	PLANE(48)
	VZEROUPPER
	RET

// func equalAVX2(b *[windowSize]byte, c byte) uint64
TEXT ·equalAVX2(SB), NOSPLIT, $0-24
	MOVQ b+0(FP), SI
	VPBROADCASTB c+8(FP), Y2
	VPCMPEQB (SI), Y2, Y0
	VPCMPEQB 32(SI), Y2, Y1
	TOPBITS(Y0, Y1)
	MOVQ AX, ret+16(FP)
	VZEROUPPER
	RET

// func leadsAVX2(b *[windowSize]byte) uint64
TEXT ·leadsAVX2(SB), NOSPLIT, $0-16
	MOVQ b+0(FP), SI
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VPADDB Y0, Y0, Y2
	VPADDB Y1, Y1, Y3
	VPAND Y0, Y2, Y0
	VPAND Y1, Y3, Y1
	TOPBITS(Y0, Y1)
	MOVQ AX, ret+8(FP)
	VZEROUPPER
	RET

// func listPlacesVBMI2(room *int32, base int32, places uint64) int
TEXT ·listPlacesVBMI2(SB), NOSPLIT, $0-32
	MOVQ room+0(FP), DI
	MOVL base+8(FP), BX
	MOVQ places+16(FP), AX
	KMOVQ AX, K1
	VMOVDQU8 ·upTo64(SB), Z0
	VPCOMPRESSB.Z Z0, K1, Z1
	VPBROADCASTD BX, Z3
	POPCNTQ AX, CX
	VPMOVZXBD X1, Z2
	VPADDD Z3, Z2, Z2
	VMOVDQU32 Z2, (DI)
	CMPQ CX, $16
	JLE listed
	VEXTRACTI32X4 $1, Z1, X4
	VPMOVZXBD X4, Z2
	VPADDD Z3, Z2, Z2
	VMOVDQU32 Z2, 64(DI)
	CMPQ CX, $32
	JLE listed
	VEXTRACTI32X4 $2, Z1, X4
	VPMOVZXBD X4, Z2
	VPADDD Z3, Z2, Z2
	VMOVDQU32 Z2, 128(DI)
	VEXTRACTI32X4 $3, Z1, X4
	VPMOVZXBD X4, Z2
	VPADDD Z3, Z2, Z2
	VMOVDQU32 Z2, 192(DI)
listed:
	VZEROUPPER
	MOVQ CX, ret+24(FP)
	RET
