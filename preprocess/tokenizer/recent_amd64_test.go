package tokenizer

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/golden"
)

// TestOlderProcessorsEncodeAlike goes the ways of processors without AVX-512, and without AVX2, too, and holds them against what this one takes.
func TestOlderProcessorsEncodeAlike(t *testing.T) {
	vaes, vbmi2, avx2, bmi2 := hasVAES, hasVBMI2, hasAVX2, hasBMI2
	defer func() { hasVAES, hasVBMI2, hasAVX2, hasBMI2 = vaes, vbmi2, avx2, bmi2 }()
	for _, name := range []string{"qwen3", "gemma3"} {
		hasVAES, hasVBMI2, hasAVX2, hasBMI2 = vaes, vbmi2, avx2, bmi2
		newer := load(t, name)
		hasVAES, hasVBMI2 = false, false
		for range 2 {
			older, err := Load(filepath.Join(golden.Models(t), "tok", name, "tokenizer.json"))
			if err != nil {
				t.Fatal(err)
			}
			piecesAreFoundAlike(t, older.words)
			rapid.Check(t, func(t *rapid.T) {
				s := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(awkward), tricky, rapid.StringN(0, 40, -1)), 0, 30).Draw(t, "parts"), "")
				was := [...]bool{hasAVX2, hasBMI2}
				got := older.Encode(nil, s, false)
				hasVAES, hasVBMI2, hasAVX2, hasBMI2 = vaes, vbmi2, avx2, bmi2
				want := newer.Encode(nil, s, false)
				hasVAES, hasVBMI2, hasAVX2, hasBMI2 = false, false, was[0], was[1]
				if !slices.Equal(got, want) {
					t.Fatalf("%s: %q: %v, want %v", name, s, got, want)
				}
			})
			hasAVX2, hasBMI2 = false, false
		}
	}
}
