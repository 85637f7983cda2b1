// What routines that cut windows have in common.

// EACH fills a register with a byte.
#define EACH(value, to) \
	MOVL value, AX       \
	VPBROADCASTB AX, to

// NUMBERS writes 16 of the numbers below 64 that are listed to DI, with the base in Z14 added.
#define NUMBERS(numbers, offset) \
	VPMOVZXBD numbers, Z5          \
	VPADDD Z14, Z5, Z5             \
	VMOVDQU32 Z5, offset(DI)

// LIST writes the places in R15 to DI, with the base in Z14 added, given the numbers below 64 in Z15. CX becomes how many they are. It goes on at many
// if these are more than 32.
#define LIST(many) \
	KMOVQ R15, K1               \
	VPCOMPRESSB.Z Z15, K1, Z4   \
	NUMBERS(X4, 0)              \
	VEXTRACTI32X4 $1, Z4, X5    \
	NUMBERS(X5, 64)             \
	POPCNTQ R15, CX             \
	CMPQ CX, $32                \
	JHI many

// LISTMORE writes what more than 32 places there are.
#define LISTMORE \
	VEXTRACTI32X4 $2, Z4, X5    \
	NUMBERS(X5, 128)            \
	VEXTRACTI32X4 $3, Z4, X5    \
	NUMBERS(X5, 192)
